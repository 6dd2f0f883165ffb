//! Faults P1 to P15: commands that do not run, servers that end, processes that must not be left.
//!
//! Each test asserts the answer, the deadline, what is held (processes, zombies, descriptors), and
//! the rows of the audit. The big kill is in `proof::kill`; a panic needs the library (`engine`).

mod blocked;
mod clock;
mod dying;
mod identity;
mod races;
mod resources;
mod signals;
mod starting;
mod stopping;

use std::time::Duration;

use gantry_testkit::procs;
use gantry_testkit::wait::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{Gantry, LONG, needs_root};

const SECOND: Duration = Duration::from_secs(1);
/// Descriptors that come late and stay: the store opens its second reader when two ask at once, and
/// that one holds the file and its log.
const LATE_FDS: usize = 2;
/// Descriptors of one server that runs: its three pipes, and the socket and the handle of its init.
const SERVER_FDS: usize = 5;

/// What a gateway holds while it rests.
struct Held {
    fds: usize,
}

impl Held {
    /// Counts what a gateway holds as soon as it rests.
    fn of(gantry: &Gantry) -> Self {
        needs_root();
        // One that answers has opened whatever it opens at its start.
        let health = gantry.rest("GET", "/api/v1/health", None);
        assert_eq!(health.status, 200, "{}", health.text());
        Self {
            fds: procs::resting_fds(gantry.pid, LONG),
        }
    }

    /// Returns what a gateway holds while so many servers run: those, and what one without any holds.
    fn with_servers(count: usize) -> Self {
        let none = Self::of(&Gantry::start(&[]));
        Self {
            fds: none.fds + count * SERVER_FDS,
        }
    }

    /// Asserts that a gateway holds no more than this, or will in a moment.
    fn compare(&self, gantry: &Gantry) {
        // One that is gone holds nothing.
        let fits = 1..=self.fds + LATE_FDS;
        let settled = eventually(LONG, || fits.contains(&procs::open_fds(gantry.pid)));
        assert!(
            settled.is_some(),
            "{} descriptors before, {} now",
            self.fds,
            procs::open_fds(gantry.pid)
        );
    }
}

/// Returns a text that no other test's processes carry.
fn own_marker(what: &str) -> String {
    format!("{what}-{}-fault", std::process::id())
}

/// Members of an entry by which a server that ends stays down.
fn stays_down() -> Value {
    restarts(&json!({"at_once": 0, "window": "1m", "ladder": ["1m"], "reset_after": "10m"}))
}

/// Members of an entry with this restart policy.
fn restarts(policy: &Value) -> Value {
    json!({"life": {"restart": policy}})
}

/// Returns the process id that a status shows.
fn pid_of(status: &Value) -> u32 {
    status["pid"]
        .as_u64()
        .and_then(|pid| pid.try_into().ok())
        .unwrap_or_else(|| panic!("{status:#}"))
}

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Asserts that the audit has exactly these rows of a server: how many, status, code.
fn audited(gantry: &Gantry, server: &str, wanted: &[(usize, &str, Option<&str>)]) {
    let rows = gantry.audit_rows(&format!("server={server}"));
    let total: usize = wanted.iter().map(|(count, ..)| count).sum();
    assert_eq!(rows.len(), total, "{rows:#?}");
    for (count, status, code) in wanted {
        let fits = |row: &&Value| row["status"] == *status && row["code"].as_str() == *code;
        assert_eq!(
            rows.iter().filter(fits).count(),
            *count,
            "{status} {code:?}: {rows:#?}"
        );
    }
}

/// Asserts an error: its JSON-RPC code, its message, the code in its data.
fn fails(answer: &Value, code: i64, message: &str, name: &str) {
    let error = &answer["error"];
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!(code), &json!(message)),
        "{answer:#}"
    );
    assert_eq!(error["data"]["code"], name, "{answer:#}");
    assert!(error["data"]["call"].is_string(), "{answer:#}");
}

/// Asserts an error as [`fails`] does; each `#` in its message stands for a number that the moment
/// decides.
fn fails_about(answer: &Value, code: i64, message: &str, name: &str) {
    let told = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(reads(told, message), "`{told}` is not `{message}`");
    fails(answer, code, told, name);
}

/// Returns whether a text is as wanted; each `#` in that stands for any number.
fn reads(told: &str, wanted: &str) -> bool {
    let mut parts = wanted.split('#');
    let mut rest = parts.next().and_then(|first| told.strip_prefix(first));
    for part in parts {
        rest = rest.and_then(|text| after_number(text)?.strip_prefix(part));
    }
    rest == Some("")
}

/// Returns what follows the number that a text begins with.
fn after_number(text: &str) -> Option<&str> {
    let rest = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    (rest.len() < text.len()).then_some(rest)
}

fn echoes(gantry: &Gantry, server: &str) {
    let answer = gantry.call(&format!("{server}__echo"), json!({"text": "hello"}));
    assert_eq!(
        answer["result"]["content"][0]["text"], "hello",
        "{answer:#}"
    );
}

/// Asserts that nothing of the gateway's waits to be reaped, and that it has not panicked.
fn tidy(gantry: &Gantry) {
    // Whoever ended just now is reaped in a moment.
    let reaped = eventually(SECOND, || procs::zombies_of(gantry.pid).is_empty());
    assert!(reaped.is_some(), "{:?}", procs::zombies_of(gantry.pid));
    let log = gantry.stderr();
    assert!(
        !log.contains("panicked"),
        "no fault makes the gateway panic:\n{log}"
    );
}
