//! How often a tree hit its limits, and whether it did so recently.
//!
//! The kernel counts since the creation of a group. A worker that was killed for its memory an hour
//! ago is not the reason why its server ends now, so the time of the last increase counts.

use std::time::Duration;

use tokio::time::Instant;

/// How long after a limit was hit it counts as the cause of an exit.
const RECENT: Duration = Duration::from_secs(5);

/// The counters of one group as last read.
#[derive(Debug, Default)]
pub(super) struct Hits {
    pub(super) memory: Counter,
    pub(super) pids: Counter,
    /// Whether the guest of a runtime has reached its process limit.
    pub(super) guests: Counter,
}

/// One kernel counter.
#[derive(Debug, Default)]
pub(super) struct Counter {
    count: u64,
    /// When an increase was first seen.
    risen: Option<Instant>,
}

impl Counter {
    /// Stores the current value; returns whether it rose recently.
    pub(super) fn observe(&mut self, count: Option<u64>, now: Instant) -> bool {
        let count = count.unwrap_or(self.count);
        if count > self.count {
            self.risen = Some(now);
        }
        self.count = count;
        self.risen
            .is_some_and(|risen| now.duration_since(risen) <= RECENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_hit_is_not_why_a_tree_ends() {
        let start = Instant::now();
        let mut counter = Counter::default();
        assert!(!counter.observe(Some(0), start));
        assert!(!counter.observe(None, start));
        // A worker was killed; the server keeps running.
        assert!(counter.observe(Some(1), start));
        assert!(counter.observe(Some(1), start + RECENT));
        assert!(!counter.observe(Some(1), start + 2 * RECENT));
        assert!(!counter.observe(None, start + 2 * RECENT));
        // Another one is killed, and this time the server ends.
        assert!(counter.observe(Some(2), start + 3 * RECENT));
        // Read for the first time at the end.
        assert!(Counter::default().observe(Some(3), start));
    }
}
