//! Callers that wait until a server or an additional instance of it is ready: bounded per agent,
//! like the queue of its link. Nothing here waits itself. Not a `Quota`, since a server belongs to
//! one project. Entry point: [`WaitingCallers::permit`].

use gantry_model::id::AgentName;
use parking_lot::Mutex;

use super::fair::FairQueue;

/// The callers that wait for one server.
pub(crate) struct WaitingCallers(Mutex<WaitingState>);

struct WaitingState {
    permits: FairQueue<u64>,
    next: u64,
}

/// A permit to wait, released when dropped.
pub(crate) struct WaitPermit<'a> {
    waiting: &'a WaitingCallers,
    number: u64,
}

impl WaitingCallers {
    pub(crate) fn new(limit: u32) -> Self {
        Self(Mutex::new(WaitingState {
            permits: FairQueue::new(limit as usize),
            next: 0,
        }))
    }

    /// Returns whether a caller of this agent may wait.
    pub(crate) fn has_room(&self, agent: &AgentName) -> bool {
        self.0.lock().permits.has_room(agent)
    }

    /// Returns a permit for a caller of this agent; `None` if too many already wait.
    pub(crate) fn permit(&self, agent: &AgentName) -> Option<WaitPermit<'_>> {
        let mut state = self.0.lock();
        let number = state.next;
        state.next += 1;
        state.permits.push(agent, number).ok()?;
        Some(WaitPermit {
            waiting: self,
            number,
        })
    }
}

impl Drop for WaitPermit<'_> {
    fn drop(&mut self) {
        let mut state = self.waiting.0.lock();
        state.permits.remove(|number| *number == self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_that_is_dropped_makes_room() {
        // row 1.7
        let (a, b): (AgentName, AgentName) = ("a".parse().unwrap(), "b".parse().unwrap());
        let waiting = WaitingCallers::new(1);
        let first = waiting.permit(&a).unwrap();
        assert!(waiting.permit(&a).is_none() && !waiting.has_room(&a));
        let theirs = waiting.permit(&b).unwrap();
        drop((first, theirs));
        assert!(waiting.has_room(&a));
        assert_eq!(waiting.0.lock().permits.len(), 0);
    }
}
