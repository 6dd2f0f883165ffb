//! Waiting for something outside this process to become true, and measuring how long something took.
//! It polls, because `/proc` and files tell nobody; it always has a limit. Time in which the machine
//! stood still counts for nobody: who is not let run can keep no deadline. Entry points:
//! [`eventually`] and [`Stopwatch`].

use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(2);

/// How often this process looks whether it is let run.
const TICK: Duration = Duration::from_millis(10);
/// Who looks again only after this time was not let run; a busy machine is not as late as that.
const STOOD: Duration = Duration::from_millis(150);

/// When somebody looked last, and for how long the machine has stood still in all.
static LOOKED: LazyLock<Mutex<(Instant, Duration)>> = LazyLock::new(|| {
    thread::spawn(look_on);
    Mutex::new((now(), Duration::ZERO))
});

/// Polls `condition` until it holds and returns how long that took, or `None` after `limit`.
pub fn eventually(limit: Duration, mut condition: impl FnMut() -> bool) -> Option<Duration> {
    let start = now();
    let watch = Stopwatch::start();
    loop {
        if condition() {
            return Some(start.elapsed());
        }
        if watch.elapsed() >= limit {
            return None;
        }
        thread::sleep(PAUSE);
    }
}

/// Measures how long something takes that must not take long.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    begun: Instant,
    stood: Duration,
}

impl Stopwatch {
    /// Begins to measure.
    pub fn start() -> Self {
        let stood = look();
        Self {
            begun: now(),
            stood,
        }
    }

    /// Returns the time since the start in which the machine ran.
    pub fn elapsed(&self) -> Duration {
        let whole = self.begun.elapsed();
        whole.saturating_sub(self.stood_still())
    }

    /// Returns the time since the start in which the machine stood still.
    pub fn stood_still(&self) -> Duration {
        look().saturating_sub(self.stood)
    }
}

/// Notes that this process runs, and returns for how long it was not let run in all.
fn look() -> Duration {
    let mut looked = LOOKED.lock().unwrap_or_else(PoisonError::into_inner);
    let pause = looked.0.elapsed();
    if pause >= STOOD {
        looked.1 += pause;
    }
    looked.0 = now();
    looked.1
}

fn look_on() {
    loop {
        thread::sleep(TICK);
        look();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "plain threads: there is no paused clock to obey"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
