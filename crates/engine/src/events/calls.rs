//! The stored calls of one project: the last of them, and counts since the start. Calls are added
//! by the audit once their rows are in the database, so that the path of a call is not affected.

use std::sync::Arc;
use std::time::Duration;

use gantry_store::{CallRow, CallStatus};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::ring::Ring;

/// Calls that are kept for listeners.
const KEPT: usize = 2048;
/// How long calls are kept after the last listener left: one that was cut off reconnects soon.
const LINGER: Duration = Duration::from_secs(60);
/// Four buckets for every doubling, from 1 µs to about 18 minutes.
const BUCKETS: usize = 4 * 31;

/// The stored calls of one project.
pub(crate) struct CallFeed {
    pub(super) ring: Ring<Arc<CallRow>>,
    totals: Mutex<CallTotals>,
    /// When the last listener left.
    left: Mutex<Option<Instant>>,
}

/// How many calls ended since the start, and how long they took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallTotals {
    /// All ended calls.
    pub calls: u64,
    /// Failed calls: errors, timeouts, and calls with an unknown outcome.
    pub errors: u64,
    /// Calls that were refused and never sent.
    pub refused: u64,
    durations: [u64; BUCKETS],
}

impl Default for CallTotals {
    fn default() -> Self {
        Self {
            calls: 0,
            errors: 0,
            refused: 0,
            durations: [0; BUCKETS],
        }
    }
}

impl CallTotals {
    fn count(&mut self, row: &CallRow<&str>) {
        match row.status {
            CallStatus::Running => return,
            CallStatus::Error | CallStatus::Timeout | CallStatus::Unknown => {
                self.errors += row.repeats;
            }
            CallStatus::Refused => self.refused += row.repeats,
            CallStatus::Ok | CallStatus::Cancelled => {}
        }
        self.calls += row.repeats;
        if let Some(duration_us) = row.duration_us {
            self.durations[bucket(duration_us)] += 1;
        }
    }

    /// Returns the difference to an earlier count.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut durations = self.durations;
        for (now, before) in durations.iter_mut().zip(earlier.durations) {
            *now -= before.min(*now);
        }
        Self {
            calls: self.calls.saturating_sub(earlier.calls),
            errors: self.errors.saturating_sub(earlier.errors),
            refused: self.refused.saturating_sub(earlier.refused),
            durations,
        }
    }

    /// Returns a quantile of the durations, such as 0.95, in microseconds; at most a quarter too
    /// high.
    pub fn quantile_us(&self, part: f64) -> Option<u64> {
        let all: u64 = self.durations.iter().sum();
        let wanted = ((all as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.durations.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.filter(|_| all > 0).map(|index| bucket_end(index) - 1)
    }
}

/// Returns the bucket of a duration: its highest bit and the two below it.
fn bucket(duration_us: u64) -> usize {
    let duration_us = duration_us.max(1);
    let doubling = duration_us.ilog2() as usize;
    let quarter = match doubling {
        0 | 1 => (duration_us << (2 - doubling)) as usize & 3,
        _ => (duration_us >> (doubling - 2)) as usize & 3,
    };
    (4 * doubling + quarter).min(BUCKETS - 1)
}

/// Returns the first duration after a bucket.
fn bucket_end(index: usize) -> u64 {
    let (doubling, quarter) = (index / 4, index as u64 % 4);
    let end = (5 + quarter) << doubling;
    end.div_ceil(4).max(2)
}

impl CallFeed {
    pub(super) fn new() -> Self {
        Self {
            ring: Ring::new(KEPT),
            totals: Mutex::default(),
            left: Mutex::default(),
        }
    }

    /// Records that a listener has left.
    pub(super) fn leave(&self) {
        *self.left.lock() = Some(Instant::now());
    }

    /// Returns whether there is a listener, or one may reconnect.
    fn is_wanted(&self) -> bool {
        let left = *self.left.lock();
        self.ring.has_listeners() || left.is_some_and(|left| left.elapsed() < LINGER)
    }

    /// Adds stored rows, without their bodies.
    pub(super) fn stored(&self, rows: &[&CallRow<&str>]) {
        {
            let mut totals = self.totals.lock();
            rows.iter().for_each(|row| totals.count(row));
        }
        // Without listeners, nothing is copied.
        if !self.is_wanted() {
            return self.ring.pass(rows.len() as u64);
        }
        // Older ones would be dropped at once.
        let last = &rows[rows.len().saturating_sub(KEPT)..];
        self.ring.push(last.iter().map(|row| {
            let bare = CallRow {
                input: None,
                output: None,
                ..**row
            };
            Arc::new(bare.owned())
        }));
    }

    pub(super) fn totals(&self) -> CallTotals {
        let totals = self.totals.lock();
        totals.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_at_most_a_quarter_too_high() {
        for duration in (1..5000).chain([1_000_000, 999_999_999]) {
            let mut totals = CallTotals::default();
            totals.durations[bucket(duration)] += 1;
            let told = totals.quantile_us(0.5).unwrap();
            let most = (duration * 5 / 4).max(duration + 1);
            assert!((duration..=most).contains(&told), "{duration}: {told}");
        }
        let mut totals = CallTotals::default();
        assert_eq!(totals.quantile_us(0.5), None);
        for duration in [10, 10, 10, 1000] {
            totals.durations[bucket(duration)] += 1;
        }
        assert!(totals.quantile_us(0.5).unwrap() < 14);
        assert!(totals.quantile_us(0.99).unwrap() >= 1000);
        let since = totals.since(&totals);
        assert_eq!(since, CallTotals::default());
    }
}
