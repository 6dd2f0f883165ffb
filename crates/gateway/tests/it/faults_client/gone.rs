//! Clients that leave in the middle of a call.

use std::fs;
use std::path::Path;

use gantry_testkit::journal::Journal;
use gantry_testkit::wait::{Stopwatch, eventually};
use gantry_testkit::{Era, Evilpeer, Kind};
use serde_json::{Value, json};

use super::{Holdings, Posted, ROOM, Rig, SECOND, ended_rows};
use crate::harness::{Gantry, LONG};

/// How a client speaks.
const WAYS: [&str; 5] = [
    "stateless",
    "stateless stream",
    "session",
    "session stream",
    "rest",
];

/// Describes a long call, as a client of that kind makes it.
fn long_call(gantry: &Gantry, way: &str, server: &str, nonce: &str) -> Posted {
    let arguments = json!({"ms": 60_000, "progress": 600, "nonce": nonce});
    let tool = format!("{server}__slow");
    let mut params = json!({"name": tool, "arguments": arguments});
    if way.ends_with("stream") {
        params["_meta"] = json!({"progressToken": "p"});
    }
    match way {
        "rest" => Posted::new(&gantry.agent, "/api/v1/tools/call", &params),
        "stateless" | "stateless stream" => Posted::stateless(&gantry.agent, "tools/call", params),
        _ => {
            let session = gantry.initialize().id.unwrap();
            let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
            Posted::in_session(&gantry.agent, &session, &call)
        }
    }
}

/// Makes a long call, leaves in the middle, and asserts what becomes of it.
fn leave(gantry: &Gantry, way: &str, server: &str, journal: &Path) {
    let nonce = way.replace(' ', "-");
    let mut connection = long_call(gantry, way, server, &nonce).open(gantry);
    let busy = |status: &Value| status["queue"]["in_flight"] == 1;
    gantry.wait_status(server, LONG, busy);
    let arrived = || Journal::read(journal).unwrap().executed(&nonce) == 1;
    assert!(eventually(LONG, arrived).is_some(), "{way}: it arrives");
    if way.ends_with("stream") {
        // The first progress has been seen; the stream is under way.
        assert_eq!(
            connection.head().unwrap().header("content-type"),
            Some("text/event-stream")
        );
        assert!(connection.chunk().unwrap().is_some());
    }
    let pid = gantry.status(server)["pid"].clone();
    let left = Stopwatch::start();
    drop(connection);
    let told = eventually(SECOND, || Journal::read(journal).unwrap().cancelled(&nonce));
    assert!(told.is_some(), "{way}: the server is told within a second");
    gantry.wait_status(server, SECOND, |status| status["queue"]["in_flight"] == 0);
    // Its only lane is free at once.
    let answer = gantry.call(&format!("{server}__echo"), json!({"text": "next"}));
    assert_eq!(
        answer["result"]["content"][0]["text"], "next",
        "{way}: {answer:#}"
    );
    assert!(left.elapsed() <= 2 * SECOND, "{way}: {:?}", left.elapsed());
    let status = gantry.status(server);
    assert_eq!(
        (&status["pid"], &status["restart_count"]),
        (&pid, &json!(0)),
        "{way}"
    );
}

/// Leaves a call on a server in every way, and asserts what is recorded.
fn leave_in_every_way(gantry: &Gantry, server: &str, journal: &Path) {
    for way in WAYS {
        leave(gantry, way, server, journal);
    }
    let rows = ended_rows(gantry, &format!("server={server}"));
    let told: Vec<_> = rows
        .iter()
        .map(|row| (&row["tool"], &row["status"], &row["code"]))
        .collect();
    let (cancelled, code) = (json!("cancelled"), json!("call.cancelled"));
    let (slow, echo, ok) = (json!("slow"), json!("echo"), json!("ok"));
    for pair in told.chunks(2) {
        assert_eq!(
            pair,
            [(&slow, &cancelled, &code), (&echo, &ok, &Value::Null)],
            "{rows:#?}"
        );
    }
    assert_eq!(told.len(), 2 * WAYS.len());
}

// fault A4
#[test]
fn a_call_whose_client_leaves_is_cancelled_upstream_in_both_generations() {
    let folder = tempfile::tempdir().unwrap();
    let servers = [("old", Era::Legacy), ("new", Era::Modern)];
    let journal = |server: &str| folder.path().join(server);
    let mut builder = Gantry::builder();
    for (server, era) in servers {
        let peer = Evilpeer::new().era(era).journal(&journal(server));
        builder = builder.server_with(server, &peer, &json!({"concurrency": 1}));
    }
    let gantry = builder.start();
    for (server, _) in servers {
        gantry.wait_state(server, "ready", LONG);
    }
    let at_first = Holdings::of(&gantry);
    for (server, _) in servers {
        leave_in_every_way(&gantry, server, &journal(server));
        assert_eq!(
            Journal::read(&journal(server)).unwrap().starts(),
            1,
            "it was never killed"
        );
    }
    at_first.are_all(ROOM);
}

// fault A4
#[test]
fn a_call_whose_client_leaves_is_cancelled_at_a_remote_server_too() {
    let folder = tempfile::tempdir().unwrap();
    let journal = |server: &str| folder.path().join(server);
    let kinds = [
        ("old", Era::Legacy, Kind::Streamable, "http"),
        ("new", Era::Modern, Kind::Streamable, "http"),
        ("first", Era::Legacy, Kind::Sse, "sse"),
    ];
    let mut builder = Gantry::builder();
    let mut served = Vec::new();
    for (server, era, kind, transport) in kinds {
        let peer = Evilpeer::new().era(era).journal(&journal(server));
        let peer = peer.serve(kind);
        let entry = json!({"url": peer.url, "type": transport, "concurrency": 1});
        builder = builder.entry(server, entry);
        served.push(peer);
    }
    let gantry = builder.start();
    for (server, ..) in kinds {
        gantry.wait_state(server, "ready", LONG);
        leave_in_every_way(&gantry, server, &journal(server));
    }
}

// fault A4
#[test]
fn a_call_that_waits_is_never_sent_once_its_client_has_left() {
    let rig = Rig::new(&Evilpeer::new(), &json!({"concurrency": 1}));
    // The first has the only lane until nobody waits any more.
    let until = rig.folder.path().join("until");
    let first = rig
        .call("slow", json!({"ms": 0, "until": until, "nonce": "first"}))
        .open(&rig.gantry);
    rig.wait_queue(1, 0, LONG);
    let waiting: Vec<_> = (0..8)
        .map(|number| {
            rig.call("echo", json!({"text": "x", "nonce": format!("w{number}")}))
                .open(&rig.gantry)
        })
        .collect();
    rig.wait_queue(1, 8, LONG);
    drop(waiting);
    rig.wait_queue(1, 0, SECOND);
    fs::write(&until, "").unwrap();
    let answer = { first }.answer().unwrap().message();
    assert_eq!(
        answer["result"]["content"][0]["text"], "waited",
        "{answer:#}"
    );
    assert_eq!(
        rig.journal().nonces(),
        ["first"],
        "nothing of the others was sent"
    );
    rig.audited(&[(1, "ok", None), (8, "cancelled", Some("call.cancelled"))]);
}

// fault A4
#[test]
fn two_hundred_clients_that_leave_at_once_leave_nothing_behind() {
    const CLIENTS: usize = 200;
    let rig = Rig::new(&Evilpeer::new(), &json!({}));
    let fds = rig.quiet_fds();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let arguments = json!({"ms": 60_000, "nonce": format!("n{number}")});
            rig.call("slow", arguments).open(&rig.gantry)
        })
        .collect();
    rig.wait_queue(32, CLIENTS - 32, LONG);
    let left = Stopwatch::start();
    drop(clients);
    rig.wait_queue(0, 0, SECOND);
    rig.wait_fds(fds, SECOND);
    let untold = || {
        let seen = rig.journal();
        let nonces = seen.nonces().into_iter().map(str::to_owned);
        let untold: Vec<_> = nonces.filter(|nonce| !seen.cancelled(nonce)).collect();
        untold
    };
    let told = eventually(SECOND, || untold().is_empty());
    assert!(told.is_some(), "never cancelled: {:?}", untold());
    assert!(left.elapsed() <= 3 * SECOND, "{:?}", left.elapsed());
    rig.neighbour_holds();
    rig.far_is_well();
    rig.audited(&[
        (1, "ok", None),
        (CLIENTS, "cancelled", Some("call.cancelled")),
    ]);
}
