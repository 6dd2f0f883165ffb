//! Resources that clients listen to: both generations of clients before both of servers.

use std::time::Duration;

use gantry_testkit::{Era, Evilpeer};
use serde_json::{Value, json};

use super::changes::{acknowledged, listen};
use super::{Events, Older, SECOND};
use crate::harness::{Gantry, LONG};

const CHANGED: &str = "notifications/resources/updated";
const URI: &str = "test://static-text";
const OTHER: &str = "test://static-binary";

fn start(era: Era) -> Gantry {
    let gantry = Gantry::builder().server("a", &Evilpeer::new().era(era));
    let gantry = gantry.start();
    gantry.wait_state("a", "ready", LONG);
    gantry
}

/// Has the server say that a resource changed.
fn touch(gantry: &Gantry, uri: &str) {
    let touched = gantry.call("a__touch", json!({"uri": uri}));
    assert_eq!(
        touched["result"]["content"][0]["text"], "touched",
        "{touched:#}"
    );
}

fn told(message: &Value) -> (&str, &str) {
    let uri = message["params"]["uri"].as_str().unwrap_or_default();
    (message["method"].as_str().unwrap_or_default(), uri)
}

#[test]
fn both_generations_hear_of_resources_of_both() {
    for era in [Era::Legacy, Era::Modern] {
        let gantry = start(era);
        let session = Older::open(&gantry, "/mcp", "2025-06-18");
        assert_eq!(
            session.hello["capabilities"]["resources"]["subscribe"],
            true
        );
        let mut older = Events::of(session.listen());
        let wish = json!({"resourceSubscriptions": [URI]});
        let id = json!("s");
        let mut newer = Events::of(listen(&gantry, &gantry.agent, "/mcp/servers/a", &id, &wish));
        acknowledged(&mut newer, &id, &wish);
        assert_eq!(
            session.result("resources/subscribe", json!({"uri": URI})),
            json!({})
        );
        for _ in 0..2 {
            touch(&gantry, OTHER);
            touch(&gantry, URI);
            assert_eq!(told(&older.next().unwrap()), (CHANGED, URI), "{era:?}");
            let heard = newer.next().unwrap();
            assert_eq!(told(&heard), (CHANGED, URI), "{era:?}");
            let subscription = &heard["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
            assert_eq!(*subscription, id);
        }
        assert_eq!(
            session.result("resources/unsubscribe", json!({"uri": URI})),
            json!({})
        );
        touch(&gantry, URI);
        assert_eq!(told(&newer.next().unwrap()), (CHANGED, URI), "{era:?}");
        assert!(older.is_silent_for(SECOND), "{era:?}");
        let rows = gantry.audit_rows("");
        let asked = |row: &&Value| row["method"] == "resources/subscribe";
        let rows: Vec<_> = rows.iter().filter(asked).collect();
        assert_eq!(rows.len(), 2, "{rows:#?}");
    }
}

#[test]
fn a_server_that_was_started_anew_is_subscribed_to_anew() {
    for era in [Era::Legacy, Era::Modern] {
        let gantry = start(era);
        let session = Older::open(&gantry, "/mcp", "2025-11-25");
        let mut events = Events::of(session.listen());
        session.result("resources/subscribe", json!({"uri": URI}));
        let restarted = gantry.rest("POST", "/api/v1/mcp/servers/a/restart", None);
        assert_eq!(restarted.status, 200);
        gantry.wait_state("a", "ready", LONG);
        // A moment may pass before the new process knows; the touch is repeated until it does.
        let mut heard = false;
        for _ in 0..20 {
            touch(&gantry, URI);
            events
                .connection
                .socket()
                .set_read_timeout(Some(SECOND))
                .unwrap();
            while let Some(message) = events.next() {
                heard |= told(&message) == (CHANGED, URI);
                if heard {
                    break;
                }
            }
            if heard {
                break;
            }
        }
        assert!(heard, "{era:?}");
    }
}

#[test]
fn a_stream_that_was_cut_is_taken_up_where_it_was() {
    let gantry = start(Era::Legacy);
    let session = Older::open(&gantry, "/mcp", "2025-11-25");
    for uri in [URI, OTHER] {
        session.result("resources/subscribe", json!({"uri": uri}));
    }
    let mut events = Events::of(session.listen());
    touch(&gantry, URI);
    assert_eq!(told(&events.next().unwrap()), (CHANGED, URI));
    let first = events.id.clone().expect("events of a session have ids");
    touch(&gantry, OTHER);
    assert_eq!(told(&events.next().unwrap()), (CHANGED, OTHER));
    drop(events);
    let taken = gantry_testkit::wait::eventually(LONG, || {
        touch(&gantry, URI);
        let mut again = session.listen_after(&first);
        let head = again.head().unwrap();
        // The gateway may not have noticed yet that the first stream is gone.
        if head.status == 409 {
            return false;
        }
        let chunk = again.chunk().unwrap().unwrap();
        let chunk = String::from_utf8(chunk).unwrap();
        assert!(chunk.starts_with("retry: 2000\nid: "), "{chunk}");
        assert!(chunk.contains(OTHER), "{chunk}");
        true
    });
    assert!(taken.is_some());
}

// fault T4
#[test]
fn nobody_hears_of_what_it_may_not_read() {
    let gantry = start(Era::Legacy);
    let body = json!({"name": "narrow", "grant": ["a:echo"]});
    let made = gantry.rest("POST", "/api/v1/agents", Some(&body));
    assert!(matches!(made.status, 200 | 201), "{}", made.text());
    let body = json!({"kind": "agent", "agent": "narrow"});
    let key = gantry.rest("POST", "/api/v1/keys", Some(&body)).json();
    let key = key["key"].as_str().unwrap();
    let wish = json!({"resourceSubscriptions": [URI, "other://nowhere"], "toolsListChanged": true});
    let mut events = Events::of(listen(&gantry, key, "/mcp", &json!(1), &wish));
    acknowledged(&mut events, &json!(1), &json!({"toolsListChanged": true}));
    touch(&gantry, URI);
    assert!(events.is_silent_for(Duration::from_millis(700)));
    let rows = gantry.audit_rows("");
    let refused = |row: &&Value| row["status"] == "refused";
    assert_eq!(rows.iter().filter(refused).count(), 2, "a refusal is a row");
}

#[test]
fn subscriptions_need_a_session_and_a_resource_that_there_is() {
    let gantry = start(Era::Legacy);
    let session = Older::open(&gantry, "/mcp", "2025-06-18");
    let unknown = session
        .send(json!(1), "resources/subscribe", json!({}))
        .message();
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    for n in 0..256 {
        let uri = format!("test://template/{n}/data");
        session.result("resources/subscribe", json!({"uri": uri}));
    }
    let full = session.send(
        json!(2),
        "resources/subscribe",
        json!({"uri": "test://template/more/data"}),
    );
    assert_eq!(full.status, 429, "{}", full.text());
}
