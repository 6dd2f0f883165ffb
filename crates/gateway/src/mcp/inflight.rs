//! Requests in flight that a client may take back with `notifications/cancelled`.
//!
//! Only a request of the same owner is ever found: of the same session, or, without one, of the
//! same key (fault A10). Where an owner uses one id for several requests at once, nobody can say
//! which is meant, and none is taken back. Entry points: [`Inflight::enter`], [`Inflight::cancel`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::{AbortHandle, AbortRegistration};
use gantry_engine::CancelReason;
use gantry_model::id::KeyId;

use super::sessions::SessionId;

/// Whose request it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    /// A session's.
    Session(SessionId),
    /// A key's, outside of any session.
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

type Place = (Owner, Box<str>);

#[derive(Debug)]
struct Entry {
    ticket: u64,
    handle: AbortHandle,
    reason: CancelReason,
}

/// The requests in flight.
#[derive(Debug, Default)]
pub(super) struct Inflight {
    next: AtomicU64,
    table: Mutex<HashMap<Place, Vec<Entry>>>,
}

impl Inflight {
    /// Enters a request by the raw text of its id; it leaves when the guard is dropped.
    pub(super) fn enter(&self, owner: Owner, id: &str) -> (Entered<'_>, AbortRegistration) {
        let (handle, registration) = AbortHandle::new_pair();
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let (place, reason) = ((owner, Box::from(id)), CancelReason::default());
        let entry = Entry {
            ticket,
            handle,
            reason: reason.clone(),
        };
        self.lock()
            .entry((owner, id.into()))
            .or_default()
            .push(entry);
        (
            Entered {
                inflight: self,
                place,
                ticket,
                reason,
            },
            registration,
        )
    }

    /// Takes back the one request of this owner with this id, for a reason if one is given; tells
    /// whether there was such a request.
    pub(super) fn cancel(&self, owner: Owner, id: &str, reason: Option<&str>) -> bool {
        let table = self.lock();
        match table.get(&(owner, Box::from(id))).map(Vec::as_slice) {
            Some([only]) => {
                // Said first: whoever drops the call looks for it.
                reason.into_iter().for_each(|why| only.reason.say(why));
                only.handle.abort();
                true
            }
            Some(_) | None => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Vec<Entry>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among the requests in flight.
#[derive(Debug)]
pub(super) struct Entered<'a> {
    inflight: &'a Inflight,
    place: Place,
    ticket: u64,
    reason: CancelReason,
}

impl Entered<'_> {
    /// Returns why the request is taken back, once it is.
    pub(super) fn reason(&self) -> CancelReason {
        self.reason.clone()
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut table = self.inflight.lock();
        if let Some(entries) = table.get_mut(&self.place) {
            entries.retain(|entry| entry.ticket != self.ticket);
            if entries.is_empty() {
                table.remove(&self.place);
            }
        }
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
        assert!(inflight.lock().is_empty());
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
