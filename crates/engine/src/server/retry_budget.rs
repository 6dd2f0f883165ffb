//! How many calls to a server may be retried: at most a fifth more than without retries, so that a
//! server in trouble is not overloaded. fault H13

use std::sync::atomic::{AtomicU32, Ordering};

/// What one call adds to the budget, in hundredths of a call.
const EACH: u32 = 20;
/// What one more call costs.
const COST: u32 = 100;
/// How much may be saved up.
const MOST: u32 = 10 * COST;

/// How many calls may be made once more, in hundredths.
#[derive(Debug)]
pub(crate) struct RetryBudget(AtomicU32);

impl Default for RetryBudget {
    fn default() -> Self {
        Self(AtomicU32::new(COST))
    }
}

impl RetryBudget {
    /// Notes a call that is made for the first time.
    pub(crate) fn earn(&self) {
        let add = |saved: u32| Some((saved + EACH).min(MOST));
        // It always succeeds.
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .ok();
    }

    /// Takes one more call out of the budget, if it is in there.
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
        // What was saved in quiet times is bounded.
        (0..1000).for_each(|_| budget.earn());
        let saved = (0..1000).filter(|_| budget.spend()).count();
        assert_eq!(saved, 10);
    }
}
