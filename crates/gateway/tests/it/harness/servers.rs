//! Entries of configuration files, and what a status says.

use gantry_testkit::Evilpeer;
use serde_json::{Value, json};

/// Returns a peer's entry for an `mcpServers` file.
pub(crate) fn entry(peer: &Evilpeer) -> Value {
    let argv = peer.argv();
    json!({"command": argv[0], "args": argv[1..]})
}

/// Returns the members of an entry that scale every long wait down by about a hundred.
///
/// The ladder keeps its shape: 50, 150, 450, 1200 and 3000 ms.
pub(crate) fn scaled() -> Value {
    json!({
        "calls": {"timeout": "1s", "timeout_max": "3s", "late_grace": "300ms"},
        "life": {
            "handshake": "3s",
            "probe": "300ms",
            "health_every": "200ms",
            "health_timeout": "300ms",
            "stop_grace": "1s",
            "restart": {
                "at_once": 3,
                "window": "10s",
                "ladder": ["50ms", "150ms", "450ms", "1200ms", "3s"],
                "reset_after": "6s"
            }
        }
    })
}

/// Returns the state that a status tells.
pub(super) fn state(status: &Value) -> &str {
    let state = status
        .pointer("/status/state")
        .or_else(|| status.get("state"));
    state.and_then(Value::as_str).unwrap_or_default()
}
