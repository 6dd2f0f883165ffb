//! Waiting for something outside this process to become true. It polls, because `/proc` and files
//! tell nobody; it always has a limit. Entry point: [`eventually`].

use std::thread;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(2);

/// Polls `condition` until it holds and returns how long that took, or `None` after `limit`.
pub fn eventually(limit: Duration, mut condition: impl FnMut() -> bool) -> Option<Duration> {
    let start = now();
    loop {
        if condition() {
            return Some(start.elapsed());
        }
        if start.elapsed() >= limit {
            return None;
        }
        thread::sleep(PAUSE);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "plain threads: there is no paused clock to obey"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
