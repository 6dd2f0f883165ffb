//! The rows of administrative acts, and their filter.
//!
//! An act is written before its effect as `unfinished` and completed after it; one that stays
//! unfinished was interrupted. Secrets in values are fingerprints already. Nothing here knows SQL.

use std::fmt;
use std::str::FromStr;

use gantry_model::id::GatewayId;

/// One administrative act (`kb.mcp_admin_log`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ActRow {
    /// Its number, which increases; assigned by the store.
    pub id: u64,
    /// The project it was done in.
    pub project: String,
    /// When it began.
    pub at_ms: u64,
    /// When it ended, if it did.
    pub ended_ms: Option<u64>,
    /// The id of the acting key; empty if there is none.
    pub key: String,
    /// The actor: the holder of the key, or another party.
    pub actor: String,
    /// The address it came from.
    pub address: Option<String>,
    /// The surface: `rest`, `file`, `gateway` or `library`.
    pub via: String,
    /// The act, such as `agent.change`.
    pub act: String,
    /// Its target.
    pub target: String,
    /// Further details.
    pub detail: String,
    /// The value before, as JSON.
    pub before: Option<String>,
    /// The requested or actual value after it, as JSON.
    pub after: Option<String>,
    /// Its outcome.
    pub outcome: ActOutcome,
    /// The code of its error.
    pub code: Option<String>,
    /// How many equal attempts are counted in this row; normally 1.
    pub repeats: u64,
}

/// An act as stored, and the block that covers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAct {
    /// The act.
    pub row: ActRow,
    /// The gateway it was done on, by its number in the store.
    pub gateway: i64,
    /// The block of that gateway's chain that covers it; `None` for acts of earlier releases.
    pub block: Option<u64>,
}

/// The outcome of an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ActOutcome {
    /// It was begun; if it is not running, it was cut off.
    #[default]
    Unfinished,
    /// It was done.
    Done,
    /// It was refused.
    Refused,
    /// It failed.
    Failed,
}

impl ActOutcome {
    const ALL: [Self; 4] = [Self::Unfinished, Self::Done, Self::Refused, Self::Failed];

    /// Returns the outcome as stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unfinished => "unfinished",
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for ActOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error of an unknown outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an outcome of an act")]
pub struct OutcomeError(String);

impl FromStr for ActOutcome {
    type Err = OutcomeError;

    fn from_str(text: &str) -> Result<Self, OutcomeError> {
        let known = Self::ALL.into_iter().find(|one| one.as_str() == text);
        known.ok_or_else(|| OutcomeError(text.chars().take(32).collect()))
    }
}

/// A filter of acts; members that are `None` do not matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActFilter {
    /// Only acts of this project.
    pub project: Option<String>,
    /// Only acts of this name, or with this prefix if it ends with `.*`.
    pub act: Option<String>,
    /// Only acts on this target.
    pub target: Option<String>,
    /// Only acts of this key.
    pub key: Option<String>,
    /// Only acts of this actor.
    pub actor: Option<String>,
    /// Only acts from this address.
    pub address: Option<String>,
    /// Only acts of this surface.
    pub via: Option<String>,
    /// Only acts with this outcome.
    pub outcome: Option<ActOutcome>,
    /// Only acts that were done on this gateway.
    pub gateway: Option<GatewayId>,
    /// Only acts that began at this time or later.
    pub since_ms: Option<u64>,
    /// Only acts that began before this time.
    pub until_ms: Option<u64>,
    /// Only acts older than this one: the last row of the previous page.
    pub before: Option<u64>,
    /// At most so many rows, newest first.
    pub limit: u32,
}

impl Default for ActFilter {
    /// Returns the filter for the newest hundred acts.
    fn default() -> Self {
        Self {
            project: None,
            act: None,
            target: None,
            key: None,
            actor: None,
            address: None,
            via: None,
            outcome: None,
            gateway: None,
            since_ms: None,
            until_ms: None,
            before: None,
            limit: 100,
        }
    }
}
