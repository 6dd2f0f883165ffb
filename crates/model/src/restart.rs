//! When an exited server is restarted: immediately after the first crashes, then with backoff.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::diagnose::{Diagnose, Fault};

/// The longest duration in a policy.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The most immediate restarts in a policy, which also limits the length of a history.
const MOST_AT_ONCE: u32 = 100;

/// Why a restart policy was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// Too many immediate restarts: a hot loop.
    #[error("{at_once} restarts at once are too many, at most {MOST_AT_ONCE} are allowed")]
    AtOnce {
        /// The given number.
        at_once: u32,
    },
    /// The backoff has no steps.
    #[error("the backoff of a restart policy must have at least one step")]
    EmptyLadder,
    /// A duration is zero or longer than a day.
    #[error(
        "the {part} of a restart policy must be more than zero and at most a day, not `{given:?}`"
    )]
    Duration {
        /// The name of the duration.
        part: &'static str,
        /// The given value.
        given: Duration,
    },
    /// The jitter is not a fraction.
    #[error("the jitter `{jitter}` of a restart policy must lie between 0 and 1")]
    Jitter {
        /// The given value.
        jitter: f64,
    },
}

impl Diagnose for PolicyError {
    fn code(&self) -> &'static str {
        "config.restart_policy"
    }

    fn fault(&self) -> Fault {
        Fault::Client
    }
}

/// How often a server restarts immediately, and how long it waits after that.
#[derive(Debug, Clone, PartialEq)]
pub struct RestartPolicy {
    at_once: u32,
    window: Duration,
    backoff: Vec<Duration>,
    reset_after_healthy: Duration,
    jitter: f64,
}

impl Default for RestartPolicy {
    /// Returns three immediate restarts within 60 s, then 5 s, 15 s, 45 s, 2 m and 5 m (± 10 %)
    /// until the server was healthy for ten minutes.
    fn default() -> Self {
        Self {
            at_once: 3,
            window: Duration::from_secs(60),
            backoff: [5, 15, 45, 120, 300].map(Duration::from_secs).to_vec(),
            reset_after_healthy: Duration::from_secs(600),
            jitter: 0.1,
        }
    }
}

impl RestartPolicy {
    /// Creates a policy from its parts, if they are valid.
    pub fn new(
        at_once: u32,
        window: Duration,
        backoff: Vec<Duration>,
        reset_after_healthy: Duration,
        jitter: f64,
    ) -> Result<Self, PolicyError> {
        if at_once > MOST_AT_ONCE {
            return Err(PolicyError::AtOnce { at_once });
        }
        if backoff.is_empty() {
            return Err(PolicyError::EmptyLadder);
        }
        let parts = [("window", window), ("time of health", reset_after_healthy)];
        for (part, given) in parts
            .into_iter()
            .chain(backoff.iter().map(|step| ("backoff", *step)))
        {
            if given.is_zero() || given > LONGEST {
                return Err(PolicyError::Duration { part, given });
            }
        }
        if !(0.0..=1.0).contains(&jitter) {
            return Err(PolicyError::Jitter { jitter });
        }
        Ok(Self {
            at_once,
            window,
            backoff,
            reset_after_healthy,
            jitter,
        })
    }

    /// Decides how long to wait before the next start, counted from the last recorded exit.
    ///
    /// `random` is uniform in 0..1. The result depends on the arguments only.
    pub fn decide(&self, history: &History, now: Duration, random: f64) -> Decision {
        let Some(position) = history.position.filter(|_| !history.is_forgiven(self, now)) else {
            return Decision {
                delay: Duration::ZERO,
                reason: Reason::AtOnce,
                health_warning: false,
            };
        };
        let last = self.backoff.len().saturating_sub(1);
        let step = self
            .backoff
            .get(position.min(last))
            .copied()
            .unwrap_or_default();
        let swing = self.jitter * (2.0 * random.clamp(0.0, 1.0) - 1.0);
        let within = history.crashes_within(self.window, now);
        let reason = if within > self.at_once {
            Reason::CrashLoop {
                step,
                crashes: within,
                window: self.window,
            }
        } else {
            Reason::StillUnstable {
                step,
                crashes: history.crashes,
                healthy_needed: self.reset_after_healthy,
            }
        };
        Decision {
            delay: step.mul_f64(1.0 + swing),
            reason,
            health_warning: true,
        }
    }

    /// Returns whether the server is in backoff, running or not, and should show a health warning.
    pub fn warns(&self, history: &History, now: Duration) -> bool {
        history.position.is_some() && !history.is_forgiven(self, now)
    }
}

/// The exits of a server since the last reset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// The exits that may be within the window, oldest first.
    recent: VecDeque<Duration>,
    /// All exits since the last reset.
    crashes: u32,
    /// The step of the backoff after the last exit.
    position: Option<usize>,
    healthy_since: Option<Duration>,
}

impl History {
    /// Records that the server exited by itself, whatever its exit code.
    pub fn record_exit(&mut self, policy: &RestartPolicy, now: Duration) {
        if self.is_forgiven(policy, now) {
            self.reset();
        }
        self.healthy_since = None;
        self.crashes = self.crashes.saturating_add(1);
        while self
            .recent
            .front()
            .is_some_and(|at| now.saturating_sub(*at) > policy.window)
            || self.recent.len() > MOST_AT_ONCE as usize
        {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        // Once in backoff, the steps increase until the reset: otherwise the waits themselves would
        // empty the window and lead back to immediate restarts.
        self.position = match self.position {
            Some(position) => Some(position.saturating_add(1)),
            None if self.crashes_within(policy.window, now) > policy.at_once => Some(0),
            None => None,
        };
    }

    /// Records that the server is healthy; only the first time since an exit or a failure counts.
    pub fn record_healthy(&mut self, now: Duration) {
        self.healthy_since.get_or_insert(now);
    }

    /// Records that the server runs but is not healthy: its healthy time starts again.
    ///
    /// A reset that is already due still takes effect.
    pub fn record_unhealthy(&mut self, policy: &RestartPolicy, now: Duration) {
        if self.is_forgiven(policy, now) {
            self.reset();
        }
        self.healthy_since = None;
    }

    /// Clears all crashes, as after a manual restart.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Returns how many exits there were since the last reset.
    pub fn crashes(&self) -> u32 {
        self.crashes
    }

    fn is_forgiven(&self, policy: &RestartPolicy, now: Duration) -> bool {
        let healthy_for = |since| now.saturating_sub(since);
        self.healthy_since
            .map(healthy_for)
            .is_some_and(|time| time >= policy.reset_after_healthy)
    }

    fn crashes_within(&self, window: Duration, now: Duration) -> u32 {
        let count = self
            .recent
            .iter()
            .filter(|at| now.saturating_sub(**at) <= window)
            .count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

/// How long to wait, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The wait, including jitter.
    pub delay: Duration,
    /// The reason.
    pub reason: Reason,
    /// Whether the server's health should show a warning.
    pub health_warning: bool,
}

impl Decision {
    /// Describes it in one line, for the status and the log, with the preceding exit.
    pub fn describe(&self, exit: &str) -> String {
        match self.reason {
            Reason::AtOnce => format!("{}: {exit}", self.reason),
            Reason::CrashLoop { .. } | Reason::StillUnstable { .. } => self.reason.to_string(),
        }
    }
}

/// Why a server waits, or does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It has not crashed too often.
    AtOnce,
    /// It crashed too often within the window.
    CrashLoop {
        /// The step of the backoff, without jitter.
        step: Duration,
        /// How often it crashed within the window.
        crashes: u32,
        /// The window.
        window: Duration,
    },
    /// It was in backoff before and has not been healthy for long enough since.
    StillUnstable {
        /// The step of the backoff, without jitter.
        step: Duration,
        /// How often it crashed since the last reset.
        crashes: u32,
        /// How long it must be healthy for a reset.
        healthy_needed: Duration,
    },
}

/// The text says "failures": a server that could not be started has not crashed.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::AtOnce => f.write_str("restarting at once"),
            Self::CrashLoop {
                step,
                crashes,
                window,
            } => {
                let plural = if crashes == 1 { "failure" } else { "failures" };
                write!(
                    f,
                    "backing off {step:?}: {crashes} {plural} within {window:?}"
                )
            }
            Self::StillUnstable {
                step,
                crashes,
                healthy_needed,
            } => {
                let plural = if crashes == 1 { "failure" } else { "failures" };
                write!(f, "backing off {step:?}: {crashes} {plural} without ")?;
                write!(f, "{healthy_needed:?} of health between them")
            }
        }
    }
}

#[cfg(test)]
mod tests;
