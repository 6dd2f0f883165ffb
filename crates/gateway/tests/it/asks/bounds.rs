//! How long and how often a call may wait for its client, and what becomes of it when nobody comes.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::client::{Client, Generation, answer, everything};
use super::strangers::other_key;
use super::{BOTH, as_other, fixtures, recorded, rows, started, text};
use crate::harness::LONG;

const SECOND: Duration = Duration::from_secs(1);

// issue 4, bridging: the deadline is paused while a person is asked, and capped
#[test]
fn the_time_of_a_call_stands_still_while_its_client_is_asked() {
    let gantry =
        started(&json!({"calls": {"timeout": "5s", "timeout_max": "6s", "ask_timeout": "40s"}}));
    let mut calls = Vec::new();
    for generation in BOTH {
        // Of different capabilities, so that none waits for another's lane.
        let can = match generation {
            Generation::Handshake => everything(),
            Generation::Stateless => json!({"sampling": {}}),
        };
        for server in ["old", "new"] {
            let client = Client::open(&gantry, &gantry.agent, generation, can.clone());
            let tool = format!("{server}__test_sampling");
            let waiting = client.begin(&tool, json!({"prompt": "?"})).asked_first();
            calls.push((client, waiting));
        }
    }
    // A person thinks for longer than the call may take.
    std::thread::sleep(7 * SECOND);
    for (client, waiting) in calls {
        assert_eq!(text(&client.go_on(waiting).answer), "LLM response: Paris");
    }
    let rows = rows(&gantry, "");
    assert!(
        rows.iter().all(|row| row.0 == "ok") && rows.len() == 4,
        "{rows:?}"
    );
}

// issue 4, bridging: the pause is capped
#[test]
fn a_client_that_does_not_answer_ends_its_call() {
    // Long enough for one that answers at once, on a busy machine too.
    let gantry = started(&json!({"calls": {"ask_timeout": "3s"}}));
    for generation in BOTH {
        for server in ["old", "new"] {
            let key = gantry.agent.clone();
            let client = Client::open(&gantry, &key, generation, everything());
            let tool = format!("{server}__test_sampling");
            let begun = Instant::now();
            let waiting = client.begin(&tool, json!({"prompt": "?"})).asked_first();
            let query = format!("server={server}&status=timeout");
            match generation {
                Generation::Handshake => {
                    let ended = waiting.begun.done();
                    assert_eq!(
                        ended["error"]["data"]["code"], "call.unanswered",
                        "{ended:#}"
                    );
                    let code = recorded(&gantry, &query, "timeout", LONG);
                    assert_eq!(code, "call.unanswered");
                }
                Generation::Stateless => {
                    gantry_testkit::wait::eventually(LONG, || rows(&gantry, &query).len() == 2)
                        .expect("a second row");
                    // A while after its end nobody can ask for it any more.
                    let retry = |state: &str| {
                        json!({
                            "name": tool, "arguments": {"prompt": "?"}, "requestState": state,
                            "inputResponses": {"x": answer("sampling/createMessage")},
                            "_meta": {"io.modelcontextprotocol/clientCapabilities": everything()},
                        })
                    };
                    std::thread::sleep(3 * SECOND);
                    let late = as_other(&gantry, &key, retry(&waiting.state.unwrap()));
                    assert_eq!(late["error"]["data"]["code"], "request.state", "{late:#}");
                }
            }
            assert!(begun.elapsed() >= 3 * SECOND);
        }
    }
    // The lane is free, and the server well.
    let client = Client::open(&gantry, &gantry.agent, Generation::Stateless, everything());
    let done = client.call("old__test_sampling", json!({"prompt": "?"}));
    assert_eq!(text(&done.answer), "LLM response: Paris");
    assert_eq!(gantry.status("old")["restart_count"], 0);
}

// issue 4, bridging: held calls are capped per agent
#[test]
fn an_agent_has_so_many_calls_that_wait_for_it() {
    let gantry = started(&json!({}));
    let client = Client::open(&gantry, &gantry.agent, Generation::Stateless, everything());
    let begin = || client.begin("new__test_sampling", json!({"prompt": "?"}));
    let mut waiting: Vec<_> = (0..16).map(|_| begin().asked_first()).collect();
    let refused = begin().done();
    assert_eq!(refused["error"]["code"], -31429, "{refused:#}");
    assert_eq!(refused["error"]["data"]["code"], "call.too_many_held");
    // Its server was sent it, so that it is no refusal.
    let code = recorded(&gantry, "server=new&status=error", "error", LONG);
    assert_eq!(code, "call.too_many_held");
    // One that is answered makes room.
    let first = waiting.pop().unwrap();
    assert_eq!(text(&client.go_on(first).answer), "LLM response: Paris");
    waiting.push(begin().asked_first());
    for waiting in waiting {
        assert_eq!(text(&client.go_on(waiting).answer), "LLM response: Paris");
    }
    assert_eq!(rows(&gantry, "server=new&status=ok").len(), 17);
    // The same in the generations whose calls wait on their streams.
    let old = Client::open(&gantry, &gantry.agent, Generation::Handshake, everything());
    let begin = || old.begin("new__test_sampling", json!({"prompt": "?"}));
    let waiting: Vec<_> = (0..16).map(|_| begin().asked_first()).collect();
    let refused = begin().done();
    assert_eq!(
        refused["error"]["data"]["code"], "call.too_many_held",
        "{refused:#}"
    );
    for waiting in waiting {
        assert_eq!(text(&old.go_on(waiting).answer), "LLM response: Paris");
    }
}

// issue 4, bridging: the bytes of held calls are capped per agent, and keep no body out; fault T7
#[test]
fn calls_that_wait_hold_so_many_bytes() {
    let gantry = started(&json!({}));
    let key = other_key(&gantry);
    // Once in the call, once in what the server asks.
    let prompt = "x".repeat(3 << 20);
    for generation in BOTH {
        let client = Client::open(&gantry, &gantry.agent, generation, everything());
        let other = Client::open(&gantry, &key, generation, everything());
        let begin =
            |client: &Client<'_>| client.begin("new__test_sampling", json!({"prompt": prompt}));
        let waiting = [begin(&client).asked_first(), begin(&client).asked_first()];
        let refused = begin(&client).done();
        assert_eq!(refused["error"]["code"], -31429, "{refused:#}");
        let told = &refused["error"]["data"]["code"];
        assert_eq!(told, "call.too_much_held", "{refused:#}");
        // It is the agent's own bound.
        let theirs = begin(&other).asked_first();
        assert_eq!(text(&other.go_on(theirs).answer), "LLM response: Paris");
        for waiting in waiting {
            assert_eq!(text(&client.go_on(waiting).answer), "LLM response: Paris");
        }
        let again = begin(&client).asked_first();
        assert_eq!(text(&client.go_on(again).answer), "LLM response: Paris");
    }
    let ended = rows(&gantry, "server=new&status=error");
    let row = ("error".to_owned(), json!("call.too_much_held"));
    assert_eq!(ended, [row.clone(), row]);
    assert_eq!(rows(&gantry, "server=new&status=ok").len(), 8);
}

// A session that ends takes back what it was asked.
#[test]
fn a_call_that_waits_for_a_session_ends_with_it() {
    let gantry = started(&json!({}));
    for server in ["old", "new"] {
        let client = Client::open(&gantry, &gantry.agent, Generation::Handshake, everything());
        let tool = format!("{server}__test_sampling");
        let waiting = client.begin(&tool, json!({"prompt": "?"})).asked_first();
        let begun = Instant::now();
        assert_eq!(client.leave(), 204);
        let ended = waiting.begun.done();
        assert_eq!(
            ended["error"]["data"]["code"], "call.cancelled",
            "{ended:#}"
        );
        assert!(begun.elapsed() < 10 * SECOND, "{:?}", begun.elapsed());
        let code = recorded(&gantry, &format!("server={server}"), "cancelled", LONG);
        assert_eq!(code, "call.cancelled");
    }
}

// An older server has a further life for each call of a client without a session, and few of them.
#[test]
fn a_call_that_waits_for_a_person_keeps_nobody_else_waiting() {
    let gantry = started(&json!({"concurrency": 1, "calls": {"timeout": "5s"}}));
    let client = Client::open(&gantry, &gantry.agent, Generation::Stateless, everything());
    let begin = || client.begin("old__test_sampling", json!({"prompt": "?"}));
    let mut waiting = vec![begin().asked_first()];
    let plain = client.call("old__test_simple_text", json!({}));
    assert!(text(&plain.answer).starts_with("This is a simple text"));
    // One agent has all four, and no more.
    waiting.extend((0..3).map(|_| begin().asked_first()));
    let busy = begin().done();
    assert_eq!(busy["error"]["data"]["code"], "server.busy", "{busy:#}");
    let told = busy["error"]["message"].as_str().unwrap();
    assert!(told.contains("all 4 processes"), "{told}");
    let key = other_key(&gantry);
    let other = Client::open(&gantry, &key, Generation::Stateless, everything());
    let begin = || other.begin("old__test_sampling", json!({"prompt": "?"}));
    let theirs: Vec<_> = (0..2).map(|_| begin().asked_first()).collect();
    let busy = begin().done();
    assert_eq!(busy["error"]["data"]["code"], "server.busy", "{busy:#}");
    let told = busy["error"]["message"].as_str().unwrap();
    assert!(told.contains("use 2 of its processes"), "{told}");
    for waiting in waiting {
        assert_eq!(text(&client.go_on(waiting).answer), "LLM response: Paris");
    }
    for waiting in theirs {
        assert_eq!(text(&other.go_on(waiting).answer), "LLM response: Paris");
    }
    let done = client.call("old__test_sampling", json!({"prompt": "?"}));
    assert_eq!(text(&done.answer), "LLM response: Paris");
}

// fault A4
#[test]
fn a_client_that_leaves_while_it_is_asked_takes_its_call_back() {
    let gantry = started(&json!({}));
    let client = Client::open(&gantry, &gantry.agent, Generation::Handshake, everything());
    for server in ["old", "new"] {
        let tool = format!("{server}__test_sampling");
        let waiting = client.begin(&tool, json!({"prompt": "?"})).asked_first();
        drop(waiting);
        let query = format!("server={server}");
        let code = recorded(&gantry, &query, "cancelled", LONG);
        assert_eq!(code, "call.cancelled");
        // Its lane is free for the next of these clients.
        let done = client.call(&tool, json!({"prompt": "?"}));
        assert_eq!(text(&done.answer), "LLM response: Paris");
    }
}

// a killed gateway's held call is `unknown`, a stopped one's is answered
#[test]
fn a_call_that_waits_is_recorded_whatever_ends_the_gateway() {
    let mut gantry = fixtures(&json!({})).start();
    for server in ["old", "new"] {
        gantry.wait_state(server, "ready", LONG);
        let client = Client::open(&gantry, &gantry.agent, Generation::Stateless, everything());
        let tool = format!("{server}__test_sampling");
        drop(client.begin(&tool, json!({"prompt": "?"})).asked_first());
    }
    gantry.kill();
    let mut gantry = gantry.again();
    for server in ["old", "new"] {
        gantry.wait_state(server, "ready", LONG);
        recorded(&gantry, &format!("server={server}"), "unknown", LONG);
        let client = Client::open(&gantry, &gantry.agent, Generation::Stateless, everything());
        let tool = format!("{server}__test_sampling");
        drop(client.begin(&tool, json!({"prompt": "?"})).asked_first());
    }
    let begun = Instant::now();
    assert_eq!(gantry.stop(), Some(0));
    assert!(
        begun.elapsed() < 10 * SECOND,
        "nobody can answer any more: {:?}",
        begun.elapsed()
    );
    let gantry = gantry.again();
    for server in ["old", "new"] {
        let query = format!("server={server}&status=error");
        let code = recorded(&gantry, &query, "error", LONG);
        assert_eq!(code, Value::from("gateway.stopping"));
    }
}
