//! Restart limit for a gateway that disappeared: at once, then with exponential backoff, a few
//! times within a period. Pure; time is an argument. Entry point: [`Tries::next`].

use std::time::Duration;

use tokio::time::Instant;

/// Maximum number of starts within [`WHILE`].
const MOST: usize = 5;
const WHILE: Duration = Duration::from_secs(300);
/// The wait before the second start; doubles each time.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The times of restarts.
#[derive(Debug, Default)]
pub(super) struct Tries(Vec<Instant>);

impl Tries {
    /// Returns the wait before the next start, or how long none is allowed.
    pub(super) fn next(&mut self, now: Instant) -> Result<Duration, Duration> {
        self.0
            .retain(|at| now.saturating_duration_since(*at) < WHILE);
        let Some(last) = self.0.last() else {
            return Ok(Duration::ZERO);
        };
        if self.0.len() >= MOST {
            return Err((self.0[0] + WHILE).saturating_duration_since(now));
        }
        let wait = FIRST_WAIT * (1 << (self.0.len() - 1));
        Ok((*last + wait).saturating_duration_since(now))
    }

    /// Notes a start.
    pub(super) fn started(&mut self, now: Instant) {
        self.0.push(now);
    }
}

/// Explains why none is started.
pub(super) fn refusal(later: Duration) -> String {
    format!(
        "the gateway crashed {MOST} times within {} minutes; next start in {} s",
        WHILE.as_secs() / 60,
        later.as_secs().saturating_add(1)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn starts_are_apart_and_few() {
        let second = Duration::from_secs(1);
        let mut tries = Tries::default();
        let begun = Instant::now();
        let mut now = begun;
        for wait in [0, 1, 2, 4, 8] {
            assert_eq!(tries.next(now), Ok(wait * second));
            now += wait * second;
            tries.started(now);
        }
        assert_eq!(tries.next(now), Err(begun + WHILE - now));
        let told = "the gateway crashed 5 times within 5 minutes; next start in 286 s";
        assert_eq!(refusal(begun + WHILE - now), told);
        // One that lived for long counts no more.
        assert_eq!(tries.next(begun + WHILE), Ok(Duration::ZERO));
        assert_eq!(tries.next(now + WHILE), Ok(Duration::ZERO));
    }
}
