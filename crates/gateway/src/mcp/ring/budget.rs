//! What the news of all clients may take together, so that neither many sessions nor one loud server
//! fill the memory. Each client has a little of its own; beyond that all share a pool, of which one
//! key gets no more than its part. Never waits. Entry points: [`Budget::share`] and [`Share::set`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use gantry_model::id::KeyId;

/// What each client has of its own, in bytes.
const OWN: usize = 1 << 10;
/// What all have together beyond that.
const POOL: usize = 32 << 20;
/// The part of it that one key may take.
const PER_KEY: usize = 8 << 20;

/// What is taken of the pool.
#[derive(Debug, Default)]
pub(in crate::mcp) struct Budget(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    by_key: HashMap<KeyId, usize>,
}

impl Budget {
    /// Returns the part of a client with this key, of which nothing is taken yet.
    pub(in crate::mcp) fn share(self: &Arc<Self>, key: KeyId) -> Share {
        Share {
            budget: Arc::clone(self),
            key,
            taken: 0,
        }
    }

    /// Changes what a client of this key takes; false if there is not enough left.
    fn change(&self, key: KeyId, before: usize, after: usize) -> bool {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total = taken.total - before + after;
        let own = taken.by_key.get(&key).copied().unwrap_or_default() - before + after;
        if after > before && (total > POOL || own > PER_KEY) {
            return false;
        }
        taken.total = total;
        match own {
            0 => taken.by_key.remove(&key),
            own => taken.by_key.insert(key, own),
        };
        true
    }
}

/// What one client takes of the pool, until it is dropped.
#[derive(Debug)]
pub(in crate::mcp) struct Share {
    budget: Arc<Budget>,
    key: KeyId,
    taken: usize,
}

impl Share {
    /// Sets how many bytes the client has; false if there is no room, and all stays as it was.
    pub(super) fn set(&mut self, bytes: usize) -> bool {
        let wanted = bytes.saturating_sub(OWN);
        // Most clients never have more than their own.
        let fits = wanted == self.taken || self.budget.change(self.key, self.taken, wanted);
        if fits {
            self.taken = wanted;
        }
        fits
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // fault A5
    #[test]
    fn one_key_cannot_take_what_the_others_need() {
        const CLIENT: usize = 256 << 10;
        let budget = Arc::<Budget>::default();
        let (loud, other) = (KeyId::from_random(1), KeyId::from_random(2));
        let mut many: Vec<_> = (0..40).map(|_| budget.share(loud)).collect();
        let taken = many
            .iter_mut()
            .filter_map(|share| share.set(CLIENT).then_some(()));
        assert_eq!(taken.count(), PER_KEY / (CLIENT - OWN));
        let last = many.last_mut().unwrap();
        assert!(last.set(OWN), "a little is everybody's");
        let mut modest = budget.share(other);
        assert!(modest.set(CLIENT));
        drop(many);
        drop(modest);
        let taken = budget.0.lock().unwrap();
        assert_eq!((taken.total, taken.by_key.len()), (0, 0));
    }

    // fault A5
    #[test]
    fn all_keys_together_have_a_bound() {
        let budget = Arc::<Budget>::default();
        let mut shares: Vec<_> = (1..=5)
            .map(|key| budget.share(KeyId::from_random(key)))
            .collect();
        let fits: Vec<bool> = shares
            .iter_mut()
            .map(|share| share.set(PER_KEY + OWN))
            .collect();
        assert_eq!(fits, [true, true, true, true, false]);
        assert!(shares[0].set(0));
        assert!(shares[4].set(PER_KEY + OWN));
    }
}
