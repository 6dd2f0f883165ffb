//! Rows 1.9 and 1.10: a server that ends by itself is started again, at once or on the ladder.

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::{Stopwatch, eventually};
use serde_json::{Value, json};

use super::{SECOND, echoes, register};
use crate::harness::{Gantry, LONG};

// row 1.9
#[test]
fn an_unexpected_exit_is_followed_by_a_start_and_told_with_code_and_stderr() {
    let gantry = Gantry::start(&["a", "b"]);
    let pid = gantry.status("a")["pid"].clone();
    let begun = Stopwatch::start();
    let answer = gantry.call("a__crash", json!({"code": 3}));
    assert!(begun.elapsed() <= SECOND, "{:?}", begun.elapsed());
    let error = &answer["error"];
    assert_eq!(
        error["message"],
        "server `a` exited during the call (exit code 3)"
    );
    assert_eq!(
        (&error["code"], &error["data"]["code"]),
        (&json!(-31502), &json!("server.exited"))
    );
    let again = |now: &Value| now["state"] == "ready" && now["pid"] != pid;
    let status = gantry.wait_status("a", 5 * SECOND, again);
    assert_eq!(status["restart_count"], 1);
    assert_eq!(status["last_crash"]["how"], "exit code 3");
    assert_eq!(status["last_crash"]["stderr"], "boom");
    echoes(&gantry, "a");
    let exits = gantry.events("a", "exited", 1);
    assert!(
        exits[0].starts_with("exit code 3; restarting at once"),
        "{exits:?}"
    );
    assert!(exits[0].ends_with("stderr: boom"), "{exits:?}");
    gantry.events("a", "ready", 2);
    assert_eq!(gantry.status("b")["restart_count"], 0);
    let rows = gantry.audit_rows("server=a&tool=crash");
    assert_eq!(
        (&rows[0]["status"], &rows[0]["code"]),
        (&json!("error"), &json!("server.exited"))
    );
}

// row 1.12
#[test]
fn an_order_to_restart_is_heeded_while_a_server_hangs_in_its_handshake() {
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().fault("init-hang"))
        .start();
    let pid = gantry.wait_status("a", LONG, |now| now["pid"].is_u64())["pid"].clone();
    let begun = Stopwatch::start();
    let answer = gantry.rest("POST", "/api/v1/mcp/servers/a/restart", None);
    assert!(answer.status < 300, "{}", answer.status);
    let anew = |now: &Value| now["pid"].is_u64() && now["pid"] != pid;
    gantry.wait_status("a", LONG, anew);
    assert!(begun.elapsed() < 12 * SECOND, "{:?}", begun.elapsed());
}

// row 1.10
#[test]
fn more_than_three_crashes_in_a_minute_climb_the_ladder() {
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().fault("crash-start=7"))
        .start();
    let waits = |status: &Value| status["next_try"]["in_ms"].as_u64() > Some(3000);
    let status = gantry.wait_status("a", LONG, waits);
    // Four crashes, and the first step; on a machine that sees it late one more, and the next.
    let crashes = status["restart_count"].as_u64().unwrap();
    let step = match crashes {
        4 => 5,
        5 => 15,
        _ => panic!("{status:#}"),
    };
    let left = status["next_try"]["in_ms"].as_u64().unwrap();
    let since = status["since_ms"].as_u64().unwrap();
    let whole = status["next_try"]["at_ms"].as_u64().unwrap() - since;
    assert!(
        (step * 900..=step * 1100).contains(&whole) && left <= whole,
        "{step} s ± 10 %: {whole} ms"
    );
    let text = status["next_try"]["text"].as_str().unwrap();
    assert_eq!(text, format!("next try in {} s", left.div_ceil(1000)));
    let reason = status["reason"].as_str().unwrap();
    let wanted = format!("backing off {step}s: {crashes} failures within 60s");
    assert!(reason.starts_with(&wanted), "{reason}");
    // Events are stored in order, a moment later: the warning follows the failure.
    gantry.events("a", "health_warning", 1);
    let events = gantry.rest("GET", "/api/v1/mcp/servers/a/events?limit=1000", None);
    let events = events.json()["items"].take();
    let first = events.as_array().unwrap().iter().filter(|event| {
        let detail = event["detail"].as_str().unwrap_or_default();
        event["kind"] == "start_failed" && detail.contains("backing off 5s: 4 failures within 60s")
    });
    assert_eq!(first.count(), 1, "{events:#}");
    assert!(reason.contains("exit code 7"), "{reason}");
    assert_eq!(status["health_warning"], true);
    let health = gantry.rest("GET", "/api/v1/health", None).json();
    let warned = health["warnings"].as_array().unwrap().iter();
    assert!(warned.clone().any(|text| {
        text.as_str()
            .unwrap()
            .starts_with("server `a` keeps crashing")
    }));
    let restart = &status["spec"]["restart"];
    let wanted = json!({
        "at_once": 3, "window": "1m", "backoff": ["5s", "15s", "45s", "2m", "5m"], "reset_after": "10m",
    });
    assert_eq!(*restart, wanted);
    let begun = Stopwatch::start();
    let answer = gantry.call("a__echo", json!({"text": "x"}));
    assert!(begun.elapsed() <= SECOND, "down is said at once");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("; next try in "), "{message}");
}

// row 1.10
#[test]
fn the_third_step_is_told_as_forty_five_seconds() {
    let gantry = Gantry::start(&[]);
    let restart = json!({"at_once": 0, "window": "60s", "ladder": ["1ms", "1ms", "45s"], "reset_after": "10m"});
    let more = json!({"start": "eager", "restart": restart});
    register(&gantry, "a", &Evilpeer::new().fault("crash-start"), &more);
    let waits = |status: &Value| status["next_try"]["in_ms"].as_u64() > Some(10_000);
    let status = gantry.wait_status("a", LONG, waits);
    let whole =
        status["next_try"]["at_ms"].as_u64().unwrap() - status["since_ms"].as_u64().unwrap();
    assert!(
        (40_500..=49_500).contains(&whole),
        "45 s ± 10 %: {whole} ms"
    );
    assert_eq!(status["restart_count"], 3);
    assert!(
        status["reason"]
            .as_str()
            .unwrap()
            .starts_with("backing off 45s: 3 failures"),
        "{status:#}"
    );
    let text = status["next_try"]["text"].as_str().unwrap();
    let seconds: u64 = text
        .trim_start_matches("next try in ")
        .trim_end_matches(" s")
        .parse()
        .unwrap();
    assert!((35..=50).contains(&seconds), "{text}");
    let shown = String::from_utf8_lossy(&gantry.cli(&["status"]).stdout).into_owned();
    assert!(shown.contains("next try in "), "{shown}");
    // Each failure is told, that it keeps failing only once.
    gantry.events("a", "start_failed", 3);
    gantry.events("a", "health_warning", 1);
}

/// A ladder that a test can climb, each step so long that it is seen.
fn small_ladder() -> Value {
    json!({"life": {"restart": {
        "at_once": 1, "window": "1m", "ladder": ["3s", "6s"], "reset_after": "6s",
    }}})
}

fn crash(gantry: &Gantry) {
    let answer = gantry.call("a__crash", json!({}));
    assert_eq!(
        answer["error"]["data"]["code"], "server.exited",
        "{answer:#}"
    );
}

/// Crashes the server and returns the wait that followed, `None` for none.
fn wait_after_crash(gantry: &Gantry) -> Option<u64> {
    let before = gantry.wait_state("a", "ready", LONG)["restart_count"].as_u64();
    crash(gantry);
    let mut wait = None;
    let again = eventually(LONG, || {
        let now = gantry.status("a");
        if let Some(at) = now["next_try"]["at_ms"]
            .as_u64()
            .filter(|_| now["state"] == "backing_off")
        {
            wait = Some(at - now["since_ms"].as_u64().unwrap());
        }
        now["state"] == "ready" && now["restart_count"].as_u64() > before
    });
    assert!(again.is_some(), "{:#}", gantry.status("a"));
    wait
}

// row 1.10
#[test]
fn the_count_begins_anew_after_health_or_by_hand() {
    let gantry = Gantry::builder()
        .server_with("a", &Evilpeer::new(), &small_ladder())
        .start();
    assert_eq!(wait_after_crash(&gantry), None, "the first is at once");
    let step = |wait: Option<u64>, near: u64| {
        assert!(
            wait.is_some_and(|ms| ms.abs_diff(near) <= near / 10 + 2),
            "{wait:?}, not {near}"
        );
    };
    step(wait_after_crash(&gantry), 3000);
    step(wait_after_crash(&gantry), 6000);
    step(wait_after_crash(&gantry), 6000);
    // By hand.
    let pid = gantry.status("a")["pid"].clone();
    gantry.rest("POST", "/api/v1/mcp/servers/a/restart", None);
    let status = gantry.wait_status("a", LONG, |now| {
        now["state"] == "ready" && now["pid"] != pid
    });
    assert_eq!(
        (&status["restart_count"], &status["health_warning"]),
        (&json!(0), &json!(false))
    );
    assert_eq!(wait_after_crash(&gantry), None);
    step(wait_after_crash(&gantry), 3000);
    // By health.
    let healthy = |now: &Value| now["uptime_ms"].as_u64() > Some(6200);
    gantry.wait_status("a", LONG, healthy);
    assert_eq!(wait_after_crash(&gantry), None, "it was forgiven");
    // One warning each time that it began to wait, however many steps followed.
    gantry.events("a", "health_warning", 2);
}
