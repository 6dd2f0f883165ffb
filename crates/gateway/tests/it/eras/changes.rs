//! Changed lists, told on a session's stream and on `subscriptions/listen`.

use std::time::Duration;

use gantry_testkit::wait::Stopwatch;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Events, Older, SECOND};
use crate::faults_client::Posted;
use crate::harness::{Connection, Gantry};

/// A change is looked at once a second upstream, and told once a second downstream.
const TOLD: Duration = Duration::from_secs(4);

/// Adds a tool to the server.
fn grow(gantry: &Gantry) {
    let grown = gantry.call("a__grow", json!({}));
    assert!(
        grown["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .starts_with("grown_")
    );
}

fn has_grown(gantry: &Gantry, count: usize) -> bool {
    let tools = gantry.mcp("tools/list", json!({}));
    let tools = tools["result"]["tools"].as_array().unwrap().clone();
    let is_grown = |tool: &&Value| tool["name"].as_str().unwrap().contains("grown_");
    tools.iter().filter(is_grown).count() == count
}

pub(super) fn listen(
    gantry: &Gantry,
    key: &str,
    path: &str,
    id: &Value,
    wish: &Value,
) -> Connection {
    let posted = Posted::stateless(key, "subscriptions/listen", json!({"notifications": wish}));
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"notifications": wish, "_meta": meta});
    let message =
        json!({"jsonrpc": "2.0", "id": id, "method": "subscriptions/listen", "params": params});
    posted.at(path).body(message.to_string()).open(gantry)
}

/// Asserts that the first message says what was agreed on.
pub(super) fn acknowledged(events: &mut Events, id: &Value, agreed: &Value) {
    let first = events.next().unwrap();
    assert_eq!(
        first["method"], "notifications/subscriptions/acknowledged",
        "{first:#}"
    );
    let params = &first["params"];
    assert_eq!(params["notifications"], *agreed);
    assert_eq!(
        params["_meta"]["io.modelcontextprotocol/subscriptionId"],
        *id
    );
}

#[test]
fn changed_tools_are_told_in_both_generations_and_at_both_endpoints() {
    let gantry = Gantry::start(&["a"]);
    let (everything, one) = (
        Older::open(&gantry, "/mcp", "2025-03-26"),
        Older::open(&gantry, "/mcp/servers/a", "2025-11-25"),
    );
    let mut older = [Events::of(everything.listen()), Events::of(one.listen())];
    let tools = json!({"toolsListChanged": true});
    let open = |path: &str, id: Value, wish: &Value| {
        let mut events = Events::of(listen(&gantry, &gantry.agent, path, &id, wish));
        acknowledged(&mut events, &id, wish);
        (events, id)
    };
    let mut newer = [
        open("/mcp", json!(5), &tools),
        open("/mcp/servers/a", json!("five"), &tools),
    ];
    let (mut deaf, _) = open("/mcp", json!(6), &json!({}));
    for round in 1..=2 {
        let begun = Stopwatch::start();
        grow(&gantry);
        for events in &mut older {
            let told = events.next().unwrap();
            assert_eq!(
                told,
                json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}})
            );
        }
        for (events, id) in &mut newer {
            let told = events.next().unwrap();
            assert_eq!(told["method"], "notifications/tools/list_changed");
            assert_eq!(
                told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
                *id
            );
        }
        assert!(begun.elapsed() <= TOLD, "{:?}", begun.elapsed());
        assert!(
            has_grown(&gantry, round),
            "whoever is told finds the new list"
        );
    }
    assert!(
        deaf.is_silent_for(SECOND),
        "who asked for nothing hears nothing"
    );
    // A second stream of one session is refused; the end of the session is the end of its stream.
    let second = everything.listen().answer().unwrap();
    assert_eq!(
        (second.status, &second.json()["error"]["data"]["code"]),
        (409, &json!("session.listening"))
    );
    let begun = Stopwatch::start();
    assert_eq!(everything.end(), 204);
    assert!(older[0].next().is_none());
    assert!(begun.elapsed() <= 2 * SECOND, "{:?}", begun.elapsed());
}

#[test]
fn a_storm_of_changes_is_told_once_a_second() {
    let gantry = Gantry::start(&["a"]);
    let id = json!(1);
    let wish = json!({"toolsListChanged": true, "nonsense": true, "promptsListChanged": "yes"});
    let mut events = Events::of(listen(&gantry, &gantry.agent, "/mcp", &id, &wish));
    acknowledged(&mut events, &id, &json!({"toolsListChanged": true}));
    let begun = Instant::now();
    for _ in 0..50 {
        grow(&gantry);
    }
    let mut told = 0;
    while !has_grown(&gantry, 50) || told == 0 {
        assert_eq!(
            events.next().unwrap()["method"],
            "notifications/tools/list_changed"
        );
        told += 1;
        assert!(begun.elapsed() <= 5 * TOLD);
    }
    let most = begun.elapsed().as_secs() + 1;
    assert!(told <= most, "told {told} times in {:?}", begun.elapsed());
    let wrong = Posted::stateless(&gantry.agent, "subscriptions/listen", json!({})).send(&gantry);
    assert_eq!(
        (wrong.status, &wrong.json()["error"]["code"]),
        (400, &json!(-32602))
    );
}

// fault T8
#[test]
fn a_client_hears_of_its_own_lists_and_of_no_others() {
    let gantry = Gantry::start(&["a", "b"]);
    let narrow = &gantry.agent_with("narrow", &["a:*"]);
    let wish = json!({"toolsListChanged": true, "promptsListChanged": true,
        "resourcesListChanged": true});
    let open = |key: &str, path: &str| {
        let mut events = Events::of(listen(&gantry, key, path, &json!(1), &wish));
        acknowledged(&mut events, &json!(1), &wish);
        events
    };
    let mut all = open(&gantry.agent, "/mcp");
    let mut some = [
        open(narrow, "/mcp"),
        open(narrow, "/mcp/servers/a"),
        open(&gantry.agent, "/mcp/servers/a"),
    ];
    let tools_changed = |events: &mut Events| {
        let told = events.next().unwrap();
        assert_eq!(told["method"], "notifications/tools/list_changed");
    };
    gantry.call("b__grow", json!({}));
    tools_changed(&mut all);
    for events in &mut some {
        assert!(events.is_silent_for(SECOND), "another's list has changed");
    }
    // Of one's own lists, only those that are others than before.
    grow(&gantry);
    tools_changed(&mut all);
    for events in &mut some {
        tools_changed(events);
        assert!(events.is_silent_for(SECOND), "the others are the same");
    }
    // What is granted anew changes what is seen, though no server has changed.
    let more = json!({"grant": ["a:*", "b:echo"]});
    let changed = gantry.rest("PATCH", "/api/v1/agents/narrow", Some(&more));
    assert_eq!(changed.status, 200, "{}", changed.text());
    let [everything, own, others] = &mut some;
    tools_changed(everything);
    tools_changed(own);
    for events in [others, &mut all] {
        assert!(events.is_silent_for(SECOND), "another agent's grants are");
    }
}

// fault U6
#[test]
fn streams_end_when_their_key_is_revoked() {
    let gantry = Gantry::start(&["a"]);
    let body = json!({"kind": "agent", "agent": "default"});
    let made = gantry.rest("POST", "/api/v1/keys", Some(&body)).json();
    let wish = json!({"toolsListChanged": true});
    let open = |key: &str| {
        let mut events = Events::of(listen(&gantry, key, "/mcp", &json!(1), &wish));
        acknowledged(&mut events, &json!(1), &wish);
        events
    };
    let (mut revoked, mut kept) = (open(made["key"].as_str().unwrap()), open(&gantry.agent));
    let path = format!("/api/v1/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(gantry.rest("DELETE", &path, None).status, 204);
    // The second runs from the answer on: until then nobody was told that the key is gone.
    let begun = Stopwatch::start();
    assert!(revoked.next().is_none(), "the stream ends");
    let took = begun.elapsed();
    assert!(took <= SECOND + Duration::from_millis(500), "{took:?}");
    grow(&gantry);
    assert_eq!(
        kept.next().unwrap()["method"],
        "notifications/tools/list_changed"
    );
}
