//! What a server says on the connection that belongs to one client: its questions between calls reach
//! that client, and what the client says outside of calls reaches that connection. faults S15, T4

use std::io::Write;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use gantry_testkit::wait::eventually;
use serde_json::{Value, json};

use super::peer::{Peer, Reply, Seen, event, legacy};
use super::{FAR, entry, gateway};
use crate::eras::Events;
use crate::faults_client::Posted;
use crate::harness::{Connection, Gantry, LONG};

const ROOTS_CHANGED: &str = "notifications/roots/list_changed";
const UPDATED: &str = "notifications/resources/updated";
/// What a call makes in the session it was made in.
const MADE: &str = "demo://made";

/// The streams of the server's sessions.
type Streams = Arc<Mutex<Vec<(String, Sender<Value>)>>>;

/// A server that has a session for each connection: `shared` is the one that declared nothing.
struct Server {
    peer: Peer,
    gantry: Gantry,
    streams: Streams,
}

fn server() -> Server {
    let streams: Streams = Arc::default();
    let (known, sessions) = (Arc::clone(&streams), Mutex::new(0));
    let peer = Peer::start(move |seen| match (seen.verb.as_str(), seen.method()) {
        ("GET", _) => {
            let (told, tells) = channel::<Value>();
            known.lock().unwrap().push((session(seen), told));
            Reply::Events(Box::new(move |to: &mut dyn Write| {
                for message in tells {
                    event(to, &format!("data: {message}\n\n"))?;
                }
                Ok(())
            }))
        }
        ("POST", "initialize") => {
            let mut sessions = sessions.lock().unwrap();
            let name = match seen.body["params"]["capabilities"].as_object() {
                Some(declared) if !declared.is_empty() => {
                    *sessions += 1;
                    format!("own-{sessions}")
                }
                _ => "shared".to_owned(),
            };
            let capabilities = json!({"tools": {}, "resources": {"subscribe": true}});
            let hello = json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": {
                "protocolVersion": "2025-11-25", "serverInfo": {"name": "x", "version": "1"},
                "capabilities": capabilities}});
            let kind = ("Content-Type", "application/json".to_owned());
            let session = ("Mcp-Session-Id", name);
            Reply::Status(200, vec![kind, session], hello.to_string())
        }
        ("POST", "tools/call") => seen.result(json!({"content": [
            {"type": "text", "text": "made"},
            {"type": "resource_link", "uri": MADE, "name": "made"}]})),
        ("POST", "resources/list") => seen.result(json!({"resources": []})),
        ("POST", "resources/templates/list") => seen.result(json!({"resourceTemplates": []})),
        ("POST", "resources/read") => {
            let text = session(seen);
            seen.result(json!({"contents": [{"uri": MADE, "text": text}]}))
        }
        ("POST", "resources/subscribe") => seen.result(json!({})),
        _ if seen.body.get("method").is_none() => Reply::status(202),
        _ => legacy(seen),
    });
    let gantry = gateway(entry(&peer.url("/mcp"))).start();
    gantry.wait_state(FAR, "ready", LONG);
    Server {
        peer,
        gantry,
        streams,
    }
}

/// Returns the session that a request names.
fn session(seen: &Seen) -> String {
    seen.header("mcp-session-id").unwrap_or_default().to_owned()
}

impl Server {
    /// Says something on the stream of a session, once there is one.
    fn says(&self, session: &str, message: &Value) {
        let say = || {
            let streams = self.streams.lock().unwrap();
            let stream = streams.iter().rev().find(|(name, _)| name == session);
            stream.is_some_and(|(_, stream)| stream.send(message.clone()).is_ok())
        };
        assert!(eventually(LONG, say).is_some(), "`{session}` has a stream");
    }

    /// Asks a session something, and returns what it answers.
    fn asks(&self, session: &str, method: &str) {
        let ask = json!({"jsonrpc": "2.0", "id": "between", "method": method, "params": {}});
        self.says(session, &ask);
    }

    /// Waits for the answer to what a session was asked.
    fn told(&self, from: &str) -> Value {
        let mut told = Value::Null;
        let answered = eventually(LONG, || {
            let seen = self.peer.seen().into_iter();
            let mut answers =
                seen.filter(|seen| seen.body["id"] == "between" && session(seen) == from);
            told = answers.next().map_or(Value::Null, |seen| seen.body);
            !told.is_null()
        });
        assert!(answered.is_some(), "`{from}` answers");
        told
    }

    /// Returns in which sessions a method came, in order.
    fn came(&self, method: &str) -> Vec<String> {
        self.peer.asked(method).iter().map(session).collect()
    }
}

/// A client of the handshake era.
struct Client<'a> {
    gantry: &'a Gantry,
    session: String,
}

impl<'a> Client<'a> {
    fn open(gantry: &'a Gantry, capabilities: Value) -> Self {
        let info = json!({"name": "asked", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": info});
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let answer = Posted::new(&gantry.agent, "/mcp", &message).send(gantry);
        let session = answer.header("mcp-session-id").unwrap().to_owned();
        Self { gantry, session }
    }

    fn post(&self, message: &Value) -> crate::harness::Answer {
        Posted::in_session(&self.gantry.agent, &self.session, message).send(self.gantry)
    }

    fn request(&self, method: &str, params: Value) -> Value {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.post(&message).message()
    }

    fn calls(&self) {
        let params = json!({"name": "far__echo", "arguments": {}});
        let answer = self.request("tools/call", params);
        assert_eq!(answer["result"]["content"][0]["text"], "made", "{answer:#}");
    }

    fn listen(&self) -> Events {
        let bearer = format!("Bearer {}", self.gantry.agent);
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Accept", "text/event-stream"),
            ("Mcp-Session-Id", &self.session),
        ];
        let mut connection: Connection = self.gantry.connect();
        connection.write("GET", "/mcp", &headers, b"").unwrap();
        Events::of(connection)
    }
}

// fault T4: the session whose connection it is, and no other
#[test]
fn a_question_between_calls_comes_on_the_stream_of_its_session() {
    let server = server();
    let client = Client::open(&server.gantry, json!({"roots": {}}));
    let stranger = Client::open(&server.gantry, json!({"roots": {}}));
    client.calls();
    stranger.calls();
    let mut events = client.listen();
    server.asks("own-1", "roots/list");
    let asked = events.next().expect("the stream goes on");
    assert_eq!(asked["method"], "roots/list", "{asked:#}");
    let answer =
        |roots: Value| json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": roots}});
    // Nobody else can answer it.
    assert_eq!(stranger.post(&answer(json!([]))).status, 202);
    let roots = json!([{"uri": "file:///x", "name": "x"}]);
    assert_eq!(client.post(&answer(roots.clone())).status, 202);
    assert_eq!(server.told("own-1")["result"]["roots"], roots);
}

// fault S15: what a client did not declare it is never asked; nor is one that does not listen
#[test]
fn a_question_between_calls_that_cannot_be_asked_is_refused() {
    let server = server();
    let client = Client::open(&server.gantry, json!({"roots": {}}));
    client.calls();
    server.asks("own-1", "roots/list");
    let refused = server.told("own-1");
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(why.contains("cannot be asked"), "{refused:#}");
    let _events = client.listen();
    let other = Client::open(&server.gantry, json!({"roots": {}}));
    other.calls();
    let mut events = other.listen();
    server.asks("own-2", "sampling/createMessage");
    let refused = server.told("own-2");
    assert_eq!(refused["error"]["code"], -32601, "{refused:#}");
    // The next that it hears is what it can do.
    server.asks("own-2", "roots/list");
    let asked = events.next().expect("the stream goes on");
    assert_eq!(asked["method"], "roots/list", "{asked:#}");
}

// row 2.20
#[test]
fn a_client_whose_roots_change_is_heard_by_its_own_connection() {
    let server = server();
    let client = Client::open(&server.gantry, json!({"roots": {"listChanged": true}}));
    let other = Client::open(&server.gantry, json!({"roots": {"listChanged": true}}));
    client.calls();
    other.calls();
    let changed = json!({"jsonrpc": "2.0", "method": ROOTS_CHANGED});
    assert_eq!(other.post(&changed).status, 202);
    let came = eventually(LONG, || !server.came(ROOTS_CHANGED).is_empty());
    assert!(came.is_some(), "the server hears of it");
    assert_eq!(server.came(ROOTS_CHANGED), ["own-2"]);
    // It was told that this may come.
    let hello = server.peer.asked("initialize");
    let declared = &hello.last().unwrap().body["params"]["capabilities"]["roots"];
    assert_eq!(declared["listChanged"], true, "{declared}");
}

// row 2.21: what a call has made in the client's own connection is there and nowhere else
#[test]
fn what_a_client_made_is_subscribed_to_where_it_is() {
    let server = server();
    let client = Client::open(&server.gantry, json!({"roots": {}}));
    client.calls();
    let params = json!({"uri": MADE});
    let read = client.request("resources/read", params.clone());
    assert_eq!(read["result"]["contents"][0]["text"], "own-1", "{read:#}");
    let subscribed = client.request("resources/subscribe", params.clone());
    assert!(subscribed["result"].is_object(), "{subscribed:#}");
    assert_eq!(server.came("resources/subscribe"), ["own-1"]);
    let mut events = client.listen();
    let updated = json!({"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": MADE}});
    server.says("own-1", &updated);
    let told = events.next().expect("the stream goes on");
    assert_eq!(
        (&told["method"], &told["params"]["uri"]),
        (&json!(UPDATED), &json!(MADE))
    );
    // Another session of the same agent was given no such link, and has no connection of its own.
    let other = Client::open(&server.gantry, json!({}));
    let read = other.request("resources/read", params.clone());
    assert_eq!(read["result"]["contents"][0]["text"], "shared", "{read:#}");
    other.request("resources/subscribe", params);
    assert_eq!(server.came("resources/subscribe"), ["own-1", "shared"]);
}
