//! A second client of other capabilities that has a call in flight on the same server while a cell is
//! tried, and is answered properly afterwards. Neither hears anything of the other's: both count their
//! requests from one and name their progress alike, so that what is mixed up would fit.

use std::fs;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use gantry_testkit::wait::eventually;
use serde_json::json;

use super::client::Client;
use super::{Cell, Generation, Rig, TOKEN, works};
use crate::harness::LONG;

/// The number towards which the second client's call makes progress; nobody else's does.
const TOTAL: u64 = 4711;

/// Lets a held call go, whatever becomes of the test.
struct Release(PathBuf);

impl Drop for Release {
    fn drop(&mut self) {
        fs::write(&self.0, "").expect("the folder is there");
    }
}

impl Rig {
    /// Tries something while a client that can do nothing has a slow call.
    pub(super) fn beside_a_slow_call(
        &self,
        generation: Generation,
        name: &str,
        trying: impl FnOnce() -> Cell,
    ) -> Cell {
        let nonce = format!("beside-{}-{name}", generation.version()).replace(' ', "-");
        let until = self.folder.path().join(&nonce);
        let arguments = json!({"ms": 0, "progress": TOTAL, "until": until, "nonce": nonce});
        let params = json!({
            "name": "s__slow", "arguments": arguments, "_meta": {"progressToken": TOKEN},
        });
        thread::scope(|scope| {
            let release = Release(until);
            let second = scope.spawn(|| self.unable(generation).ask("tools/call", params));
            let begun = || self.journal().executed(&nonce) == 1;
            assert!(eventually(LONG, begun).is_some(), "the other call arrives");
            let found = trying();
            assert!(!second.is_finished(), "the other call is in flight still");
            drop(release);
            let heard = second.join().unwrap();
            works(&heard.answer, "waited");
            assert!(heard.asked.is_empty(), "{:?}", heard.asked);
            // Those that tell of changes have no total.
            let totals = heard.words.iter().map(|word| &word["params"]["total"]);
            let totals: Vec<_> = totals.filter(|total| !total.is_null()).collect();
            assert!(!totals.is_empty(), "progress is heard");
            assert!(totals.iter().all(|total| **total == TOTAL), "{totals:?}");
            assert!(!self.journal().cancelled(&nonce), "it was not taken back");
            found
        })
    }

    /// Tries something while a client is asked for its roots, which it tells afterwards.
    pub(super) fn beside_a_question(
        &self,
        generation: Generation,
        trying: impl FnOnce() -> Cell,
    ) -> Cell {
        let (asked, is_asked) = mpsc::channel();
        let (answer, may_answer) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let second = scope.spawn(move || {
                let can = json!({"roots": {}});
                let client = Client::connect(&self.asking, generation, can);
                let mut client = client.thinks(move || {
                    asked.send(()).expect("somebody waits for the question");
                    // An error is a test that failed meanwhile, of which it speaks itself.
                    may_answer.recv().unwrap_or_default();
                });
                client.call("s__test_input_required_result_list_roots", json!({}))
            });
            is_asked.recv_timeout(LONG).expect("the question comes");
            let found = trying();
            assert!(!second.is_finished(), "the question is open still");
            drop(answer);
            let heard = second.join().unwrap();
            works(&heard.answer, "Found 1 root(s)");
            assert_eq!(heard.asked, ["roots/list"]);
            found
        })
    }
}
