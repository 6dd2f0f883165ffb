//! The two clocks: wall time for people and records, monotonic time for decisions.

use std::time::Duration;

use tokio::time::Instant;

/// Milliseconds since 1970.
pub use gantry_store::unix_ms;

/// Counts from its own start, as the decisions in `model` want it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> Duration {
        self.0.elapsed()
    }
}
