//! Stopping: a gateway under load, servers that do not want to, and one that is stopped itself.

use std::thread;
use std::time::Duration;

use gantry_testkit::wait::{Stopwatch, eventually};
use gantry_testkit::{Evilpeer, procs};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Held, SECOND, audited, echoes, fails, own_marker, pid_of, signal, tidy};
use crate::harness::{Connection, Gantry, LONG};

// fault P4
#[test]
fn a_gateway_that_is_stopped_under_load_answers_every_call_and_leaves_nothing() {
    let marker = own_marker("p4");
    let deaf = Evilpeer::new().fault("ignore-term").fault("ignore-eof");
    let mut gantry = Gantry::builder()
        .server("good", &Evilpeer::new().in_tree(&marker))
        .server("deaf", &deaf.in_tree(&marker))
        .flags(&["--drain", "6s", "--kill-after", "8s"])
        .start();
    for name in ["good", "deaf"] {
        gantry.wait_state(name, "ready", LONG);
    }
    procs::wait_count(&marker, 10, LONG).unwrap();
    let mut kept = gantry.connect();
    kept.request("GET", "/healthz", &[], b"").unwrap();
    let begun = Instant::now();
    thread::scope(|scope| {
        let gantry = &gantry;
        let call = |server: &'static str, ms: u64| {
            scope.spawn(move || {
                let answer = gantry.call(&format!("{server}__slow"), json!({"ms": ms}));
                (answer, Instant::now())
            })
        };
        let short: Vec<_> = (0..10).map(|_| call("good", 4000)).collect();
        let long: Vec<_> = (0..5).map(|_| call("good", 60_000)).collect();
        let stuck: Vec<_> = (0..5).map(|_| call("deaf", 60_000)).collect();
        let busy = |count: usize| move |now: &Value| now["queue"]["in_flight"] == count;
        gantry.wait_status("good", LONG, busy(15));
        gantry.wait_status("deaf", LONG, busy(5));
        let (told, watch) = (Instant::now(), Stopwatch::start());
        gantry.signal(Signal::TERM);
        for call in short {
            let (answer, _) = call.join().unwrap();
            assert_eq!(
                answer["result"]["content"][0]["text"], "slept 4000 ms",
                "{answer:#}"
            );
        }
        // Nobody new comes in, on a new connection or an old one.
        let refused = Connection::open(&gantry.authority);
        assert!(refused.is_err(), "a stopping gateway accepts nobody");
        let old = kept.request("GET", "/healthz", &[], b"");
        assert!(old.is_err(), "idle connections are closed: {old:?}");
        for (calls, server, within) in [(long, "good", 8 * SECOND), (stuck, "deaf", 10 * SECOND)] {
            for call in calls {
                let (answer, at) = call.join().unwrap();
                let message = format!("server `{server}` exited during the call (it was stopped)");
                fails(&answer, -31502, &message, "server.exited");
                let (took, most) = (at.duration_since(told), within + watch.stood_still());
                assert!(took >= 6 * SECOND && took <= most, "{server}: {took:?}");
            }
        }
        eprintln!("all answered {:?} after the signal", told.elapsed());
    });
    assert_eq!(gantry.wait(3 * SECOND), Some(0), "{}", gantry.stderr());
    assert!(begun.elapsed() <= 20 * SECOND, "{:?}", begun.elapsed());
    assert_eq!(procs::with_marker(&marker), []);
    let gantry = gantry.again();
    audited(
        &gantry,
        "good",
        &[(10, "ok", None), (5, "error", Some("server.exited"))],
    );
    audited(&gantry, "deaf", &[(5, "error", Some("server.exited"))]);
}

// fault P4
#[test]
fn a_second_signal_ends_it_at_once() {
    let marker = own_marker("p4-twice");
    let deaf = Evilpeer::new()
        .fault("ignore-term")
        .fault("ignore-eof")
        .in_tree(&marker);
    let mut gantry = Gantry::builder().server("deaf", &deaf).start();
    gantry.wait_state("deaf", "ready", LONG);
    gantry.signal(Signal::TERM);
    // It has begun to stop when it no longer accepts.
    let stopping = eventually(LONG, || Connection::open(&gantry.authority).is_err());
    assert!(stopping.is_some());
    let begun = Stopwatch::start();
    gantry.signal(Signal::TERM);
    assert_eq!(gantry.wait(3 * SECOND), Some(130), "{}", gantry.stderr());
    procs::wait_gone(&marker, SECOND).unwrap();
    assert!(begun.elapsed() <= 3 * SECOND, "{:?}", begun.elapsed());
}

// fault P5
#[test]
fn a_stopped_child_is_marked_kept_and_can_still_be_stopped() {
    let marker = own_marker("p5");
    let members = json!({
        "calls": {"timeout": "1s"},
        "life": {
            // Long enough that one that answers is not marked, and so short that the call below is
            // given up before the 5 s after which a server counts as one that reads no more.
            "health_every": "200ms", "health_timeout": "1500ms", "stop_grace": "1s",
            "when_unresponsive": "keep",
        },
    });
    let mut patient = members.clone();
    patient["calls"]["timeout"] = json!("30s");
    let frozen = Evilpeer::new().in_tree(&marker);
    let gantry = Gantry::builder()
        .server_with("frozen", &frozen, &members)
        .server_with("other", &Evilpeer::new(), &patient)
        .start();
    gantry.wait_state("other", "ready", LONG);
    let first = gantry.wait_state("frozen", "ready", LONG);
    let pid = pid_of(&first);
    let held = Held::of(&gantry);
    signal(pid, Signal::STOP);
    let status = gantry.wait_state("frozen", "unresponsive", 5 * SECOND);
    assert_eq!(
        (&status["pid"], &status["restart_count"]),
        (&first["pid"], &json!(0))
    );
    assert_eq!(
        status["reason"],
        "did not answer a health check within 1500ms"
    );
    let (begun, watch) = (Instant::now(), Stopwatch::start());
    let answer = gantry.call("frozen__echo", json!({"text": "x"}));
    let (took, cost) = (begun.elapsed(), watch.elapsed());
    fails(
        &answer,
        -31504,
        "server `frozen` did not answer within 1s",
        "call.timeout",
    );
    assert!(took >= SECOND && cost <= 2 * SECOND, "{took:?} {cost:?}");
    echoes(&gantry, "other");
    gantry.events("frozen", "unresponsive", 1);
    gantry.events("frozen", "exited", 0);
    assert_eq!(
        procs::look(pid).map(|process| process.state),
        Some('T'),
        "it was left alone"
    );
    // A person's restart overtakes it within its grace.
    let begun = Stopwatch::start();
    let restarted = gantry.rest("POST", "/api/v1/mcp/servers/frozen/restart", None);
    assert_eq!(restarted.status, 200, "{}", restarted.text());
    let again = |now: &Value| now["state"] == "ready" && now["pid"] != first["pid"];
    let second = gantry.wait_status("frozen", LONG, again);
    assert!(begun.elapsed() <= 3 * SECOND, "{:?}", begun.elapsed());
    assert!(!procs::alive(pid));
    // And so does the gateway's end.
    signal(pid_of(&second), Signal::STOP);
    audited(&gantry, "frozen", &[(1, "timeout", Some("call.timeout"))]);
    tidy(&gantry);
    held.compare(&gantry);
    let mut gantry = gantry;
    let begun = Stopwatch::start();
    assert_eq!(gantry.stop(), Some(0), "{}", gantry.stderr());
    let took = begun.elapsed();
    assert!(
        took <= Duration::from_secs(5),
        "TERM and CONT end it: {took:?}"
    );
    assert_eq!(procs::with_marker(&marker), []);
}
