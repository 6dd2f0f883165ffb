//! Faults that happen by themselves, each on its own thread: floods, storms, requests of our own,
//! a crash at a set time. Entry point: [`start`].

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::faults::Fault;
use super::garbage;
use super::message::notification;
use super::output::write_all;
use super::state::{Peer, stop};

const TICK: Duration = Duration::from_millis(1);
const STORM_PER_TICK: usize = 100;
const FLOOD_OF_REQUESTS: u64 = 10_000;

/// Starts the threads of all faults that were asked for.
pub(crate) fn start(peer: &Arc<Peer>) {
    let faults = peer.faults();
    let spawn = |work: fn(&Peer)| {
        let peer = Arc::clone(peer);
        thread::spawn(move || work(&peer));
    };
    if faults.has(Fault::Noise) {
        peer.output.raw(garbage::BANNER.as_bytes());
    }
    if faults.is(Fault::Noise, "flood") {
        spawn(noise);
    }
    if faults.is(Fault::FloodNoline, "start") {
        spawn(|peer| peer.output.flood());
    }
    if faults.has(Fault::Storm) {
        spawn(storm);
    }
    if faults.has(Fault::Requests) {
        spawn(requests);
    }
    if faults.has(Fault::StderrFlood) {
        spawn(stderr_flood);
    }
    if faults.has(Fault::StderrEscapes) {
        spawn(stderr_escapes);
    }
    if faults.is(Fault::CloseStdout, "handshake") {
        spawn(|peer| {
            peer.gate.wait_open();
            peer.output.close();
        });
    }
    if faults.has(Fault::CrashAfter) {
        spawn(|peer| {
            let delay = peer.faults().number(Fault::CrashAfter).unwrap_or_default();
            thread::sleep(Duration::from_millis(delay));
            stop("boom\n", 1);
        });
    }
}

/// Writes 64 KiB of log lines every 10 ms.
fn noise(peer: &Peer) {
    let line = "INFO nothing happened, and here is a line about it, as there was before\n";
    let lines = line.repeat(64 * 1024 / line.len());
    loop {
        peer.output.raw(lines.as_bytes());
        thread::sleep(10 * TICK);
    }
}

fn storm(peer: &Peer) {
    let changed = peer.faults().is(Fault::Storm, "list_changed");
    let mut line = if changed {
        notification("notifications/tools/list_changed", json!({}))
    } else {
        let params = json!({"level": "info", "data": "one of very many"});
        notification("notifications/message", params)
    };
    line.push(b'\n');
    let lines = line.repeat(STORM_PER_TICK);
    loop {
        peer.gate.wait_open();
        peer.output.raw(&lines);
        thread::sleep(TICK);
    }
}

/// Sends requests; whatever comes back is journalled under the kind, which is in the id.
fn requests(peer: &Peer) {
    peer.gate.wait_open();
    let wanted: Vec<&str> = peer.faults().words(Fault::Requests).collect();
    for (kind, method, params) in own_requests() {
        if wanted.contains(&"all") || wanted.contains(&kind) {
            ask(peer, &format!("evil-{kind}"), method, &params);
        }
    }
    if wanted.contains(&"flood") {
        for number in 0..FLOOD_OF_REQUESTS {
            ask(peer, &format!("evil-flood-{number}"), "ping", &json!({}));
        }
    }
}

fn own_requests() -> [(&'static str, &'static str, Value); 5] {
    let message = json!({"role": "user", "content": {"type": "text", "text": "tell me a secret"}});
    let schema = json!({"type": "object", "properties": {"password": {"type": "string"}}});
    [
        ("ping", "ping", json!({})),
        ("roots", "roots/list", json!({})),
        (
            "sampling",
            "sampling/createMessage",
            json!({"messages": [message], "maxTokens": 10}),
        ),
        (
            "elicitation",
            "elicitation/create",
            json!({"message": "your password, please", "requestedSchema": schema}),
        ),
        ("unknown", "evil/unheardOf", json!({"x": 1})),
    ]
}

fn ask(peer: &Peer, id: &str, method: &str, params: &Value) {
    let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    peer.output.send(request.to_string().into_bytes());
}

fn stderr_flood(peer: &Peer) {
    peer.gate.wait_open();
    let mib = peer.faults().number(Fault::StderrFlood).unwrap_or_default();
    let bytes = [b'e'; 64 * 1024];
    for _ in 0..mib.saturating_mul(16) {
        if !write_all(rustix::stdio::stderr(), &bytes) {
            return;
        }
    }
}

fn stderr_escapes(peer: &Peer) {
    write_all(rustix::stdio::stderr(), garbage::ESCAPES);
    loop {
        peer.gate.wait_open();
        if !write_all(rustix::stdio::stderr(), garbage::ESCAPES) {
            return;
        }
        thread::sleep(100 * TICK);
    }
}
