//! Servers that are somewhere else, as users meet them: reached over streamable HTTP or SSE, lost,
//! reached again, and kept from doing harm. Each far side is a peer of the test's own, on loopback.

mod bad;
mod bombs;
mod elicited;
mod eras;
mod flapping;
mod flooded;
mod limited;
mod links;
mod listening;
mod lost;
mod net;
mod own_session;
mod passed_on;
mod peer;
mod proxied;
mod registered;
mod rows;
mod scene;
mod shaped;
mod shared_state;
mod slow;
mod smuggled;
mod sse_peer;
mod taken_back;
mod told;
mod unwell;

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Builder, Gantry};

/// The name of the far server in most tests.
const FAR: &str = "far";

/// The authority that has signed every certificate of these tests.
const AUTHORITY: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/it/upstream/tls/authority.pem"
);

/// Returns the members of an entry that make every pause short. Who is to answer has time for it: one
/// late answer on a busy machine would be another code, or a restart.
fn quick() -> Value {
    json!({
        "calls": {"timeout": "10s", "timeout_max": "10s"},
        "life": {"handshake": "10s", "probe": "500ms", "health_every": "300ms", "health_timeout": "5s"},
        "reconnect": {"first": "50ms", "longest": "200ms", "away": "2s", "steady": "1s"},
    })
}

/// Returns the entry of a far server with short waits.
fn entry(url: &str) -> Value {
    let mut entry = quick();
    entry["url"] = url.into();
    // Else a 401 is a matter for a person.
    entry["auth"]["kind"] = "none".into();
    entry
}

/// Returns an entry with further members.
fn with(mut entry: Value, members: &Value) -> Value {
    for (key, value) in members.as_object().unwrap() {
        entry[key] = value.clone();
    }
    entry
}

/// Describes a gateway with one far server.
fn gateway(entry: Value) -> Builder {
    Gantry::builder().entry(FAR, entry)
}

/// Calls the far server's tool and returns the text that came back, or the error.
fn echo(gantry: &Gantry, text: &str) -> Result<String, Value> {
    let answer = gantry.call("far__echo", json!({"text": text}));
    match answer["result"]["content"][0]["text"].as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(answer["error"].clone()),
    }
}

/// Returns the code of an error as users see it.
fn code(error: &Value) -> &str {
    error["data"]["code"].as_str().unwrap_or_default()
}

/// Returns the names of the tools that are listed.
fn listed(gantry: &Gantry) -> Vec<String> {
    let list = gantry.mcp("tools/list", json!({}));
    let tools = list["result"]["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

const SECOND: Duration = Duration::from_secs(1);
