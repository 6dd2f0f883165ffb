//! How long to wait before a cut link is tried again: exponential, with full jitter.
//!
//! Knows no clock and draws no random number: the caller brings both. Entry point: `Backoff::delay`.

use std::time::Duration;

use crate::diagnose::{Diagnose, Fault};

/// Why a backoff was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BackoffError {
    /// The first wait is zero.
    #[error("the first wait of a backoff must be longer than zero")]
    Zero,
    /// The longest wait is shorter than the first.
    #[error("the longest wait `{max:?}` of a backoff is shorter than its first, `{first:?}`")]
    Order {
        /// The first wait.
        first: Duration,
        /// The longest wait.
        max: Duration,
    },
    /// The factor is less than 1, or not a number.
    #[error("the factor `{factor}` of a backoff must be a number of at least 1")]
    Factor {
        /// The given factor.
        factor: f64,
    },
}

impl Diagnose for BackoffError {
    fn code(&self) -> &'static str {
        "config.backoff"
    }

    fn fault(&self) -> Fault {
        Fault::Client
    }
}

/// Waits that grow by a factor up to a bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Backoff {
    first: Duration,
    factor: f64,
    max: Duration,
}

impl Default for Backoff {
    /// Returns 1 s, doubling to 60 s.
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            factor: 2.0,
            max: Duration::from_secs(60),
        }
    }
}

impl Backoff {
    /// Creates a backoff from the first wait, the growth factor and the longest wait, if they are
    /// valid.
    pub fn new(first: Duration, factor: f64, max: Duration) -> Result<Self, BackoffError> {
        if first.is_zero() {
            return Err(BackoffError::Zero);
        }
        if max < first {
            return Err(BackoffError::Order { first, max });
        }
        if !factor.is_finite() || factor < 1.0 {
            return Err(BackoffError::Factor { factor });
        }
        Ok(Self { first, factor, max })
    }

    /// Returns the upper limit of `delay` for this attempt, counted from 0.
    pub fn ceiling(&self, attempt: u32) -> Duration {
        let growth = self.factor.powi(i32::try_from(attempt).unwrap_or(i32::MAX));
        let seconds = self.first.as_secs_f64() * growth;
        if seconds < self.max.as_secs_f64() {
            Duration::from_secs_f64(seconds)
        } else {
            self.max
        }
    }

    /// Returns the wait before this attempt, counted from 0: between zero and the ceiling.
    ///
    /// `random` is uniform in 0..1; full jitter spreads the clients of one peer.
    pub fn delay(&self, attempt: u32, random: f64) -> Duration {
        self.ceiling(attempt).mul_f64(random.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, proptest};

    use super::*;

    #[test]
    fn doubles_from_one_second_to_sixty() {
        let backoff = Backoff::default();
        let ceilings: Vec<u64> = (0..8).map(|n| backoff.ceiling(n).as_secs()).collect();
        assert_eq!(ceilings, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.delay(3, 0.25), Duration::from_secs(2));
    }

    #[test]
    fn refuses_what_would_not_back_off() {
        let second = Duration::from_secs(1);
        assert_eq!(
            Backoff::new(Duration::ZERO, 2.0, second),
            Err(BackoffError::Zero)
        );
        assert!(Backoff::new(second, 2.0, second / 2).is_err());
        for factor in [0.5, f64::NAN, f64::INFINITY] {
            assert!(Backoff::new(second, factor, second).is_err());
        }
    }

    proptest! {
        // fault H13
        #[test]
        fn never_passes_its_bound(attempt in any::<u32>(), random in 0.0_f64..1.0) {
            let backoff = Backoff::default();
            prop_assert!(backoff.delay(attempt, random) <= backoff.ceiling(attempt));
            prop_assert!(backoff.ceiling(attempt) <= Duration::from_secs(60));
            prop_assert!(backoff.ceiling(attempt) <= backoff.ceiling(attempt.saturating_add(1)));
        }
    }
}
