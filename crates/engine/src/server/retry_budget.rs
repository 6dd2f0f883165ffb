//! Limits retries of calls to a server: at most a fifth more calls than without retries, so that a
//! failing server is not overloaded. fault H13

use std::sync::atomic::{AtomicU32, Ordering};

/// What one call adds to the budget, in hundredths of a call.
const EACH: u32 = 20;
/// What a retry costs.
const COST: u32 = 100;
/// The maximum budget.
const MOST: u32 = 10 * COST;

/// The remaining retries, in hundredths.
#[derive(Debug)]
pub(crate) struct RetryBudget(AtomicU32);

impl Default for RetryBudget {
    fn default() -> Self {
        Self(AtomicU32::new(COST))
    }
}

impl RetryBudget {
    /// Adds the share of a first attempt.
    pub(crate) fn earn(&self) {
        let add = |saved: u32| Some((saved + EACH).min(MOST));
        // The closure never returns `None`, so this cannot fail.
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .ok();
    }

    /// Takes one retry from the budget; returns false if it is too small.
    pub(crate) fn spend(&self) -> bool {
        let take = |saved: u32| saved.checked_sub(COST);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_more_and_no_more() {
        // fault H13
        let budget = RetryBudget::default();
        let mut again = 0;
        for _ in 0..100 {
            budget.earn();
            again += u32::from(budget.spend());
        }
        assert!((20..=21).contains(&again), "{again}");
        // The budget of quiet times is bounded.
        (0..1000).for_each(|_| budget.earn());
        let saved = (0..1000).filter(|_| budget.spend()).count();
        assert_eq!(saved, 10);
    }
}
