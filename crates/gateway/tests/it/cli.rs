//! The verbs of the command line, where they succeed and where they fail, word for word.
//!
//! What differs from run to run (ids, times, paths, processes) is filtered out of the snapshots.

mod agents;
mod as_json;
mod audit;
mod calling;
mod configuring;
mod connecting;
mod doctor;
mod explaining;
mod failing;
mod first_hour;
mod first_minute;
mod following;
mod governing;
mod held;
mod keeping;
mod named;
mod recorded;
mod reference;
mod screen;
mod shown;
mod starting;
mod stdio;
mod store;
mod typed;
mod verbs;
mod written;

use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::harness::{Gantry, PROGRAM};

/// Returns what a verb printed and how it ended.
pub(crate) fn told(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    if !errors.is_empty() {
        text.push_str(&format!("--- stderr\n{errors}"));
    }
    match output.status.code() {
        Some(code) => text.push_str(&format!("--- exit {code}")),
        None => text.push_str("--- killed"),
    }
    text
}

/// Runs a verb against a gateway and returns what it told.
pub(crate) fn run(gantry: &Gantry, arguments: &[&str]) -> String {
    told(&gantry.cli(arguments))
}

/// Leaves out how far a server came between two looks, which differs.
fn without_progress(told: &str) -> String {
    let states = [
        " is starting",
        " is restarting",
        " is stopping",
        "--- stderr",
    ];
    let is_progress =
        |line: &str, state: &str| line.ends_with(state) || line.contains(&format!("{state}: "));
    let is_over = |line: &&str| !states.iter().any(|state| is_progress(line, state));
    let lines: Vec<&str> = told.lines().filter(is_over).collect();
    lines.join("\n")
}

/// Leaves out the log, which tells of whatever else was found on the machine.
fn without_log(told: &str) -> String {
    let is_log = |line: &str| {
        let stamp = line.split_once('T').map(|(day, _)| day);
        stamp.is_some_and(|day| day.len() == 10 && day.starts_with("20"))
    };
    let lines: Vec<&str> = told.lines().filter(|line| !is_log(line)).collect();
    lines.join("\n").replace("--- stderr\n--- exit", "--- exit")
}

/// Runs the program by itself, in an empty folder.
fn alone(arguments: &[&str]) -> String {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(PROGRAM)
        .args(arguments)
        .env_clear()
        .env("HOME", home.path())
        .env("NO_COLOR", "1")
        .current_dir(home.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    told(&output)
}

/// Makes what differs from run to run the same.
pub(crate) fn settings() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    for (pattern, stand_in) in [
        // Whatever is to be typed names the data folder; `config::edits` sees to that.
        (r"`gantry --data \S+ ", "`gantry "),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "[time]"),
        (r"call_[0-9a-f]{32}", "[call]"),
        (r"srv_[0-9a-f]{32}", "[server]"),
        (r"key_[0-9a-f]{32}", "[key]"),
        (r"gantry_(admin|agent)_[A-Za-z0-9_-]+", "[$1 key]"),
        (r"/[^ `]*/evilpeer", "[evilpeer]"),
        (r"/[^ `]*/\.tmp[A-Za-z0-9]+(-[0-9a-f]{8})?", "[home]"),
        (r"127\.0\.0\.1:\d+", "[address]"),
        (r"\d+(\.\d+)? (µs|ms|s)\b", "[duration]"),
        (r"(database|journal) \d+(\.\d+)? (B|KiB|MiB)", "$1 [size]"),
        (r"process +\d+", "process [pid]"),
        (r"\b\d+\.\d+\.\d+\b", "[version]"),
        // Columns are as wide as what stood in them.
        (r" {2,}", "  "),
    ] {
        settings.add_filter(pattern, stand_in);
    }
    settings
}

/// Returns members of an entry by which a server that ends stays down.
fn stays_down() -> Value {
    json!({"life": {"restart": {"at_once": 0, "window": "1m", "ladder": ["1m"], "reset_after": "10m"}}})
}
