//! HTTP+SSE, as clients of the first protocol version speak it.

use std::io::Write as _;
use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::journal::Journal;
use gantry_testkit::wait::eventually;
use serde_json::{Value, json};

use super::SECOND;
use crate::faults_client::{Posted, with_long_list};
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
    /// Opens the stream of everything and reads where to post.
    fn open(gantry: &'a Gantry, key: &'a str) -> Self {
        Self::open_at(gantry, key, "/sse")
    }

    fn open_at(gantry: &'a Gantry, key: &'a str, path: &str) -> Self {
        let bearer = format!("Bearer {key}");
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Accept", "text/event-stream"),
        ];
        let mut stream = gantry.connect();
        stream.write("GET", path, &headers, b"").unwrap();
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

    /// Opens the stream of everything and shakes hands.
    fn ready(gantry: &'a Gantry) -> Self {
        Self::open(gantry, &gantry.agent).greeted()
    }

    fn greeted(self) -> Self {
        let mut first = self;
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
        self.post_text(key, &message.to_string())
    }

    fn post_text(&self, key: &str, text: &str) -> Answer {
        let bearer = format!("Bearer {key}");
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Content-Type", "application/json"),
        ];
        let mut connection = self.gantry.connect();
        connection
            .request("POST", &self.endpoint, &headers, text.as_bytes())
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

// row 0.8: at the stream of one server, its tools have their own names and no other's are there
#[test]
fn the_stream_of_one_server_offers_it_under_its_own_names() {
    let gantry = Gantry::start(&["a", "b"]);
    let narrow = &gantry.agent_with("narrow", &["a:*"]);
    let mut first = First::open_at(&gantry, narrow, "/sse/servers/a").greeted();
    let tools = first.request(1, "tools/list", json!({}));
    let tools = tools["result"]["tools"].as_array().unwrap();
    let mut names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
    assert!(names.clone().any(|name| name == "echo"), "{tools:#?}");
    assert!(names.all(|name| !name.contains("__")), "{tools:#?}");
    let call = |name: &str| json!({"name": name, "arguments": {"text": "hi"}});
    let echoed = first.request(2, "tools/call", call("echo"));
    assert_eq!(echoed["result"]["content"][0]["text"], "hi");
    // Nothing of another server's can be reached on it.
    let foreign = first.request(3, "tools/call", call("b__echo"));
    assert_eq!(foreign["error"]["code"], -32602, "{foreign:#}");
    let rows = gantry.audit_rows("agent=narrow&status=ok");
    let called: Vec<_> = rows
        .iter()
        .map(|row| (&row["server"], &row["tool"]))
        .collect();
    assert_eq!(called, [(&json!("a"), &json!("echo"))]);
    // Changes of the server come on it.
    gantry.call("a__grow", json!({}));
    let told = first.message().unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed");
    // Who is not there, and who is not for this agent, are told apart by nobody.
    let bearer = format!("Bearer {narrow}");
    let headers = [("Authorization", &*bearer), ("Accept", "text/event-stream")];
    for unknown in ["b", "nobody", "%20"] {
        let path = format!("/sse/servers/{unknown}");
        let mut connection = gantry.connect();
        let refused = connection.request("GET", &path, &headers, b"").unwrap();
        let told = refused.json();
        assert_eq!(
            (refused.status, &told["error"]["data"]["code"]),
            (404, &json!("server.unknown")),
            "{told:#}"
        );
    }
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
    assert!(
        eventually(SECOND, cancelled).is_some(),
        "the server is told within a second"
    );
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

// A POST is answered with what its client can match to its request; on the stream stands nothing
// without an id.
#[test]
fn what_is_refused_is_told_at_once_and_under_its_id() {
    const AT_A_TIME: u32 = 64;
    let gantry = Gantry::start(&["a"]);
    let mut first = First::ready(&gantry);
    let broken = first.post_text(first.key, "{\"jsonrpc\":");
    assert_eq!(broken.status, 400, "{}", broken.text());
    assert_eq!(broken.json()["error"]["code"], -32700);
    let batch = json!([{"jsonrpc": "2.0", "id": 1, "method": "ping"}]);
    assert_eq!(first.post(first.key, &batch).status, 202);
    assert_eq!(first.message().unwrap()["error"]["code"], -32600);
    let slow = json!({"name": "a__slow", "arguments": {"ms": 60_000}});
    for id in 1..=AT_A_TIME {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": slow});
        // What was answered last gives its place back a moment after its answer.
        let taken = || first.post(first.key, &call).status == 202;
        assert!(eventually(LONG, taken).is_some(), "{id}");
    }
    let over = json!({"jsonrpc": "2.0", "id": "over", "method": "ping"});
    let over = first.post(first.key, &over);
    assert_eq!(over.status, 429, "{}", over.text());
    assert_eq!(over.json()["id"], "over");
    assert_eq!(over.json()["error"]["data"]["code"], "listen.too_many");
    // One that ends makes room.
    gantry.rest("POST", "/api/v1/mcp/servers/a/restart", None);
    let ended = first.message().unwrap();
    assert!(ended["id"].as_u64().is_some(), "{ended:#}");
}

// A long message takes its room once.
#[test]
fn a_long_message_is_answered_when_there_is_just_room_for_it() {
    const LONG_BODY: usize = 4 << 20;
    // One less than an agent's share of the room.
    const OTHERS: usize = 9;
    let gantry = Gantry::start(&["a"]);
    let mut first = First::ready(&gantry);
    let posted = Posted::new(&gantry.agent, "/mcp", &Value::Null);
    let head = posted.head(&gantry.authority, &format!("Content-Length: {LONG_BODY}"));
    let held: Vec<Connection> = (0..OTHERS)
        .map(|_| {
            let mut connection = gantry.connect();
            connection.socket().write_all(&head).unwrap();
            connection
        })
        .collect();
    let params = json!({"name": "a__echo", "arguments": {"text": "long"}});
    let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
    let mut text = message.to_string();
    text.push_str(&" ".repeat(LONG_BODY - text.len()));
    // Whether the others are there yet or not, there is room; twice there would not be.
    for _ in 0..3 {
        let taken = first.post_text(first.key, &text);
        assert_eq!(taken.status, 202, "{}", taken.text());
        let answer = first.message().unwrap();
        assert_eq!(answer["id"], 7, "{answer:#}");
        assert_eq!(answer["result"]["content"][0]["text"], "long", "{answer:#}");
    }
    drop(held);
}

// fault A1: lists that wait for one stream are copies, and counted.
#[test]
fn lists_that_a_stream_does_not_take_are_counted() {
    const LISTS: u32 = 24;
    let folder = tempfile::tempdir().unwrap();
    let gantry = with_long_list(folder.path());
    let mut first = First::ready(&gantry);
    for id in 1..=LISTS {
        first.send(id, "tools/list", json!({}));
    }
    let told: Vec<String> = (0..LISTS).map(|_| first.event().unwrap().1).collect();
    let full = |text: &&String| text.contains("http.answers_full");
    let refused = told.iter().filter(full).count();
    let whole = told.iter().filter(|text| text.len() > 4 << 20).count();
    assert_eq!(refused + whole, told.len());
    assert!(refused > 0 && whole > 4, "{refused} refused, {whole} whole");
    // Who reads again has room again.
    let list = first.request(100, "tools/list", json!({}));
    assert!(list["result"]["tools"].is_array());
}

// Of two handshakes on one stream the second counts, and the first leaves nothing behind.
#[test]
fn a_second_handshake_ends_the_first_session() {
    let gantry = Gantry::start(&["a"]);
    let mut first = First::ready(&gantry);
    let uri = json!({"uri": "test://static-text"});
    first.request(1, "resources/subscribe", uri.clone());
    let info = json!({"name": "first", "version": "2"});
    let params = json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": info});
    first.request(2, "initialize", params);
    first.request(3, "ping", json!({}));
    // What the first session listened to is told nobody, and what both would hear is told once.
    let touch = json!({"name": "a__touch", "arguments": uri});
    first.request(4, "tools/call", touch);
    for _ in 0..2 {
        gantry.call("a__grow", json!({}));
        let told = first.message().unwrap();
        assert_eq!(
            told["method"], "notifications/tools/list_changed",
            "{told:#}"
        );
    }
    first.request(5, "ping", json!({}));
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
