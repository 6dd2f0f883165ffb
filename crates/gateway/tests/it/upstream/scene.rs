//! Far servers with a fault each, in one gateway beside a neighbour: what a call of each is answered,
//! how soon, what is recorded of it, what the neighbour notices, and what the gateway holds when it
//! is over.

use std::thread;
use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::Stopwatch;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{SECOND, code};
use crate::faults_client::Holdings;
use crate::harness::{Gantry, LONG};

/// What a neighbour's call may take on a busy machine.
const NEIGHBOUR: Duration = Duration::from_secs(3);

/// A gateway with far servers and a neighbour.
pub(super) struct Scene {
    pub(super) gantry: Gantry,
    at_first: Holdings,
}

/// What became of a call that failed.
pub(super) struct Failed {
    pub(super) error: Value,
    pub(super) took: Duration,
}

impl Scene {
    /// Starts a gateway with these far servers and waits until all are ready.
    pub(super) fn new(entries: &[(&str, Value)]) -> Self {
        let gantry = Self::started(entries);
        for (name, _) in entries {
            gantry.wait_state(name, "ready", LONG);
        }
        let at_first = Holdings::of(&gantry);
        Self { gantry, at_first }
    }

    /// Starts a gateway that never reaches a far server for long, so that it never rests either; what
    /// it holds is what one holds that has only the neighbour.
    pub(super) fn beside(entries: &[(&str, Value)]) -> Self {
        let at_first = Holdings::of(&Self::started(&[]));
        let gantry = Self::started(entries);
        let at_first = at_first.but_of(&gantry);
        Self { gantry, at_first }
    }

    fn started(entries: &[(&str, Value)]) -> Gantry {
        let near = Evilpeer::new().name("near");
        let mut gateway = Gantry::builder().server("near", &near);
        for (name, entry) in entries {
            gateway = gateway.entry(name, entry.clone());
        }
        let gantry = gateway.start();
        gantry.wait_state("near", "ready", LONG);
        gantry
    }

    /// Calls a far server, which must fail and leave one row with this status and code, and the
    /// neighbour meanwhile.
    pub(super) fn fails(&self, name: &str, status: &str, wanted: &str) -> Failed {
        let failed = thread::scope(|scope| {
            let calling = scope.spawn(|| {
                let begun = Instant::now();
                let answer = self
                    .gantry
                    .call(&format!("{name}__echo"), json!({"text": "x"}));
                (answer, begun.elapsed())
            });
            loop {
                self.neighbour_holds();
                if calling.is_finished() {
                    break;
                }
                thread::park_timeout(SECOND / 5);
            }
            let (answer, took) = calling.join().unwrap();
            let error = answer["error"].clone();
            assert_eq!(code(&error), wanted, "`{name}`: {answer}");
            Failed { error, took }
        });
        let rows = self.gantry.audit_rows(&format!("server={name}"));
        assert_eq!(rows.len(), 1, "`{name}`: {rows:#?}");
        let recorded = (rows[0]["status"].as_str(), rows[0]["code"].as_str());
        assert_eq!(recorded, (Some(status), Some(wanted)), "`{name}`");
        failed
    }

    fn neighbour_holds(&self) {
        let begun = Stopwatch::start();
        let answer = self.gantry.call("near__echo", json!({"text": "y"}));
        assert_eq!(answer["result"]["content"][0]["text"], "y", "{answer}");
        assert!(begun.elapsed() <= NEIGHBOUR, "{:?}", begun.elapsed());
    }

    /// Asserts that the gateway holds what it held at first, and never needed more than so many MiB
    /// beyond that.
    pub(super) fn is_over(&self, room: u64) {
        self.neighbour_holds();
        self.at_first.are_all(room);
        let log = self.gantry.stderr();
        assert!(!log.contains("panicked"), "{log}");
    }
}

impl Failed {
    /// Asserts that it took at least this long, which is how long was waited, and little more.
    pub(super) fn took(&self, least: Duration) -> &Self {
        let (error, took) = (&self.error, self.took);
        // A busy machine is late; a deadline that does not hold is later.
        let late = least + 4 * SECOND;
        assert!((least..late).contains(&took), "{took:?}: {error}");
        self
    }

    /// Returns what users read.
    pub(super) fn message(&self) -> &str {
        self.error["message"].as_str().unwrap_or_default()
    }
}
