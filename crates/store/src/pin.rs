//! Rows of the versions of tools, and of what is approved of them.

use std::collections::HashMap;

use gantry_model::id::ServerId;
use gantry_model::pin::{ChangeClass, Finding, PinPolicy, PinState};

/// The policy and the definitions for checking a saved catalog.
#[derive(Debug, Clone, Default)]
pub struct CatalogPins {
    /// The project's rules.
    pub policy: PinPolicy,
    /// The definitions as received, by kind and name; where one is missing, the catalog's
    /// definition counts.
    pub listed: HashMap<(String, String), ListedDefinition>,
}

/// A definition as its server listed it.
#[derive(Debug, Clone, Default)]
pub struct ListedDefinition {
    /// Its canonical form, without secrets.
    pub canonical: String,
    /// Parts of its texts that a person should check.
    pub findings: Vec<Finding>,
}

/// A listed item that is not approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnapprovedRow {
    /// Its server.
    pub server: ServerId,
    /// `tool`, `prompt` or `template`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: PinState,
    /// How it differs from the approved version.
    pub change: ChangeClass,
}

/// One version of a tool, prompt or template (`kb.mcp_tool_versions`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolVersionRow {
    /// Its server.
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
    /// How it differed from the approved version when it was first listed.
    pub change: ChangeClass,
    /// The former name of the item, if it was likely renamed.
    pub renamed_from: Option<String>,
    /// Parts of its texts that a person should check.
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
