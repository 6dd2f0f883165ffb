//! The deadline of a request, counted from its start and shared by every wait on its path.

use std::time::Duration;

use tokio::time::Instant;

/// The caller's deadline, if it has one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    asked: Option<(Duration, Instant)>,
}

impl Limit {
    /// Counts a caller's timeout from `begun`.
    pub(super) fn of(begun: Instant, timeout: Option<Duration>) -> Self {
        // A timeout beyond the clock's range is no limit.
        let asked = timeout.and_then(|timeout| Some((timeout, begun.checked_add(timeout)?)));
        Self { asked }
    }

    /// Returns the limit of a request that was held for a while, which does not count.
    pub(super) fn after(self, held: Duration) -> Self {
        let later =
            |(timeout, until): (Duration, Instant)| Some((timeout, until.checked_add(held)?));
        Self {
            asked: self.asked.and_then(later),
        }
    }

    /// Returns how long to wait for something with its own limit.
    pub(super) fn within(self, bound: Duration) -> Duration {
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        self.asked
            .map_or(bound, |(_, until)| left(until).min(bound))
    }

    /// Returns the caller's timeout, if it has passed.
    pub(super) fn passed(self) -> Option<Duration> {
        self.asked
            .filter(|(_, until)| *until <= Instant::now())
            .map(|(timeout, _)| timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_waits_share_one_deadline() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        let limit = Limit::of(Instant::now(), Some(3 * second));
        assert_eq!(limit.within(minute), 3 * second);
        assert_eq!(limit.within(second), second);
        tokio::time::advance(2 * second).await;
        assert_eq!((limit.within(minute), limit.passed()), (second, None));
        tokio::time::advance(2 * second).await;
        assert_eq!(limit.within(minute), Duration::ZERO);
        assert_eq!(limit.passed(), Some(3 * second));
        for none in [None, Some(Duration::MAX)] {
            let limit = Limit::of(Instant::now(), none);
            assert_eq!((limit.within(minute), limit.passed()), (minute, None));
        }
    }
}
