//! Rate limits of a key, an agent or a project: calls and bytes per minute and per hour, and
//! concurrent calls. [`Bucket`] is a token bucket without a lock or a clock. Entry points:
//! [`RateLimits`] and [`Bucket::take`].

use std::fmt::{self, Display, Formatter};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The limits of one key, agent or project; missing ones do not apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimits {
    /// Calls in a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_per_minute: Option<NonZeroU32>,
    /// Calls in an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_per_hour: Option<NonZeroU32>,
    /// Bytes of arguments and results in a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_minute: Option<NonZeroU64>,
    /// Bytes of arguments and results in an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_hour: Option<NonZeroU64>,
    /// Concurrent calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<NonZeroU32>,
}

impl RateLimits {
    /// Returns whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The owner of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitOwner {
    /// The key's.
    Key,
    /// The agent's, all its keys together.
    Agent,
    /// The project's, all its agents together.
    Project,
}

impl LimitOwner {
    /// All of them, the narrowest first.
    pub const ALL: [Self; 3] = [Self::Key, Self::Agent, Self::Project];

    /// Returns its name as shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Agent => "agent",
            Self::Project => "project",
        }
    }
}

/// The kind of a limit, with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    /// Calls in a minute.
    CallsPerMinute(u64),
    /// Calls in an hour.
    CallsPerHour(u64),
    /// Bytes in a minute.
    BytesPerMinute(u64),
    /// Bytes in an hour.
    BytesPerHour(u64),
    /// Concurrent calls.
    Concurrency(u64),
}

impl Display for Limited {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::CallsPerMinute(limit) => write!(formatter, "{limit} calls per minute"),
            Self::CallsPerHour(limit) => write!(formatter, "{limit} calls per hour"),
            Self::BytesPerMinute(limit) => write!(formatter, "{limit} bytes per minute"),
            Self::BytesPerHour(limit) => write!(formatter, "{limit} bytes per hour"),
            Self::Concurrency(limit) => write!(formatter, "{limit} calls at once"),
        }
    }
}

/// A token bucket: full it holds the limit, and it refills evenly within its period. Times are
/// relative to a fixed reference point.
#[derive(Debug)]
pub struct Bucket {
    /// When it will be full, in nanoseconds.
    full_at: AtomicU64,
    /// How long a complete refill takes.
    period: u64,
    holds: NonZeroU64,
}

impl Bucket {
    /// Creates a full bucket.
    pub fn new(holds: NonZeroU64, period: Duration) -> Self {
        Self {
            full_at: AtomicU64::new(0),
            period: nanoseconds(period),
            holds,
        }
    }

    /// Returns its capacity.
    pub fn holds(&self) -> u64 {
        self.holds.get()
    }

    /// Returns how long it takes to refill this amount.
    fn refill(&self, amount: u64) -> u64 {
        let time = u128::from(amount) * u128::from(self.period) / u128::from(self.holds.get());
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// Takes an amount if it is available, else returns when it will be.
    pub fn take(&self, amount: u64, now: Duration) -> Result<(), Duration> {
        let (now, refill) = (nanoseconds(now), self.refill(amount));
        let latest = now.saturating_add(self.period);
        let mut too_early = 0;
        let taken = self
            .full_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
                let after = full_at.max(now).saturating_add(refill);
                too_early = after.saturating_sub(latest);
                (too_early == 0).then_some(after)
            });
        match taken {
            Ok(_) => Ok(()),
            Err(_) => Err(Duration::from_nanos(too_early)),
        }
    }

    /// Fails if the bucket is empty, with the time until it is not.
    pub fn check(&self, now: Duration) -> Result<(), Duration> {
        let latest = nanoseconds(now).saturating_add(self.period);
        let full_at = self.full_at.load(Ordering::Relaxed);
        match full_at < latest {
            true => Ok(()),
            false => Err(Duration::from_nanos(full_at - latest).max(Duration::from_millis(1))),
        }
    }

    /// Takes an amount even if it is not available; the deficit must be refilled first.
    pub fn charge(&self, amount: u64, now: Duration) {
        let (now, refill) = (nanoseconds(now), self.refill(amount));
        let add = |full_at: u64| Some(full_at.max(now).saturating_add(refill));
        // It always succeeds.
        self.full_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .ok();
    }

    /// Returns an amount that was taken and not used.
    pub fn put_back(&self, amount: u64) {
        let refill = self.refill(amount);
        let less = |full_at: u64| Some(full_at.saturating_sub(refill));
        // It always succeeds.
        self.full_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .ok();
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const SECOND: Duration = Duration::from_secs(1);

    fn bucket(holds: u64) -> Bucket {
        Bucket::new(NonZeroU64::new(holds).unwrap(), MINUTE)
    }

    // fault T7
    #[test]
    fn as_much_as_it_holds_at_once_and_as_fast_as_it_fills() {
        for holds in [1, 6, 7, 60] {
            let (bucket, now) = (bucket(holds), 100 * SECOND);
            for _ in 0..holds {
                assert_eq!(bucket.take(1, now), Ok(()));
            }
            let wait = bucket.take(1, now).unwrap_err();
            assert!(
                wait <= MINUTE / u32::try_from(holds).unwrap() + SECOND,
                "{wait:?}"
            );
            assert!(bucket.take(1, now + wait - SECOND / 1000).is_err());
            assert_eq!(bucket.take(1, now + wait), Ok(()));
            assert!(bucket.take(1, now + wait).is_err());
            // After a quiet minute it is exactly full.
            let later = now + 3 * MINUTE;
            let taken = (0..2 * holds).filter(|_| bucket.take(1, later).is_ok());
            assert_eq!(u64::try_from(taken.count()).unwrap(), holds);
        }
    }

    #[test]
    fn a_debt_must_fill_up_first() {
        let (bucket, now) = (bucket(600), SECOND);
        assert_eq!(bucket.check(now), Ok(()));
        bucket.charge(900, now);
        let wait = bucket.check(now).unwrap_err();
        assert_eq!(wait, 30 * SECOND);
        assert!(bucket.check(now + wait).is_err());
        assert_eq!(bucket.check(now + wait + SECOND), Ok(()));
        bucket.put_back(900);
        assert_eq!(bucket.check(now), Ok(()));
    }

    #[test]
    fn many_at_once_take_no_more_than_there_is() {
        let bucket = bucket(100);
        let taken = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..50).filter(|_| bucket.take(1, SECOND).is_ok()).count()))
                .collect();
            takers
                .into_iter()
                .map(|taker| taker.join().unwrap())
                .sum::<usize>()
        });
        assert_eq!(taken, 100);
    }

    #[test]
    fn limits_say_only_what_is_limited() {
        let limits: RateLimits = serde_json::from_str(r#"{"calls_per_minute":60}"#).unwrap();
        assert_eq!(
            serde_json::to_string(&limits).unwrap(),
            r#"{"calls_per_minute":60}"#
        );
        assert!(!limits.is_empty() && RateLimits::default().is_empty());
        for bad in [
            r#"{"calls_per_minute":0}"#,
            r#"{"calls":1}"#,
            r#"{"concurrency":-1}"#,
        ] {
            assert!(serde_json::from_str::<RateLimits>(bad).is_err(), "{bad}");
        }
    }
}
