//! `initialize` and `server/discover`, well answered or spoiled (fault S18).

use serde_json::{Value, json};

use super::era::{LATEST_LEGACY, LEGACY_VERSIONS, MODERN_VERSION, server_info};
use super::faults::Fault;
use super::message::{Answer, RpcError, Ticket};
use super::options::Era;
use super::state::{Peer, stop};

const INSTRUCTIONS: &str = "A scripted server for tests. Its tools do what their names say.";
const WRONG_VERSION: &str = "1999-01-01";

/// Answers a handshake request in a spoiled way if a fault wants so.
pub(crate) fn spoiled(peer: &Peer, id: &str, method: &str) -> Option<Answer> {
    let faults = peer.faults();
    if method == "server/discover" {
        if faults.has(Fault::DiscoverExit) && !is_initialized(peer) {
            stop("evilpeer: expected initialize\n", 1);
        }
        if faults.has(Fault::DiscoverHang) {
            return Some(Answer::Later);
        }
    }
    // A legacy server answers the probe with «method not found», whatever it does afterwards.
    let wanted = match peer.options.era {
        Era::Legacy => method == "initialize",
        Era::Modern => method == "server/discover",
        Era::Dual => matches!(method, "initialize" | "server/discover"),
    };
    if !wanted {
        None
    } else if faults.has(Fault::InitHang) {
        Some(Answer::Later)
    } else if faults.has(Fault::InitError) {
        Some(RpcError::new(-32603, "no licence key found").into())
    } else if faults.has(Fault::InitGarbage) {
        let broken = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"capabilities":[[["#);
        peer.output.send(broken.into_bytes());
        Some(Answer::Later)
    } else {
        None
    }
}

pub(crate) fn initialize(peer: &Peer, params: &Value) -> Answer {
    let asked = params["protocolVersion"].as_str().unwrap_or(LATEST_LEGACY);
    let version = if peer.faults().has(Fault::InitWrongVersion) {
        WRONG_VERSION
    } else if LEGACY_VERSIONS.contains(&asked) {
        asked
    } else {
        LATEST_LEGACY
    };
    peer.session
        .lock()
        .expect("nothing panics under this lock")
        .initialized = true;
    let mut capabilities = capabilities();
    capabilities["logging"] = json!({});
    Answer::Result(json!({
        "protocolVersion": version,
        "capabilities": capabilities,
        "serverInfo": server_info(&peer.options),
        "instructions": INSTRUCTIONS,
    }))
}

pub(crate) fn discover(peer: &Peer, ticket: &Ticket) -> Answer {
    if !ticket.modern {
        return RpcError::no_method("server/discover").into();
    }
    let wrong = peer.faults().has(Fault::InitWrongVersion);
    Answer::Result(json!({
        "supportedVersions": [if wrong { WRONG_VERSION } else { MODERN_VERSION }],
        "capabilities": capabilities(),
        "instructions": INSTRUCTIONS,
    }))
}

pub(crate) fn is_initialized(peer: &Peer) -> bool {
    peer.session
        .lock()
        .expect("nothing panics under this lock")
        .initialized
}

fn capabilities() -> Value {
    json!({
        "tools": {"listChanged": true},
        "resources": {"subscribe": true, "listChanged": false},
        "prompts": {"listChanged": false},
        "completions": {},
    })
}
