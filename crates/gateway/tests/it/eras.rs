//! Downstream protocol generations: sessions of 2025 and stateless requests of 2026 on one URL.
//!
//! Both endpoints, both generations of upstream servers, progress, cancellation, changed lists,
//! and headers that must say what the body says.

mod bounds;
mod cancel;
mod changes;
mod first;
mod headers;
mod keeping;
mod lenient;
mod logging;
mod progress;
mod sessions;
mod stateless;
mod subscriptions;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::faults_client::Posted;
use crate::harness::{Answer, Connection, Gantry, LONG};

const SECOND: Duration = Duration::from_secs(1);

/// A session of an older generation, at either endpoint; every message on a connection of its own.
pub(crate) struct Older<'a> {
    gantry: &'a Gantry,
    path: String,
    version: String,
    pub(crate) id: String,
    hello: Value,
}

impl<'a> Older<'a> {
    /// Shakes hands at an endpoint.
    pub(crate) fn open(gantry: &'a Gantry, path: &str, version: &str) -> Self {
        let info = json!({"name": "old", "version": "1"});
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": info});
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let answer = Posted::new(&gantry.agent, path, &message).send(gantry);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let id = answer
            .header("mcp-session-id")
            .expect("a session has a name")
            .to_owned();
        let hello = answer.json()["result"].take();
        let version = hello["protocolVersion"].as_str().unwrap().to_owned();
        let session = Self {
            gantry,
            path: path.to_owned(),
            version,
            id,
            hello,
        };
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let taken = session.posted(&initialized).send(gantry);
        assert_eq!((taken.status, taken.body.len()), (202, 0));
        session
    }

    /// Describes a message of this session.
    fn posted(&self, message: &Value) -> Posted {
        let posted = Posted::in_session(&self.gantry.agent, &self.id, message).at(&self.path);
        // The header came with 2025-06-18.
        match self.version.as_str() {
            "2024-11-05" | "2025-03-26" => posted,
            version => posted.header("MCP-Protocol-Version", version),
        }
    }

    /// Sends a request and returns the answer.
    pub(crate) fn send(&self, id: Value, method: &str, params: Value) -> Answer {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.posted(&message).send(self.gantry)
    }

    /// Sends a request and returns its result.
    pub(crate) fn result(&self, method: &str, params: Value) -> Value {
        let answer = self.send(json!("r1"), method, params).message();
        assert_eq!(answer["id"], "r1", "{answer:#}");
        assert!(answer["result"].is_object(), "{method}: {answer:#}");
        answer["result"].clone()
    }

    /// Opens the stream of changes.
    pub(crate) fn listen(&self) -> Connection {
        self.bare("GET", "text/event-stream", &[])
    }

    /// Takes the stream up again after this event.
    pub(crate) fn listen_after(&self, event: &str) -> Connection {
        self.bare("GET", "text/event-stream", &[("Last-Event-ID", event)])
    }

    /// Ends the session.
    pub(crate) fn end(&self) -> u16 {
        self.bare("DELETE", "*/*", &[]).answer().unwrap().status
    }

    fn bare(&self, method: &str, accept: &str, more: &[(&str, &str)]) -> Connection {
        let bearer = format!("Bearer {}", self.gantry.agent);
        let mut headers = vec![
            ("Authorization", bearer.as_str()),
            ("Accept", accept),
            ("Mcp-Session-Id", &self.id),
            ("MCP-Protocol-Version", &self.version),
        ];
        headers.extend_from_slice(more);
        let mut connection = self.gantry.connect();
        connection.write(method, &self.path, &headers, b"").unwrap();
        connection
    }
}

/// A stream of events that is being read.
pub(crate) struct Events {
    connection: Connection,
    text: String,
    /// The id of the last event that had one.
    pub(crate) id: Option<String>,
}

impl Events {
    /// Reads the head of an answer, which must be a stream.
    pub(crate) fn of(mut connection: Connection) -> Self {
        let head = connection.head().unwrap();
        assert_eq!(
            (head.status, head.header("content-type")),
            (200, Some("text/event-stream"))
        );
        assert_eq!(head.header("x-accel-buffering"), Some("no"));
        assert_eq!(head.header("cache-control"), Some("no-store"));
        Self {
            connection,
            text: String::new(),
            id: None,
        }
    }

    /// Returns the next message; none at the end of the stream.
    pub(crate) fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                self.id = field("id: ").map(str::to_owned).or(self.id.take());
                let data = field("event: message").and_then(|_| field("data: "));
                let message =
                    data.map(|data| serde_json::from_str(data).expect("an event is JSON"));
                assert!(
                    message.is_some() || event.starts_with(':'),
                    "no event: {event}"
                );
                self.text = rest.to_owned();
                match message {
                    Some(message) => return Some(message),
                    None => continue,
                }
            }
            let chunk = self.connection.chunk().ok()??;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// Returns whether nothing comes for this long.
    pub(crate) fn is_silent_for(&mut self, time: Duration) -> bool {
        assert_eq!(self.text, "");
        self.connection
            .socket()
            .set_read_timeout(Some(time))
            .unwrap();
        let begun = Instant::now();
        let is_silent = self.next().is_none() && begun.elapsed() >= time;
        let socket = self.connection.socket();
        socket.set_read_timeout(Some(LONG)).unwrap();
        is_silent
    }
}
