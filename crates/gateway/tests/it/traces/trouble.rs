//! Trouble with the endpoint: whatever it does, calls are answered as fast, and what is lost is counted.

use std::net::TcpListener;
use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::otlp::{OtlpReceiver, ReceiverMood};
use gantry_testkit::wait::{Stopwatch, eventually};
use serde_json::{Value, json};

use super::exporting;
use crate::harness::{Gantry, LONG};

/// Makes calls and checks that each is answered at once.
fn assert_calls_go_on(gantry: &Gantry, what: &str) {
    for _ in 0..10 {
        let begun = Stopwatch::start();
        let answer = gantry.call("a__echo", json!({"text": "x"}));
        assert_eq!(answer["result"]["content"][0]["text"], "x", "{what}");
        assert!(begun.elapsed() < Duration::from_secs(3), "{what}");
    }
}

fn export(gantry: &Gantry) -> Value {
    let health = gantry.rest("GET", "/api/v1/health", None).json();
    health["exports"][0].clone()
}

// row 3.5
#[test]
fn an_endpoint_that_is_away_slow_or_hostile_touches_no_call() {
    let elsewhere = OtlpReceiver::start(ReceiverMood::Takes);
    let receiver = OtlpReceiver::start(ReceiverMood::Refuses(503));
    let mut gantry = exporting(&receiver)
        .variable("OTEL_EXPORTER_OTLP_TIMEOUT", "300")
        .server("a", &Evilpeer::new())
        .start();
    gantry.wait_state("a", "ready", LONG);
    let moods = [
        ReceiverMood::Refuses(503),
        ReceiverMood::Silent,
        ReceiverMood::Endless,
        ReceiverMood::Redirects(elsewhere.url()),
        ReceiverMood::Refuses(401),
    ];
    for mood in moods {
        receiver.set_mood(mood.clone());
        let asked = receiver.exports().len();
        assert_calls_go_on(&gantry, &format!("{mood:?}"));
        let is_asked = || receiver.exports().len() > asked;
        assert!(eventually(LONG, is_asked).is_some(), "{mood:?}");
    }
    let has_dropped = || export(&gantry)["dropped"].as_u64() > Some(0);
    assert!(
        eventually(LONG, has_dropped).is_some(),
        "{}",
        export(&gantry)
    );
    assert_eq!(elsewhere.exports().len(), 0, "redirects are not followed");
    let health = gantry.rest("GET", "/api/v1/health", None).json();
    assert_eq!(health["status"], "ok", "{health:#}");
    let warned = health["warnings"].to_string();
    assert!(warned.contains("traces cannot be exported"), "{warned}");
    let metrics = gantry.rest("GET", "/metrics", None).text();
    let counted = metrics.lines().any(|line| {
        line.starts_with("gantry_export_dropped_total{export=\"traces\"") && !line.ends_with(" 0")
    });
    assert!(counted, "{metrics}");
    // One warning a minute.
    let told = gantry.stderr().matches("traces cannot be exported").count();
    assert_eq!(told, 1, "{}", gantry.stderr());
    // It recovers by itself, without an error left.
    receiver.set_mood(ReceiverMood::Takes);
    let has_recovered = || {
        gantry.call("a__echo", json!({"text": "x"}));
        !receiver.spans().is_empty() && export(&gantry)["error"].is_null()
    };
    assert!(
        eventually(LONG, has_recovered).is_some(),
        "{}",
        export(&gantry)
    );
    receiver.set_mood(ReceiverMood::Silent);
    assert_calls_go_on(&gantry, "before the stop");
    let begun = Stopwatch::start();
    gantry.stop();
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "the last flush is bounded"
    );
}

// row 3.5
#[test]
fn an_endpoint_with_a_limit_gets_smaller_batches() {
    let receiver = OtlpReceiver::start(ReceiverMood::TakesAtMost(6 << 10));
    let mut gantry = exporting(&receiver).server("a", &Evilpeer::new()).start();
    gantry.wait_state("a", "ready", LONG);
    for _ in 0..3 {
        assert_calls_go_on(&gantry, "413");
    }
    let rows = gantry.audit_rows("tool=echo");
    assert_eq!(rows.len(), 30);
    let came = || {
        let spans = receiver.spans();
        let has = |row: &Value| spans.iter().any(|span| row["trace"] == span.trace);
        rows.iter().all(has)
    };
    assert!(eventually(LONG, came).is_some(), "{}", export(&gantry));
    assert_eq!(export(&gantry)["dropped"], 0);
    let refused = receiver
        .exports()
        .iter()
        .any(|export| export.body.len() > 6 << 10);
    assert!(refused, "a whole batch was tried first");
    assert_eq!(gantry.stop(), Some(0));
}

// row 3.5
#[test]
fn an_endpoint_that_is_not_there_touches_no_call() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let gantry = Gantry::builder()
        .flags(&["--otlp", &format!("http://{address}")])
        .server("a", &Evilpeer::new())
        .start();
    gantry.wait_state("a", "ready", LONG);
    assert_calls_go_on(&gantry, "nobody listens");
    let has_failed = || export(&gantry)["error"].is_string();
    assert!(eventually(LONG, has_failed).is_some());
    assert_eq!(gantry.audit_rows("status=ok").len(), 10);
}

#[test]
fn a_wrong_endpoint_or_headers_that_cannot_be_read_are_told_at_the_start() {
    let home = tempfile::tempdir().unwrap();
    for (flags, told) in [
        (&["--otlp", "localhost:4318"][..], "http://localhost:4318"),
        (&["--otlp", "http://user:pass@a"], "otlp_headers"),
        (
            &[
                "--otlp",
                "http://a",
                "--otlp-headers",
                "env:NO_SUCH_HEADERS",
            ],
            "NO_SUCH_HEADERS",
        ),
        (
            &["--otlp", "http://a", "--otlp-headers", "secret"],
            "file:PATH",
        ),
    ] {
        let mut command = Gantry::builder().flags(flags).command(home.path());
        let ended = command.status().unwrap();
        assert!(!ended.success(), "{flags:?}");
        let log = std::fs::read_to_string(home.path().join("stderr")).unwrap();
        assert!(log.contains(told), "{flags:?}: {log}");
    }
}
