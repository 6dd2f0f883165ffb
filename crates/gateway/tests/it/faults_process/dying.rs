//! Servers that die while they are called, and a gateway that dies while it calls.

use std::thread;

use gantry_testkit::journal::Journal;
use gantry_testkit::wait::{Stopwatch, eventually};
use gantry_testkit::{Evilpeer, procs};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Held, SECOND, audited, echoes, fails, own_marker, pid_of, signal, stays_down, tidy};
use crate::harness::{Gantry, LONG};

const CALLS: usize = 20;

// fault P11
#[test]
fn callers_of_a_server_that_dies_are_told_at_once_and_nothing_is_retried() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let peer = Evilpeer::new().journal(&journal);
    let gantry = Gantry::builder()
        .server("a", &peer)
        .server("b", &Evilpeer::new())
        .start();
    for name in ["a", "b"] {
        gantry.wait_state(name, "ready", LONG);
    }
    let held = Held::of(&gantry);
    let deaths = [
        ("exit code 3", None),
        ("signal 9 (SIGKILL)", Some(Signal::KILL)),
    ];
    for (round, (how, by)) in deaths.into_iter().enumerate() {
        let pid = pid_of(&gantry.wait_state("a", "ready", LONG));
        let (answers, died) = thread::scope(|scope| {
            let gantry = &gantry;
            let call = |number: usize| {
                let arguments = json!({"ms": 60_000, "nonce": format!("r{round}-{number}")});
                let answer = gantry.call("a__slow", arguments);
                (answer, Instant::now())
            };
            let calls: Vec<_> = (0..CALLS)
                .map(|number| scope.spawn(move || call(number)))
                .collect();
            // Each has reached the server, and not only been sent.
            let reached = eventually(LONG, || {
                let seen = Journal::read(&journal).unwrap();
                (0..CALLS).all(|number| seen.executed(&format!("r{round}-{number}")) == 1)
            });
            assert!(reached.is_some(), "all calls are under way");
            gantry.wait_status("a", LONG, |now| now["queue"]["in_flight"] == CALLS);
            let died = (Instant::now(), Stopwatch::start());
            match by {
                Some(kill) => signal(pid, kill),
                None => {
                    let answer = gantry.call("a__crash", json!({"code": 3, "nonce": "crash"}));
                    let message = format!("server `a` exited during the call ({how})");
                    fails(&answer, -31502, &message, "server.exited");
                }
            }
            let answers: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
            (answers, died)
        });
        let (died, watch) = died;
        let most = SECOND + watch.stood_still();
        for (answer, at) in answers {
            let message = format!("server `a` exited during the call ({how})");
            fails(&answer, -31502, &message, "server.exited");
            let hint = answer["error"]["data"]["hint"].as_str().unwrap();
            assert!(hint.contains("nothing was retried"), "{hint}");
            assert!(
                at.duration_since(died) <= most,
                "{:?}",
                at.duration_since(died)
            );
        }
        // It comes back by itself.
        let again = |now: &Value| now["state"] == "ready" && pid_of(now) != pid;
        let status = gantry.wait_status("a", 5 * SECOND, again);
        assert_eq!(status["last_crash"]["how"], how);
        echoes(&gantry, "a");
    }
    let seen = Journal::read(&journal).unwrap();
    for nonce in (0..2).flat_map(|round| (0..CALLS).map(move |number| format!("r{round}-{number}")))
    {
        assert_eq!(seen.executed(&nonce), 1, "`{nonce}` is executed once");
    }
    audited(
        &gantry,
        "a",
        &[
            (2 * CALLS + 1, "error", Some("server.exited")),
            (2, "ok", None),
        ],
    );
    echoes(&gantry, "b");
    assert_eq!(gantry.status("b")["restart_count"], 0);
    gantry.events("a", "exited", 2);
    let status = gantry.status("a");
    let queue = &status["queue"];
    assert_eq!(queue["in_flight"], 0, "{status:#}");
    assert_eq!(queue["waiting"], 0, "{status:#}");
    tidy(&gantry);
    held.compare(&gantry);
}

// fault P3, fault A11
#[test]
fn a_killed_gateway_leaves_nothing_in_whatever_state_its_servers_are() {
    let marker = own_marker("p3");
    let of = |peer: Evilpeer| peer.in_tree(&marker);
    let mut gantry = Gantry::builder()
        .server("ready", &of(Evilpeer::new()))
        .server("hanging", &of(Evilpeer::new().fault("init-hang")))
        .server("frozen", &of(Evilpeer::new()))
        .server(
            "deaf",
            &of(Evilpeer::new().fault("ignore-term").fault("ignore-eof")),
        )
        .server_with("down", &Evilpeer::new().fault("crash-start"), &stays_down())
        .start();
    for name in ["ready", "frozen", "deaf"] {
        gantry.wait_state(name, "ready", LONG);
    }
    gantry.wait_state("down", "failed", LONG);
    procs::wait_count(&marker, 20, LONG).unwrap();
    signal(pid_of(&gantry.status("frozen")), Signal::STOP);
    echoes(&gantry, "ready");
    let agent = gantry.agent.clone();
    let mut connection = gantry.connect();
    let params = json!({"name": "ready__slow", "arguments": {"ms": 60_000}});
    let cut = thread::spawn(move || {
        let bearer = format!("Bearer {agent}");
        let headers = [
            ("Accept", "application/json, text/event-stream"),
            ("Content-Type", "application/json"),
            ("Authorization", bearer.as_str()),
        ];
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        connection.request("POST", "/mcp", &headers, body.to_string().as_bytes())
    });
    gantry.wait_status("ready", LONG, |now| now["queue"]["in_flight"] == 1);
    let all = procs::descendants_of(gantry.pid);
    let begun = Stopwatch::start();
    gantry.signal(Signal::KILL);
    let left = || {
        all.iter()
            .filter(|process| procs::alive(process.pid))
            .collect::<Vec<_>>()
    };
    let gone = eventually(SECOND, || left().is_empty());
    assert!(
        gone.is_some(),
        "{:?} after the kill: {:#?}",
        begun.elapsed(),
        left()
    );
    procs::wait_gone(&marker, SECOND.saturating_sub(begun.elapsed())).unwrap();
    gantry.wait(LONG);
    assert!(cut.join().unwrap().is_err(), "its caller is cut off");
    let gantry = gantry.again();
    audited(
        &gantry,
        "ready",
        &[(1, "ok", None), (1, "unknown", Some("gateway.died"))],
    );
}
