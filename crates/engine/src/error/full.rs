//! Which limit of a busy server was reached, and what to do about it.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use gantry_model::spec::period;

/// A higher `concurrency` allows no more processes than this.
const MOST_PROCESSES: usize = 16;

/// The exhausted limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The queue has this many calls.
    Queue(u32),
    /// This many expensive checks of its calls are running.
    Checks(u32),
    /// One agent's clients use this many of its processes, their share while others use it.
    OfAgent(usize),
    /// All processes for clients with capabilities are in use.
    Processes(usize),
}

impl Display for Full {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(limit) => write!(formatter, "{limit} calls wait already"),
            Self::Checks(limit) => {
                write!(formatter, "{limit} heavy checks of its calls run already")
            }
            Self::OfAgent(limit) => write!(
                formatter,
                "this agent's clients use {limit} of its processes, their share while other agents use it"
            ),
            Self::Processes(limit) => write!(
                formatter,
                "all {limit} processes that it may have for clients with capabilities are in use"
            ),
        }
    }
}

impl Full {
    /// Says what to do.
    pub(super) fn hint(self, retry_after: Duration) -> String {
        let again = format!("try again in {}", period::show(retry_after));
        match self {
            Self::Queue(_) | Self::Checks(_) => again,
            Self::OfAgent(limit) | Self::Processes(limit) if limit < MOST_PROCESSES => format!(
                "{again}, when a call has ended; a higher `concurrency` of the server allows more"
            ),
            Self::OfAgent(_) | Self::Processes(_) => format!("{again}, when a call has ended"),
        }
    }
}
