//! Whether a call that was cut off is made once more: only for tools that an administrator declared
//! idempotent, and only within a budget, so that a server in trouble gets at most a fifth more calls
//! than it would without. row 3.4, fault H13

use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::CallError;
use crate::server::handle::ServerHandle;

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
    fn earn(&self) {
        let add = |saved: u32| Some((saved + EACH).min(MOST));
        // It always succeeds.
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .ok();
    }

    /// Takes one more call out of the budget, if it is in there.
    fn spend(&self) -> bool {
        let take = |saved: u32| saved.checked_sub(COST);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .is_ok()
    }
}

/// Notes a call to a server.
pub(super) fn begun(server: &ServerHandle) {
    server.retries.earn();
}

/// Tells whether a call that ended like this is made once more.
pub(super) fn is_made_again(server: &ServerHandle, tool: &str, error: &CallError) -> bool {
    let settings = server.spec.tools.settings.get(tool);
    settings.is_some_and(|settings| settings.idempotent)
        && was_cut_off(error)
        && server.retries.spend()
}

/// Tells whether nothing is known of what became of a call, or the server failed before it.
fn was_cut_off(error: &CallError) -> bool {
    if let CallError::Remote { error, .. } = error {
        return error.is_worth_a_retry();
    }
    matches!(error, CallError::Exited { .. })
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
