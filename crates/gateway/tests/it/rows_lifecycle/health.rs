//! Rows 1.15, 2.11 and 2.12: quiet servers are asked whether they are there.

use gantry_testkit::wait::eventually;
use gantry_testkit::{Era, Evilpeer};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::echoes;
use crate::harness::{Gantry, LONG};

/// Asked often, with so much time to answer that a busy machine is not taken for a silent server.
fn asked_often(more: &Value) -> Value {
    let mut members = json!({"life": {
        "health_every": "200ms",
        "health_timeout": "2s",
        "restart": {"at_once": 1, "window": "2m", "ladder": ["300ms", "600ms", "20s"], "reset_after": "10m"},
    }});
    for (key, value) in more.as_object().unwrap() {
        members["life"][key] = value.clone();
    }
    members
}

// row 1.15, row 2.11
#[test]
fn a_kept_server_that_does_not_answer_is_marked_warned_of_and_not_restarted() {
    let peer = Evilpeer::new()
        .era(Era::Legacy)
        .fault("unresponsive-ping")
        .fault_after(1);
    let members = asked_often(&json!({"when_unresponsive": "keep"}));
    let gantry = Gantry::builder().server_with("a", &peer, &members).start();
    let first = gantry.wait_state("a", "ready", LONG);
    echoes(&gantry, "a");
    let status = gantry.wait_state("a", "unresponsive", LONG);
    assert_eq!(status["reason"], "did not answer a health check within 2s");
    assert_eq!(
        (&status["pid"], &status["restart_count"]),
        (&first["pid"], &json!(0))
    );
    gantry.events("a", "unresponsive", 1);
    let health = gantry.rest("GET", "/api/v1/health", None).json();
    assert_eq!(health["servers"]["unresponsive"], 1);
    let warnings = health["warnings"].as_array().unwrap().iter();
    let told = |text: &Value| {
        text.as_str()
            .unwrap()
            .starts_with("server `a` is unresponsive")
    };
    assert!(warnings.clone().any(told), "{health:#}");
    // It may be doing long work: calls still reach it.
    echoes(&gantry, "a");
    assert_eq!(gantry.status("a")["pid"], first["pid"]);
}

// row 1.15
#[test]
fn a_stopped_process_recovers_when_it_goes_on() {
    let members = asked_often(&json!({"when_unresponsive": "keep"}));
    let gantry = Gantry::builder()
        .server_with("a", &Evilpeer::new(), &members)
        .start();
    let first = gantry.wait_state("a", "ready", LONG);
    let pid = i32::try_from(first["pid"].as_u64().unwrap())
        .ok()
        .and_then(Pid::from_raw)
        .unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    gantry.wait_state("a", "unresponsive", LONG);
    kill_process(pid, Signal::CONT).unwrap();
    let status = gantry.wait_state("a", "ready", LONG);
    assert_eq!(
        (&status["pid"], &status["restart_count"]),
        (&first["pid"], &json!(0))
    );
    assert_eq!(gantry.events("a", "recovered", 1), ["answers again"]);
    echoes(&gantry, "a");
}

// row 1.15
#[test]
fn hosted_servers_are_kept_and_local_ones_reconnected_unless_told() {
    let gantry = Gantry::start(&["local"]);
    let spec = &gantry.status("local")["spec"];
    assert_eq!(spec["when_unresponsive"], "reconnect");
    assert_eq!(
        (&spec["health_every"], &spec["health_timeout"]),
        (&json!("30s"), &json!("10s"))
    );
    let body = json!({"name": "hosted", "command": "true", "start": "lazy"});
    let hosted = gantry
        .rest("POST", "/api/v1/mcp/servers", Some(&body))
        .json();
    assert_eq!(hosted["spec"]["when_unresponsive"], "keep");
}

// row 2.11, row 2.12
#[test]
fn a_local_server_that_does_not_answer_is_reconnected_ever_more_slowly() {
    let peer = Evilpeer::new().era(Era::Legacy).fault("unresponsive-ping");
    let gantry = Gantry::builder()
        .server_with("a", &peer, &asked_often(&json!({})))
        .start();
    gantry.wait_state("a", "ready", LONG);
    // The last wait is long enough to be seen; of the others the record tells.
    let waits = |status: &Value| status["next_try"]["in_ms"].as_u64() > Some(5000);
    let status = gantry.wait_status("a", 2 * LONG, waits);
    assert_eq!(status["state"], "disconnected");
    let silent = "did not answer a health check within 2s";
    assert_eq!(status["last_crash"]["how"], silent);
    let reason = status["reason"].as_str().unwrap();
    assert!(reason.contains("health check"), "{reason}");
    let whole =
        status["next_try"]["at_ms"].as_u64().unwrap() - status["since_ms"].as_u64().unwrap();
    assert!(whole.abs_diff(20_000) <= 2_000, "20 s ± 10 %: {whole} ms");
    gantry.events("a", "unresponsive", 4);
    let wanted = [
        "restarting at once",
        "backing off 300ms: 2 failures within 120s",
        "backing off 600ms: 3 failures within 120s",
        "backing off 20s: 4 failures within 120s",
    ];
    let told = gantry.events("a", "disconnected", wanted.len());
    for (told, wanted) in told.iter().zip(wanted) {
        assert!(
            told.contains(wanted) && told.contains(silent),
            "`{told}` is not `{wanted}`"
        );
    }
    // Its tools have left the listing; a call by name says why.
    let mut list = Value::Null;
    let left = eventually(LONG, || {
        list = gantry.mcp("tools/list", json!({}));
        list["result"]["tools"] == json!([])
    });
    assert!(left.is_some(), "{list:#}");
    let answer = gantry.call("a__echo", json!({"text": "x"}));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("server `a` is down: ") && message.contains("; next try in "),
        "{message}"
    );
}
