//! Events as a stream: `Accept: text/event-stream` on `/events`.

use gantry_testkit::wait::{Stopwatch, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::problem;
use crate::harness::{Connection, Gantry, LONG};

/// A stream of events.
struct Followed {
    connection: Connection,
    rest: String,
}

impl Followed {
    fn open(gantry: &Gantry, path: &str, last: Option<&str>) -> Self {
        let bearer = format!("Bearer {}", gantry.admin);
        let mut headers = vec![
            ("Authorization", bearer.as_str()),
            ("Accept", "text/event-stream"),
        ];
        if let Some(last) = last {
            headers.push(("Last-Event-ID", last));
        }
        let mut connection = gantry.connect();
        connection.write("GET", path, &headers, b"").unwrap();
        let head = connection.head().unwrap();
        assert_eq!(head.status, 200);
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        Self {
            connection,
            rest: String::new(),
        }
    }

    /// Returns the next event with its id; nothing at the stream's end.
    fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.rest.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.rest = rest;
                let field = |name: &str| {
                    let mut lines = event.lines();
                    lines.find_map(|line| line.strip_prefix(name).map(str::to_owned))
                };
                if let (Some(id), Some(data)) = (field("id: "), field("data: ")) {
                    return Some((id, serde_json::from_str(&data).unwrap()));
                }
                continue;
            }
            let chunk = self.connection.chunk().unwrap()?;
            self.rest.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// Waits for an event of a kind, and returns it with its id.
    fn until(&mut self, server: &str, kind: &str) -> (String, Value) {
        loop {
            let (id, event) = self.next().expect("the stream goes on");
            if event["server"] == server && event["kind"] == kind {
                return (id, event);
            }
        }
    }
}

#[test]
fn events_are_followed_as_they_happen_and_taken_up_again() {
    let gantry = Gantry::start(&["a", "b"]);
    let mut all = Followed::open(&gantry, "/api/v1/events", None);
    let mut one = Followed::open(&gantry, "/api/v1/mcp/servers/a/events", None);
    // What the page has comes first.
    let (_, event) = all.until("b", "ready");
    assert!(
        event["at"].is_string() && event["at_ms"].is_u64(),
        "{event:#}"
    );
    let (heard, _) = one.until("a", "ready");
    // Then what happens.
    gantry.rest("POST", "/api/v1/mcp/servers/b/restart", None);
    gantry.rest("POST", "/api/v1/mcp/servers/a/restart", None);
    all.until("b", "restart_requested");
    all.until("a", "restart_requested");
    let (id, event) = one.next().unwrap();
    let kind = event["kind"].clone();
    assert_eq!(event["server"], "a", "only what was asked for");
    assert!(id.parse::<u64>().unwrap() > heard.parse::<u64>().unwrap());
    // A stream that was cut goes on behind the last event that was heard.
    let mut again = Followed::open(&gantry, "/api/v1/mcp/servers/a/events", Some(&heard));
    let (first, event) = again.next().unwrap();
    assert_eq!((first, &event["kind"]), (id, &kind));
    again.until("a", "ready");
}

#[test]
fn a_stream_is_for_administrators_who_ask_for_it_and_ends_with_the_gateway() {
    let mut gantry = Gantry::start(&["a"]);
    let get = |key: &str, accept: &str, path: &str| {
        let bearer = format!("Bearer {key}");
        let headers = [("Authorization", bearer.as_str()), ("Accept", accept)];
        gantry
            .connect()
            .request("GET", path, &headers, b"")
            .unwrap()
    };
    for accept in [
        "application/json",
        "*/*",
        "application/json, text/event-stream",
    ] {
        let answer = get(&gantry.admin, accept, "/api/v1/events");
        assert_eq!(
            answer.header("content-type"),
            Some("application/json"),
            "{accept}"
        );
    }
    let stream = "text/event-stream";
    assert_eq!(get(&gantry.agent, stream, "/api/v1/events").status, 403);
    let unknown = get(&gantry.admin, stream, "/api/v1/mcp/servers/nobody/events");
    assert_eq!(problem(&gantry, &unknown, 404), "server.unknown");
    let back = get(&gantry.admin, stream, "/api/v1/events?cursor=7");
    assert_eq!(problem(&gantry, &back, 400), "request.query");
    // So many at once, and no more.
    let mut open: Vec<_> = (0..16)
        .map(|_| Followed::open(&gantry, "/api/v1/events", None))
        .collect();
    let more = get(&gantry.admin, stream, "/api/v1/events");
    assert_eq!(problem(&gantry, &more, 429), "listen.too_many");
    open.truncate(1);
    // Who goes away makes room.
    let place = eventually(LONG, || {
        let mut connection = gantry.connect();
        let bearer = format!("Bearer {}", gantry.admin);
        let headers = [("Authorization", bearer.as_str()), ("Accept", stream)];
        connection
            .write("GET", "/api/v1/events", &headers, b"")
            .unwrap();
        connection.head().unwrap().status == 200
    });
    assert!(place.is_some(), "no place came free");
    let mut followed = open.pop().unwrap();
    gantry.signal(Signal::TERM);
    while followed.next().is_some() {}
    assert_eq!(gantry.wait(LONG), Some(0));
}

// fault U6
#[test]
fn a_stream_ends_with_its_key() {
    let gantry = Gantry::start(&["a"]);
    let made = gantry
        .rest("POST", "/api/v1/keys", Some(&json!({"kind": "admin"})))
        .json();
    let bearer = format!("Bearer {}", made["key"].as_str().unwrap());
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Accept", "text/event-stream"),
    ];
    let mut connection = gantry.connect();
    connection
        .write("GET", "/api/v1/events", &headers, b"")
        .unwrap();
    assert_eq!(connection.head().unwrap().status, 200);
    let path = format!("/api/v1/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(gantry.rest("DELETE", &path, None).status, 204);
    // It is cut, or ends; either way nothing more comes.
    let revoked = Stopwatch::start();
    while matches!(connection.chunk(), Ok(Some(_))) {
        assert!(revoked.elapsed() < LONG, "the stream goes on");
    }
}
