//! Rows of the administration of projects: projects themselves, registrations that wait for a second
//! person, products. Nothing here knows SQL.

use gantry_model::id::ProjectName;
use serde_json::Value;

/// One project (`kb.projects`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectRow {
    /// Its name.
    pub name: ProjectName,
    /// What a person says of it.
    pub description: String,
    /// When it was made.
    pub created_ms: u64,
    /// Whether its servers run.
    pub loaded: bool,
}

/// What became of a registration that waits for a second person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistrationState {
    /// Nobody has decided.
    Pending,
    /// Somebody else has approved it, and it was done.
    Approved,
    /// Somebody has refused it, or who asked has taken it back.
    Refused,
}

impl RegistrationState {
    /// Returns the state as it is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Refused => "refused",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let all = [Self::Pending, Self::Approved, Self::Refused];
        all.into_iter().find(|state| state.as_str() == text)
    }
}

/// One change that waits, or waited, for a second person (`kb.mcp_registrations`).
#[derive(Debug, Clone, PartialEq)]
pub struct RegistrationRow {
    /// Its identity.
    pub id: String,
    /// The project it is of.
    pub project: ProjectName,
    /// What is to be done, such as `server.register`.
    pub act: String,
    /// To what.
    pub target: String,
    /// What is done once it is approved, sealed.
    pub request: String,
    /// The same without its secrets.
    pub shown: Value,
    /// Why a second person is asked.
    pub reasons: Vec<String>,
    /// The key that asked.
    pub asked_key: String,
    /// Whom that key identifies.
    pub asked_by: String,
    /// When it was asked for.
    pub asked_ms: u64,
    /// What became of it.
    pub state: RegistrationState,
    /// Who decided.
    pub decided_by: Option<String>,
    /// When.
    pub decided_ms: Option<u64>,
}

/// One installed product (`kb.products`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProductRow {
    /// Its identity.
    pub id: String,
    /// The project it is installed on.
    pub project: ProjectName,
    /// Its name.
    pub name: String,
    /// Its version, as the manifest says it.
    pub version: String,
    /// The manifest as JSON, without the values of variables and headers.
    pub manifest: String,
    /// The SHA-256 of the manifest as it was given.
    pub hash: String,
    /// When it was installed.
    pub created_ms: u64,
    /// When it was last upgraded.
    pub updated_ms: u64,
}
