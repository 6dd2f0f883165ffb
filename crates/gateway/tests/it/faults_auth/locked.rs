//! A store that cannot be written: who has a key is let in, who has none is not, and no order to
//! close a door is lost without a word.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::json;
use tokio::time::Instant;

use super::{FIRST_GUESS, audited, guessed, refused, unharmed, went_well};
use crate::faults_client::Holdings;
use crate::harness::{Gantry, LONG};

/// Holds a database for itself until it hears no more.
const HOLDER: &str = "
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute('BEGIN EXCLUSIVE')
print('held', flush=True)
sys.stdin.read()
";

/// Another program that has the store for itself.
pub(crate) struct Holder {
    child: Child,
    ear: Option<ChildStdin>,
}

impl Holder {
    pub(crate) fn of(database: &Path) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", HOLDER])
            .arg(database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut told).unwrap();
        assert_eq!(told, "held\n");
        Self {
            ear: child.stdin.take(),
            child,
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.ear.take());
        drop(self.child.wait());
    }
}

// fault U3
#[test]
fn a_store_that_cannot_be_written_opens_and_closes_no_door_unsaid() {
    let gantry = Gantry::start(&["a"]);
    let at_first = Holdings::of(&gantry);
    let body = json!({"kind": "agent", "agent": "default", "label": "soon gone"});
    let made = gantry.rest("POST", "/api/v1/keys", Some(&body)).json();
    let (key, id) = (made["key"].as_str().unwrap(), made["id"].as_str().unwrap());
    let path = format!("/api/v1/keys/{id}");
    let opens = |key: &str| gantry.rest_as(key, "GET", "/api/v1/tools", None);
    let holder = Holder::of(&gantry.data().join("gantry.db"));
    // Valid keys are known without the store, wrong ones are nobody's.
    for key in [key, &gantry.agent, &gantry.admin] {
        assert_eq!(opens(key).status, 200);
    }
    let answer = gantry.call("a__echo", json!({"text": "x"}));
    assert_eq!(answer["result"]["content"][0]["text"], "x", "{answer:#}");
    refused("wrong", &opens("gantry_agent_x"), 401, "auth.wrong_key");
    // What cannot be kept is not done, and its sender is told so in time.
    for (method, path, body) in [
        ("DELETE", path.as_str(), None),
        ("POST", "/api/v1/keys", Some(&body)),
    ] {
        let begun = Instant::now();
        let answer = gantry.rest(method, path, body);
        assert!(begun.elapsed() <= LONG, "{:?}", begun.elapsed());
        refused(method, &answer, 503, "store.locked");
    }
    assert_eq!(opens(key).status, 200, "it is as it was said to be");
    refused("wrong", &opens("gantry_agent_x"), 401, "auth.wrong_key");
    drop(holder);
    // The store can be written again: now the key goes, and at once.
    assert_eq!(gantry.rest("DELETE", &path, None).status, 204);
    refused("revoked", &opens(key), 401, "auth.wrong_key");
    let keys = gantry.rest("GET", "/api/v1/keys", None).json();
    assert_eq!(keys["items"].as_array().unwrap().len(), 2, "{keys:#}");
    // Where all of it took longer than a window, what was guessed later is counted anew.
    let guess = guessed("rest", FIRST_GUESS);
    let windows = gantry.audit_rows("status=refused").len().clamp(1, 3);
    audited(
        &gantry,
        &[&[went_well("mcp")][..], &vec![guess; windows]].concat(),
    );
    unharmed(&gantry, &at_first);
}
