//! The validity of a key, for everything that was started with it: a signal that fires once.
//!
//! Every [`Caller`](super::Caller) carries it, so that each surface can end the key's calls and
//! streams when the key is revoked or expires. Needs no runtime: waiting is a plain future, woken
//! through the standard library's wakers. Entry points: [`KeyValidity::ended`] and
//! [`KeyValidity::end`].

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// Why a key is no longer valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyEnd {
    /// It was revoked, or its agent was removed.
    Revoked,
    /// It has expired.
    Expired,
    /// Its agent or its project is suspended, or the project is not loaded.
    Suspended,
}

impl KeyEnd {
    /// Returns the stable error code of a call that it ended.
    pub fn code(self) -> &'static str {
        match self {
            Self::Revoked => "auth.key_revoked",
            Self::Expired => "auth.key_expired",
            Self::Suspended => "auth.suspended",
        }
    }
}

/// The validity of one key, shared by everything started with it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct KeyValidity(Arc<Signal>);

#[derive(Debug, Default)]
struct Signal {
    /// 0 while the key is valid, else how it ended.
    state: AtomicU8,
    waiting: Mutex<Waiting>,
}

/// The wakers to wake. Slots are reused, so its length is the maximum number of concurrent waits.
#[derive(Debug, Default)]
struct Waiting {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

const VALID: u8 = 0;
const REVOKED: u8 = 1;
const EXPIRED: u8 = 2;
const SUSPENDED: u8 = 3;

impl KeyValidity {
    /// Returns how the key ended, if it has.
    pub fn end_reason(&self) -> Option<KeyEnd> {
        self.0.end_reason()
    }

    /// Ends the validity and wakes all waiting tasks; only the first end counts.
    pub fn end(&self, how: KeyEnd) {
        let state = match how {
            KeyEnd::Revoked => REVOKED,
            KeyEnd::Expired => EXPIRED,
            KeyEnd::Suspended => SUSPENDED,
        };
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        if self
            .0
            .state
            .compare_exchange(VALID, state, success, failure)
            .is_err()
        {
            return;
        }
        let wakers = std::mem::take(&mut self.0.waiting.lock().wakers);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// Waits until the key ends.
    pub fn ended(&self) -> Ended {
        Ended {
            signal: Arc::clone(&self.0),
            registered: None,
        }
    }

    /// Returns whether both belong to the same key.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Signal {
    fn end_reason(&self) -> Option<KeyEnd> {
        match self.state.load(Ordering::Acquire) {
            VALID => None,
            EXPIRED => Some(KeyEnd::Expired),
            SUSPENDED => Some(KeyEnd::Suspended),
            _ => Some(KeyEnd::Revoked),
        }
    }
}

/// The wait for the end of a key. Once ended, every poll is ready.
#[derive(Debug)]
pub struct Ended {
    signal: Arc<Signal>,
    /// The slot and waker of this wait: a poll by the same task takes no lock.
    registered: Option<(usize, Waker)>,
}

impl Ended {
    fn reason(&self) -> Option<KeyEnd> {
        self.signal.end_reason()
    }
}

impl Future for Ended {
    type Output = KeyEnd;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<KeyEnd> {
        let this = &mut *self;
        if this.signal.state.load(Ordering::Acquire) == VALID {
            let waker = context.waker();
            let is_known = |(_, known): &(usize, Waker)| known.will_wake(waker);
            if this.registered.as_ref().is_some_and(is_known) {
                return Poll::Pending;
            }
            let mut waiting = this.signal.waiting.lock();
            let place = match this.registered.take() {
                Some((place, _)) => place,
                None => waiting.free.pop().unwrap_or(waiting.wakers.len()),
            };
            // The end empties the list.
            if waiting.wakers.len() <= place {
                waiting.wakers.resize(place + 1, None);
            }
            waiting.wakers[place] = Some(waker.clone());
            drop(waiting);
            this.registered = Some((place, waker.clone()));
        }
        // Checked after the registration: an end in between has not woken it.
        this.reason().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let Some((place, _)) = self.registered.take() else {
            return;
        };
        let mut waiting = self.signal.waiting.lock();
        if let Some(waker) = waiting.wakers.get_mut(place) {
            *waker = None;
            waiting.free.push(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll(ended: &mut Ended, count: &Arc<Count>) -> Poll<KeyEnd> {
        let waker = Waker::from(Arc::clone(count));
        Pin::new(ended).poll(&mut Context::from_waker(&waker))
    }

    // fault U6
    #[test]
    fn everyone_who_waits_is_woken_once_and_the_first_end_counts() {
        let validity = KeyValidity::default();
        let counts: Vec<Arc<Count>> = (0..3).map(|_| Arc::default()).collect();
        let mut waits: Vec<Ended> = counts.iter().map(|_| validity.ended()).collect();
        for (wait, count) in waits.iter_mut().zip(&counts) {
            assert!(poll(wait, count).is_pending());
            assert!(poll(wait, count).is_pending());
        }
        let left = waits.pop();
        drop(left);
        validity.end(KeyEnd::Expired);
        validity.end(KeyEnd::Revoked);
        let woken = counts.iter().map(|count| count.0.load(Ordering::Relaxed));
        assert_eq!(woken.collect::<Vec<_>>(), [1, 1, 0]);
        for (wait, count) in waits.iter_mut().zip(&counts) {
            assert_eq!(poll(wait, count), Poll::Ready(KeyEnd::Expired));
            assert_eq!(poll(wait, count), Poll::Ready(KeyEnd::Expired));
        }
        assert_eq!(validity.end_reason(), Some(KeyEnd::Expired));
        drop(waits);
        assert_eq!(
            poll(&mut validity.ended(), &counts[0]),
            Poll::Ready(KeyEnd::Expired)
        );
    }

    #[test]
    fn places_are_used_again() {
        let validity = KeyValidity::default();
        let count = Arc::<Count>::default();
        for _ in 0..100 {
            let mut wait = validity.ended();
            assert!(poll(&mut wait, &count).is_pending());
            // Another task goes on with it.
            assert!(poll(&mut wait, &Arc::default()).is_pending());
        }
        let waiting = validity.0.waiting.lock();
        assert_eq!((waiting.wakers.len(), waiting.free.len()), (1, 1));
    }
}
