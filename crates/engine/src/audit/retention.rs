//! How long rows are kept, and whether the clock can be trusted for that.
//!
//! Age is measured against the time up to which the clock was trusted before. Time that this process
//! saw pass, by the monotonic clock, counts at once. If the clock is ahead of that, the machine was
//! off or suspended, or the clock is wrong: rows are dropped by the time that was seen to pass until
//! the gateway has run for a day meanwhile. If it is ahead at once by more than a week, nothing is
//! dropped until an administrator confirms it; a machine that is off most of each day is not. Only
//! decides; `background` deletes.

use std::time::Duration;

use gantry_model::id::CallId;
use gantry_store::ClockRecord;
use tokio::time::Instant;

/// How far the clock may be ahead of the time that was seen to pass: it is set, now and then.
const TRUSTED: Duration = Duration::from_hours(1);
/// How far the clock may be ahead at once without a confirmation: a machine may have been off.
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
    /// What the clock showed then; later than the trusted time while it is doubted.
    seen_ms: u64,
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

    /// Sets a reference time that was trusted before, or that of the newest row.
    pub(super) fn start(&mut self, recorded: ClockRecord, now: Instant) {
        self.believed = Some((recorded.believed_ms, now));
        self.seen_ms = recorded.seen_ms.max(recorded.believed_ms);
        self.doubted = Duration::from_millis(recorded.doubted_ms);
    }

    /// Checks the clock.
    pub(super) fn look(&mut self, clock_ms: u64, now: Instant) -> ClockChange {
        let Some(by) = self.jump(clock_ms, now) else {
            return ClockChange::Same;
        };
        let before = (self.ahead.is_some(), self.is_doubtful);
        self.ahead = self.is_far(clock_ms, now).then_some(by);
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
        Some(beyond((at_ms, since), clock_ms, now))
    }

    /// Returns whether a clock is so far ahead of what it showed last that it must be confirmed.
    fn is_far(&self, clock_ms: u64, now: Instant) -> bool {
        let seen = self.believed.map(|(_, since)| (self.seen_ms, since));
        seen.is_some_and(|seen| beyond(seen, clock_ms, now) > AHEAD)
    }

    /// Trusts the clock, whatever was known.
    pub(super) fn believe(&mut self, clock_ms: u64, now: Instant) {
        *self = Self {
            believed: Some((clock_ms, now)),
            seen_ms: clock_ms,
            dropped: self.dropped,
            looked_at: self.looked_at.take(),
            ..Self::default()
        };
    }

    /// Moves the reference time on, unless the clock is too far ahead; returns what to record.
    pub(super) fn advance(&mut self, clock_ms: u64, now: Instant) -> Option<ClockRecord> {
        let (at_ms, since) = self.believed?;
        let by = self.jump(clock_ms, now)?;
        if self.ahead.is_some() || self.is_far(clock_ms, now) {
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
        self.seen_ms = clock_ms.max(reached);
        Some(ClockRecord {
            believed_ms: reached,
            doubted_ms: millis(self.doubted),
            seen_ms: self.seen_ms,
        })
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

/// Returns how far a clock is ahead of a time and what has passed since.
fn beyond((at_ms, since): (u64, Instant), clock_ms: u64, now: Instant) -> Duration {
    let waited = now.saturating_duration_since(since);
    let expected = Duration::from_millis(at_ms).saturating_add(waited);
    Duration::from_millis(clock_ms).saturating_sub(expected)
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

    impl Retention {
        fn begin_at(&mut self, (believed_ms, doubted_ms): (u64, u64), now: Instant) {
            let recorded = ClockRecord {
                doubted_ms,
                ..ClockRecord::at(believed_ms)
            };
            self.start(recorded, now);
        }

        fn reach(&mut self, clock_ms: u64, now: Instant) -> Option<(u64, u64)> {
            let reached = self.advance(clock_ms, now)?;
            Some((reached.believed_ms, reached.doubted_ms))
        }
    }

    #[tokio::test]
    async fn a_clock_far_ahead_is_not_believed_until_it_is_confirmed() {
        let (mut retention, now) = (Retention::default(), Instant::now());
        assert_eq!(retention.look(NOON, now), ClockChange::Same);
        retention.begin_at((NOON, 0), now);
        let jump = NOON + 100 * DAY;
        let by = Duration::from_millis(100 * DAY);
        assert_eq!(retention.look(jump, now), ClockChange::Ahead(by));
        assert_eq!(retention.look(jump, now), ClockChange::Same);
        assert_eq!(
            (retention.reach(jump, now), retention.ahead()),
            (None, Some(by))
        );
        // Set back, it is believed again, and nothing was lost.
        assert_eq!(retention.look(NOON + 1, now), ClockChange::Back);
        assert_eq!(retention.reach(NOON + 1, now), Some((NOON + 1, 0)));
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
        retention.begin_at((NOON, 0), now);
        let later = now + Duration::from_millis(40 * DAY);
        assert_eq!(retention.look(NOON + 40 * DAY, later), ClockChange::Same);
        assert_eq!(
            retention.reach(NOON + 40 * DAY, later),
            Some((NOON + 40 * DAY, 0))
        );
        // A clock that was set back does not make an old one of what was reached.
        let reached = Some((NOON + 40 * DAY, 0));
        assert_eq!(retention.reach(NOON, later), reached);
        let set = NOON + 40 * DAY + HOUR / 2;
        assert_eq!(retention.look(set, later), ClockChange::Same);
        assert_eq!(retention.reach(set, later), Some((set, 0)));
    }

    // A clock that is days ahead drops nothing of a project that keeps its calls for a day.
    #[tokio::test]
    async fn a_jump_counts_once_the_gateway_has_run_for_a_day() {
        let (mut retention, now) = (Retention::default(), Instant::now());
        let after = |hours: u64| now + Duration::from_hours(hours);
        retention.begin_at((NOON, 0), now);
        let ahead = |hours: u64| NOON + 6 * DAY + hours * HOUR;
        let by = Duration::from_millis(6 * DAY);
        assert_eq!(retention.look(ahead(0), now), ClockChange::Doubtful(by));
        assert_eq!(retention.look(ahead(0), now), ClockChange::Same);
        assert_eq!(retention.reach(ahead(0), now), Some((NOON, 0)));
        let seen = Some((NOON + 10 * HOUR, 10 * HOUR));
        assert_eq!(retention.reach(ahead(10), after(10)), seen);
        // Set right: what passed has passed, and nothing else.
        let mut right = Retention::default();
        right.begin_at((NOON + 10 * HOUR, 10 * HOUR), now);
        let seen = Some((NOON + 11 * HOUR, 0));
        assert_eq!(right.reach(NOON + 11 * HOUR, after(1)), seen);
        // A machine that is off every night: after a restart it is doubted for the rest of a day.
        let mut again = Retention::default();
        again.begin_at((NOON + 10 * HOUR, 10 * HOUR), now);
        let seen = Some((NOON + 23 * HOUR, 23 * HOUR));
        assert_eq!(again.reach(ahead(23), after(13)), seen);
        assert_eq!(again.reach(ahead(24), after(14)), Some((ahead(24), 0)));
        assert_eq!(again.look(ahead(25), after(15)), ClockChange::Same);
        // Too far ahead, it is not trusted however long it lasts.
        let mut far = Retention::default();
        far.begin_at((NOON, 23 * HOUR), now);
        assert_eq!(far.reach(NOON + 8 * DAY, after(2)), None);
    }

    // It is off for twenty-two hours a day: more than a week in the time until it is trusted.
    #[tokio::test]
    async fn a_machine_that_runs_for_two_hours_a_day_needs_no_confirmation() {
        let (mut recorded, begun) = (ClockRecord::at(NOON), Instant::now());
        let mut furthest = Duration::ZERO;
        for day in 1..=40 {
            let mut retention = Retention::default();
            retention.start(recorded, begun);
            let clock = NOON + day * DAY;
            retention.look(clock, begun);
            assert_eq!(retention.ahead(), None, "day {day}");
            recorded = retention
                .advance(clock + 2 * HOUR, begun + Duration::from_hours(2))
                .unwrap();
            let behind = clock + 2 * HOUR - recorded.believed_ms;
            furthest = furthest.max(Duration::from_millis(behind));
        }
        assert!(furthest > AHEAD && furthest < 2 * AHEAD, "{furthest:?}");
        // The clock itself must not be ahead by that much at once.
        let mut retention = Retention::default();
        retention.start(recorded, begun);
        retention.look(recorded.seen_ms + 8 * DAY, begun);
        assert!(retention.ahead().is_some());
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
