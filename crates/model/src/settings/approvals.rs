//! The setting for calls that need an approval: how long they wait for it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::spec::period;

/// How calls that need an approval wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalPolicy {
    /// How long a call is held before it is refused.
    pub timeout: Period,
}

impl Default for ApprovalPolicy {
    fn default() -> Self {
        Self {
            timeout: Period(Duration::from_secs(300)),
        }
    }
}

/// A time as a setting has it, such as `5m`: between one second and a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenPeriod", into = "WrittenPeriod")]
pub struct Period(pub Duration);

#[derive(Serialize, Deserialize)]
struct WrittenPeriod(#[serde(with = "period")] Duration);

impl TryFrom<WrittenPeriod> for Period {
    type Error = &'static str;

    fn try_from(written: WrittenPeriod) -> Result<Self, Self::Error> {
        const RANGE: std::ops::RangeInclusive<Duration> =
            Duration::from_secs(1)..=Duration::from_secs(86_400);
        match RANGE.contains(&written.0) {
            true => Ok(Self(written.0)),
            false => Err("a time between `1s` and `24h`"),
        }
    }
}

impl From<Period> for WrittenPeriod {
    fn from(period: Period) -> Self {
        Self(period.0)
    }
}
