//! People whom a server sends to a URL: in a question or in an error, told of when they are through.

use std::io::Write;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use gantry_testkit::wait::eventually;
use serde_json::{Value, json};

use super::peer::{Peer, Reply, Seen, event, finish, legacy};
use super::{FAR, entry, gateway};
use crate::eras::Events;
use crate::faults_client::Posted;
use crate::harness::{Connection, Gantry, LONG};

const COMPLETE: &str = "notifications/elicitation/complete";

/// The streams of the server's sessions, each with whoever listens on it.
type Streams = Arc<Mutex<Vec<(String, Sender<Value>)>>>;

/// A server that sends people to a URL before it answers, as often as its tool is told to.
struct Sending {
    peer: Peer,
    gantry: Gantry,
    streams: Streams,
}

/// Returns where a call has people sent.
fn url(seen: &Seen) -> Value {
    let asked = &seen.body["params"]["arguments"]["url"];
    match asked.is_null() {
        true => json!("https://x.example/go"),
        false => asked.clone(),
    }
}

/// Returns the error that says that a person must go somewhere first.
fn required(seen: &Seen, id: &str) -> Reply {
    let elicitation = json!({"mode": "url", "elicitationId": id, "url": url(seen),
        "message": "Sign in"});
    let error = json!({"code": -32042, "message": "a URL first",
        "data": {"elicitations": [elicitation]}});
    Reply::Json(json!({"jsonrpc": "2.0", "id": seen.body["id"], "error": error}))
}

fn sending() -> Sending {
    let streams: Streams = Arc::default();
    let (known, sessions) = (Arc::clone(&streams), Mutex::new(0));
    let left: Mutex<std::collections::HashMap<String, u64>> = Mutex::default();
    let peer = Peer::start(move |seen| {
        let arguments = &seen.body["params"]["arguments"];
        match (seen.verb.as_str(), seen.method()) {
            ("GET", _) => {
                let (told, tells) = channel();
                let session = seen.header("mcp-session-id").unwrap_or_default();
                known.lock().unwrap().push((session.to_owned(), told));
                stream(tells)
            }
            ("POST", "initialize") => {
                let mut sessions = sessions.lock().unwrap();
                *sessions += 1;
                let hello = json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": {
                    "protocolVersion": "2025-11-25", "serverInfo": {"name": "x", "version": "1"},
                    "capabilities": {"tools": {}}}});
                let kind = ("Content-Type", "application/json".to_owned());
                let session = ("Mcp-Session-Id", format!("s{sessions}"));
                Reply::Status(200, vec![kind, session], hello.to_string())
            }
            ("POST", "tools/call") if arguments["asks"] == true => asking(seen),
            ("POST", "tools/call") => {
                let id = arguments["text"].as_str().unwrap_or_default();
                let mut left = left.lock().unwrap();
                let times = arguments["times"].as_u64().unwrap_or(0);
                let left = left.entry(id.to_owned()).or_insert(times);
                match *left {
                    0 => legacy(seen),
                    _ => {
                        *left -= 1;
                        required(seen, id)
                    }
                }
            }
            _ if seen.body.get("result").is_some() => Reply::status(202),
            _ => legacy(seen),
        }
    });
    let gantry = gateway(entry(&peer.url("/mcp"))).start();
    gantry.wait_state(FAR, "ready", LONG);
    Sending {
        peer,
        gantry,
        streams,
    }
}

/// Asks on the stream of the call, says that the person is through, and answers.
fn asking(seen: &Seen) -> Reply {
    let (id, url) = (seen.body["id"].clone(), url(seen));
    Reply::Events(Box::new(move |to: &mut dyn Write| {
        let params = json!({"mode": "url", "elicitationId": "e-9", "url": url,
            "message": "Sign in"});
        let ask = json!({"jsonrpc": "2.0", "id": 77, "method": "elicitation/create",
            "params": params});
        event(to, &format!("data: {ask}\n\n"))?;
        let params = json!({"elicitationId": "e-9"});
        let through = json!({"jsonrpc": "2.0", "method": COMPLETE, "params": params});
        event(to, &format!("data: {through}\n\n"))?;
        let content = json!([{"type": "text", "text": "done"}]);
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"content": content}});
        std::thread::park_timeout(std::time::Duration::from_millis(200));
        event(to, &format!("data: {answer}\n\n"))?;
        finish(to)
    }))
}

fn stream(tells: Receiver<Value>) -> Reply {
    Reply::Events(Box::new(move |to: &mut dyn Write| {
        for message in tells {
            event(to, &format!("data: {message}\n\n"))?;
        }
        Ok(())
    }))
}

impl Sending {
    /// Has the server say on all of its streams that a person is through.
    fn completes(&self, id: &str) {
        let params = json!({"elicitationId": id});
        let message = json!({"jsonrpc": "2.0", "method": COMPLETE, "params": params});
        // That of all clients, and that of those who can be asked.
        let are_open = || self.streams.lock().unwrap().len() >= 2;
        assert!(eventually(LONG, are_open).is_some());
        for (_, stream) in self.streams.lock().unwrap().iter() {
            drop(stream.send(message.clone()));
        }
    }

    /// Opens a session whose client can be sent to URLs.
    fn session(&self) -> String {
        let can = json!({"elicitation": {"form": {}, "url": {}}});
        let info = json!({"name": "c", "version": "1"});
        let params =
            json!({"protocolVersion": "2025-11-25", "capabilities": can, "clientInfo": info});
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let answer = Posted::new(&self.gantry.agent, "/mcp", &message).send(&self.gantry);
        answer.header("mcp-session-id").unwrap().to_owned()
    }

    fn call(&self, session: &str, arguments: Value) -> Connection {
        let params = json!({"name": "far__echo", "arguments": arguments});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let posted = Posted::in_session(&self.gantry.agent, session, &message);
        posted
            .header("MCP-Protocol-Version", "2025-11-25")
            .open(&self.gantry)
    }

    fn listen(&self, session: &str) -> Events {
        let bearer = format!("Bearer {}", self.gantry.agent);
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Accept", "text/event-stream"),
            ("Mcp-Session-Id", session),
            ("MCP-Protocol-Version", "2025-11-25"),
        ];
        let mut connection = self.gantry.connect();
        connection.write("GET", "/mcp", &headers, b"").unwrap();
        Events::of(connection)
    }

    /// Calls as a client without sessions that can these things.
    fn stateless(&self, can: Value, mut params: Value) -> Value {
        params["name"] = json!("far__echo");
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": can});
        params["_meta"] = meta;
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let posted = Posted::stateless(&self.gantry.agent, "tools/call", params);
        posted
            .body(message.to_string())
            .send(&self.gantry)
            .message()
    }
}

// row 2.20: 2025-11-25, URL mode
#[test]
fn a_client_that_was_sent_to_a_url_hears_when_that_is_done() {
    let sending = sending();
    let (mine, other) = (sending.session(), sending.session());
    let answer = sending.call(&mine, json!({"text": "e-1", "times": 1}));
    let error = { answer }.answer().unwrap().message()["error"].clone();
    assert_eq!(error["code"], -32042, "{error:#}");
    assert_eq!(error["data"]["elicitations"][0]["elicitationId"], "e-1");
    let (mut mine, mut other) = (sending.listen(&mine), sending.listen(&other));
    // One that nobody was given is told to nobody.
    sending.completes("e-0");
    sending.completes("e-1");
    let told = mine.next().expect("the stream goes on");
    assert_eq!(
        (&told["method"], &told["params"]),
        (&json!(COMPLETE), &json!({"elicitationId": "e-1"}))
    );
    assert!(other.is_silent_for(std::time::Duration::from_millis(300)));
}

// row 2.20: 2025-11-25, URL mode
#[test]
fn a_client_that_is_asked_during_its_call_hears_it_there() {
    let sending = sending();
    let session = sending.session();
    let mut events = Events::of(sending.call(&session, json!({"asks": true})));
    let mut seen = Vec::new();
    while let Some(message) = events.next() {
        match message["method"].as_str() {
            Some(method) => seen.push(method.to_owned()),
            None => assert_eq!(message["result"]["content"][0]["text"], "done"),
        }
    }
    assert!(seen.contains(&"elicitation/create".to_owned()), "{seen:?}");
    assert!(seen.contains(&COMPLETE.to_owned()), "{seen:?}");
}

// row 2.20: 2026-07-28 has no such error
#[test]
fn a_stateless_client_is_asked_instead_and_its_call_is_made_again() {
    let sending = sending();
    let can = || json!({"elicitation": {"url": {}}});
    let arguments = json!({"text": "e-2", "times": 1});
    let asked = sending.stateless(can(), json!({"arguments": arguments}));
    let result = &asked["result"];
    assert_eq!(result["resultType"], "input_required", "{asked:#}");
    let requests = result["inputRequests"].as_object().unwrap();
    let (key, request) = requests.iter().next().unwrap();
    let wanted = json!({"mode": "url", "url": "https://x.example/go", "message": "Sign in"});
    assert_eq!(
        (&request["method"], &request["params"]),
        (&json!("elicitation/create"), &wanted)
    );
    let back = |action: &str| {
        json!({"arguments": arguments, "requestState": result["requestState"],
            "inputResponses": {key: {"action": action}}})
    };
    let done = sending.stateless(can(), back("accept"));
    assert_eq!(done["result"]["content"][0]["text"], "e-2", "{done:#}");
    assert_eq!(sending.peer.asked("tools/call").len(), 2);
    let rows = sending.gantry.audit_rows("server=far");
    assert_eq!(
        rows.len(),
        1,
        "one call, however often it is sent: {rows:#?}"
    );
}

// row 2.20
#[test]
fn a_person_who_takes_long_is_waited_for_and_one_who_declines_is_not() {
    let sending = sending();
    let can = || json!({"elicitation": {"url": {}}});
    let begin = |arguments: &Value| {
        let asked = sending.stateless(can(), json!({"arguments": arguments}));
        let result = asked["result"].clone();
        assert_eq!(result["resultType"], "input_required", "{asked:#}");
        let keys = result["inputRequests"].as_object().unwrap().keys();
        let key = { keys }.next().cloned().unwrap();
        (key, result["requestState"].clone())
    };
    let back = |arguments: &Value, (key, state): (String, Value), action: &str| {
        let params = json!({"arguments": arguments, "requestState": state,
            "inputResponses": {key: {"action": action}}});
        sending.stateless(can(), params)
    };
    // The server says no once more, and then that the person is through.
    let long = json!({"text": "e-3", "times": 2});
    let asked = begin(&long);
    std::thread::scope(|scope| {
        let going = scope.spawn(|| back(&long, asked, "accept"));
        while sending.peer.asked("tools/call").len() < 2 || !going.is_finished() {
            sending.completes("e-3");
            std::thread::park_timeout(std::time::Duration::from_millis(50));
        }
        let done = going.join().unwrap();
        assert_eq!(done["result"]["content"][0]["text"], "e-3", "{done:#}");
    });
    for action in ["decline", "cancel"] {
        let no = json!({"text": format!("e-{action}"), "times": 9});
        let asked = begin(&no);
        let answer = back(&no, asked, action);
        assert_eq!(
            answer["error"]["data"]["code"], "call.declined",
            "{answer:#}"
        );
    }
}

// row 2.20
#[test]
fn a_stateless_client_that_cannot_be_sent_to_a_url_is_told_what_it_lacks() {
    let sending = sending();
    for can in [
        json!({}),
        json!({"elicitation": {}}),
        json!({"sampling": {}}),
    ] {
        let arguments = json!({"text": format!("e-4{can}"), "times": 1});
        let answer = sending.stateless(can, json!({"arguments": arguments}));
        let error = &answer["error"];
        assert_eq!(error["code"], -32021, "{answer:#}");
        let needed = json!({"elicitation": {"url": {}}});
        assert_eq!(error["data"]["requiredCapabilities"], needed);
    }
}

// fault L7
#[test]
fn nobody_is_sent_to_what_is_no_web_page() {
    let sending = sending();
    let session = sending.session();
    let urls = [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "data:text/html,x",
    ];
    for (number, url) in urls.into_iter().enumerate() {
        let arguments =
            |kind: &str| json!({"text": format!("{kind}-{number}"), "times": 1, "url": url});
        let can = json!({"elicitation": {"url": {}}});
        let stateless = sending.stateless(can, json!({"arguments": arguments("s")}));
        let call = sending.call(&session, arguments("h"));
        let handshake = { call }.answer().unwrap().message();
        for answer in [&stateless, &handshake] {
            assert!(answer.get("error").is_some(), "{answer:#}");
            assert_ne!(answer["error"]["code"], -32042, "{answer:#}");
            assert!(!answer.to_string().contains(url), "{answer:#}");
        }
        // Nothing is asked, so that the answer is no stream.
        let call = sending.call(&session, json!({"asks": true, "url": url}));
        let answer = { call }.answer().unwrap();
        assert_eq!(answer.message()["result"]["content"][0]["text"], "done");
        assert!(!answer.text().contains(url), "{}", answer.text());
    }
}
