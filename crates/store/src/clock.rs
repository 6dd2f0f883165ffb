//! The time of day, which rows carry: the one place that reads it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns milliseconds since 1970.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the time of day as rows carry it.
pub(crate) fn now_ms() -> i64 {
    i64::try_from(unix_ms()).unwrap_or(i64::MAX)
}

/// What is recorded of the clock, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockRecord {
    /// Up to when it was trusted.
    pub believed_ms: u64,
    /// For how long it has been doubted since.
    pub doubted_ms: u64,
    /// What it showed then.
    pub seen_ms: u64,
}

impl ClockRecord {
    /// Returns the record of a clock that is trusted.
    pub fn at(ms: u64) -> Self {
        Self {
            believed_ms: ms,
            doubted_ms: 0,
            seen_ms: ms,
        }
    }
}
