//! The circuit breaker of a link: counts consecutive calls without any output; after three, calls
//! are refused for a minute, then one is let through as a probe (fault S11).
//!
//! Concurrent calls count once, and any line from the server resets the count. Never restarts
//! anything; the runner decides that. Entry points: `LinkBreaker::admit`, `missed`, `heard`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gantry_model::breaker::{Breaker, BreakerState, BreakerVerdict};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Protects callers from waiting for a silent server.
pub(crate) struct LinkBreaker {
    /// Whether `state` must be checked; false in normal operation.
    suspect: AtomicBool,
    state: Mutex<Counted>,
    /// The time origin of the breaker.
    since: Instant,
    /// Notified when the circuit opens.
    pub(crate) opened: Notify,
}

struct Counted {
    breaker: Breaker,
    /// When a call was last counted.
    last: Option<Instant>,
}

/// The state of a server's circuit breaker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BreakerView {
    /// How many consecutive calls had no response.
    pub unanswered: u32,
    /// For how long calls are refused; zero while the probe is running.
    pub refuses_for: Option<Duration>,
}

/// How a call was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admitted {
    Freely,
    /// As the probe: its result decides about later calls.
    AsProbe,
}

impl LinkBreaker {
    pub(super) fn new() -> Self {
        Self {
            suspect: AtomicBool::new(false),
            state: Mutex::new(Counted {
                breaker: Breaker::default(),
                last: None,
            }),
            since: Instant::now(),
            opened: Notify::new(),
        }
    }

    /// Admits a call, or returns when to try again.
    pub(super) fn admit(&self) -> Result<Admitted, Duration> {
        if !self.suspect.load(Ordering::Acquire) {
            return Ok(Admitted::Freely);
        }
        match self.state.lock().breaker.allow(self.since.elapsed()) {
            BreakerVerdict::Yes => Ok(Admitted::Freely),
            BreakerVerdict::Probe => Ok(Admitted::AsProbe),
            BreakerVerdict::No { retry_in } => Err(retry_in),
        }
    }

    /// Counts a call that began then and got neither a response nor any other line.
    pub(super) fn missed(&self, begun: Instant) {
        let mut counted = self.state.lock();
        if counted.last.is_some_and(|last| begun < last) {
            return;
        }
        let was_open = matches!(counted.breaker.state(), BreakerState::Open { .. });
        counted.last = Some(Instant::now());
        counted.breaker.failure(self.since.elapsed());
        self.suspect.store(true, Ordering::Release);
        if !was_open && matches!(counted.breaker.state(), BreakerState::Open { .. }) {
            self.opened.notify_one();
        }
    }

    /// Records that the probe was abandoned.
    pub(super) fn gave_up(&self) {
        self.state.lock().breaker.abandon(self.since.elapsed());
    }

    /// Records that the server has written something.
    pub(super) fn heard(&self) {
        if self.suspect.load(Ordering::Acquire) {
            let mut counted = self.state.lock();
            counted.breaker.success();
            self.suspect.store(false, Ordering::Release);
        }
    }

    /// Returns the state.
    pub(crate) fn view(&self) -> BreakerView {
        let most = Breaker::default().threshold();
        match self.state.lock().breaker.state() {
            BreakerState::Closed { failures } => BreakerView {
                unanswered: failures,
                refuses_for: None,
            },
            BreakerState::Open { until } => BreakerView {
                unanswered: most,
                refuses_for: Some(until.saturating_sub(self.since.elapsed())),
            },
            BreakerState::HalfOpen { .. } => BreakerView {
                unanswered: most,
                refuses_for: Some(Duration::ZERO),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Simulates an unanswered call of one second.
    async fn unanswered(breaker: &LinkBreaker) {
        let begun = Instant::now();
        tokio::time::sleep(SECOND).await;
        breaker.missed(begun);
    }

    #[tokio::test(start_paused = true)]
    async fn three_in_a_row_are_enough_for_a_minute_and_then_one_call_tries() {
        // fault S11, row 0.12
        let breaker = LinkBreaker::new();
        for count in 1..=2 {
            unanswered(&breaker).await;
            assert_eq!(breaker.view().unanswered, count);
            assert_eq!(breaker.admit(), Ok(Admitted::Freely));
        }
        unanswered(&breaker).await;
        assert_eq!(breaker.admit(), Err(60 * SECOND));
        breaker.opened.notified().await;
        tokio::time::sleep(59 * SECOND).await;
        assert_eq!(breaker.admit(), Err(SECOND));
        tokio::time::sleep(SECOND).await;
        assert_eq!(breaker.admit(), Ok(Admitted::AsProbe));
        assert!(breaker.admit().is_err(), "one tries, the others do not");
        breaker.gave_up();
        assert_eq!(breaker.admit(), Ok(Admitted::AsProbe));
        unanswered(&breaker).await;
        assert_eq!(breaker.admit(), Err(60 * SECOND));
        breaker.heard();
        assert_eq!(breaker.admit(), Ok(Admitted::Freely));
        assert_eq!(breaker.view(), BreakerView::default());
    }

    #[tokio::test(start_paused = true)]
    async fn calls_side_by_side_count_once() {
        // fault S11
        let breaker = LinkBreaker::new();
        let begun = Instant::now();
        tokio::time::sleep(SECOND).await;
        (0..20).for_each(|_| breaker.missed(begun));
        assert_eq!(breaker.view().unanswered, 1);
        assert_eq!(breaker.admit(), Ok(Admitted::Freely));
    }
}
