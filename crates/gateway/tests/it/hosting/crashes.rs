//! Row 1.9 and what `restart_policy` says, on images and sandboxed commands.

use gantry_testkit::wait::Stopwatch;
use serde_json::{Value, json};

use super::{HOSTED, Rig, SECOND, USERS};

// row 1.9, faults P2 and P11
#[test]
fn an_exit_is_seen_at_once_and_kept_with_code_and_stderr() {
    for user in USERS {
        let rig = Rig::new(user);
        for rung in HOSTED {
            rig.server(rung, rung, &json!({}));
            let begun = Stopwatch::start();
            let answer = rig.call(rung, "crash", json!({"code": 7})).to_string();
            assert!(answer.contains("exit code 7"), "{answer}");
            assert!(begun.elapsed() < 2 * SECOND, "{:?}", begun.elapsed());
            let again = |now: &Value| now["state"] == "ready" && now["restart_count"] == 1;
            let status = rig.gantry.wait_status(rung, 5 * SECOND, again);
            let attempts = status["attempts"].as_array().unwrap();
            let first = &attempts[0];
            assert_eq!(
                (&first["exit_code"], &first["was_ready"]),
                (&json!(7), &json!(true))
            );
            assert!(
                first["stderr"].as_str().unwrap().contains("boom"),
                "{first}"
            );
            assert_eq!(attempts.last().unwrap()["ended_ms"], Value::Null);
        }
    }
}

// row 1.1
#[test]
fn the_restart_policy_decides_which_ends_are_followed_by_a_start() {
    let rig = Rig::new(None);
    let cases = [("on-failure", 0, "stopped"), ("never", 3, "failed")];
    for (policy, code, state) in cases {
        rig.server(policy, "namespaces", &json!({"restart_policy": policy}));
        rig.call(policy, "crash", json!({"code": code}));
        let status = rig.gantry.wait_state(policy, state, 5 * SECOND);
        let reason = status["reason"].as_str().unwrap();
        assert!(reason.contains("restart_policy"), "{reason}");
        let path = format!("/api/v1/mcp/servers/{policy}/restart");
        assert!(rig.gantry.rest("POST", &path, None).status < 300);
        rig.gantry.wait_state(policy, "ready", 10 * SECOND);
    }
    rig.call("on-failure", "crash", json!({"code": 4}));
    let again = |now: &Value| now["state"] == "ready" && now["restart_count"] == 1;
    rig.gantry.wait_status("on-failure", 5 * SECOND, again);
}

// fault P1, row 1.9
#[test]
fn a_server_that_never_came_up_keeps_its_attempts_and_logs() {
    let rig = Rig::new(None);
    let script = json!({"entrypoint": ["/bin/sh", "-c", "echo no such database >&2; exit 5"]});
    rig.register("a", "namespaces", &script);
    let failed = |now: &Value| {
        let attempts = now["attempts"].as_array();
        attempts.is_some_and(|attempts| attempts.iter().any(|one| one["exit_code"] == 5))
    };
    let status = rig.gantry.wait_status("a", 20 * SECOND, failed);
    let attempt = &status["attempts"][0];
    assert_eq!(attempt["was_ready"], false);
    assert!(
        attempt["stderr"]
            .as_str()
            .unwrap()
            .contains("no such database")
    );
    let logs = rig.gantry.cli(&["logs", "a", "--attempt", "1"]);
    let told = String::from_utf8_lossy(&logs.stdout);
    assert!(
        told.contains("exit code 5") && told.contains("no such database"),
        "{told} {}",
        String::from_utf8_lossy(&logs.stderr)
    );
    rig.register("b", "namespaces", &json!({"entrypoint": ["/bin/nothing"]}));
    let failed = |now: &Value| now["state"] == "failed";
    let status = rig.gantry.wait_status("b", 20 * SECOND, failed);
    assert!(
        status["reason"].as_str().unwrap().contains("/bin/nothing"),
        "{status:#}"
    );
}
