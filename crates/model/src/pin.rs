//! Pins: which versions of a server's tools, prompts and templates are approved, what changed
//! since, and the consequences.
//!
//! The wire object of each is hashed in a canonical form (`canonical`); a change is classified
//! (`change`), shown (`diff`) and searched for instructions to models (`findings`). The project's
//! [`PinPolicy`] decides whether a change is accepted, reported or withheld. Pure; the store keeps
//! the versions, and the engine withholds them. Entry points: [`PinPolicy::judge`] and
//! [`PinPolicy::withholds`].

mod canonical;
mod change;
mod diff;
mod findings;

use serde::{Deserialize, Serialize};

pub use self::canonical::{canonical, content_hash, hash_of};
pub use self::change::{ChangeClass, classify, likely_rename};
pub use self::diff::{Difference, differences};
pub use self::findings::{Finding, MOST_FINDINGS, find_in_definition, find_in_text};

/// The kinds of catalog items that are pinned, by their names in the store. Resources are data and
/// change often, so they are versioned but never withheld.
pub const PINNED_KINDS: [&str; 3] = ["tool", "prompt", "template"];

/// How a tool that differs from its approved version is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnChange {
    /// It is offered, and counts as approved.
    Accept,
    /// It is offered, and shown as changed until somebody approves or refuses it.
    #[default]
    Warn,
    /// It is not offered until somebody approves it.
    Quarantine,
}

/// What happens to the tools of a server that is listed for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFirstList {
    /// They are offered, and count as approved.
    #[default]
    Trust,
    /// They are not offered until somebody approves them.
    Quarantine,
}

/// A project's rules for tools that are new or changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PinPolicy {
    /// Tools that changed, and tools that a known server has added.
    pub changes: OnChange,
    /// The first list of a server.
    pub new_servers: OnFirstList,
    /// Classes of changes that count as approved all the same.
    pub auto_accept: Vec<ChangeClass>,
}

/// Whether the version of a tool that its server lists now is approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PinState {
    /// By a person, or by the project's rules.
    Approved,
    /// Nobody decided yet.
    Unapproved,
    /// A person refused it.
    Refused,
}

impl PinState {
    /// Returns the state as stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Unapproved => "unapproved",
            Self::Refused => "refused",
        }
    }

    /// Reads a state as stored.
    pub fn parse(text: &str) -> Option<Self> {
        let all = [Self::Approved, Self::Unapproved, Self::Refused];
        all.into_iter().find(|state| state.as_str() == text)
    }
}

impl PinPolicy {
    /// Decides about a newly listed version. One with findings, such as text that instructs a model,
    /// is not accepted for the class of its change: only by a person, or if all changes are accepted.
    pub fn judge(&self, change: ChangeClass, has_findings: bool) -> PinState {
        let is_accepted = match change {
            ChangeClass::Same => true,
            ChangeClass::First => self.new_servers == OnFirstList::Trust,
            ChangeClass::Added
            | ChangeClass::Text
            | ChangeClass::Compatible
            | ChangeClass::Breaking => {
                self.changes == OnChange::Accept
                    || !has_findings && self.auto_accept.contains(&change)
            }
        };
        match is_accepted {
            true => PinState::Approved,
            false => PinState::Unapproved,
        }
    }

    /// Returns whether a version in this state is withheld: not listed, and refused when called.
    pub fn withholds(&self, state: PinState, change: ChangeClass) -> bool {
        match state {
            PinState::Approved => false,
            PinState::Refused => true,
            PinState::Unapproved if change == ChangeClass::First => {
                self.new_servers == OnFirstList::Quarantine
            }
            PinState::Unapproved => self.changes == OnChange::Quarantine,
        }
    }
}

#[cfg(test)]
mod tests;
