//! The limits of a project's callers: `rates` counts calls and bytes against the limits of keys,
//! agents and the project; [`CallerCount`] counts the agents that may call, so that slots of servers
//! are kept free for others. Each gateway counts its own calls.

mod rates;

use std::sync::atomic::{AtomicU32, Ordering};

pub use self::rates::LimitExceeded;
pub(crate) use self::rates::{CallLimits, LimitPermit};

/// The number of agents that have a key or a grant. Written when keys or grants change, read by
/// every call.
#[derive(Debug, Default)]
pub(crate) struct CallerCount(AtomicU32);

impl CallerCount {
    pub(crate) fn set(&self, agents: usize) {
        let agents = u32::try_from(agents).unwrap_or(u32::MAX);
        self.0.store(agents, Ordering::Relaxed);
    }

    /// Returns how many other agents there are.
    pub(crate) fn others(&self) -> u32 {
        self.0.load(Ordering::Relaxed).saturating_sub(1)
    }
}
