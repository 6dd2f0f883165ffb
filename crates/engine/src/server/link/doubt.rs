//! Whether an answer without an id can only be meant for the one call in flight (fault S7).
//!
//! Servers answer so to whatever they could not read, notifications too. What was sent may be
//! meant until something sent after it has been answered: a server reads its lines in order.
//! Decides only that; which calls there are, which were left and what of our own is open is known to
//! `pending`.

use std::sync::atomic::{AtomicU64, Ordering};

/// What was sent that may yet be answered without an id.
#[derive(Debug, Default)]
pub(super) struct SentUnanswered {
    /// The first id whose answer shows that the server has read past it; 0 if there is nothing.
    read_by: AtomicU64,
}

impl SentUnanswered {
    /// Notes a message that is no call; the answer to `next`, or to a later id, settles it.
    pub(super) fn told(&self, next: u64) {
        self.read_by.store(next.max(1), Ordering::Release);
    }

    /// Notes that the server has answered the request of that id.
    pub(super) fn answered(&self, id: u64) {
        let read_by = self.read_by.load(Ordering::Acquire);
        if read_by != 0 && id >= read_by {
            // Fails if something was told meanwhile, which stays in doubt.
            self.read_by
                .compare_exchange(read_by, 0, Ordering::AcqRel, Ordering::Relaxed)
                .ok();
        }
    }

    /// Tells whether nothing but calls can be meant.
    pub(super) fn is_settled(&self) -> bool {
        self.read_by.load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_to_what_was_sent_later_settles_it() {
        // fault S7
        let doubt = SentUnanswered::default();
        assert!(doubt.is_settled());
        doubt.told(7);
        doubt.answered(6);
        assert!(!doubt.is_settled());
        doubt.answered(7);
        assert!(doubt.is_settled());
    }
}
