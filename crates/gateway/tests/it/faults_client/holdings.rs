//! What a gateway holds, looked at when it rests and again when a test is over: descriptors, memory,
//! processes that ended and were not waited for.

use gantry_testkit::procs;
use gantry_testkit::wait::eventually;

use super::SECOND;
use crate::harness::{Gantry, LONG, needs_root};

/// What a gateway may have needed at most beyond what it needed when it rested, in MiB, unless a test
/// says why it may be more. Whoever sends many long bodies sends more than this in all, so that a
/// gateway that keeps them is found out.
pub(crate) const ROOM: u64 = 32;
/// Descriptors that may come late and stay: those of the store's second reader, and of the segments
/// that the audit makes ahead.
pub(super) const LATE_FDS: usize = 8;

/// What a gateway held when it rested.
#[derive(Debug)]
pub(crate) struct Holdings {
    pid: u32,
    fds: usize,
    /// The most memory so far, in KiB.
    peak: u64,
}

impl Holdings {
    /// Looks at a gateway whose servers are up, and whom nobody asks anything.
    pub(crate) fn of(gantry: &Gantry) -> Self {
        needs_root();
        let pid = gantry.pid;
        Self {
            pid,
            fds: procs::resting_fds(pid, SECOND),
            peak: procs::peak_rss_kib(pid),
        }
    }

    /// Takes what one gateway held at rest as what another, which never rests, may hold.
    pub(crate) fn but_of(self, other: &Gantry) -> Self {
        Self {
            pid: other.pid,
            ..self
        }
    }

    /// Asserts that it holds no more than it did, and never needed more than so many MiB beyond it. One
    /// that has ended holds nothing.
    pub(crate) fn are_all(&self, room: u64) {
        let more = procs::peak_rss_kib(self.pid).saturating_sub(self.peak);
        assert!(more <= room << 10, "{more} KiB more, of {room} MiB");
        // Connections are closed a moment after their clients have gone.
        let back = eventually(LONG, || {
            procs::open_fds(self.pid) <= self.fds + LATE_FDS
                && procs::zombies_of(self.pid).is_empty()
        });
        assert!(
            back.is_some(),
            "{} descriptors at first, {} now; zombies {:?}",
            self.fds,
            procs::open_fds(self.pid),
            procs::zombies_of(self.pid),
        );
    }
}
