//! HTTP+SSE, as clients of the first protocol version speak it.

use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::journal::Journal;
use gantry_testkit::wait::eventually;
use serde_json::{Value, json};

use super::SECOND;
use crate::harness::{Answer, Connection, Gantry, LONG};

/// A client with its stream.
struct First<'a> {
    gantry: &'a Gantry,
    key: &'a str,
    stream: Connection,
    text: String,
    endpoint: String,
}

impl<'a> First<'a> {
    /// Opens the stream and reads where to post.
    fn open(gantry: &'a Gantry, key: &'a str) -> Self {
        let bearer = format!("Bearer {key}");
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Accept", "text/event-stream"),
        ];
        let mut stream = gantry.connect();
        stream.write("GET", "/sse", &headers, b"").unwrap();
        let head = stream.head().unwrap();
        assert_eq!(
            (head.status, head.header("content-type")),
            (200, Some("text/event-stream"))
        );
        let mut first = Self {
            gantry,
            key,
            stream,
            text: String::new(),
            endpoint: String::new(),
        };
        let (kind, endpoint) = first.event().unwrap();
        assert_eq!(kind, "endpoint");
        assert!(endpoint.starts_with("/messages?session="), "{endpoint}");
        first.endpoint = endpoint;
        first
    }

    /// Opens the stream and shakes hands.
    fn ready(gantry: &'a Gantry) -> Self {
        let mut first = Self::open(gantry, &gantry.agent);
        let info = json!({"name": "first", "version": "1"});
        let params =
            json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": info});
        let hello = first.request(0, "initialize", params);
        assert_eq!(hello["result"]["protocolVersion"], "2024-11-05");
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(first.post(first.key, &initialized).status, 202);
        first
    }

    fn post(&self, key: &str, message: &Value) -> Answer {
        let bearer = format!("Bearer {key}");
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Content-Type", "application/json"),
        ];
        let body = message.to_string();
        let mut connection = self.gantry.connect();
        connection
            .request("POST", &self.endpoint, &headers, body.as_bytes())
            .unwrap()
    }

    fn send(&self, id: u32, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let taken = self.post(self.key, &message);
        assert_eq!((taken.status, taken.body.len()), (202, 0));
    }

    /// Posts a request and returns the next message, which must be its answer.
    fn request(&mut self, id: u32, method: &str, params: Value) -> Value {
        self.send(id, method, params);
        let answer = self.message().unwrap();
        assert_eq!(answer["id"], id, "{answer:#}");
        answer
    }

    fn message(&mut self) -> Option<Value> {
        let (kind, data) = self.event()?;
        assert_eq!(kind, "message");
        Some(serde_json::from_str(&data).unwrap())
    }

    /// Returns the next event: its kind and its data.
    fn event(&mut self) -> Option<(String, String)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                let found = field("event: ").zip(field("data: "));
                let found = found.map(|(kind, data)| (kind.to_owned(), data.to_owned()));
                self.text = rest.to_owned();
                match found {
                    Some(found) => return Some(found),
                    None => continue,
                }
            }
            let chunk = self.stream.chunk().ok()??;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}

#[test]
fn a_client_of_the_first_version_lists_calls_and_hears() {
    let gantry = Gantry::start(&["a"]);
    let mut first = First::ready(&gantry);
    let tools = first.request(1, "tools/list", json!({}));
    assert!(tools["result"]["tools"].as_array().unwrap().len() > 10);
    let echo = json!({"name": "a__echo", "arguments": {"text": "hi"}});
    let echoed = first.request(2, "tools/call", echo);
    assert_eq!(echoed["result"]["content"][0]["text"], "hi");
    let wrong = first.request(3, "tools/call", json!({"name": "nothing"}));
    assert_eq!(wrong["error"]["code"], -32602);
    // Progress comes on the same stream.
    let arguments = json!({"ms": 50, "progress": 2});
    let params = json!({"name": "a__slow", "arguments": arguments, "_meta": {"progressToken": 7}});
    first.send(4, "tools/call", params);
    let told = [first.message(), first.message(), first.message()].map(Option::unwrap);
    assert_eq!(told[0]["params"]["progressToken"], 7, "{told:#?}");
    assert_eq!(told[2]["id"], 4);
    // So do changes, of lists and of resources.
    first.request(
        5,
        "resources/subscribe",
        json!({"uri": "test://static-text"}),
    );
    let touch = json!({"name": "a__touch", "arguments": {"uri": "test://static-text"}});
    first.send(6, "tools/call", touch);
    let mut heard = [first.message().unwrap(), first.message().unwrap()];
    heard.sort_by_key(|message| message["id"].is_null());
    assert_eq!(heard[0]["id"], 6);
    assert_eq!(heard[1]["method"], "notifications/resources/updated");
    gantry.call("a__grow", json!({}));
    assert_eq!(
        first.message().unwrap()["method"],
        "notifications/tools/list_changed"
    );
}

// fault T4, A4
#[test]
fn a_stream_is_its_keys_and_ends_what_it_began() {
    let journal = tempfile::tempdir().unwrap();
    let journal = journal.path().join("journal");
    let peer = Evilpeer::new().journal(&journal);
    let gantry = Gantry::builder().server("a", &peer).start();
    gantry.wait_state("a", "ready", LONG);
    let body = json!({"kind": "agent", "agent": "default"});
    let other = gantry.rest("POST", "/api/v1/keys", Some(&body)).json();
    let other = other["key"].as_str().unwrap();
    let first = First::ready(&gantry);
    let message = json!({"jsonrpc": "2.0", "id": 9, "method": "ping"});
    let foreign = first.post(other, &message);
    assert_eq!(
        (foreign.status, &foreign.json()["error"]["data"]["code"]),
        (404, &json!("session.unknown"))
    );
    let arguments = json!({"ms": 60_000, "nonce": "n"});
    first.send(
        1,
        "tools/call",
        json!({"name": "a__slow", "arguments": arguments}),
    );
    let executed = || Journal::read(&journal).unwrap().executed("n") == 1;
    assert!(eventually(LONG, executed).is_some());
    let endpoint = first.endpoint.clone();
    drop(first);
    let cancelled = || Journal::read(&journal).unwrap().cancelled("n");
    assert!(eventually(5 * SECOND, cancelled).is_some());
    let status = || {
        let rows = gantry.audit_rows("");
        rows.iter().any(|row| row["status"] == "cancelled")
    };
    assert!(eventually(LONG, status).is_some());
    let late = First {
        endpoint,
        ..First::open(&gantry, &gantry.agent)
    };
    let late = late.post(&gantry.agent, &message);
    assert_eq!(late.status, 404);
}

// fault U6
#[test]
fn a_stream_ends_with_its_key() {
    let gantry = Gantry::start(&["a"]);
    let body = json!({"kind": "agent", "agent": "default"});
    let made = gantry.rest("POST", "/api/v1/keys", Some(&body)).json();
    let mut first = First::open(&gantry, made["key"].as_str().unwrap());
    let path = format!("/api/v1/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(gantry.rest("DELETE", &path, None).status, 204);
    first
        .stream
        .socket()
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    assert_eq!(first.event(), None);
    let refused = gantry.connect().request("GET", "/sse", &[], b"").unwrap();
    assert_eq!(refused.status, 401);
}
