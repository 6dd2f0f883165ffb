//! Calls, whose rows come to the database through the journal.

use std::collections::HashMap;
use std::path::PathBuf;

use gantry_testkit::journal::Journal;
use serde_json::{Value, json};

use super::{Act, ask};
use crate::harness::{Gantry, LONG};

/// So many calls are made one after the other.
const CALLS: usize = 12;

/// Makes calls and keeps a record of its own of those that were answered.
pub(super) struct Calls {
    number: usize,
    sent: Vec<String>,
    answered: Vec<String>,
    /// Where the server notes what it executed.
    executed: PathBuf,
}

impl Calls {
    pub(super) fn new(executed: PathBuf) -> Self {
        Self {
            number: 0,
            sent: Vec::new(),
            answered: Vec::new(),
            executed,
        }
    }
}

impl Act for Calls {
    fn name(&self) -> &'static str {
        "audit"
    }

    fn run(&mut self, gantry: &Gantry) -> bool {
        let before = self.answered.len();
        for _ in 0..CALLS {
            self.number += 1;
            let nonce = format!("nonce-{}", self.number);
            self.sent.push(nonce.clone());
            let params = json!({"name": "echo", "arguments": {"text": nonce, "nonce": nonce}});
            let body = json!({"method": "tools/call", "params": params});
            let answer = ask(gantry, "POST", "/api/v1/mcp/servers/a/call", &body);
            if answer.is_some_and(|answer| answer.status == 200) {
                self.answered.push(nonce);
            }
        }
        // Reading them has the journal's records written to the database.
        ask(gantry, "GET", "/api/v1/calls?limit=1", &Value::Null);
        self.answered.len() == before + CALLS
    }

    fn check(&mut self, gantry: &Gantry, is_acknowledged: bool) -> bool {
        let mut rows: HashMap<String, String> = HashMap::new();
        for row in gantry.audit_rows("tool=echo") {
            let input: Value = serde_json::from_str(row["input"].as_str().unwrap()).unwrap();
            let nonce = input["nonce"].as_str().unwrap().to_owned();
            assert!(self.sent.contains(&nonce), "never sent: {row:#}");
            let status = row["status"].as_str().unwrap().to_owned();
            assert!(["ok", "unknown"].contains(&status.as_str()), "{row:#}");
            let twice = rows.insert(nonce, status);
            assert!(twice.is_none(), "a second row of one call: {row:#}");
        }
        for nonce in &self.answered {
            let row = rows.get(nonce).map(String::as_str);
            assert_eq!(row, Some("ok"), "{nonce} was answered");
        }
        let executed = Journal::read(&self.executed).unwrap();
        for nonce in executed.nonces() {
            assert_eq!(executed.executed(nonce), 1, "{nonce}");
            assert!(rows.contains_key(nonce), "{nonce} was executed");
        }
        // The next calls need the server.
        gantry.wait_state("a", "ready", LONG);
        is_acknowledged
    }
}
