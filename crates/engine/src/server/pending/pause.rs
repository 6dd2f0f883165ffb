//! How long a call was paused while its client answered a request of the server: for this call, or
//! for one of several that cannot be told apart. Decides nothing.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Default)]
pub(super) struct Pause {
    /// Its caller is asked for it.
    own: bool,
    /// Its caller is asked for what may be this call.
    shared: bool,
    /// Since when it waits, if it does.
    since: Option<Instant>,
    total: Duration,
}

impl Pause {
    /// Begins with a call, perhaps while its caller is asked already.
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

    /// While its caller is asked, a call counts as active.
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
