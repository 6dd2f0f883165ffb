//! What a project has recorded of its calls, and for how long.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// What is recorded of arguments and results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BodyPolicy {
    /// Nothing but their sizes.
    Off,
    /// Their SHA-256.
    Hash,
    /// Their beginning, without secrets.
    Redacted,
}

/// The settings of a project that concern the record of its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AuditSettings {
    /// How many days calls are kept; none for as long as the gateway keeps them.
    pub retention_days: Option<NonZeroU32>,
    /// What is recorded of bodies; none for what the gateway records.
    pub bodies: Option<BodyPolicy>,
    /// How many bytes of each body are recorded at most.
    pub body_bytes: Option<u32>,
}
