//! How long rows are kept, and whether the clock can be trusted for that.
//!
//! Age is measured against the time up to which the clock was trusted before. Time that this process
//! saw pass, by the monotonic clock, counts at once. If the clock is ahead of that, the machine was
//! off or suspended, or the clock is wrong: rows are dropped by the time that was seen to pass until
//! the gateway has run for a day meanwhile. If it is ahead by more than a week, nothing is dropped
//! until an administrator confirms it. Only decides; `background` deletes.

use std::time::Duration;

use gantry_model::id::CallId;
use tokio::time::Instant;

/// How far the clock may be ahead of the time that was seen to pass: it is set, now and then.
const TRUSTED: Duration = Duration::from_hours(1);
/// How far the clock may be ahead without a confirmation: a machine may have been off.
const AHEAD: Duration = Duration::from_hours(7 * 24);
/// For how long the gateway runs with a clock that is ahead before it is trusted.
const DOUBTED: Duration = Duration::from_hours(24);
/// The most rows that one run deletes, whatever the clock says.
pub(super) const MOST_A_RUN: u64 = 100_000;

/// The state of the clock.
#[derive(Debug, Default)]
pub(super) struct Retention {
    /// The last trusted time, and when it was read.
    believed: Option<(u64, Instant)>,
    /// How far the clock is ahead, if that is too far.
    ahead: Option<Duration>,
    /// For how long the gateway has run while the clock was ahead.
    doubted: Duration,
    /// Whether it is ahead now.
    is_doubtful: bool,
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
    /// It is ahead now, and not trusted until it has been so for a while.
    Doubtful(Duration),
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

    /// Sets a reference time that was trusted before, or that of the newest row; and for how long
    /// the clock has been doubted since.
    pub(super) fn start(&mut self, (at_ms, doubted_ms): (u64, u64), now: Instant) {
        self.believed = Some((at_ms, now));
        self.doubted = Duration::from_millis(doubted_ms);
    }

    /// Checks the clock.
    pub(super) fn look(&mut self, clock_ms: u64, now: Instant) -> ClockChange {
        let Some(by) = self.jump(clock_ms, now) else {
            return ClockChange::Same;
        };
        let before = (self.ahead.is_some(), self.is_doubtful);
        self.ahead = (by > AHEAD).then_some(by);
        self.is_doubtful = by > TRUSTED;
        match (before, self.ahead.is_some(), self.is_doubtful) {
            ((false, _), true, _) => ClockChange::Ahead(by),
            ((true, _), false, false) => ClockChange::Back,
            ((_, false) | (true, _), false, true) => ClockChange::Doubtful(by),
            _ => ClockChange::Same,
        }
    }

    /// Returns how far a clock is ahead of the time that was seen to pass.
    fn jump(&self, clock_ms: u64, now: Instant) -> Option<Duration> {
        let (at_ms, since) = self.believed?;
        let waited = now.saturating_duration_since(since);
        let expected = Duration::from_millis(at_ms).saturating_add(waited);
        Some(Duration::from_millis(clock_ms).saturating_sub(expected))
    }

    /// Trusts the clock, whatever was known.
    pub(super) fn believe(&mut self, clock_ms: u64, now: Instant) {
        *self = Self {
            believed: Some((clock_ms, now)),
            dropped: self.dropped,
            looked_at: self.looked_at.take(),
            ..Self::default()
        };
    }

    /// Moves the reference time on, unless the clock is too far ahead; returns it, and for how long
    /// the clock has been doubted, in milliseconds.
    pub(super) fn advance(&mut self, clock_ms: u64, now: Instant) -> Option<(u64, u64)> {
        let (at_ms, since) = self.believed?;
        let by = self.jump(clock_ms, now)?;
        if self.ahead.is_some() || by > AHEAD {
            return None;
        }
        let waited = now.saturating_duration_since(since);
        self.doubted = match by > TRUSTED {
            true => self.doubted.saturating_add(waited),
            false => Duration::ZERO,
        };
        let reached = match self.doubted < DOUBTED && by > TRUSTED {
            true => at_ms.saturating_add(millis(waited)),
            // A clock that was set back does not reduce the reference time.
            false => clock_ms.max(at_ms),
        };
        if self.doubted >= DOUBTED {
            (self.doubted, self.is_doubtful) = (Duration::ZERO, false);
        }
        self.believed = Some((reached, now));
        Some((reached, millis(self.doubted)))
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

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: u64 = 1_800_000_000_000;
    const HOUR: u64 = 3_600_000;
    const DAY: u64 = 24 * HOUR;

    #[tokio::test]
    async fn a_clock_far_ahead_is_not_believed_until_it_is_confirmed() {
        let (mut retention, now) = (Retention::default(), Instant::now());
        assert_eq!(retention.look(NOON, now), ClockChange::Same);
        retention.start((NOON, 0), now);
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
        assert_eq!(retention.advance(NOON + 1, now), Some((NOON + 1, 0)));
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
        retention.start((NOON, 0), now);
        let later = now + Duration::from_millis(40 * DAY);
        assert_eq!(retention.look(NOON + 40 * DAY, later), ClockChange::Same);
        assert_eq!(
            retention.advance(NOON + 40 * DAY, later),
            Some((NOON + 40 * DAY, 0))
        );
        // A clock that was set back does not make an old one of what was reached.
        let reached = Some((NOON + 40 * DAY, 0));
        assert_eq!(retention.advance(NOON, later), reached);
        let set = NOON + 40 * DAY + HOUR / 2;
        assert_eq!(retention.look(set, later), ClockChange::Same);
        assert_eq!(retention.advance(set, later), Some((set, 0)));
    }

    // A clock that is days ahead drops nothing of a project that keeps its calls for a day.
    #[tokio::test]
    async fn a_jump_counts_once_the_gateway_has_run_for_a_day() {
        let (mut retention, now) = (Retention::default(), Instant::now());
        let after = |hours: u64| now + Duration::from_hours(hours);
        retention.start((NOON, 0), now);
        let ahead = |hours: u64| NOON + 6 * DAY + hours * HOUR;
        let by = Duration::from_millis(6 * DAY);
        assert_eq!(retention.look(ahead(0), now), ClockChange::Doubtful(by));
        assert_eq!(retention.look(ahead(0), now), ClockChange::Same);
        assert_eq!(retention.advance(ahead(0), now), Some((NOON, 0)));
        let seen = Some((NOON + 10 * HOUR, 10 * HOUR));
        assert_eq!(retention.advance(ahead(10), after(10)), seen);
        // Set right: what passed has passed, and nothing else.
        let mut right = Retention::default();
        right.start((NOON + 10 * HOUR, 10 * HOUR), now);
        let seen = Some((NOON + 11 * HOUR, 0));
        assert_eq!(right.advance(NOON + 11 * HOUR, after(1)), seen);
        // A machine that is off every night: after a restart it is doubted for the rest of a day.
        let mut again = Retention::default();
        again.start((NOON + 10 * HOUR, 10 * HOUR), now);
        let seen = Some((NOON + 23 * HOUR, 23 * HOUR));
        assert_eq!(again.advance(ahead(23), after(13)), seen);
        assert_eq!(again.advance(ahead(24), after(14)), Some((ahead(24), 0)));
        assert_eq!(again.look(ahead(25), after(15)), ClockChange::Same);
        // Too far ahead, it is not trusted however long it lasts.
        let mut far = Retention::default();
        far.start((NOON, 23 * HOUR), now);
        assert_eq!(far.advance(NOON + 8 * DAY, after(2)), None);
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
