//! What servers ask of their clients: sampling, elicitation and roots, between all generations.
//!
//! Behind the gateway stands the fixture twice, `old` of the handshake era and `new` of the stateless
//! one; before it clients of either, which answer what they are asked.

mod approvals;
mod bounds;
mod client;
mod dual;
mod overlapping;
mod questions;
mod strangers;

use std::time::Duration;

use gantry_testkit::{Era, fixture};
use serde_json::{Value, json};

use self::client::{Client, Generation, everything};
use crate::harness::{Builder, Gantry, LONG, modern};

const BOTH: [Generation; 2] = [Generation::Handshake, Generation::Stateless];

/// Describes a gateway before both fixtures, with further members of their entries.
fn fixtures(members: &Value) -> Builder {
    let mut builder = Gantry::builder();
    for (name, era) in [("old", Era::Legacy), ("new", Era::Modern)] {
        let argv = fixture::argv(era);
        let mut entry = json!({"command": argv[0], "args": argv[1..], "concurrency": 32});
        for (key, value) in members.as_object().unwrap() {
            entry[key] = value.clone();
        }
        builder = builder.entry(name, entry);
    }
    builder
}

/// Starts a gateway before both fixtures.
fn started(members: &Value) -> Gantry {
    let gantry = fixtures(members).start();
    for name in ["old", "new"] {
        gantry.wait_state(name, "ready", LONG);
    }
    gantry
}

fn text(answer: &Value) -> &str {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no text: {answer:#}"))
}

/// Returns the status and the code of each recorded call.
fn rows(gantry: &Gantry, query: &str) -> Vec<(String, Value)> {
    let rows = gantry.audit_rows(query);
    let row = |row: &Value| {
        (
            row["status"].as_str().unwrap().to_owned(),
            row["code"].clone(),
        )
    };
    rows.iter().map(row).collect()
}

// issue 4, bridging; row 2.20
#[test]
fn every_generation_answers_what_every_generation_asks() {
    let gantry = started(&json!({}));
    let elicited = r#"User response: action=accept, content={"name":"Alice","response":"yes","ok":true,"color":"blue","context":"c"}"#;
    let tools = [
        (
            "test_sampling",
            json!({"prompt": "?"}),
            "LLM response: Paris",
            1,
        ),
        ("test_elicitation", json!({"message": "?"}), elicited, 1),
        (
            "test_input_required_result_list_roots",
            json!({}),
            "Found 1 root(s)",
            1,
        ),
        (
            "test_input_required_result_multi_round",
            json!({}),
            "Multi-round complete for Alice who likes blue",
            2,
        ),
        (
            "test_input_required_result_multiple_inputs",
            json!({}),
            "Name: Alice; Greeting: Paris; Roots: 1",
            3,
        ),
    ];
    for server in ["old", "new"] {
        for generation in BOTH {
            let client = Client::open(&gantry, &gantry.agent, generation, everything());
            for (tool, arguments, wanted, asked) in &tools {
                let name = format!("{server}__{tool}");
                let done = client.call(&name, arguments.clone());
                let at = format!("{generation:?} {name}");
                assert_eq!(text(&done.answer), *wanted, "{at}");
                assert_eq!(done.asked.len(), *asked, "{at}: {:?}", done.asked);
            }
            let prompt = format!("{server}__test_input_required_result_prompt");
            let done = client.request("prompts/get", json!({"name": prompt}));
            let message = &done.answer["result"]["messages"][0]["content"]["text"];
            assert_eq!(message, "Prompt with context: c", "{:#}", done.answer);
        }
        // One call is one row, however often its client was asked.
        let rows = rows(&gantry, &format!("server={server}"));
        assert_eq!(rows.len(), 2 * (tools.len() + 1));
        assert!(rows.iter().all(|row| row.0 == "ok"), "{rows:#?}");
    }
}

// issue 4, bridging: two clients of different capabilities in flight together; fault S15
#[test]
fn each_client_is_asked_what_it_can_and_nothing_else() {
    let gantry = started(&json!({}));
    for server in ["old", "new"] {
        for generation in BOTH {
            let open = |can: Value| Client::open(&gantry, &gantry.agent, generation, can);
            let samples = open(json!({"sampling": {}}));
            let elicits = open(json!({"elicitation": {}}));
            let nothing = open(json!({}));
            let tool = |name: &str| format!("{server}__{name}");
            let first = samples.begin(&tool("test_sampling"), json!({"prompt": "?"}));
            let second = elicits.begin(&tool("test_elicitation"), json!({"message": "?"}));
            let [first, second] = [first, second].map(|begun| begun.asked_first());
            assert_eq!(first.methods(), ["sampling/createMessage"]);
            assert_eq!(second.methods(), ["elicitation/create"]);
            // An older server has both calls, on a life each; a newer one has answered for now.
            let in_flight = match server {
                "old" => 2,
                _ => 0,
            };
            assert_eq!(gantry.status(server)["queue"]["in_flight"], in_flight);
            let said = elicits.go_on(second).answer;
            assert!(
                text(&said).starts_with("User response: action=accept"),
                "{said}"
            );
            assert_eq!(text(&samples.go_on(first).answer), "LLM response: Paris");
            // What a client did not declare it is never asked; a server that asks is told.
            for client in [&samples, &nothing] {
                let done = client.call(&tool("test_elicitation"), json!({"message": "?"}));
                assert!(done.asked.is_empty(), "{:?}", done.asked);
                match server {
                    "old" => assert!(text(&done.answer).starts_with("not supported")),
                    _ => assert_eq!(done.answer["error"]["code"], -31502, "{:#}", done.answer),
                }
            }
        }
    }
    // Over REST there is nobody to ask.
    let call = json!({"name": "old__test_sampling", "arguments": {"prompt": "?"}});
    let answer = gantry.rest_as(&gantry.agent, "POST", "/api/v1/tools/call", Some(&call));
    assert!(
        answer.text().contains("declared no client capabilities"),
        "{}",
        answer.text()
    );
}

#[test]
fn a_client_that_declines_is_heard() {
    let gantry = started(&json!({}));
    let can = json!({"sampling": {}, "elicitation": {}});
    let client = Client::open(&gantry, &gantry.agent, Generation::Handshake, can);
    let refusal = json!({"error": {"code": -1, "message": "User rejected sampling request"}});
    for (server, code) in [("old", None), ("new", Some("call.declined"))] {
        let tool = format!("{server}__test_sampling");
        let begun = client.begin(&tool, json!({"prompt": "?"})).asked_first();
        let done = client.go_on_with(begun, |_| refusal.clone()).answer;
        match code {
            None => assert!(
                text(&done).ends_with("User rejected sampling request"),
                "{done}"
            ),
            Some(code) => assert_eq!(done["error"]["data"]["code"], code, "{done:#}"),
        }
    }
}

// Only a POST that takes events can carry a question to a client of the handshake era.
#[test]
fn a_client_that_takes_no_events_is_not_asked() {
    let gantry = started(&json!({}));
    let client = Client::open(&gantry, &gantry.agent, Generation::Handshake, everything());
    let params = json!({"name": "old__test_sampling", "arguments": {"prompt": "?"}});
    let posted = client.posted("tools/call", params);
    let answer = posted.header("Accept", "application/json").send(&gantry);
    assert!(text(&answer.message()).starts_with("not supported"));
}

/// Waits until the record has one call of a server with this status, and returns its code.
fn recorded(gantry: &Gantry, query: &str, status: &str, within: Duration) -> Value {
    let mut last = Vec::new();
    gantry_testkit::wait::eventually(within, || {
        last = rows(gantry, query);
        last.len() == 1 && last[0].0 == status
    })
    .unwrap_or_else(|| panic!("not one row `{status}`: {last:?}"));
    last[0].1.clone()
}

/// Sends a stateless request with another key.
fn as_other(gantry: &Gantry, key: &str, params: Value) -> Value {
    modern(&mut gantry.connect(), key, "/mcp", "tools/call", params).message()
}
