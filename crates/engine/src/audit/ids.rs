//! Mints call ids: time-ordered, and never the same one twice, across restarts included.
//!
//! Lock-free; entry point `CallIds::next`.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use gantry_model::id::CallId;

const COUNTER_BITS: u32 = 40;
const COUNTER_MASK: u64 = (1 << COUNTER_BITS) - 1;

/// Mints the ids of calls; one per gateway process.
#[derive(Debug)]
pub(crate) struct CallIds {
    /// Random per boot: an id of this process is never one of a process that died.
    boot: u64,
    counter: AtomicU64,
}

impl CallIds {
    /// Makes a generator with fresh random bits.
    pub(crate) fn new() -> Self {
        Self {
            boot: random_bits() & COUNTER_MASK,
            counter: AtomicU64::new(0),
        }
    }

    /// Returns the next id, for a call that begins at `unix_ms`.
    pub(crate) fn next(&self, unix_ms: u64) -> CallId {
        let count = self.counter.fetch_add(1, Ordering::Relaxed) & COUNTER_MASK;
        CallId::new(
            unix_ms,
            (u128::from(self.boot) << COUNTER_BITS) | u128::from(count),
        )
    }
}

impl Default for CallIds {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns 64 bits that nobody outside this process can guess.
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
}
