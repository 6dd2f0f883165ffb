//! Callers that wait for a server to come up, or for a further life of it: bounded, and fair between
//! agents as the queue of its link is. Nothing here waits by itself. It is no `Quota`: whoever
//! has the most places gives one up, and a server belongs to one project. Entry point: [`WaitingCallers::seat`].

use gantry_model::id::AgentName;
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use super::fair::FairQueue;

/// Who waits for one server.
pub(crate) struct WaitingCallers(Mutex<WaitingState>);

struct WaitingState {
    seats: FairQueue<(u64, CancellationToken)>,
    next: u64,
}

/// A place among those who wait, free again when it is dropped.
pub(crate) struct WaitPermit<'a> {
    waiting: &'a WaitingCallers,
    number: u64,
    displaced: CancellationToken,
}

impl WaitingCallers {
    pub(crate) fn new(limit: u32) -> Self {
        Self(Mutex::new(WaitingState {
            seats: FairQueue::new(limit as usize),
            next: 0,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, WaitingState> {
        self.0.lock()
    }

    /// Tells whether a caller of the agent's would find a place.
    pub(crate) fn has_room(&self, agent: &AgentName) -> bool {
        self.lock().seats.has_room(agent)
    }

    /// Takes a place, maybe that of an agent which has more of them; nothing if there is none.
    pub(crate) fn seat(&self, agent: &AgentName) -> Option<WaitPermit<'_>> {
        let displaced = CancellationToken::new();
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        let other = state.seats.push(agent, (number, displaced.clone())).ok()?;
        if let Some((_, other)) = other {
            other.cancel();
        }
        Some(WaitPermit {
            waiting: self,
            number,
            displaced,
        })
    }
}

impl WaitPermit<'_> {
    /// Waits for something as long as the place is kept; nothing if another agent got it.
    pub(crate) async fn wait_for<T>(&self, what: impl Future<Output = T>) -> Option<T> {
        self.displaced.run_until_cancelled(what).await
    }
}

impl Drop for WaitPermit<'_> {
    fn drop(&mut self) {
        let is_own = |(number, _): &(u64, CancellationToken)| *number == self.number;
        self.waiting.lock().seats.remove(is_own);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn who_has_the_most_places_gives_way_and_is_told() {
        // row 1.7
        let (a, b): (AgentName, AgentName) = ("a".parse().unwrap(), "b".parse().unwrap());
        let waiting = WaitingCallers::new(2);
        let first = waiting.seat(&a).unwrap();
        let second = waiting.seat(&a).unwrap();
        assert!(waiting.seat(&a).is_none() && waiting.has_room(&b));
        let theirs = waiting.seat(&b).unwrap();
        assert_eq!(second.wait_for(pending::<()>()).await, None);
        assert_eq!(first.wait_for(ready(1)).await, Some(1));
        assert!(!waiting.has_room(&a) && !waiting.has_room(&b));
        // Who was displaced has nothing to give back.
        drop(second);
        assert!(!waiting.has_room(&a));
        drop((first, theirs));
        assert!(waiting.seat(&a).is_some());
        assert_eq!(waiting.lock().seats.len(), 0);
    }
}
