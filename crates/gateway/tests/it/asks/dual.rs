//! Servers of both eras that ask their clients only in that of the handshake, as the SDKs have it: a
//! client of that era is asked as it would be without a gateway.

use gantry_testkit::fixture::{self, Asks};
use gantry_testkit::{Era, Kind};
use serde_json::{Value, json};

use super::client::{Client, Generation, everything};
use super::{started, text};
use crate::harness::{Gantry, LONG};

const TOOLS: [(&str, &str, &str); 3] = [
    (
        "test_sampling",
        "sampling/createMessage",
        "LLM response: Paris",
    ),
    (
        "test_elicitation",
        "elicitation/create",
        "User response: action=accept",
    ),
    (
        "test_input_required_result_list_roots",
        "roots/list",
        "Found 1 root(s)",
    ),
];

/// Asks a handshake client of a gateway before such a server all that there is to ask.
fn is_asked(entry: Value) {
    let gantry = Gantry::builder().entry("s", entry).start();
    let status = gantry.wait_state("s", "ready", LONG);
    // What is common to all is spoken in the newer way.
    assert_eq!(status["protocol_version"], "2026-07-28", "{status:#}");
    let open = |generation| Client::open(&gantry, &gantry.agent, generation, everything());
    let (older, newer) = (open(Generation::Handshake), open(Generation::Stateless));
    for (tool, question, wanted) in TOOLS {
        let tool = format!("s__{tool}");
        let arguments = json!({"prompt": "?", "message": "?"});
        let done = older.call(&tool, arguments.clone());
        assert!(text(&done.answer).starts_with(wanted), "{:#}", done.answer);
        assert_eq!(done.asked, [question]);
        // Without a gateway it would be no better.
        let done = newer.call(&tool, arguments);
        assert!(
            text(&done.answer).contains("no way to ask"),
            "{:#}",
            done.answer
        );
    }
    // Who can do nothing is not asked, and is answered as before.
    let plain = Client::open(&gantry, &gantry.agent, Generation::Handshake, json!({}));
    let done = plain.call("s__test_simple_text", json!({}));
    assert!(text(&done.answer).starts_with("This is a simple text"));
}

#[test]
fn a_server_of_both_eras_asks_older_clients_over_stdio() {
    let argv = fixture::asking(Era::Dual, Asks::Handshake);
    is_asked(json!({"command": argv[0], "args": argv[1..]}));
}

#[test]
fn a_server_of_both_eras_asks_older_clients_over_http() {
    let served = fixture::serve_asking(Era::Dual, Kind::Streamable, Asks::Handshake);
    is_asked(json!({"url": served.url, "type": "http"}));
}

// A server that knows no handshake is found out once, and goes on as it is.
#[test]
fn a_server_that_knows_no_handshake_is_asked_once() {
    let gantry = started(&json!({}));
    for _ in 0..2 {
        let client = Client::open(&gantry, &gantry.agent, Generation::Handshake, everything());
        let done = client.call("new__test_sampling", json!({"prompt": "?"}));
        assert_eq!(text(&done.answer), "LLM response: Paris");
        assert_eq!(done.asked, ["sampling/createMessage"]);
        let starting = gantry.events("new", "starting", 2);
        let further = starting
            .iter()
            .filter(|told| told.contains("for clients with"));
        assert_eq!(further.count(), 1, "{starting:#?}");
    }
    gantry.events("new", "start_failed", 0);
    assert_eq!(gantry.status("new")["state"], "ready");
}
