//! `-f`: lines and calls as they come, until the reader goes.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use gantry_testkit::wait::eventually;
use serde_json::Value;

use super::run;
use crate::harness::{Gantry, LONG, PROGRAM};

/// A verb that goes on.
struct Following {
    child: Child,
    lines: Receiver<String>,
}

impl Following {
    fn start(gantry: &Gantry, words: &[&str]) -> Self {
        let mut child = Command::new(PROGRAM)
            .arg("--data")
            .arg(gantry.data())
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (tx, lines) = sync_channel(100);
        let output = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if tx.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    fn next(&self) -> String {
        self.lines.recv_timeout(LONG).expect("a line comes")
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn logs_go_on_as_they_are_written_each_line_once() {
    let gantry = Gantry::start(&["a"]);
    run(&gantry, &["call", "a__stderr", "--text", "one"]);
    let following = Following::start(&gantry, &["logs", "a", "-f"]);
    assert!(following.next().ends_with(" one"));
    for text in ["two", "three"] {
        run(&gantry, &["call", "a__stderr", "--text", text]);
        assert!(following.next().ends_with(text));
    }
    // What was before the wanted time is left out.
    let later = run(&gantry, &["logs", "a", "--since", "2100-01-01T00:00:00Z"]);
    assert_eq!(later, "--- exit 0");
    assert!(run(&gantry, &["logs", "a", "--since", "1h"]).contains(" one"));
}

#[test]
fn calls_go_on_as_they_end_each_once() {
    let gantry = Gantry::start(&["a"]);
    run(&gantry, &["call", "a__echo", "--text", "one"]);
    let following = Following::start(&gantry, &["calls", "-f", "--json", "--tool", "echo"]);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let call: Value = serde_json::from_str(&following.next()).unwrap();
        assert_eq!(
            (&call["status"], &call["tool"]),
            (&"ok".into(), &"echo".into())
        );
        assert!(!seen.contains(&call["id"]), "{call:#}");
        seen.push(call["id"].clone());
        run(&gantry, &["call", "a__fail", "--message", "not wanted"]);
        run(&gantry, &["call", "a__echo", "--text", "more"]);
    }
    let since = run(&gantry, &["calls", "--since", "2100-01-01T00:00:00Z"]);
    assert_eq!(since, "no calls\n--- exit 0");
}

#[test]
fn events_go_on_as_they_happen_each_once() {
    let gantry = Gantry::start(&["a", "b"]);
    let following = Following::start(&gantry, &["events", "a", "-f", "--json"]);
    let mut seen = Vec::new();
    let mut restarts = 0;
    loop {
        let line = following.next();
        assert!(!seen.contains(&line), "{line}");
        let event: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(event["server"], "a");
        seen.push(line);
        if event["kind"] == "ready" {
            if restarts == 2 {
                break;
            }
            restarts += 1;
            run(&gantry, &["restart", "b"]);
            run(&gantry, &["restart", "a"]);
        }
    }
    let told = run(&gantry, &["events", "a", "-n", "1"]);
    assert!(told.contains("a  ready"), "{told}");
}

#[test]
fn the_status_is_shown_again_when_it_changes() {
    let gantry = Gantry::start(&["a"]);
    let following = Following::start(&gantry, &["status", "--watch"]);
    let shows = |wanted: &str| {
        while !following.next().contains(wanted) {}
    };
    shows("on record: ");
    run(&gantry, &["restart", "a"]);
    shows("SERVER");
    shows("on record: ");
}

#[test]
fn a_link_is_printed_and_signs_in() {
    let gantry = Gantry::start(&["a"]);
    let printed = run(&gantry, &["open", "--print"]);
    let begins = format!("http://{}/#code=", gantry.authority);
    assert!(printed.starts_with(&begins), "{printed}");
    let json = run(&gantry, &["open", "--json"]);
    let json: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert!(json["link"].as_str().unwrap().starts_with(&begins));
    assert!(json["expires_ms"].is_u64());
}

#[test]
fn a_reader_that_goes_ends_the_verb_quietly() {
    let gantry = Gantry::start(&["a"]);
    run(&gantry, &["call", "a__stderr", "--text", "one"]);
    let mut child = Command::new(PROGRAM)
        .arg("--data")
        .arg(gantry.data())
        .args(["logs", "a", "-f"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut status = None;
    let ended = eventually(LONG, || {
        run(&gantry, &["call", "a__stderr", "--text", "more"]);
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert!(ended.is_some());
    assert!(status.unwrap().success());
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(said, "");
}
