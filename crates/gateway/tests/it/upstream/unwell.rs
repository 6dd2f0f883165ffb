//! Far sides that are unwell when they are greeted, or later when they are asked whether they are
//! there: what their status says, what is offered meanwhile, and that they come back by themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gantry_testkit::wait::eventually;
use serde_json::{Value, json};

use super::peer::{Peer, Reply, Seen, legacy};
use super::sse_peer::SsePeer;
use super::{entry, listed, with};
use crate::harness::{Gantry, LONG};

/// A way to be unwell: the server's name, how it answers everything, and what is said of it when it
/// is greeted, or when it is asked whether it is there.
type Unwell = (&'static str, fn() -> Reply, &'static str, &'static str);

/// Answers otherwise as long as the far side is unwell.
type Sick = Box<dyn Fn(&Seen) -> Option<Reply> + Send + Sync>;

const UNAUTHORIZED: &str = "answered 401: it wants other credentials";
const MISSING: &str = "answered 404: `no such page`";

const UNWELL: [Unwell; 4] = [
    (
        "unauthorized",
        || Reply::status(401),
        UNAUTHORIZED,
        UNAUTHORIZED,
    ),
    (
        "missing",
        || Reply::Status(404, Vec::new(), "no such page".to_owned()),
        MISSING,
        MISSING,
    ),
    (
        "silent",
        || Reply::Hang,
        "did not answer `initialize` within",
        "did not answer a health check within",
    ),
    (
        "cut",
        || Reply::Cut,
        " was cut: ",
        "failed a health check: the connection to http",
    ),
];

#[test]
fn over_streamable_http_what_is_unwell_is_hidden_and_comes_back() {
    // row 3.1: 401, 404, timeout, cut
    come_and_go("http", "/mcp", |sick| {
        Peer::start(move |seen| sick(seen).unwrap_or_else(|| legacy(seen)))
    });
}

#[test]
fn over_sse_what_is_unwell_is_hidden_and_comes_back() {
    // row 3.1: 401, 404, timeout, cut
    come_and_go("sse", "/sse", |sick| SsePeer::with(sick).peer);
}

/// Has one server of each kind be unwell, well, and unwell and well again.
fn come_and_go(transport: &str, path: &str, start: impl Fn(Sick) -> Peer) {
    let well = Arc::new(AtomicBool::new(false));
    let short = json!({"type": transport, "life": {"handshake": "2s", "probe": "300ms",
        "health_every": "300ms", "health_timeout": "5s"}});
    let mut gateway = Gantry::builder();
    let mut peers = Vec::new();
    for (name, reply, ..) in UNWELL {
        let is_well = Arc::clone(&well);
        let peer = start(Box::new(move |_: &Seen| {
            let is_well = is_well.load(Ordering::SeqCst);
            (!is_well).then(reply)
        }));
        gateway = gateway.entry(name, with(entry(&peer.url(path)), &short));
        peers.push(peer);
    }
    let gantry = gateway.start();
    for state in ["failed", "disconnected"] {
        for (name, _, greeted, _) in UNWELL {
            is_away(&gantry, name, state, greeted);
        }
        well.store(true, Ordering::SeqCst);
        are_back(&gantry);
        // Unwell once more, and well for good.
        well.store(state == "disconnected", Ordering::SeqCst);
    }
    for (name, _, _, asked) in UNWELL {
        let told = gantry.events(name, "disconnected", 1).remove(0);
        assert!(told.contains(asked), "`{name}`: {told}");
    }
}

/// Waits until a server is in this state for this reason, is tried again later, and is not offered.
fn is_away(gantry: &Gantry, name: &str, state: &str, why: &str) {
    let tool = format!("{name}__echo");
    let mut last = Value::Null;
    let found = eventually(LONG, || {
        last = gantry.status(name);
        let reason = last["reason"].as_str().unwrap_or_default();
        last["state"] == state
            && reason.contains(why)
            && last["next_try"].is_object()
            && !listed(gantry).contains(&tool)
    });
    assert!(
        found.is_some(),
        "`{name}` is not hidden and `{state}` for `{why}`: {last:#}"
    );
}

/// Waits until all are ready and offered.
fn are_back(gantry: &Gantry) {
    for (name, ..) in UNWELL {
        gantry.wait_state(name, "ready", LONG);
    }
    let mut all: Vec<String> = UNWELL
        .iter()
        .map(|(name, ..)| format!("{name}__echo"))
        .collect();
    all.sort();
    let mut offered = Vec::new();
    eventually(LONG, || {
        offered = listed(gantry);
        offered.sort();
        offered == all
    });
    assert_eq!(offered, all);
}
