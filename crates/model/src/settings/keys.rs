//! The policy of a project on its keys: how long they may be valid. Entry point:
//! [`KeyPolicy::end_of`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::spec::period;

/// A project's rules for its keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyPolicy {
    /// How long a key may be valid.
    pub max_lifetime: MaxLifetime,
}

/// The longest time that a key may be valid, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MaxLifetime(#[serde(with = "period::option")] pub Option<Duration>);

impl KeyPolicy {
    /// Returns when a key that is created now expires, for the requested time or none; fails with
    /// the maximum lifetime if that is too late.
    pub fn end_of(&self, now_ms: u64, wanted_ms: Option<u64>) -> Result<Option<u64>, Duration> {
        let Some(longest) = self.max_lifetime.0 else {
            return Ok(wanted_ms);
        };
        let longest_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        let latest_ms = now_ms.saturating_add(longest_ms);
        match wanted_ms {
            None => Ok(Some(latest_ms)),
            Some(wanted_ms) if wanted_ms <= latest_ms => Ok(Some(wanted_ms)),
            Some(_) => Err(longest),
        }
    }

    /// Returns when a replacement key that is created now expires: at the requested time, or as
    /// late as allowed.
    pub fn latest_end(&self, now_ms: u64, wanted_ms: Option<u64>) -> Option<u64> {
        let allowed = self.end_of(now_ms, None).ok().flatten();
        match (wanted_ms, allowed) {
            (Some(wanted_ms), Some(allowed_ms)) => Some(wanted_ms.min(allowed_ms)),
            (wanted_ms, allowed_ms) => wanted_ms.or(allowed_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_ends_within_the_longest_time() {
        let mut policy = KeyPolicy::default();
        assert_eq!(policy.end_of(1000, None), Ok(None));
        assert_eq!(policy.end_of(1000, Some(9_000_000)), Ok(Some(9_000_000)));
        let hour = Duration::from_secs(3600);
        policy.max_lifetime = MaxLifetime(Some(hour));
        assert_eq!(policy.end_of(1000, None), Ok(Some(3_601_000)));
        assert_eq!(policy.end_of(1000, Some(3_601_000)), Ok(Some(3_601_000)));
        assert_eq!(policy.end_of(1000, Some(3_601_001)), Err(hour));
        assert_eq!(policy.latest_end(1000, Some(9_000_000)), Some(3_601_000));
        assert_eq!(policy.latest_end(1000, None), Some(3_601_000));
        assert_eq!(KeyPolicy::default().latest_end(1000, None), None);
    }
}
