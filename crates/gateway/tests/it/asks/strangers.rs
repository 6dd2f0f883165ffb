//! Fault T4: what a client was asked only that client can answer, once.

use serde_json::{Value, json};

use super::client::{Client, Generation, answer, everything};
use super::{as_other, recorded, started, text};
use crate::harness::{Gantry, LONG};

pub(super) fn other_key(gantry: &Gantry) -> String {
    let body = json!({"kind": "agent", "agent": "other"});
    let made = gantry.rest("POST", "/api/v1/keys", Some(&body)).json();
    let grant = json!({"grant": "all"});
    let granted = gantry.rest("PATCH", "/api/v1/agents/other", Some(&grant));
    assert_eq!(granted.status, 200, "{}", granted.text());
    made["key"].as_str().unwrap().to_owned()
}

// fault T4
#[test]
fn only_the_session_that_was_asked_answers() {
    let gantry = started(&json!({}));
    let open = || Client::open(&gantry, &gantry.agent, Generation::Handshake, everything());
    let (asked, stranger) = (open(), open());
    let tool = "old__test_sampling";
    let waiting = asked.begin(tool, json!({"prompt": "?"})).asked_first();
    let id = waiting.requests[0].0.clone();
    let wrong = json!({"jsonrpc": "2.0", "id": id, "result": {"content": {"text": "forged"}}});
    // Taken like any message, and of no effect.
    assert_eq!(stranger.respond(&wrong), 202);
    let mut foreign = wrong.clone();
    foreign["id"] = json!(id.as_u64().unwrap() + 1);
    assert_eq!(asked.respond(&foreign), 202);
    assert_eq!(text(&asked.go_on(waiting).answer), "LLM response: Paris");
    // Once answered it is answered.
    assert_eq!(asked.respond(&wrong), 202);
    assert_eq!(recorded(&gantry, "server=old", "ok", LONG), Value::Null);
}

// fault T4: two clients that share a key are two
#[test]
fn a_process_that_owes_one_session_an_answer_asks_no_other() {
    let gantry = started(&json!({}));
    let open = || Client::open(&gantry, &gantry.agent, Generation::Handshake, everything());
    let (left, other) = (open(), open());
    let tool = "old__test_sampling";
    gantry.events("old", "starting", 1);
    drop(left.begin(tool, json!({"prompt": "?"})).asked_first());
    recorded(&gantry, "server=old", "cancelled", LONG);
    gantry.events("old", "starting", 2);
    // The first process may still ask for the call that was left.
    let done = other.call(tool, json!({"prompt": "?"}));
    assert_eq!(text(&done.answer), "LLM response: Paris");
    gantry.events("old", "starting", 3);
    // Whom it owes it serves.
    let done = left.call(tool, json!({"prompt": "?"}));
    assert_eq!(text(&done.answer), "LLM response: Paris");
    let starting = gantry.events("old", "starting", 3);
    let further = starting
        .iter()
        .filter(|told| told.contains("for clients with"));
    assert_eq!(further.count(), 2, "{starting:#?}");
}

// fault T4
#[test]
fn a_state_is_good_once_for_the_same_key_and_request() {
    let gantry = started(&json!({}));
    let other = other_key(&gantry);
    let client = Client::open(&gantry, &gantry.agent, Generation::Stateless, everything());
    for server in ["old", "new"] {
        let tool = format!("{server}__test_sampling");
        let waiting = client.begin(&tool, json!({"prompt": "?"})).asked_first();
        let state = waiting.state.clone().unwrap();
        let key = waiting.requests[0].0.as_str().unwrap().to_owned();
        let retry = |state: &str, prompt: &str| {
            json!({
                "name": tool,
                "arguments": {"prompt": prompt},
                "inputResponses": {&key: answer("sampling/createMessage")},
                "requestState": state,
                "_meta": {"io.modelcontextprotocol/clientCapabilities": everything()},
            })
        };
        let refused = |answer: &Value, why: &str| {
            assert_eq!(answer["error"]["code"], -32602, "{answer:#}");
            assert_eq!(
                answer["error"]["data"]["code"], "request.state",
                "{answer:#}"
            );
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.contains(why), "{message}");
        };
        let own = |params: Value| as_other(&gantry, &gantry.agent, params);
        refused(
            &as_other(&gantry, &other, retry(&state, "?")),
            "another key",
        );
        refused(&own(retry(&state, "!")), "another request");
        refused(
            &own(retry(&format!("{state}-TAMPERED"), "?")),
            "was changed",
        );
        refused(&own(retry("x", "?")), "was changed");
        for wrong in [json!(7), Value::Null, json!({&key: 7})] {
            let mut broken = retry(&state, "?");
            broken["inputResponses"] = wrong;
            assert_eq!(own(broken)["error"]["data"]["code"], "request.params");
        }
        // What is missing is asked for again, with a new state; the old one is used.
        let mut missing = retry(&state, "?");
        missing["inputResponses"] = json!({"other": {}});
        let again = own(missing);
        assert_eq!(again["result"]["resultType"], "input_required", "{again:#}");
        assert_eq!(
            again["result"]["inputRequests"].as_object().unwrap().len(),
            1
        );
        let second = again["result"]["requestState"].as_str().unwrap();
        assert_ne!(second, state);
        refused(&own(retry(&state, "?")), "used already");
        assert_eq!(text(&own(retry(second, "?"))), "LLM response: Paris");
        refused(&own(retry(second, "?")), "used already");
        // Strangers and retries made no further call.
        let query = format!("server={server}");
        assert_eq!(recorded(&gantry, &query, "ok", LONG), Value::Null);
    }
}
