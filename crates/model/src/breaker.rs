//! A circuit breaker: three consecutive failures open it for a minute, then one probe decides.
//!
//! Has no clock: `now` is the time since any fixed start, and must not go backwards. Entry point:
//! `Breaker::allow`, followed by `success`, `failure` or `abandon`.

use std::time::Duration;

const FAILURES: u32 = 3;
const OPEN_FOR: Duration = Duration::from_secs(60);

/// How long a probe may be without a result before it counts as lost and another is allowed.
///
/// Twice the handshake's own limit, so that it applies only if the result was never reported.
const PROBE_LOST_AFTER: Duration = Duration::from_secs(120);

/// The breaker's decision about an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerVerdict {
    /// Allowed.
    Yes,
    /// Allowed as the only attempt: its result decides about the others.
    Probe,
    /// Refused.
    No {
        /// When to try again.
        retry_in: Duration,
    },
}

/// The state of the breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// Attempts are allowed.
    Closed {
        /// How many consecutive attempts have failed.
        failures: u32,
    },
    /// Attempts are refused.
    Open {
        /// When a probe is allowed.
        until: Duration,
    },
    /// One probe is running.
    HalfOpen {
        /// When that probe counts as lost.
        lost_at: Duration,
    },
}

/// A circuit breaker for one peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breaker {
    state: BreakerState,
    threshold: u32,
    open_for: Duration,
}

impl Default for Breaker {
    /// Returns a closed breaker that opens for 60 s after three failures in a row.
    fn default() -> Self {
        Self::new(FAILURES, OPEN_FOR)
    }
}

impl Breaker {
    /// Makes a closed breaker; a threshold of 0 is taken as 1.
    pub fn new(threshold: u32, open_for: Duration) -> Self {
        Self {
            state: BreakerState::Closed { failures: 0 },
            threshold: threshold.max(1),
            open_for,
        }
    }

    /// Returns how many consecutive failures open it.
    pub fn threshold(&self) -> u32 {
        self.threshold
    }

    /// Returns the state.
    pub fn state(&self) -> BreakerState {
        self.state
    }

    /// Decides whether an attempt is allowed now; after `Probe` no other is until its result is
    /// reported.
    pub fn allow(&mut self, now: Duration) -> BreakerVerdict {
        let may_probe_at = match self.state {
            BreakerState::Closed { .. } => return BreakerVerdict::Yes,
            BreakerState::Open { until } => until,
            BreakerState::HalfOpen { lost_at } => lost_at,
        };
        if now < may_probe_at {
            return BreakerVerdict::No {
                retry_in: may_probe_at - now,
            };
        }
        self.state = BreakerState::HalfOpen {
            lost_at: now.saturating_add(PROBE_LOST_AFTER),
        };
        BreakerVerdict::Probe
    }

    /// Reports a success: the breaker closes.
    pub fn success(&mut self) {
        self.state = BreakerState::Closed { failures: 0 };
    }

    /// Reports a failure; an attempt that began before the breaker opened does not prolong it.
    pub fn failure(&mut self, now: Duration) {
        let open = BreakerState::Open {
            until: now.saturating_add(self.open_for),
        };
        self.state = match self.state {
            BreakerState::Closed { failures } if failures + 1 < self.threshold => {
                BreakerState::Closed {
                    failures: failures + 1,
                }
            }
            BreakerState::Closed { .. } | BreakerState::HalfOpen { .. } => open,
            BreakerState::Open { until } => BreakerState::Open { until },
        };
    }

    /// Reports an attempt that was abandoned without a result: the next one becomes the probe.
    pub fn abandon(&mut self, now: Duration) {
        if let BreakerState::HalfOpen { .. } = self.state {
            self.state = BreakerState::Open { until: now };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{
        Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
    };

    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn opened(now: Duration) -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..3 {
            assert_eq!(breaker.allow(now), BreakerVerdict::Yes);
            breaker.failure(now);
        }
        breaker
    }

    // row 0.12
    #[test]
    fn three_failures_in_a_row_open_it_for_a_minute_then_one_probe_goes() {
        let mut breaker = opened(at(10));
        assert_eq!(
            breaker.allow(at(10)),
            BreakerVerdict::No { retry_in: at(60) }
        );
        assert_eq!(
            breaker.allow(at(69)),
            BreakerVerdict::No { retry_in: at(1) }
        );
        assert_eq!(breaker.allow(at(70)), BreakerVerdict::Probe);
        assert!(matches!(breaker.allow(at(70)), BreakerVerdict::No { .. }));
        breaker.success();
        assert_eq!(breaker.allow(at(71)), BreakerVerdict::Yes);
    }

    // row 0.12
    #[test]
    fn a_failed_probe_opens_it_again_and_a_success_between_keeps_it_closed() {
        let mut breaker = opened(at(0));
        assert_eq!(breaker.allow(at(60)), BreakerVerdict::Probe);
        breaker.failure(at(65));
        assert_eq!(
            breaker.allow(at(66)),
            BreakerVerdict::No { retry_in: at(59) }
        );

        let mut breaker = Breaker::default();
        for _ in 0..10 {
            breaker.failure(at(0));
            breaker.failure(at(0));
            breaker.success();
        }
        assert_eq!(breaker.allow(at(0)), BreakerVerdict::Yes);
    }

    #[test]
    fn late_failures_do_not_prolong_it_and_a_lost_probe_does_not_block_for_ever() {
        let mut breaker = opened(at(0));
        breaker.failure(at(30));
        assert_eq!(breaker.allow(at(60)), BreakerVerdict::Probe);
        assert_eq!(
            breaker.allow(at(179)),
            BreakerVerdict::No { retry_in: at(1) }
        );
        assert_eq!(breaker.allow(at(180)), BreakerVerdict::Probe);
        breaker.abandon(at(181));
        assert_eq!(breaker.allow(at(181)), BreakerVerdict::Probe);
    }

    #[derive(Debug, Clone)]
    enum BreakerStep {
        Ask,
        Succeed,
        Fail,
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = BreakerStep> {
        prop_oneof![
            3 => Just(BreakerStep::Ask),
            1 => Just(BreakerStep::Succeed),
            3 => Just(BreakerStep::Fail),
            2 => (0_u64..50).prop_map(BreakerStep::Pass),
        ]
    }

    proptest! {
        // fault H13
        #[test]
        fn at_most_one_probe_is_under_way(
            steps in proptest::collection::vec(step(), 0..200),
            threshold in any::<u8>(),
        ) {
            let mut breaker = Breaker::new(u32::from(threshold % 5), at(60));
            let mut now = at(0);
            let mut probe_since: Option<Duration> = None;
            for step in steps {
                match step {
                    BreakerStep::Pass(seconds) => now += at(seconds),
                    BreakerStep::Succeed => {
                        breaker.success();
                        probe_since = None;
                        prop_assert_eq!(breaker.allow(now), BreakerVerdict::Yes);
                    }
                    BreakerStep::Fail => {
                        breaker.failure(now);
                        probe_since = None;
                    }
                    BreakerStep::Ask => match breaker.allow(now) {
                        BreakerVerdict::Probe => {
                            let lost = probe_since.is_none_or(|t| now - t >= PROBE_LOST_AFTER);
                            prop_assert!(lost);
                            probe_since = Some(now);
                        }
                        BreakerVerdict::Yes => prop_assert!(probe_since.is_none()),
                        BreakerVerdict::No { retry_in } => {
                            prop_assert!(retry_in > Duration::ZERO);
                            prop_assert!(retry_in <= PROBE_LOST_AFTER);
                            let mut later = breaker.clone();
                            prop_assert_eq!(later.allow(now + retry_in), BreakerVerdict::Probe);
                        }
                    },
                }
            }
        }
    }
}
