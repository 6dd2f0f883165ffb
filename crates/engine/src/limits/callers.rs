//! How many agents of a project may call, which decides whether slots of servers are kept free for
//! others. Written when keys or grants change, read by every call.

use std::sync::atomic::{AtomicU32, Ordering};

/// The number of agents that have a key or a grant.
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
