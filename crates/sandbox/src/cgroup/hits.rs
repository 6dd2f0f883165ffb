//! How often a tree ran into its limits, and whether it did so lately.
//!
//! The kernel counts from the start of a group on. A worker that was killed for its memory an hour ago
//! is not why its server ends now, so what counts is when the figure rose.

use std::time::Duration;

use tokio::time::Instant;

/// How long after a limit was hit it may be why a tree ends.
const RECENT: Duration = Duration::from_secs(5);

/// What the counters of one group said when they were last read.
#[derive(Debug, Default)]
pub(super) struct Hits {
    pub(super) memory: Counter,
    pub(super) pids: Counter,
    /// Whether the guest of a runtime has as many processes as it may.
    pub(super) guests: Counter,
}

/// One counter of the kernel.
#[derive(Debug, Default)]
pub(super) struct Counter {
    count: u64,
    /// When it was first seen to have risen.
    risen: Option<Instant>,
}

impl Counter {
    /// Takes in what the kernel counts now; returns whether it rose lately.
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
        // A worker was killed; the server lives on.
        assert!(counter.observe(Some(1), start));
        assert!(counter.observe(Some(1), start + RECENT));
        assert!(!counter.observe(Some(1), start + 2 * RECENT));
        assert!(!counter.observe(None, start + 2 * RECENT));
        // Then again, and this time it ends.
        assert!(counter.observe(Some(2), start + 3 * RECENT));
        // Read for the first time at the end.
        assert!(Counter::default().observe(Some(3), start));
    }
}
