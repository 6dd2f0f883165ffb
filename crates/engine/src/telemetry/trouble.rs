//! The last failure of an export, logged once a minute at most. Entry point: [`ExportTrouble`].

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The minimum interval of log messages about failures.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Whether an export fails, and what was logged of it.
#[derive(Default)]
pub(crate) struct ExportTrouble(Mutex<Trouble>);

#[derive(Default)]
struct Trouble {
    error: Option<String>,
    /// When a failure was last logged.
    logged: Option<Instant>,
    /// Whether a failure was logged, and its end was not.
    is_announced: bool,
}

impl ExportTrouble {
    /// Records a failure; returns whether to log it.
    pub(crate) fn failed(&self, error: &str) -> bool {
        let mut trouble = self.0.lock();
        trouble.error = Some(error.to_owned());
        let is_due = trouble.logged.is_none_or(|at| at.elapsed() >= LOG_EVERY);
        if is_due {
            trouble.logged = Some(Instant::now());
            trouble.is_announced = true;
        }
        is_due
    }

    /// Records a success; returns whether to log that the failures are over.
    pub(crate) fn recovered(&self) -> bool {
        let mut trouble = self.0.lock();
        trouble.error = None;
        std::mem::take(&mut trouble.is_announced)
    }

    /// Returns why the last attempt failed; `None` if it succeeded.
    pub(crate) fn error(&self) -> Option<String> {
        self.0.lock().error.clone()
    }
}
