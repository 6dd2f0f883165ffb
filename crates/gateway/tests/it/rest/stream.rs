//! The event stream, `GET /api/v1/events/stream`: what happens, as it happens, for administrators.

use std::io::ErrorKind;
use std::time::Duration;

use gantry_testkit::wait::Stopwatch;
use serde_json::{Value, json};

use super::problem;
use crate::harness::{Connection, Gantry, LONG};

/// One event.
#[derive(Debug)]
struct Event {
    id: String,
    kind: String,
    data: Value,
}

/// An open stream.
struct Stream {
    connection: Connection,
    rest: String,
}

impl Stream {
    fn open(gantry: &Gantry, topics: &str, last: Option<&str>) -> Self {
        let bearer = format!("Bearer {}", gantry.admin);
        let mut headers = vec![("Authorization", bearer.as_str())];
        headers.extend(last.map(|last| ("Last-Event-ID", last)));
        let path = format!("/api/v1/events/stream?topics={topics}");
        let mut connection = gantry.connect();
        connection.write("GET", &path, &headers, b"").unwrap();
        let head = connection.head().unwrap();
        assert_eq!(head.status, 200);
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        let rest = String::new();
        Self { connection, rest }
    }

    /// Returns the next event; nothing at the stream's end.
    fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((text, rest)) = self.rest.split_once("\n\n") {
                let field = |name: &str| {
                    let mut lines = text.lines();
                    lines.find_map(|line| line.strip_prefix(name).map(str::to_owned))
                };
                let event = field("event: ").map(|kind| Event {
                    id: field("id: ").unwrap_or_default(),
                    data: serde_json::from_str(&field("data: ").unwrap()).unwrap(),
                    kind,
                });
                self.rest = rest.to_owned();
                match event {
                    Some(event) => return Some(event),
                    None => continue,
                }
            }
            match self.connection.chunk() {
                Ok(Some(chunk)) => self.rest.push_str(std::str::from_utf8(&chunk).unwrap()),
                Ok(None) => return None,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Waits for an event of a kind that fits.
    fn until(&mut self, kind: &str, fits: impl Fn(&Value) -> bool) -> Event {
        loop {
            let event = self.next().expect("the stream goes on");
            if event.kind == kind && fits(&event.data) {
                return event;
            }
        }
    }
}

fn restart(gantry: &Gantry, server: &str) {
    let path = format!("/api/v1/mcp/servers/{server}/restart");
    assert_eq!(gantry.rest("POST", &path, None).status, 200);
}

#[test]
fn every_topic_tells_what_belongs_to_it() {
    let gantry = Gantry::start(&["a", "b"]);
    let mut all = Stream::open(&gantry, "overview,servers", None);
    let hello = all.next().unwrap();
    assert_eq!(hello.kind, "hello");
    assert_eq!(hello.data["version"], env!("CARGO_PKG_VERSION"));
    assert!(hello.data["boot"].is_string() && hello.data["now_ms"].is_u64());
    let mut one = Stream::open(&gantry, "server:a", None);
    let mut log = Stream::open(&gantry, "log:a", None);
    let mut calls = Stream::open(&gantry, "calls:tool=echo,access", None);
    restart(&gantry, "b");
    restart(&gantry, "a");
    let mut missing = vec![
        ("lifecycle", "a"),
        ("lifecycle", "b"),
        ("server", "a"),
        ("server", "b"),
    ];
    while !missing.is_empty() {
        let event = all.next().unwrap();
        let (server, state) = match event.kind.as_str() {
            "lifecycle" => (&event.data["server"], &event.data["kind"]),
            _ => (&event.data["name"], &event.data["state"]),
        };
        missing.retain(|(kind, name)| event.kind != *kind || server != name || state != "ready");
    }
    // Of one server nothing of another is told.
    loop {
        let event = one.next().unwrap();
        match event.kind.as_str() {
            "server" => assert_eq!(event.data["name"], "a"),
            "lifecycle" => assert_eq!(event.data["server"], "a"),
            "usage" => {
                assert_eq!(event.data["server"], "a");
                assert!(event.data["in_flight"].is_u64(), "{event:?}");
                break;
            }
            _ => {}
        }
    }
    gantry.call("a__stderr", json!({"text": "to the log"}));
    let line = log.until("log", |line| line["text"] == "to the log");
    assert_eq!(
        (&line.data["server"], &line.data["stream"]),
        (&json!("a"), &json!("stderr"))
    );
    gantry.call("b__echo", json!({"text": "x"}));
    let call = calls.until("call", |_| true);
    assert_eq!(
        (&call.data["tool"], &call.data["status"]),
        (&json!("echo"), &json!("ok"))
    );
    assert_eq!(call.data["input"], Value::Null, "bodies are not told");
    // The same call is counted.
    all.until("tick", |tick| {
        tick["calls"].as_u64().unwrap() > 0 && tick["p95_us"].is_u64()
    });
    gantry.agent_with("other", &["a:*"]);
    calls.until("access", |_| true);
}

#[test]
fn a_stream_is_resumed_where_it_was_cut() {
    let gantry = Gantry::start(&["a"]);
    let mut first = Stream::open(&gantry, "servers,log:a,calls", None);
    first.until("hello", |_| true);
    gantry.call("a__stderr", json!({"text": "one"}));
    first.until("log", |line| line["text"] == "one");
    let heard = first.until("call", |call| call["tool"] == "stderr").id;
    drop(first);
    gantry.call("a__stderr", json!({"text": "two"}));
    gantry.call("a__echo", json!({"text": "x"}));
    restart(&gantry, "a");
    gantry.wait_state("a", "ready", LONG);
    let mut again = Stream::open(&gantry, "servers,log:a,calls", Some(&heard));
    let mut missing = vec!["two", "echo", "ready"];
    while !missing.is_empty() {
        let event = again.next().unwrap();
        assert_ne!(event.kind, "gap", "{event:?}");
        let data = &event.data;
        let what = match event.kind.as_str() {
            "log" => &data["text"],
            "call" => &data["tool"],
            "lifecycle" => &data["kind"],
            _ => continue,
        };
        assert_ne!(what, "one", "it was heard before");
        missing.retain(|wanted| what != wanted);
    }
    // What another process said cannot be resumed, and the client is told to look again.
    for unknown in ["00000000-1-1-1", "nonsense", "9"] {
        let mut lost = Stream::open(&gantry, "servers,log:a,calls", Some(unknown));
        lost.until("hello", |_| true);
        assert_eq!(lost.next().unwrap().kind, "gap", "{unknown}");
    }
}

#[test]
fn a_stream_that_is_cut_within_a_batch_loses_nothing() {
    let gantry = Gantry::start(&["a"]);
    let mut first = Stream::open(&gantry, "log:a", None);
    let hello = first.until("hello", |_| true);
    assert_eq!(hello.id, "", "a greeting is no place to go on from");
    let lines: Vec<String> = (0..20).map(|line| format!("line {line}")).collect();
    gantry.call("a__stderr", json!({"text": lines.join("\n")}));
    let mut heard = first.until("log", |line| line["text"] == "line 0").id;
    drop(first);
    // Every stream is cut behind the first event that is new to it.
    for line in &lines[1..] {
        let mut again = Stream::open(&gantry, "log:a", Some(&heard));
        let event = again.until("log", |data| data["text"] == line.as_str());
        heard = event.id;
    }
}

// fault A2
#[test]
fn a_listener_that_does_not_read_holds_nobody_up_and_is_told_of_the_gap() {
    let gantry = Gantry::start(&["a"]);
    let mut slow = Stream::open(&gantry, "log:a,calls", None);
    slow.until("hello", |_| true);
    let long = "x".repeat(1800);
    // More than the socket's buffers and the log take.
    let began = Stopwatch::start();
    for _ in 0..400 {
        let answer = gantry.call("a__stderr", json!({"text": format!("{long}\n").repeat(20)}));
        assert!(answer["error"].is_null(), "{answer}");
    }
    assert!(began.elapsed() < LONG, "nobody waits for the listener");
    let gap = slow.until("gap", |gap| gap["topic"] == "log:a");
    assert!(gap.data["skipped"].as_u64().unwrap() > 0);
    slow.until("log", |_| true);
}

#[test]
fn a_quiet_stream_has_a_heartbeat() {
    let gantry = Gantry::start(&["a"]);
    let mut quiet = Stream::open(&gantry, "log:a", None);
    quiet.until("hello", |_| true);
    let quiet_for = Stopwatch::start();
    let beat = quiet.connection.chunk().unwrap().unwrap();
    assert_eq!(beat, b":\n\n");
    assert!(quiet_for.elapsed() < Duration::from_secs(4));
}

// faults U3 and U4
#[test]
fn only_administrators_listen_and_topics_must_be_known() {
    let gantry = Gantry::start(&["a"]);
    let path = |topics: &str| format!("/api/v1/events/stream?topics={topics}");
    let agent = gantry.rest_as(&gantry.agent, "GET", &path("log:a"), None);
    assert_eq!(problem(&gantry, &agent, 403), "auth.agent_key");
    for (topics, status, code) in [
        ("everything", 400, "request.query"),
        ("server:", 400, "request.query"),
        ("calls:colour=red", 400, "request.query"),
        ("log:nobody", 404, "server.unknown"),
    ] {
        let refused = gantry.rest("GET", &path(topics), None);
        assert_eq!(problem(&gantry, &refused, status), code, "{topics}");
    }
    // Logs and calls are for the roles that may read them elsewhere.
    let key = |role: &str| {
        let body = json!({"kind": "admin", "role": role});
        let made = gantry.rest("POST", "/api/v1/keys", Some(&body)).json();
        made["key"].as_str().unwrap().to_owned()
    };
    let keys = [key("operator"), key("auditor"), key("approver")];
    for (topics, may) in [
        ("log:a", [true, false, false]),
        ("servers,calls", [false, true, false]),
        ("calls:agent=default", [false, true, false]),
        ("overview,access", [true, true, true]),
    ] {
        for (key, may) in keys.iter().zip(may) {
            let bearer = format!("Bearer {key}");
            let headers = [("Authorization", bearer.as_str())];
            let mut connection = gantry.connect();
            connection
                .write("GET", &path(topics), &headers, b"")
                .unwrap();
            let head = connection.head().unwrap();
            assert_eq!(head.status, if may { 200 } else { 403 }, "{topics}");
        }
    }
    // With those of stored events, a key has so many.
    let open: Vec<_> = (0..16)
        .map(|_| Stream::open(&gantry, "access", None))
        .collect();
    let more = gantry.rest("GET", &path("access"), None);
    assert_eq!(problem(&gantry, &more, 429), "listen.too_many");
    drop(open);
}
