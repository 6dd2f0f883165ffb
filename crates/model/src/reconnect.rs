//! When a remote server is reconnected: after exponential backoff with jitter, and after several
//! consecutive failures only occasionally, by one attempt.
//!
//! Has no clock and draws no random numbers. A connection that does not last is not a success: the
//! failures before it count until one has lasted for a while (fault H13). Entry points: `failed`,
//! `lost` and `connected`.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::breaker::{Breaker, BreakerState};
use crate::spec::{ReconnectSpec, period};

/// The longest wait that a server may request. fault H9
const LONGEST_ASKED: Duration = Duration::from_secs(60);

/// The state of the connections to one remote server.
#[derive(Debug, Clone)]
pub struct Reconnect {
    backoff: Backoff,
    breaker: Breaker,
    steady: Duration,
    /// Consecutive connections that failed or did not last.
    attempts: u32,
    connected: Option<Duration>,
    was_connected: bool,
}

/// How long to wait before the next attempt, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// The wait, from now on.
    pub delay: Duration,
    /// The reason, in a few words.
    pub reason: String,
    /// Whether so many connections failed that only one attempt follows.
    pub is_away: bool,
}

impl Reconnect {
    /// Starts with the settings of a spec.
    pub fn new(spec: &ReconnectSpec) -> Self {
        Self {
            backoff: Backoff::new(spec.first, 2.0, spec.longest).unwrap_or_default(),
            breaker: Breaker::new(spec.failures, spec.away),
            steady: spec.steady,
            attempts: 0,
            connected: None,
            was_connected: false,
        }
    }

    /// Records that an attempt begins; after several failures it is the probe.
    pub fn begins(&mut self, now: Duration) {
        // The runner decides whether to try: a manual restart overrides the wait.
        self.breaker.allow(now);
    }

    /// Records that the server responded.
    pub fn connected(&mut self, now: Duration) {
        self.breaker.success();
        self.connected = Some(now);
        self.was_connected = true;
    }

    /// Decides after a failed connection; `asked` is the wait that the server requests. row 0.12
    pub fn failed(&mut self, now: Duration, asked: Option<Duration>, random: f64) -> Wait {
        self.connected = None;
        self.breaker.failure(now);
        if let BreakerState::Open { until } = self.breaker.state() {
            let delay = until.saturating_sub(now).max(bounded(asked));
            let failures = self.breaker.threshold();
            return Wait {
                reason: format!(
                    "{failures} failed connects in a row, one try in {}",
                    period::show(rounded(delay))
                ),
                delay,
                is_away: true,
            };
        }
        self.next(asked, random)
    }

    /// Decides after a connection was lost. row 0.7
    pub fn lost(&mut self, now: Duration, asked: Option<Duration>, random: f64) -> Wait {
        let held = self.connected.take().map(|since| now.saturating_sub(since));
        if held.is_some_and(|held| held >= self.steady) {
            self.attempts = 0;
        }
        self.next(asked, random)
    }

    fn next(&mut self, asked: Option<Duration>, random: f64) -> Wait {
        let ceiling = self.backoff.ceiling(self.attempts);
        let delay = self.backoff.delay(self.attempts, random);
        self.attempts = self.attempts.saturating_add(1);
        let reason = match asked {
            Some(asked) if asked > delay => {
                format!(
                    "rate limited, retry in {}",
                    period::show(bounded(Some(asked)))
                )
            }
            Some(_) | None => format!("reconnecting within {}", period::show(ceiling)),
        };
        Wait {
            delay: delay.max(bounded(asked)),
            reason,
            is_away: false,
        }
    }

    /// Returns how many consecutive connections have failed.
    pub fn failures(&self) -> u32 {
        match self.breaker.state() {
            BreakerState::Closed { failures } => failures,
            BreakerState::Open { .. } | BreakerState::HalfOpen { .. } => self.breaker.threshold(),
        }
    }

    /// Returns whether the server has ever responded.
    pub fn was_connected(&self) -> bool {
        self.was_connected
    }

    /// Clears all failures, as after a manual restart.
    pub fn forgive(&mut self) {
        self.breaker.success();
        self.attempts = 0;
    }
}

fn bounded(asked: Option<Duration>) -> Duration {
    asked.unwrap_or_default().min(LONGEST_ASKED)
}

/// Rounds up to a whole second, for people.
fn rounded(wait: Duration) -> Duration {
    match wait.subsec_nanos() {
        0 => wait,
        _ if wait.as_secs() == 0 => Duration::from_millis(wait.as_millis() as u64),
        _ => Duration::from_secs(wait.as_secs() + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn reconnect() -> Reconnect {
        Reconnect::new(&ReconnectSpec::default())
    }

    #[test]
    fn three_failed_connects_are_followed_by_a_minute_and_one_try() {
        // row 0.12
        let mut known = reconnect();
        assert_eq!(known.failed(SECOND, None, 0.5).delay, SECOND / 2);
        assert_eq!(known.failed(2 * SECOND, None, 0.5).delay, SECOND);
        let away = known.failed(4 * SECOND, None, 0.5);
        assert_eq!(
            (away.delay, away.is_away, known.failures()),
            (60 * SECOND, true, 3)
        );
        known.begins(64 * SECOND);
        let again = known.failed(65 * SECOND, None, 0.5);
        assert_eq!((again.delay, again.is_away), (60 * SECOND, true));
        known.begins(125 * SECOND);
        known.connected(126 * SECOND);
        assert_eq!(known.failures(), 0);
        assert!(!known.failed(127 * SECOND, None, 0.5).is_away);
    }

    #[test]
    fn a_peer_that_flaps_is_waited_for_longer_and_longer() {
        // fault H13
        let mut known = reconnect();
        let mut now = SECOND;
        let mut waits = Vec::new();
        for _ in 0..8 {
            known.connected(now);
            now += SECOND;
            waits.push(known.lost(now, None, 1.0).delay.as_secs());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        // One that has held is forgiven.
        known.connected(now);
        assert_eq!(known.lost(now + 61 * SECOND, None, 1.0).delay, SECOND);
    }

    #[test]
    fn a_server_that_asks_for_time_gets_it_within_a_minute() {
        // fault H9
        let mut known = reconnect();
        assert_eq!(
            known.lost(SECOND, Some(20 * SECOND), 0.1).delay,
            20 * SECOND
        );
        let long = known.lost(SECOND, Some(3600 * SECOND), 0.1);
        assert_eq!(long.delay, 60 * SECOND);
        assert_eq!(long.reason, "rate limited, retry in 1m");
    }
}
