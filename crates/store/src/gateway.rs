//! The gateway that opens the store, the leases of servers, and the changes of other gateways.

use std::path::PathBuf;

use gantry_model::id::{GatewayId, ServerId};

/// The gateway that opens the store. Several may share one store, each with its own data folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    /// Its identity, the same at every start.
    pub id: GatewayId,
    /// Its data folder.
    pub folder: PathBuf,
}

/// Which gateway runs a registered server (`kb.mcp_server_leases`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The server.
    pub server: ServerId,
    /// The gateway that runs it; `None` if the lease was released.
    pub holder: Option<GatewayId>,
    /// Counts how often the lease was taken; only increases.
    pub generation: u64,
    /// When it expires unless it is renewed.
    pub until_ms: u64,
}

/// Counters of changes in a project (`kb.mcp_revisions`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changes {
    /// Counts the changes of keys, and of all that decides about callers.
    pub access: u64,
    /// Counts the changes of registered servers.
    pub servers: u64,
    /// Counts the changes of settings.
    pub settings: u64,
    /// Counts the changes of suspensions.
    pub suspensions: u64,
    /// Counts the changes of grants, groups, agents and settings: the revision of the policy.
    pub policy: u64,
    /// Counts the changes of what is approved of servers' tools.
    pub pins: u64,
    /// Whether another gateway uses the store.
    pub others: bool,
}
