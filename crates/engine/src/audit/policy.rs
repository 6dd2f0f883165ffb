//! The configuration of the audit: durability, bodies, retention.

use std::time::Duration;

use gantry_model::settings::{AuditSettings, BodyPolicy};

use super::record;

/// When a record counts as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Handed to the operating system before the reply: survives the gateway's death.
    #[default]
    Os,
    /// On the disk before the reply: survives power loss, too.
    Disk,
    /// Shortly after the reply: a killed gateway may lose the last quarter second.
    Relaxed,
    /// In the database: the beginning before the call is sent, the end before the reply. For
    /// gateways whose data folder does not outlive them.
    Database,
}

/// What is kept of arguments and results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Bodies {
    /// Nothing but their sizes.
    Off,
    /// Their SHA-256.
    Hash,
    /// Their beginning, with secrets and sensitive members masked.
    #[default]
    Redacted,
}

/// What is kept of the bodies of one project's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BodyLimit {
    pub(super) bodies: Bodies,
    pub(super) body_bytes: usize,
}

impl BodyLimit {
    /// Returns what a project keeps: what it chose, and never more than the gateway.
    pub(super) fn within(self, chosen: &AuditSettings) -> Self {
        let bodies = match chosen.bodies {
            None => self.bodies,
            Some(BodyPolicy::Off) => Bodies::Off,
            Some(BodyPolicy::Hash) => Bodies::Hash,
            Some(BodyPolicy::Redacted) => Bodies::Redacted,
        };
        let body_bytes = chosen
            .body_bytes
            .map_or(self.body_bytes, |bytes| bytes as usize);
        Self {
            bodies: bodies.min(self.bodies),
            body_bytes: body_bytes.min(self.body_bytes),
        }
    }
}

/// The configuration of the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPolicy {
    /// When a record counts as written.
    pub durability: Durability,
    /// Which part of arguments and results is kept.
    pub bodies: Bodies,
    /// How many bytes of each body are kept, at most 64 KiB.
    pub body_bytes: usize,
    /// The size of one file of the journal.
    pub segment_bytes: u64,
    /// The maximum size of the journal while the database is unavailable.
    pub journal_bytes: u64,
    /// How many empty files the journal keeps in reserve if there is space: with these, calls can
    /// be recorded for a while on a full disk.
    pub reserve: usize,
    /// How long rows are kept.
    pub retention: Duration,
    /// How often the journal is imported into the database.
    pub import_every: Duration,
}

impl Default for AuditPolicy {
    fn default() -> Self {
        Self {
            durability: Durability::Os,
            bodies: Bodies::Redacted,
            body_bytes: 4096,
            segment_bytes: 8 << 20,
            journal_bytes: 1 << 30,
            reserve: 4,
            retention: Duration::from_hours(90 * 24),
            import_every: Duration::from_millis(250),
        }
    }
}

/// `sha256:` and 64 hex digits.
pub(super) const HASH_BYTES: usize = 71;

impl AuditPolicy {
    /// Limits the sizes to what the journal's format allows.
    pub(super) fn bounded(mut self) -> Self {
        self.body_bytes = self.body_bytes.min(record::LONGEST_BODY);
        let smallest = 4 * record::largest_record(self.stored_body_bytes());
        self.segment_bytes = self.segment_bytes.clamp(smallest, 1 << 30);
        // The journal needs at least two segments.
        self.journal_bytes = self.journal_bytes.max(2 * self.segment_bytes);
        self
    }

    /// Returns what is kept of bodies where a project chose nothing.
    pub(super) fn body_limit(&self) -> BodyLimit {
        BodyLimit {
            bodies: self.bodies,
            body_bytes: self.body_bytes,
        }
    }

    /// Returns how many bytes one recorded body can take.
    pub(super) fn stored_body_bytes(&self) -> usize {
        match self.bodies {
            Bodies::Off => 0,
            Bodies::Hash => HASH_BYTES,
            Bodies::Redacted => self.body_bytes,
        }
    }
}
