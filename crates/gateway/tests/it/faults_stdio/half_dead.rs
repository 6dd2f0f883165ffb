//! Servers that are half dead: one of their pipes is closed, or they leave right after the answer.

use std::thread;

use gantry_testkit::wait::{Stopwatch, eventually};
use gantry_testkit::{Evilpeer, procs};
use serde_json::{Value, json};

use super::{
    CALLS, EVIL, Rig, SECOND, all_echoed, all_within, beside_good, echo, put_over, short,
    stays_down,
};
use crate::harness::LONG;

/// Waits until the server was started anew and returns its status.
fn started_again(rig: &Rig, old: &Value) -> Value {
    rig.gantry.wait_status(EVIL, LONG, |now| {
        now["state"] == "ready" && now["pid"].is_u64() && now["pid"] != *old
    })
}

fn gone(pid: &Value) -> bool {
    let pid = u32::try_from(pid.as_u64().unwrap()).unwrap();
    eventually(SECOND, || !procs::alive(pid)).is_some()
}

// fault S17
#[test]
fn a_server_that_closes_its_stdout_is_killed_within_a_second_and_restarted() {
    // The last of them closes it: one that came later would meet the next process.
    let peer = Evilpeer::new().fault("close-stdout=call");
    let peer = peer.fault_after(CALLS as u64 - 1);
    let patient = json!({"calls": {"timeout": "30s", "timeout_max": "30s"}});
    let rig = Rig::new(&peer, &patient);
    let pid = rig.gantry.status(EVIL)["pid"].clone();
    let (replies, took) = rig.beside_neighbour(|| {
        let slow = |_: usize| json!({"text": "x", "delay_ms": 20_000});
        thread::scope(|scope| {
            let waiting = scope.spawn(|| rig.burst(EVIL, CALLS - 1, "echo", &slow));
            let in_flight = |status: &Value| status["queue"]["in_flight"] == CALLS - 1;
            rig.gantry.wait_status(EVIL, LONG, in_flight);
            let watch = Stopwatch::start();
            let last = rig.call(EVIL, "echo", CALLS, slow(CALLS));
            let mut replies = waiting.join().unwrap();
            replies.push(last);
            (replies, watch.elapsed())
        })
    });
    assert!(took <= SECOND, "{took:?}");
    let how = "closed its stdout without ending, and was killed";
    let message = format!("server `evil` exited during the call ({how})");
    replies
        .iter()
        .for_each(|reply| reply.fails(-31502, &message, "server.exited"));
    assert!(gone(&pid), "the old process is gone");
    let status = started_again(&rig, &pid);
    assert_eq!(status["last_crash"]["how"], how);
    assert_eq!(status["restart_count"], 1);
    rig.audited(EVIL, &[(CALLS, "error", Some("server.exited"))]);
}

// fault S17
#[test]
fn a_server_that_closes_its_stdout_while_nobody_calls_is_found_out_too() {
    let peer = Evilpeer::new().fault("close-stdout=idle").fault_calls(1);
    let rig = Rig::new(&peer, &json!({}));
    let pid = rig.gantry.status(EVIL)["pid"].clone();
    let reply = rig.beside_neighbour(|| rig.call(EVIL, "echo", 3, echo(3)));
    all_echoed(&[reply]);
    // Nothing is in flight, and the next health check is a minute away.
    assert!(gone(&pid), "the old process is gone");
    let status = started_again(&rig, &pid);
    assert_eq!(
        status["last_crash"]["how"],
        "closed its stdout without ending, and was killed"
    );
    assert_eq!(status["restart_count"], 1);
    rig.audited(EVIL, &[(1, "ok", None)]);
}

// fault S17
#[test]
fn a_server_that_closes_its_stdout_in_the_handshake_is_not_waited_for() {
    let script = "exec 1>&-; exec sleep 600";
    let mut entry = json!({"command": "sh", "args": ["-c", script], "allow_shell": true});
    put_over(&mut entry, &short(&stays_down()));
    let rig = Rig::of(beside_good().entry(EVIL, entry).start());
    let watch = Stopwatch::start();
    let status = rig.gantry.wait_state(EVIL, "failed", LONG);
    // A handshake may take 10 s here.
    assert!(watch.elapsed() <= 3 * SECOND, "{:?}", watch.elapsed());
    let why = "closed its stdout during the handshake";
    let waits = "backing off 60s: 1 failure within 60s";
    assert_eq!(status["reason"], format!("{waits}: {why}"));
    assert_eq!(status["pid"], Value::Null);
    let replies = rig.at_once("echo", echo);
    all_within(&replies, SECOND);
    for reply in &replies {
        let message = reply.answer["error"]["message"]
            .as_str()
            .unwrap_or_default();
        let told = format!("server `evil` is down: {waits}: {why}; next try in ");
        assert!(message.starts_with(&told), "{message}");
        reply.fails(-31503, message, "server.down");
    }
    rig.audited(EVIL, &[(CALLS, "error", Some("server.down"))]);
}

// fault S17
#[test]
fn a_server_that_closes_its_stdin_is_killed_within_a_second_and_restarted() {
    let peer = Evilpeer::new().fault("close-stdin=call");
    let rig = Rig::new(&peer, &json!({}));
    let pid = rig.gantry.status(EVIL)["pid"].clone();
    let reply = rig.beside_neighbour(|| rig.call(EVIL, "echo", 5, echo(5)));
    all_echoed(&[reply]);
    assert!(gone(&pid), "the old process is gone");
    let status = started_again(&rig, &pid);
    assert_eq!(
        status["last_crash"]["how"],
        "closed its stdin without ending, and was killed"
    );
    assert_eq!(status["restart_count"], 1);
    rig.audited(EVIL, &[(1, "ok", None)]);
}

// fault S17
#[test]
fn an_answer_right_before_the_exit_is_delivered() {
    let rig = Rig::new(&Evilpeer::new().fault("exit-after-reply"), &json!({}));
    let pid = rig.gantry.status(EVIL)["pid"].clone();
    let reply = rig.beside_neighbour(|| rig.call(EVIL, "echo", 7, echo(7)));
    assert!(reply.cost <= SECOND);
    all_echoed(&[reply]);
    let status = started_again(&rig, &pid);
    assert_eq!(status["last_crash"]["how"], "exit code 0");
    rig.audited(EVIL, &[(1, "ok", None)]);
}
