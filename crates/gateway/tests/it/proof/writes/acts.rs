//! The acts that are killed: each knows what it asked for, and tells whether the old or the new state is
//! there; a mix of both, or an old one after an acknowledgement, fails.

mod calls;
mod keys;
mod named;

use std::fs;
use std::path::{Path, PathBuf};

use gantry_testkit::Evilpeer;
use serde_json::{Value, json};

use crate::harness::{Answer, Builder, Connection, Gantry, LONG};

/// An act that writes.
pub(super) trait Act {
    fn name(&self) -> &'static str;

    /// Does it once more and tells whether it was acknowledged; the gateway may end meanwhile.
    fn run(&mut self, gantry: &Gantry) -> bool;

    /// Fails unless the old or the new state is there, and the new one if it was acknowledged; tells
    /// whether it is the new one.
    fn check(&mut self, gantry: &Gantry, is_acknowledged: bool) -> bool;
}

/// All of them.
pub(super) struct Acts(Vec<Box<dyn Act>>);

impl Acts {
    /// Makes what they work on; the file tells what the server executed.
    pub(super) fn prepare(gantry: &Gantry, executed: PathBuf) -> Self {
        Self(vec![
            Box::new(named::Register::default()),
            Box::new(named::Bind::prepare(gantry)),
            Box::new(named::Secret::prepare(gantry)),
            Box::new(named::Product::default()),
            Box::new(keys::Key::prepare(gantry)),
            Box::new(keys::Project::default()),
            Box::new(calls::Calls::new(executed)),
        ])
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&mut self, number: usize) -> &mut dyn Act {
        &mut *self.0[number]
    }
}

/// Adds the server whose calls are recorded; it notes in a file what it executes.
pub(super) fn servers(builder: Builder, executed: &Path) -> Builder {
    builder.server("a", &Evilpeer::new().name("a").journal(executed))
}

/// Asks the REST API as its administrator; `None` if no answer comes.
fn ask(gantry: &Gantry, method: &str, path: &str, body: &Value) -> Option<Answer> {
    let bearer = format!("Bearer {}", gantry.admin);
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
    ];
    let mut connection = Connection::open(&gantry.authority).ok()?;
    let body = match body.is_null() {
        true => String::new(),
        false => body.to_string(),
    };
    connection
        .request(method, path, &headers, body.as_bytes())
        .ok()
}

/// Returns whether an act was acknowledged; another answer than this status is a failure.
fn acknowledged(answer: Option<&Answer>, status: u16) -> bool {
    let Some(answer) = answer else { return false };
    // Its connection to the database may be gone a moment before it is.
    let is_cut_off = answer.status == 503;
    assert!(is_cut_off || answer.status == status, "{}", answer.text());
    !is_cut_off
}

/// Returns what the API shows; `None` if it is not there.
fn shown(gantry: &Gantry, path: &str) -> Option<Value> {
    let answer = gantry.rest("GET", path, None);
    match answer.status {
        404 => None,
        200 => Some(answer.json()),
        _ => panic!("{path}: {}", answer.text()),
    }
}

/// Fails unless there is an act on record of what was done, since it is recorded before it is done.
fn assert_on_record(gantry: &Gantry, act: &str, target: &str) {
    let path = format!("/api/v1/acts?limit=1000&act={act}");
    let acts = gantry.rest("GET", &path, None).json();
    let mut acts = acts["items"].as_array().unwrap().iter();
    assert!(acts.any(|row| row["target"] == target), "{act} {target}");
}

/// The registration of a server that is given a variable.
fn peer(name: &str, variable: &str) -> Value {
    let argv = Evilpeer::new().name(name).argv();
    json!({"name": name, "command": argv[0], "args": argv[1..], "profile": "local", "start": "eager",
        "env": {"TOKEN": variable}})
}

/// Returns the variable that a server was given, from its process.
fn given(gantry: &Gantry, server: &str) -> String {
    let pid = gantry.wait_state(server, "ready", LONG)["pid"].clone();
    let environment = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    let mut variables = environment.split('\0');
    let token = variables.find_map(|variable| variable.strip_prefix("TOKEN="));
    token.expect("it was given the variable").to_owned()
}
