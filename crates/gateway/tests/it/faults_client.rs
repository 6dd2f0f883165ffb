//! Faults A1–A9 and H11: clients that dawdle, flood, leave, or say what makes no sense.
//!
//! Each test runs a far server that keeps a journal, so that «nothing was sent» is checked at the
//! far end, beside a near neighbour that must not notice anything. When its [`Rig`] goes, what the
//! gateway holds is compared with what it held at the beginning.

mod bodies;
mod crowd;
mod gone;
mod holdings;
mod hung;
mod long_lists;
mod malformed;
mod patterns;
mod posted;
mod repeated;
mod schemas;
mod slow;
mod smuggled;
mod unread;

use std::thread;
use std::time::Duration;

use gantry_testkit::journal::Journal;
use gantry_testkit::wait::{Stopwatch, eventually};
use gantry_testkit::{Evilpeer, procs};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) use self::holdings::{Holdings, ROOM};
pub(crate) use self::posted::Posted;
pub(crate) use self::schemas::{server_that_answers, server_with, with_long_list};
use crate::harness::{Gantry, LONG};

/// The deadline of most contracts.
const SECOND: Duration = Duration::from_secs(1);
/// What a neighbour's call may take, 20 of them at once on a busy machine: a gateway that waited for
/// the far server would take as long as that does.
const NEIGHBOUR: Duration = Duration::from_secs(3);
/// How many calls show that the neighbour is well.
const CALLS: usize = 20;
/// The server whose journal tells what reached it.
const FAR: &str = "far";
/// Its neighbour.
const NEAR: &str = "near";

/// A gateway with the far server and its neighbour.
struct Rig {
    gantry: Gantry,
    folder: TempDir,
    /// What the gateway held when all was ready.
    at_first: Holdings,
    /// What it may need beyond that, in MiB.
    room: u64,
}

impl Rig {
    /// Starts both, the far one with further members of its entry.
    fn new(far: &Evilpeer, members: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let far = far.clone().journal(&folder.path().join("journal"));
        let gantry = Gantry::builder()
            .server_with(FAR, &far, members)
            .server(NEAR, &Evilpeer::new().name(NEAR))
            .start();
        gantry.wait_state(FAR, "ready", LONG);
        gantry.wait_state(NEAR, "ready", LONG);
        let at_first = Holdings::of(&gantry);
        Self {
            gantry,
            folder,
            at_first,
            room: ROOM,
        }
    }

    /// Lets it need so many MiB more than at the start; whoever says so says why.
    fn with_room(self, mib: u64) -> Self {
        let mut rig = self;
        rig.room = mib;
        rig
    }

    /// Describes a call of the far server's.
    fn call(&self, tool: &str, arguments: Value) -> Posted {
        Posted::call(&self.gantry.agent, &format!("{FAR}__{tool}"), arguments)
    }

    /// Returns what reached the far server.
    fn journal(&self) -> Journal {
        Journal::read(&self.folder.path().join("journal")).unwrap()
    }

    /// Returns all that is recorded, of whichever server or of none, but for the neighbour's own calls.
    fn rows(&self) -> Vec<Value> {
        let mut rows = ended_rows(&self.gantry, "");
        rows.retain(|row| !is_neighbours(row));
        rows
    }

    /// Asserts that no call reached the far server, and that nothing is recorded.
    fn nothing_happened(&self) {
        assert_eq!(self.journal().calls(), 0);
        self.audited(&[]);
    }

    /// Asserts that the audit has exactly these rows beside the neighbour's: how many, status, code.
    fn audited(&self, wanted: &[(usize, &str, Option<&str>)]) {
        let rows = self.rows();
        let total: usize = wanted.iter().map(|(count, ..)| count).sum();
        assert_eq!(rows.len(), total, "{rows:#?}");
        for (count, status, code) in wanted {
            let fits = |row: &&Value| row["status"] == *status && row["code"].as_str() == *code;
            let found = rows.iter().filter(fits).count();
            assert_eq!(found, *count, "{status} {code:?}: {rows:#?}");
        }
    }

    /// Waits until the far server has as many calls in flight and waiting.
    fn wait_queue(&self, in_flight: usize, waiting: usize, within: Duration) {
        let wanted = |status: &Value| {
            let queue = &status["queue"];
            queue["in_flight"] == in_flight && queue["waiting"] == waiting
        };
        self.gantry.wait_status(FAR, within, wanted);
    }

    /// Asserts that the far server was never started again and answers at once.
    fn far_is_well(&self) {
        let status = self.gantry.status(FAR);
        assert_eq!(
            (&status["state"], &status["restart_count"]),
            (&json!("ready"), &json!(0))
        );
        assert_eq!(self.journal().starts(), 1);
        let begun = Stopwatch::start();
        let answer = self.gantry.call("far__echo", json!({"text": "still here"}));
        assert_eq!(
            answer["result"]["content"][0]["text"], "still here",
            "{answer:#}"
        );
        assert!(begun.elapsed() <= SECOND, "{:?}", begun.elapsed());
    }

    /// Asserts that the neighbour answers 20 calls at once, each with its own text, in its time.
    fn neighbour_holds(&self) {
        let call = |number: usize| {
            let begun = Stopwatch::start();
            let text = format!("neighbour {number}");
            let answer = self.gantry.call("near__echo", json!({"text": text}));
            assert_eq!(answer["result"]["content"][0]["text"], text, "{answer:#}");
            begun.elapsed()
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..CALLS)
                .map(|number| scope.spawn(move || call(number)))
                .collect();
            for thread in threads {
                let took = thread.join().unwrap();
                assert!(took <= NEIGHBOUR, "the neighbour's call took {took:?}");
            }
        });
    }

    /// Returns how many files the gateway has open once no connection of ours is left.
    fn quiet_fds(&self) -> usize {
        let mut last = 0;
        let settled = eventually(LONG, || {
            let now = self.open_fds();
            let same = now == last;
            last = now;
            thread::sleep(Duration::from_millis(50));
            same
        });
        assert!(
            settled.is_some(),
            "{last} files are open, and their number never rests"
        );
        last
    }

    /// Returns how many files the gateway has open beside those of its store.
    fn open_fds(&self) -> usize {
        procs::open_fds_beside(self.gantry.pid, "gantry.db")
    }

    /// Waits until the gateway has at most so many files open.
    fn wait_fds(&self, most: usize, within: Duration) -> Duration {
        let waited = eventually(within, || self.open_fds() <= most);
        let open = self.open_fds();
        waited.unwrap_or_else(|| panic!("{open} files are open after {within:?}, not {most}"))
    }

    /// Returns how much memory the gateway uses, in KiB.
    fn memory(&self) -> u64 {
        procs::rss_kib(self.gantry.pid)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.at_first.are_all(self.room);
            let log = self.gantry.stderr();
            assert!(
                !log.contains("panicked"),
                "no client makes the gateway panic:\n{log}"
            );
        }
    }
}

/// Returns the recorded calls that fit a query, oldest first, once none of them runs: the end of one
/// that was taken back is written a moment after its lane is free.
pub(crate) fn ended_rows(gantry: &Gantry, query: &str) -> Vec<Value> {
    let mut rows = Vec::new();
    eventually(LONG, || {
        rows = gantry.audit_rows(query);
        rows.iter().all(|row| row["status"] != "running")
    });
    rows
}

/// Returns whether a row is of a call by which [`Rig::neighbour_holds`] sees that the neighbour is well.
fn is_neighbours(row: &Value) -> bool {
    row["server"] == NEAR && row["tool"] == "echo" && row["status"] == "ok"
}
