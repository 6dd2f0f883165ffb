//! The settings for calls that need an approval: how long they wait for it, and whether the agent's client may
//! be asked.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::spec::period;

/// How calls that need an approval wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalPolicy {
    /// How long a call is held before it is refused.
    pub timeout: Period,
    /// Whether the person at the agent's client may decide, too.
    pub ask_client: bool,
}

impl Default for ApprovalPolicy {
    fn default() -> Self {
        Self {
            timeout: Period(Duration::from_secs(300)),
            ask_client: false,
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_period_is_read_as_it_is_written_and_bounded() {
        for written in ["1s", "5m", "24h"] {
            let read: Period = serde_json::from_value(json!(written)).unwrap();
            let again: Period =
                serde_json::from_value(serde_json::to_value(read).unwrap()).unwrap();
            assert_eq!(read, again, "{written}");
        }
        for bad in [json!("999ms"), json!("25h"), json!("soon"), json!(-1)] {
            assert!(
                serde_json::from_value::<Period>(bad.clone()).is_err(),
                "{bad}"
            );
        }
    }
}
