//! The rows of everything but the audit: plain values that go into the store and come out of it.
//!
//! Times are milliseconds since 1970. Nothing here knows SQL.

use std::net::IpAddr;

use gantry_model::address_range::AddressRange;
use gantry_model::caller::{KeyKind, UserTrust};
use gantry_model::grant::{Effect, Principal};
use gantry_model::id::{AgentName, GrantId, KeyId, ProjectName, ServerId};
use gantry_model::limits::RateLimits;
use gantry_model::spec::ServerSpec;
use serde::{Deserialize, Serialize};

/// One registered server (`kb.project_mcp_servers`).
#[derive(Debug, Clone, PartialEq)]
pub struct ServerRow {
    /// Its identity; a new registration under an old name has a new one.
    pub id: ServerId,
    /// The project that owns it.
    pub project: ProjectName,
    /// Its spec, including its name.
    pub spec: ServerSpec,
    /// Whether it may run.
    pub enabled: bool,
    /// When it was first registered.
    pub created_ms: u64,
    /// When its spec last changed.
    pub updated_ms: u64,
}

/// One encrypted value (`kb.mcp_secrets`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedRow {
    /// The project it belongs to.
    pub project: ProjectName,
    /// The id of the server it belongs to, or empty for the whole project.
    pub scope: String,
    /// Its name.
    pub name: String,
    /// The id of its key.
    pub key_id: String,
    /// The nonce.
    pub nonce: Vec<u8>,
    /// The ciphertext.
    pub ciphertext: Vec<u8>,
    /// The version of a named secret; always 1 for a value of a server.
    pub version: u32,
}

/// One named secret of a project (`kb.mcp_secrets` without a scope).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRow {
    /// Its value and bindings, encrypted.
    pub sealed: SealedRow,
    /// A keyed hash of its value.
    pub fingerprint: String,
    /// When it was first set; filled in by the store.
    pub created_ms: u64,
    /// When it was last set or bound; filled in by the store.
    pub updated_ms: u64,
    /// When a server last received it.
    pub used_ms: Option<u64>,
    /// The name of that server.
    pub used_by: Option<String>,
}

/// One key (`kb.mcp_api_keys`); the key itself is never stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// Its identity, which may be shown.
    pub id: KeyId,
    /// The project it belongs to.
    pub project: ProjectName,
    /// Its agent.
    pub agent: AgentName,
    /// Its kind.
    pub kind: KeyKind,
    /// The SHA-256 of the key.
    pub digest: [u8; 32],
    /// Its label.
    pub label: String,
    /// When it was made.
    pub created_ms: u64,
    /// When it was revoked, if it was.
    pub revoked_ms: Option<u64>,
    /// When it expires, if it does.
    pub expires_ms: Option<u64>,
    /// From which addresses it may be used; from all if there is none.
    pub sources: Vec<AddressRange>,
    /// What it may use.
    pub limits: RateLimits,
    /// The key that it was made to replace.
    pub replaces: Option<KeyId>,
}

/// When and from where a key was last used (`kb.mcp_key_uses`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyUse {
    /// The key.
    pub key: KeyId,
    /// When.
    pub at_ms: u64,
    /// From which address.
    pub from: Option<IpAddr>,
}

/// One agent (`kb.agents`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRow {
    /// The project it belongs to.
    pub project: ProjectName,
    /// Its name.
    pub name: AgentName,
    /// Its label.
    pub label: String,
    /// The filter over its granted tools.
    pub tools: AgentTools,
    /// Whether its user ids are trusted.
    pub users: UserTrust,
    /// What all its keys together may use.
    pub limits: RateLimits,
    /// When it was first known.
    pub created_ms: u64,
}

/// An agent's tool filter: patterns over `server:tool`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentTools {
    /// The visible tools; all granted ones if empty.
    #[serde(default)]
    pub include: Vec<String>,
    /// The hidden tools.
    #[serde(default)]
    pub exclude: Vec<String>,
}

/// One grant (`kb.mcp_bindings`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRow {
    /// Its project.
    pub project: ProjectName,
    /// Its holder.
    pub principal: Principal,
    /// Its identity.
    pub id: GrantId,
    /// What it does.
    pub effect: Effect,
    /// Which server, a pattern over servers, or a group behind `@`.
    pub server: String,
    /// The tool, prompt or resource, or a pattern.
    pub item: String,
    /// Another name under which the item is offered.
    pub alias: Option<String>,
    /// What must hold of the arguments: a list as JSON, none for nothing.
    pub conditions: Option<String>,
    /// When it was made.
    pub created_ms: u64,
    /// When it last decided a call.
    pub last_used_ms: Option<u64>,
}

/// A group of servers (`kb.mcp_server_groups`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRow {
    /// The project it belongs to.
    pub project: ProjectName,
    /// Its name.
    pub name: String,
    /// Its members: names of servers, and patterns.
    pub servers: Vec<String>,
    /// When it was made.
    pub created_ms: u64,
}

/// One tool, prompt, resource or template of a server's catalog (`kb.mcp_tools`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogRow {
    /// `tool`, `prompt`, `resource` or `template`.
    pub kind: String,
    /// Its name, or its URI.
    pub name: String,
    /// Its index in the server's own list.
    pub position: u32,
    /// Its definition as received, byte for byte.
    pub definition: String,
    /// The hash of the relevant parts of the definition.
    pub hash: String,
    /// Increases from 1 each time the hash changes; assigned by the store.
    pub version: u32,
}
