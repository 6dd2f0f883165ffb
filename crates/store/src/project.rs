//! Rows of the administration of projects: projects themselves, registrations that wait for a second
//! person, products. Nothing here knows SQL.

use gantry_model::id::ProjectName;
use serde_json::Value;

/// One project (`kb.projects`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectRow {
    /// Its name.
    pub name: ProjectName,
    /// Its description.
    pub description: String,
    /// When it was created.
    pub created_ms: u64,
    /// Whether its servers run.
    pub loaded: bool,
}

/// The state of a registration that needs a second person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistrationState {
    /// Not decided.
    Pending,
    /// Approved by another person, and done.
    Approved,
    /// Refused, or withdrawn by the requester.
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

/// A change that needs, or needed, a second person (`kb.mcp_registrations`).
#[derive(Debug, Clone, PartialEq)]
pub struct RegistrationRow {
    /// Its identity.
    pub id: String,
    /// Its project.
    pub project: ProjectName,
    /// The requested act, such as `server.register`.
    pub act: String,
    /// Its target.
    pub target: String,
    /// The request to execute once it is approved, encrypted.
    pub request: String,
    /// The same without secrets.
    pub shown: Value,
    /// Why a second person is required.
    pub reasons: Vec<String>,
    /// The requesting key.
    pub asked_key: String,
    /// The name of that key's holder.
    pub asked_by: String,
    /// When it was requested.
    pub asked_ms: u64,
    /// Its state.
    pub state: RegistrationState,
    /// Who decided.
    pub decided_by: Option<String>,
    /// When it was decided.
    pub decided_ms: Option<u64>,
}

/// One installed product (`kb.products`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProductRow {
    /// Its identity.
    pub id: String,
    /// The project it is installed in.
    pub project: ProjectName,
    /// Its name.
    pub name: String,
    /// Its version, from the manifest.
    pub version: String,
    /// The manifest as JSON, without the values of variables and headers.
    pub manifest: String,
    /// The SHA-256 of the original manifest.
    pub hash: String,
    /// When it was installed.
    pub created_ms: u64,
    /// When it was last upgraded.
    pub updated_ms: u64,
}
