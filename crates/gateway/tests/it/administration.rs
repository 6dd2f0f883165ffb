//! Projects, suspensions and the registration policy, as whoever administers a gateway meets them.

mod policy;
mod products;
mod projects;
mod second_person;
mod suspending;

use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::time::Instant;

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::harness::{Answer, Connection, Gantry, LONG};

/// How fast what is suspended must have ended.
const AT_ONCE: Duration = Duration::from_secs(1);

fn code(answer: &Answer) -> String {
    answer.json()["code"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Checks a refusal.
fn refused(answer: &Answer, status: u16, wanted: &str) {
    assert_eq!(
        (answer.status, code(answer).as_str()),
        (status, wanted),
        "{}",
        answer.text()
    );
}

/// Makes a key and returns its text.
fn key(gantry: &Gantry, path: &str, body: &Value) -> String {
    let made = gantry.rest("POST", path, Some(body));
    assert_eq!(made.status, 201, "{}", made.text());
    made.json()["key"].as_str().unwrap().to_owned()
}

/// The registration of a server of ours.
fn peer(name: &str) -> Value {
    let argv = Evilpeer::new().argv();
    json!({"name": name, "command": argv[0], "args": argv[1..], "profile": "local", "start": "eager"})
}

/// Calls a tool over REST in a thread of its own and returns its status, code and when it ended.
fn calling(gantry: &Gantry, key: &str, tool: &str) -> JoinHandle<(u16, String, Instant)> {
    let (authority, bearer) = (gantry.authority.clone(), format!("Bearer {key}"));
    let body = json!({"name": tool, "arguments": {"ms": 60_000}}).to_string();
    thread::spawn(move || {
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Content-Type", "application/json"),
        ];
        let mut connection = Connection::open(&authority).unwrap();
        let answer = connection.request("POST", "/api/v1/tools/call", &headers, body.as_bytes());
        match answer {
            Ok(answer) => (answer.status, code(&answer), Instant::now()),
            Err(_) => (0, "cut".to_owned(), Instant::now()),
        }
    })
}

/// Waits until a project has this many calls under way.
fn under_way(gantry: &Gantry, path: &str, count: usize) {
    let running = || {
        let page = gantry.rest("GET", path, None).json();
        let rows = page["items"].as_array().cloned().unwrap_or_default();
        rows.iter().filter(|row| row["status"] == "running").count()
    };
    assert!(eventually(LONG, || running() == count).is_some(), "{path}");
}

/// Waits until a process is gone.
fn is_gone(pid: &Value) -> bool {
    let path = format!("/proc/{pid}");
    eventually(LONG, || !std::path::Path::new(&path).exists()).is_some()
}
