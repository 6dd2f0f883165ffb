//! Requests in flight that a client may cancel with `notifications/cancelled`.
//!
//! Only requests of the same owner are found: of the same session, or, without one, of the same key
//! (fault A10). If an owner uses one id for several requests at once, the cancellation is ambiguous
//! and ignored. Entry points: [`Inflight::enter`], [`Inflight::cancel`].

use futures_util::future::{AbortHandle, AbortRegistration};
use gantry_engine::CancelReason;
use gantry_model::id::KeyId;
use parking_lot::Mutex;

use super::sessions::SessionId;

/// The owner of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A session.
    Session(SessionId),
    /// A key, without a session.
    Key(KeyId),
}

impl Owner {
    /// Returns the session, if it is one.
    pub(super) fn session(self) -> Option<SessionId> {
        match self {
            Self::Session(session) => Some(session),
            Self::Key(_) => None,
        }
    }
}

#[derive(Debug)]
struct Entry {
    owner: Owner,
    id: Box<str>,
    handle: AbortHandle,
    reason: CancelReason,
}

/// The requests in flight. Each has a slot, so that adding and removing are constant time; only a
/// cancellation, which is rare, searches.
#[derive(Debug, Default)]
pub(super) struct Inflight(Mutex<Slots>);

#[derive(Debug, Default)]
struct Slots {
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
}

impl Inflight {
    /// Adds a request by the raw text of its id; removed when the guard is dropped.
    pub(super) fn enter(&self, owner: Owner, id: &str) -> (Entered<'_>, AbortRegistration) {
        let (handle, registration) = AbortHandle::new_pair();
        let reason = CancelReason::default();
        let entry = Some(Entry {
            owner,
            id: id.into(),
            handle,
            reason: reason.clone(),
        });
        let mut slots = self.0.lock();
        let slot = slots.free.pop().unwrap_or(slots.entries.len());
        match slots.entries.get_mut(slot) {
            Some(free) => *free = entry,
            None => slots.entries.push(entry),
        }
        drop(slots);
        let entered = Entered {
            inflight: self,
            slot,
            reason,
        };
        (entered, registration)
    }

    /// Cancels the one request of this owner with this id; returns whether there was one.
    pub(super) fn cancel(&self, owner: Owner, id: &str, reason: Option<&str>) -> bool {
        let slots = self.0.lock();
        let entries = slots.entries.iter().flatten();
        let mut found = entries.filter(|entry| entry.owner == owner && *entry.id == *id);
        match (found.next(), found.next()) {
            (Some(only), None) => {
                // Set first: dropping the call reads it.
                reason.into_iter().for_each(|why| only.reason.say(why));
                only.handle.abort();
                true
            }
            _ => false,
        }
    }
}

/// A request's slot.
#[derive(Debug)]
pub(super) struct Entered<'a> {
    inflight: &'a Inflight,
    slot: usize,
    reason: CancelReason,
}

impl Entered<'_> {
    /// Returns the reason of the cancellation, once it is cancelled.
    pub(super) fn reason(&self) -> CancelReason {
        self.reason.clone()
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut slots = self.inflight.0.lock();
        let entry = slots.entries.get_mut(self.slot).and_then(Option::take);
        slots.free.push(self.slot);
        drop(slots);
        drop(entry);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::Abortable;

    use super::*;

    fn owner(n: u128) -> Owner {
        Owner::Key(KeyId::from_random(n))
    }

    // fault A10
    #[tokio::test]
    async fn only_ones_own_request_is_taken_back() {
        let inflight = Inflight::default();
        let (entered, registration) = inflight.enter(owner(1), "7");
        assert!(!inflight.cancel(owner(2), "7", None));
        assert!(!inflight.cancel(owner(1), "\"7\"", None));
        assert!(inflight.cancel(owner(1), "7", None));
        assert!(
            Abortable::new(std::future::pending::<()>(), registration)
                .await
                .is_err()
        );
        drop(entered);
        assert!(!inflight.cancel(owner(1), "7", None));
        assert!(inflight.0.lock().entries.iter().all(Option::is_none));
        // A slot is used again.
        drop(inflight.enter(owner(1), "8"));
        assert_eq!(inflight.0.lock().entries.len(), 1);
    }

    // fault S10
    #[test]
    fn an_id_that_stands_for_several_takes_none_back() {
        let inflight = Inflight::default();
        let (first, _kept) = inflight.enter(owner(1), "1");
        let (_second, _kept) = inflight.enter(owner(1), "1");
        assert!(!inflight.cancel(owner(1), "1", None));
        drop(first);
        assert!(inflight.cancel(owner(1), "1", None));
    }
}
