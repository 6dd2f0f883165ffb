//! Faults of servers that are images, by the real binary: S1 to S21, P4, P5, K4 and those of C1 to C13 that
//! need no engine. P2, P9 and P11 are in `hosting::calls`, `limits` and `crashes`, C12 and C13 in `rows` and
//! `volumes`.
//!
//! Beside every fault a healthy neighbour is called over and over: [`beside_neighbour`].

mod asked;
mod lines;
mod process;
mod registry;
mod secrets;
mod stdio;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gantry_testkit::wait::Stopwatch;
use serde_json::{Value, json};

use super::{Rig, SECOND};

/// The healthy neighbour.
const GOOD: &str = "good";
/// What one of its calls may take on a busy machine: a gateway that waited for a faulty server would take
/// as long as that does.
const NEIGHBOUR: Duration = Duration::from_secs(3);
/// How long the neighbour thinks about each, so that it is called at a pace.
const PACE_MS: u64 = 50;

/// What came of one call, and how long it took.
#[derive(Debug)]
struct Reply {
    answer: Value,
    /// Without the time in which the machine stood still.
    cost: Duration,
}

impl Reply {
    /// Returns the text of a result.
    fn text(&self) -> &str {
        let text = self.answer.pointer("/result/content/0/text");
        text.and_then(Value::as_str)
            .unwrap_or_else(|| panic!("{:#}", self.answer))
    }

    /// Asserts an error: its JSON-RPC code, the code in its data, and words of its message.
    fn fails(&self, code: i64, name: &str, words: &str) {
        let error = &self.answer["error"];
        assert_eq!(
            (&error["code"], &error["data"]["code"]),
            (&json!(code), &json!(name)),
            "{:#}",
            self.answer
        );
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "{words}: {message}");
        assert!(error["data"]["call"].is_string(), "{:#}", self.answer);
    }
}

/// Calls a tool as an agent does.
fn call(rig: &Rig, server: &str, tool: &str, arguments: Value) -> Reply {
    let watch = Stopwatch::start();
    let answer = rig.gantry.call(&format!("{server}__{tool}"), arguments);
    Reply {
        answer,
        cost: watch.elapsed(),
    }
}

/// Asserts that the audit has exactly these rows of a server: how many, status, code.
fn audited(rig: &Rig, server: &str, wanted: &[(usize, &str, Option<&str>)]) {
    let rows = rig.gantry.audit_rows(&format!("server={server}"));
    let total: usize = wanted.iter().map(|(count, ..)| count).sum();
    assert_eq!(rows.len(), total, "{server}: {rows:#?}");
    for (count, status, code) in wanted {
        let fits = |row: &&Value| row["status"] == *status && row["code"].as_str() == *code;
        let found = rows.iter().filter(fits).count();
        assert_eq!(found, *count, "{server}: {status} {code:?}: {rows:#?}");
    }
}

/// Ends the neighbour's calls, also when the work beside them panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does something while a neighbour is called without a pause, and asserts that none of its calls is late or lost.
fn beside_neighbour<T>(rig: &Rig, work: impl FnOnce() -> T) -> T {
    rig.server(GOOD, "namespaces", &json!({}));
    let over = AtomicBool::new(false);
    let (done, calls) = thread::scope(|scope| {
        let calling = scope.spawn(|| {
            let mut calls = 0;
            while !over.load(Ordering::Relaxed) {
                let text = format!("neighbour {calls}");
                let reply = call(
                    rig,
                    GOOD,
                    "echo",
                    json!({"text": text, "delay_ms": PACE_MS}),
                );
                assert_eq!(reply.text(), text);
                assert!(
                    reply.cost <= NEIGHBOUR,
                    "the neighbour's call took {:?}",
                    reply.cost
                );
                calls += 1;
            }
            calls
        });
        let end = Over(&over);
        let done = work();
        drop(end);
        (done, calling.join().unwrap())
    });
    assert!(calls > 0);
    audited(rig, GOOD, &[(calls, "ok", None)]);
    assert_eq!(rig.gantry.status(GOOD)["restart_count"], 0);
    let log = rig.gantry.stderr();
    assert!(
        !log.contains("panicked"),
        "no fault makes the gateway panic:\n{log}"
    );
    done
}
