//! Calls that were sent and whose callers have left. The server may still send messages about them,
//! which must not reach another client (fault T4) or end another call (fault S7). Bounded in
//! number, and in time by the wait for a late response, so that one abandoned call does not block
//! messages forever. Entry points: [`AbandonedCalls::may_be_of_other_than`] and
//! [`AbandonedCalls::is_any`].

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::CallOwner;

/// How many are remembered.
const MOST: usize = 256;
/// How long a response without an id may belong to an abandoned call.
const LONGEST: Duration = Duration::from_secs(600);

pub(super) struct AbandonedCalls {
    /// How long messages about an abandoned call are expected.
    late: Duration,
    calls: VecDeque<(u64, CallOwner, Instant)>,
    /// When the newest call was abandoned that there was no room for.
    forgotten: Option<Instant>,
}

impl AbandonedCalls {
    pub(super) fn new(late: Duration) -> Self {
        Self {
            late,
            calls: VecDeque::new(),
            forgotten: None,
        }
    }

    /// Remembers a call whose caller has left.
    pub(super) fn add(&mut self, id: u64, owner: CallOwner) {
        if self.calls.len() >= MOST
            && let Some((.., since)) = self.calls.pop_front()
        {
            self.forgotten = Some(since);
        }
        self.calls.push_back((id, owner, Instant::now()));
    }

    /// Forgets a call that the server has answered.
    pub(super) fn answered(&mut self, id: u64) {
        if !self.calls.is_empty() {
            self.calls.retain(|(abandoned, ..)| *abandoned != id);
        }
    }

    /// Returns whether the server may still send messages about a call of another owner.
    pub(super) fn may_be_of_other_than(&self, owner: Option<&CallOwner>) -> bool {
        let is_theirs = |(_, whose, since): &(u64, CallOwner, Instant)| {
            Some(whose) != owner && since.elapsed() < self.late
        };
        // The owners of calls that there was no room for are unknown.
        self.calls.iter().any(is_theirs) || self.has_forgotten(self.late)
    }

    fn has_forgotten(&self, within: Duration) -> bool {
        let forgotten = self.forgotten;
        forgotten.is_some_and(|since| since.elapsed() < within)
    }

    /// Returns whether the server may still send messages about any abandoned call.
    pub(super) fn is_any(&self) -> bool {
        let mut left = self.calls.iter().map(|(.., since)| since);
        left.any(|since| since.elapsed() < LONGEST) || self.has_forgotten(LONGEST)
    }
}
