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
    /// Its number, which counts up; given by the store.
    pub id: u64,
    /// The project it was done in.
    pub project: String,
    /// When it began.
    pub at_ms: u64,
    /// When it ended, if it did.
    pub ended_ms: Option<u64>,
    /// Which key did it, by its id; empty if none did.
    pub key: String,
    /// Who did it: whom the key speaks for, or what else.
    pub actor: String,
    /// The address it came from.
    pub address: Option<String>,
    /// Which way it came: `rest`, `file`, `gateway` or `library`.
    pub via: String,
    /// What was done, such as `agent.change`.
    pub act: String,
    /// To what.
    pub target: String,
    /// More of it, in a person's words.
    pub detail: String,
    /// What was before, as JSON.
    pub before: Option<String>,
    /// What is to be, or is, after it, as JSON.
    pub after: Option<String>,
    /// What became of it.
    pub outcome: ActOutcome,
    /// The code of its error.
    pub code: Option<String>,
    /// How many like it were counted into this row; 1 normally.
    pub repeats: u64,
}

/// How an act ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActEnd {
    /// When.
    pub at_ms: u64,
    /// What became of it.
    pub outcome: ActOutcome,
    /// The code of its error.
    pub code: Option<String>,
    /// What it was done to, where only the act itself could tell.
    pub target: Option<String>,
    /// What is after it, where that is another than was to be.
    pub after: Option<String>,
}

/// What became of an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ActOutcome {
    /// It was begun; if it is not under way, it was cut off.
    #[default]
    Unfinished,
    /// It was done.
    Done,
    /// It was not let happen.
    Refused,
    /// It could not be done.
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

/// A text is no outcome of an act.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no outcome of an act")]
pub struct OutcomeError(String);

impl FromStr for ActOutcome {
    type Err = OutcomeError;

    fn from_str(text: &str) -> Result<Self, OutcomeError> {
        let known = Self::ALL.into_iter().find(|one| one.as_str() == text);
        known.ok_or_else(|| OutcomeError(text.chars().take(32).collect()))
    }
}

/// Which acts are asked for; what is `None` does not matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActFilter {
    /// Only acts of this project.
    pub project: Option<String>,
    /// Only acts of this name; of all that begin so if it ends with `.*`.
    pub act: Option<String>,
    /// Only acts on this.
    pub target: Option<String>,
    /// Only acts of this key.
    pub key: Option<String>,
    /// Only acts of this actor.
    pub actor: Option<String>,
    /// Only acts from this address.
    pub address: Option<String>,
    /// Only acts that came this way.
    pub via: Option<String>,
    /// Only acts that ended so.
    pub outcome: Option<ActOutcome>,
    /// Only acts that were done on this gateway.
    pub gateway: Option<GatewayId>,
    /// Only acts that began at this time or later.
    pub since_ms: Option<u64>,
    /// Only acts that began before this time.
    pub until_ms: Option<u64>,
    /// Only acts older than this one: the last row of the page before.
    pub before: Option<u64>,
    /// At most so many rows, newest first.
    pub limit: u32,
}

impl Default for ActFilter {
    /// Returns the filter that asks for the newest hundred acts, whatever they are.
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
