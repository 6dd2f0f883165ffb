//! Servers that do not answer, answer without end, or do not read.

use std::thread;
use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::journal::Journal;
use gantry_testkit::wait::{Stopwatch, eventually};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{CALLS, EVIL, Rig, SECOND, all_echoed, all_within, echo, gives_up_after};
use crate::harness::{LONG, modern};

// fault S11
#[test]
fn a_server_that_never_replies_times_out_is_told_and_is_not_restarted() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let peer = Evilpeer::new()
        .fault("hang")
        .fault_calls(CALLS as u64)
        .journal(&journal);
    let rig = Rig::new(&peer, &gives_up_after("3s"));
    let pid = rig.gantry.status(EVIL)["pid"].clone();
    let replies = rig.at_once("echo", echo);
    for reply in &replies {
        reply.fails(
            -31504,
            "server `evil` did not answer within 3s",
            "call.timeout",
        );
        assert!(reply.took >= 3 * SECOND, "{:?}", reply.took);
        // row 3.4
        assert_eq!(
            reply.answer["error"]["data"]["hint"],
            "the server may still be working; retry only if the tool is safe to repeat, otherwise \
             continue without it"
        );
    }
    all_within(&replies, 4 * SECOND);
    let told = eventually(SECOND, || {
        let seen = Journal::read(&journal).unwrap();
        (0..CALLS).all(|number| seen.cancelled(&format!("n{number}")))
    });
    assert!(told.is_some(), "the server is told that each call is over");
    let status = rig.gantry.status(EVIL);
    assert_eq!(status["pid"], pid);
    assert_eq!(status["queue"]["in_flight"], 0);
    rig.never_restarted();
    all_echoed(&rig.at_once("echo", echo));
    rig.audited(
        EVIL,
        &[
            (CALLS, "timeout", Some("call.timeout")),
            (CALLS, "ok", None),
        ],
    );
    rig.gantry.events(EVIL, "call_timeout", CALLS);
}

// fault S11, row 0.12
#[test]
fn after_three_calls_in_a_row_without_a_sign_of_life_nobody_waits_any_more() {
    let peer = Evilpeer::new().fault("hang").fault_calls(3);
    let rig = Rig::new(&peer, &gives_up_after("1s"));
    let pid = rig.gantry.status(EVIL)["pid"].clone();
    let breaker = || rig.gantry.status(EVIL)["breaker"].clone();
    let closed = |unanswered: u64| json!({"state": "closed", "unanswered": unanswered, "next_try_in_ms": null});
    assert_eq!(breaker(), closed(0));
    for count in 1..=3 {
        let reply = rig.call(EVIL, "echo", count, echo(count));
        let message = "server `evil` did not answer within 1s";
        reply.fails(-31504, message, "call.timeout");
        if count < 3 {
            assert_eq!(breaker(), closed(count as u64));
        }
    }
    let open = breaker();
    assert_eq!(
        (&open["state"], &open["unanswered"]),
        (&json!("open"), &json!(3))
    );
    let next_try = open["next_try_in_ms"].as_u64().unwrap();
    assert!((40_000..=60_000).contains(&next_try), "{next_try}");
    let replies = rig.at_once("echo", echo);
    all_within(&replies, SECOND);
    for reply in &replies {
        let message = reply.answer["error"]["message"].as_str().unwrap();
        let why = "server `evil` is down: 3 consecutive timeouts, circuit open; next try in ";
        assert!(message.starts_with(why), "{message}");
        reply.fails(-31503, message, "server.down");
        // row 3.4
        assert_eq!(
            reply.answer["error"]["data"]["hint"],
            "retry after its next try, or continue without it; `gantry status evil` and `gantry logs evil` \
             say more"
        );
    }
    let why = "3 consecutive timeouts, circuit open";
    assert_eq!(rig.gantry.events(EVIL, "health_warning", 1), [why]);
    rig.never_restarted();
    assert_eq!(rig.gantry.status(EVIL)["pid"], pid);
    // A person who starts it anew is not made to wait.
    let restarted = rig
        .gantry
        .rest("POST", "/api/v1/mcp/servers/evil/restart", None);
    assert_eq!(restarted.status, 200, "{}", restarted.text());
    rig.gantry.wait_status(EVIL, LONG, |now| {
        now["state"] == "ready" && now["pid"] != pid
    });
    assert_eq!(breaker(), closed(0));
    rig.audited(
        EVIL,
        &[
            (3, "timeout", Some("call.timeout")),
            (CALLS, "error", Some("server.down")),
        ],
    );
}

// fault S11
#[test]
fn the_defaults_are_thirty_seconds_and_ten_minutes() {
    let rig = Rig::new(&Evilpeer::new(), &json!({}));
    let spec = rig.gantry.status(super::GOOD)["spec"].clone();
    assert_eq!(
        (&spec["timeout"], &spec["timeout_max"]),
        (&json!("30s"), &json!("10m"))
    );
}

/// Calls with a progress token and returns the last message, how many came before it, and how long it
/// took: by the clock, and without the time in which the machine stood still.
fn with_progress(rig: &Rig, tool: &str, arguments: &Value) -> (Value, usize, [Duration; 2]) {
    let params = json!({
        "name": format!("{EVIL}__{tool}"),
        "arguments": arguments,
        "_meta": {"progressToken": "mine"},
    });
    let (begun, watch) = (Instant::now(), Stopwatch::start());
    let agent = &rig.gantry.agent;
    let answer = modern(
        &mut rig.gantry.connect(),
        agent,
        "/mcp",
        "tools/call",
        params,
    );
    let took = [begun.elapsed(), watch.elapsed()];
    let mut messages = answer.messages();
    let last = messages.pop().unwrap();
    for message in &messages {
        assert_eq!(message["method"], "notifications/progress");
        assert_eq!(message["params"]["progressToken"], "mine");
    }
    (last, messages.len(), took)
}

// fault S12
#[test]
fn progress_for_ever_ends_at_the_hard_maximum() {
    let peer = Evilpeer::new().fault("progress-forever=50").fault_calls(1);
    // The server must not be silent for the first while the machine stands still.
    let limits = json!({"calls": {"timeout": "3s", "timeout_max": "7s"}});
    let rig = Rig::new(&peer, &limits);
    let arguments = json!({"text": "x"});
    let (answer, progress, [took, cost]) =
        rig.beside_neighbour(|| with_progress(&rig, "echo", &arguments));
    assert!(took >= 7 * SECOND, "progress prolongs the call: {took:?}");
    assert!(cost <= 8 * SECOND, "but not for ever: {cost:?}");
    assert!(progress >= 10, "{progress}");
    let error = &answer["error"];
    assert_eq!(error["code"], -31504, "{answer:#}");
    assert_eq!(error["message"], "server `evil` did not answer within 7s");
    assert_eq!(error["data"]["code"], "call.timeout");
    all_echoed(&rig.at_once("echo", echo));
    rig.never_restarted();
    rig.audited(
        EVIL,
        &[(1, "timeout", Some("call.timeout")), (CALLS, "ok", None)],
    );
}

// fault S12
#[test]
fn an_answer_that_drips_ends_at_the_timeout() {
    let rig = Rig::new(&Evilpeer::new().fault("drip=200"), &gives_up_after("1s"));
    let replies = rig.at_once("echo", echo);
    for reply in &replies {
        reply.fails(
            -31504,
            "server `evil` did not answer within 1s",
            "call.timeout",
        );
    }
    all_within(&replies, 2 * SECOND);
    rig.never_restarted();
    rig.audited(EVIL, &[(CALLS, "timeout", Some("call.timeout"))]);
}

// fault S13
#[test]
fn a_server_that_stops_reading_fails_its_calls_after_five_seconds() {
    let peer = Evilpeer::new().fault("no-read=call");
    let more = json!({"calls": {"timeout": "20s", "timeout_max": "30s"}});
    let rig = Rig::new(&peer, &more);
    all_echoed(&[rig.call(EVIL, "echo", 1, echo(1))]);
    // Longer than the pipe holds, so that it is never taken whole, nor anything behind it.
    let big = json!({"text": "x".repeat(300 << 10)});
    let watch = Stopwatch::start();
    let message = "server `evil` has stopped reading its input";
    let replies = thread::scope(|scope| {
        let first = scope.spawn(|| rig.call(EVIL, "echo", CALLS, big));
        let sent = |status: &Value| status["queue"]["in_flight"] == 1;
        rig.gantry.wait_status(EVIL, LONG, sent);
        let mut replies = rig.at_once_on(EVIL, CALLS - 1, "echo", echo);
        replies.push(first.join().unwrap());
        replies
    });
    for reply in &replies {
        reply.fails(-31502, message, "server.not_reading");
        let waited = reply.took + watch.stood_still();
        assert!(waited >= 4 * SECOND, "{waited:?}");
    }
    all_within(&replies, 9 * SECOND);
    // Now that this is known, nobody waits for it.
    let replies = rig.at_once("echo", echo);
    replies
        .iter()
        .for_each(|reply| reply.fails(-31502, message, "server.not_reading"));
    all_within(&replies, SECOND);
    let status = rig.gantry.status(EVIL);
    assert_eq!(
        (&status["queue"]["in_flight"], &status["queue"]["waiting"]),
        (&json!(0), &json!(0))
    );
    // It is still ours to stop.
    let restarted = rig
        .gantry
        .rest("POST", "/api/v1/mcp/servers/evil/restart", None);
    assert_eq!(restarted.status, 200, "{}", restarted.text());
    let pid = status["pid"].clone();
    rig.gantry.wait_status(EVIL, LONG, |now| {
        now["state"] == "ready" && now["pid"] != pid
    });
    rig.audited(
        EVIL,
        &[
            (1, "ok", None),
            (2 * CALLS, "error", Some("server.not_reading")),
        ],
    );
}
