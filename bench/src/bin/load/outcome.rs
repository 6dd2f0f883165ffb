//! What a run came to, and the line of JSON that says so.

use std::time::Duration;

use serde_json::{Value, json};

use crate::Failure;

/// The sum of a run, or of one connection's part in it.
#[derive(Default)]
pub(crate) struct Outcome {
    /// One for each right answer, from before it was asked for to when it was whole.
    pub(crate) latencies: Vec<Duration>,
    /// What was wrong with the others.
    pub(crate) errors: Vec<String>,
}

impl Outcome {
    /// Adds one call.
    pub(crate) fn record(&mut self, call: Result<Duration, Failure>) {
        match call {
            Ok(latency) => self.latencies.push(latency),
            Err(why) => self.errors.push(why.to_string()),
        }
    }

    /// Adds another's calls.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.errors.extend(other.errors);
    }

    /// Returns the figures; `fold` is how long the audit took to be complete after the last answer.
    pub(crate) fn report(mut self, elapsed: Duration, fold: Option<Duration>) -> Value {
        self.latencies.sort_unstable();
        let calls = self.latencies.len();
        let quantile = |part: f64| {
            let index = ((calls as f64 * part).ceil() as usize).clamp(1, calls.max(1)) - 1;
            self.latencies
                .get(index)
                .map(|latency| latency.as_nanos() as f64 / 1e3)
        };
        let rate = |time: Duration| calls as f64 / time.as_secs_f64();
        json!({
            "calls": calls,
            "errors": self.errors.len(),
            "first_error": self.errors.first(),
            "seconds": elapsed.as_secs_f64(),
            "rate": rate(elapsed),
            "p50_us": quantile(0.5),
            "p99_us": quantile(0.99),
            "fold_seconds": fold.map(|time| time.as_secs_f64()),
            "rate_folded": fold.map(|time| rate(elapsed + time)),
        })
    }
}
