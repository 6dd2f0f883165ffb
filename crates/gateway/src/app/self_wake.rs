//! Polls a future again at once when it wakes itself, without going through the scheduler.
//!
//! A connection that passes a body from its reader to its handler wakes itself for every request.
//! The scheduler would wake another worker for that, in vain: two system calls and a thread wake-up
//! per request. Other wake-ups take the usual path. Entry point: [`SelfWake::poll`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// How often a future is polled before other tasks run.
const TURNS: usize = 8;

const RESTING: u8 = 0;
const POLLING: u8 = 1;
const WOKEN: u8 = 2;

/// Detects that a future wakes itself.
pub(super) struct SelfWake {
    shared: Arc<Shared>,
    waker: Waker,
}

#[derive(Default)]
struct Shared {
    state: AtomicU8,
    /// The task that polls.
    task: AtomicWaker,
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let noted =
            self.state
                .compare_exchange(POLLING, WOKEN, Ordering::AcqRel, Ordering::Acquire);
        if noted == Err(RESTING) {
            self.task.wake();
        }
    }
}

impl SelfWake {
    pub(super) fn new() -> Self {
        let shared = Arc::new(Shared::default());
        let waker = Waker::from(Arc::clone(&shared));
        Self { shared, waker }
    }

    /// Polls until the future is ready, or pending without having woken itself.
    pub(super) fn poll<T>(
        &self,
        context: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.shared.task.register(context.waker());
        for _ in 0..TURNS {
            self.shared.state.store(POLLING, Ordering::Release);
            let polled = poll(&mut Context::from_waker(&self.waker));
            if polled.is_ready() {
                return polled;
            }
            let rested = self.shared.state.compare_exchange(
                POLLING,
                RESTING,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if rested.is_ok() {
                return Poll::Pending;
            }
        }
        self.shared.state.store(RESTING, Ordering::Release);
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_wake_up_of_its_own_is_another_turn_and_one_from_elsewhere_reaches_the_task() {
        let count = Arc::new(Count::default());
        let task = Waker::from(Arc::clone(&count));
        let again = SelfWake::new();
        let mut turns = 0;
        let mut kept = None;
        let polled: Poll<()> = again.poll(&mut Context::from_waker(&task), |context| {
            turns += 1;
            if turns < 3 {
                context.waker().wake_by_ref();
            }
            kept = Some(context.waker().clone());
            Poll::Pending
        });
        assert!(polled.is_pending());
        assert_eq!((turns, count.0.load(Ordering::Relaxed)), (3, 0));
        kept.unwrap().wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn one_that_never_rests_gives_way() {
        let count = Arc::new(Count::default());
        let task = Waker::from(Arc::clone(&count));
        let mut turns = 0;
        let polled: Poll<()> = SelfWake::new().poll(&mut Context::from_waker(&task), |context| {
            turns += 1;
            context.waker().wake_by_ref();
            Poll::Pending
        });
        assert!(polled.is_pending());
        assert_eq!((turns, count.0.load(Ordering::Relaxed)), (TURNS, 1));
    }
}
