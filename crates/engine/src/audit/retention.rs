//! How long rows are kept, and whether the clock can be trusted for that. Age is measured against the
//! time up to which the clock was trusted before: if the clock is far ahead of that, nothing is
//! deleted until an administrator confirms it. Only decides; `background` deletes.

use std::time::Duration;

use gantry_model::id::CallId;
use tokio::time::Instant;

/// How far the clock may be ahead of the last known time: a machine may have slept or been off.
pub(super) const AHEAD: Duration = Duration::from_hours(7 * 24);
/// The most rows that one run deletes, whatever the clock says.
pub(super) const MOST_A_RUN: u64 = 100_000;

/// The state of the clock.
#[derive(Debug, Default)]
pub(super) struct Retention {
    /// The last trusted time, and when it was read.
    believed: Option<(u64, Instant)>,
    /// How far the clock is ahead, if that is too far.
    ahead: Option<Duration>,
    /// How many rows the current run has deleted.
    dropped: u64,
    /// How far the run under way has looked: the project, and its last call that was looked at.
    pub(super) looked_at: Option<(String, CallId)>,
}

/// The result of checking the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClockChange {
    /// Nothing.
    Same,
    /// It is too far ahead now.
    Ahead(Duration),
    /// It no longer is.
    Back,
}

impl Retention {
    /// Returns whether a reference time is known.
    pub(super) fn is_known(&self) -> bool {
        self.believed.is_some()
    }

    /// Sets a reference time that was trusted before, or that of the newest row.
    pub(super) fn start(&mut self, at_ms: u64, now: Instant) {
        self.believed = Some((at_ms, now));
    }

    /// Checks the clock.
    pub(super) fn look(&mut self, clock_ms: u64, now: Instant) -> ClockChange {
        let Some((at_ms, since)) = self.believed else {
            return ClockChange::Same;
        };
        let before = self.ahead;
        self.ahead = ahead(at_ms, now.saturating_duration_since(since), clock_ms);
        match (before, self.ahead) {
            (None, Some(by)) => ClockChange::Ahead(by),
            (Some(_), None) => ClockChange::Back,
            (None, None) | (Some(_), Some(_)) => ClockChange::Same,
        }
    }

    /// Trusts the clock, whatever was known.
    pub(super) fn believe(&mut self, clock_ms: u64, now: Instant) {
        self.believed = Some((clock_ms, now));
        self.ahead = None;
    }

    /// Trusts the clock if it is not too far ahead; returns the time to store.
    pub(super) fn advance(&mut self, clock_ms: u64, now: Instant) -> Option<u64> {
        let (at_ms, _) = self.believed?;
        if self.ahead.is_some() {
            return None;
        }
        // A clock that was set back does not reduce the reference time.
        let reached = clock_ms.max(at_ms);
        self.believed = Some((reached, now));
        Some(reached)
    }

    /// Returns how far the clock is ahead, if that is too far.
    pub(super) fn ahead(&self) -> Option<Duration> {
        self.ahead
    }

    /// Starts a run.
    pub(super) fn begin(&mut self) {
        self.dropped = 0;
        self.looked_at = None;
    }

    /// Counts deleted rows, and returns whether the run may continue.
    pub(super) fn count(&mut self, dropped: u64) -> bool {
        self.dropped = self.dropped.saturating_add(dropped);
        self.dropped < MOST_A_RUN
    }
}

/// Returns how far a clock is ahead, if that is too far.
fn ahead(at_ms: u64, waited: Duration, clock_ms: u64) -> Option<Duration> {
    let expected = Duration::from_millis(at_ms).saturating_add(waited);
    let by = Duration::from_millis(clock_ms).saturating_sub(expected);
    (by > AHEAD).then_some(by)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: u64 = 1_800_000_000_000;
    const DAY: u64 = 86_400_000;

    #[tokio::test]
    async fn a_clock_far_ahead_is_not_believed_until_it_is_confirmed() {
        let (mut retention, now) = (Retention::default(), Instant::now());
        assert_eq!(retention.look(NOON, now), ClockChange::Same);
        retention.start(NOON, now);
        assert_eq!(retention.look(NOON + 7 * DAY, now), ClockChange::Same);
        let jump = NOON + 100 * DAY;
        let by = Duration::from_millis(100 * DAY);
        assert_eq!(retention.look(jump, now), ClockChange::Ahead(by));
        assert_eq!(retention.look(jump, now), ClockChange::Same);
        assert_eq!(
            (retention.advance(jump, now), retention.ahead()),
            (None, Some(by))
        );
        // Set back, it is believed again, and nothing was lost.
        assert_eq!(retention.look(NOON + 1, now), ClockChange::Back);
        assert_eq!(retention.advance(NOON + 1, now), Some(NOON + 1));
        retention.look(jump, now);
        retention.believe(jump, now);
        assert_eq!(
            (retention.look(jump, now), retention.ahead()),
            (ClockChange::Same, None)
        );
    }

    #[tokio::test]
    async fn time_that_passed_is_no_jump() {
        let (mut retention, now) = (Retention::default(), Instant::now());
        retention.start(NOON, now);
        let later = now + Duration::from_millis(40 * DAY);
        assert_eq!(retention.look(NOON + 40 * DAY, later), ClockChange::Same);
        assert_eq!(
            retention.advance(NOON + 40 * DAY, later),
            Some(NOON + 40 * DAY)
        );
        // A clock that was set back does not make an old one of what was reached.
        assert_eq!(retention.advance(NOON, later), Some(NOON + 40 * DAY));
        assert_eq!(retention.look(NOON + 45 * DAY, later), ClockChange::Same);
    }

    #[test]
    fn a_run_is_bounded() {
        let mut retention = Retention::default();
        assert!(retention.count(MOST_A_RUN - 1));
        assert!(!retention.count(1));
        retention.begin();
        assert!(retention.count(1));
    }
}
