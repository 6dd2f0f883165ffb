//! Which limit of a busy server was reached, and what to do about it.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use gantry_model::spec::period;

/// A higher `concurrency` allows no more processes than this.
const MOST_PROCESSES: usize = 16;

/// What is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// So many calls wait already.
    Queue(u32),
    /// So many heavy checks of its calls run already.
    Checks(u32),
    /// One agent's clients use so many of its processes, their share while others do.
    OfAgent(usize),
    /// So many processes of it serve clients that can be asked, and there may not be more.
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
