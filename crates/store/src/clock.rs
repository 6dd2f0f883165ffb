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
