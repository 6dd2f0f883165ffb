//! Creates call ids: in the order of the calls, and unique across restarts. They start with the
//! time, but a clock that is set back does not reorder them (fault P13).
//!
//! Lock-free; entry point `CallIds::next`.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use gantry_model::id::CallId;

const COUNTER_BITS: u32 = 40;
const COUNTER_MASK: u64 = (1 << COUNTER_BITS) - 1;

/// Creates the ids of calls; one per gateway process.
#[derive(Debug)]
pub(crate) struct CallIds {
    /// Random per boot: ids never repeat those of an earlier process.
    boot: u64,
    counter: AtomicU64,
    /// The latest time used in an id.
    latest_ms: AtomicU64,
}

impl CallIds {
    /// Makes a generator with fresh random bits.
    pub(crate) fn new() -> Self {
        Self {
            boot: random_bits() & COUNTER_MASK,
            counter: AtomicU64::new(0),
            latest_ms: AtomicU64::new(0),
        }
    }

    /// Creates a generator whose ids all come after the newest known one.
    pub(crate) fn after(newest: Option<CallId>) -> Self {
        let ids = Self::new();
        let next = newest.map_or(0, |id| id.unix_ms() + 1);
        ids.latest_ms.store(next, Ordering::Relaxed);
        ids
    }

    /// Returns the next id, for a call that begins at `unix_ms`.
    pub(crate) fn next(&self, unix_ms: u64) -> CallId {
        let latest = self.latest_ms.fetch_max(unix_ms, Ordering::Relaxed);
        let count = self.counter.fetch_add(1, Ordering::Relaxed) & COUNTER_MASK;
        CallId::new(
            unix_ms.max(latest),
            (u128::from(self.boot) << COUNTER_BITS) | u128::from(count),
        )
    }
}

impl Default for CallIds {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns 64 unpredictable bits.
///
/// The standard library keys its hasher from the operating system's randomness.
pub(super) fn random_bits() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_ordered_within_a_millisecond() {
        let (first, second) = (CallIds::new(), CallIds::new());
        let mut ids: Vec<_> = (0..1000).map(|n| first.next(7 + n / 100)).collect();
        assert!(ids.is_sorted());
        ids.extend((0..1000).map(|n| second.next(7 + n / 100)));
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 2000);
    }

    #[test]
    fn a_clock_that_goes_back_moves_no_call_before_an_older_one() {
        // fault P13
        let ids = CallIds::new();
        let mut all: Vec<_> = [9_000, 9_001, 5, 6, 9_002]
            .map(|now| ids.next(now))
            .to_vec();
        let restarted = CallIds::after(all.last().copied());
        all.extend([3, 9_001, 10_000].map(|now| restarted.next(now)));
        assert!(all.is_sorted(), "{all:?}");
        assert_eq!(
            all.last().map(|id| id.unix_ms()),
            Some(10_000),
            "the time is right again"
        );
    }
}
