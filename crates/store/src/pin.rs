//! Rows of the versions of tools, and of what is approved of them.

use std::collections::HashMap;

use gantry_model::id::ServerId;
use gantry_model::pin::{ChangeClass, Finding, PinPolicy, PinState};

/// What a saved catalog is judged by.
#[derive(Debug, Clone, Default)]
pub struct CatalogPins {
    /// The project's rules.
    pub policy: PinPolicy,
    /// What was on the wire, by kind and name; where it is missing, the definition counts.
    pub listed: HashMap<(String, String), ListedDefinition>,
}

/// A definition as its server listed it.
#[derive(Debug, Clone, Default)]
pub struct ListedDefinition {
    /// Its canonical form, without secrets.
    pub canonical: String,
    /// What in its texts a person should look at.
    pub findings: Vec<Finding>,
}

/// Something that a server lists and that is not approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnapprovedRow {
    /// Whose it is.
    pub server: ServerId,
    /// `tool`, `prompt` or `template`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Whether anybody decided.
    pub state: PinState,
    /// How it differs from what is approved.
    pub change: ChangeClass,
}

/// One version of a tool, prompt or template (`kb.mcp_tool_versions`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolVersionRow {
    /// Whose it is.
    pub server: ServerId,
    /// `tool`, `prompt` or `template`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Counts up from 1 each time the hash changes.
    pub version: u32,
    /// The SHA-256 of the canonical form.
    pub hash: String,
    /// The definition in canonical form.
    pub definition: String,
    /// How it differed from what was approved when it was first listed.
    pub change: ChangeClass,
    /// What has most likely this name now; a guess.
    pub renamed_from: Option<String>,
    /// What in its texts a person should look at.
    pub findings: Vec<Finding>,
    /// When it was first listed, in milliseconds since 1970.
    pub seen_ms: u64,
    /// Whether it is approved.
    pub state: PinState,
    /// Who decided; `policy` if the project's settings did.
    pub decided_by: Option<String>,
    /// When, in milliseconds since 1970.
    pub decided_ms: Option<u64>,
}

/// A version that is listed now and not approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolChangeRow {
    /// The version.
    pub now: ToolVersionRow,
    /// The version that is approved, and its definition in canonical form.
    pub approved: Option<(u32, String)>,
}
