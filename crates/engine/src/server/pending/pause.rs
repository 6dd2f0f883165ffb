//! How long a call was paused while its client answered a request of the server: for this call, or
//! for one of several that cannot be told apart. Only keeps time.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Default)]
pub(super) struct Pause {
    /// Whether a request for this call is open.
    own: bool,
    /// Whether a request that may be for this call is open.
    shared: bool,
    /// Since when it is paused, if it is.
    since: Option<Instant>,
    total: Duration,
}

impl Pause {
    /// Starts with a call, possibly while a request is already open.
    pub(super) fn begin(shared: bool, now: Instant) -> Self {
        Self {
            shared,
            since: shared.then_some(now),
            ..Self::default()
        }
    }

    pub(super) fn ask(&mut self, asked: bool, now: Instant) {
        self.own = asked;
        self.turn(now);
    }

    pub(super) fn ask_for_any(&mut self, asked: bool, now: Instant) {
        self.shared = asked;
        self.turn(now);
    }

    fn turn(&mut self, now: Instant) {
        match (self.own || self.shared, self.since) {
            (true, None) => self.since = Some(now),
            (false, Some(since)) => {
                self.total += now.duration_since(since);
                self.since = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// A paused call counts as active.
    pub(super) fn activity(&self, active: Instant, now: Instant) -> (Instant, Duration) {
        match self.since {
            Some(since) => (now, self.total + now.duration_since(since)),
            None => (active, self.total),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_call_waits_as_long_as_anything_is_asked() {
        let begun = Instant::now();
        let mut pause = Pause::begin(true, begun);
        pause.ask(true, begun + SECOND);
        pause.ask_for_any(false, begun + 2 * SECOND);
        let now = begun + 3 * SECOND;
        assert_eq!(pause.activity(begun, now), (now, 3 * SECOND));
        pause.ask(false, begun + 4 * SECOND);
        pause.ask(false, begun + 5 * SECOND);
        assert_eq!(
            pause.activity(begun, begun + 9 * SECOND),
            (begun, 4 * SECOND)
        );
    }
}
