//! All differences between the generations of MCP, in one place and pure.
//!
//! Two eras: **handshake** (2024-11-05 … 2025-11-25: `initialize`, sessions, requests in both
//! directions) and **stateless** (2026-07-28: every request carries its own metadata). Nothing
//! outside this module compares protocol versions. Handshakes are in [`handshake`], what a request
//! must carry in [`opening`] and [`headers`], how params and results change eras in [`shape`].

pub mod error;
pub mod handshake;
pub mod headers;
pub mod meta;
pub mod opening;
pub mod shape;

use std::fmt;
use std::str::FromStr;

pub use error::EraError;

use crate::mcp::Method;

/// A published version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProtocolVersion {
    /// The first: stdio and HTTP+SSE.
    V2024_11_05,
    /// Streamable HTTP, and the only one with batches.
    V2025_03_26,
    /// Structured results, elicitation, the version header.
    V2025_06_18,
    /// Experimental tasks, tool-name rules.
    V2025_11_25,
    /// Stateless.
    V2026_07_28,
}

/// A generation of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Era {
    /// `initialize` first; the connection or session remembers.
    Handshake,
    /// No handshake; every request names its client and version.
    Stateless,
}

/// A version string that is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown protocol version `{0}`")]
pub struct UnknownVersion(
    /// What was given, escaped and cut.
    pub String,
);

impl ProtocolVersion {
    /// All versions, newest first.
    pub const ALL: [Self; 5] = [
        Self::V2026_07_28,
        Self::V2025_11_25,
        Self::V2025_06_18,
        Self::V2025_03_26,
        Self::V2024_11_05,
    ];
    /// The newest version.
    pub const LATEST: Self = Self::V2026_07_28;
    /// The newest version that begins with `initialize`.
    pub const LATEST_HANDSHAKE: Self = Self::V2025_11_25;
    /// The versions a request may name in its own metadata, newest first.
    pub const STATELESS: [Self; 1] = [Self::V2026_07_28];

    /// Returns the version's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Returns the generation the version belongs to.
    pub fn era(self) -> Era {
        match self {
            Self::V2024_11_05 | Self::V2025_03_26 | Self::V2025_06_18 | Self::V2025_11_25 => {
                Era::Handshake
            }
            Self::V2026_07_28 => Era::Stateless,
        }
    }

    /// Returns whether JSON-RPC batches are part of the version.
    pub fn allows_batches(self) -> bool {
        self == Self::V2025_03_26
    }

    /// Returns whether an HTTP client must name the version in a header after the handshake.
    pub fn has_version_header(self) -> bool {
        self >= Self::V2025_06_18
    }
}

impl FromStr for ProtocolVersion {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        Self::ALL
            .into_iter()
            .find(|version| version.as_str() == text)
            .ok_or_else(|| {
                UnknownVersion(text.chars().take(32).flat_map(char::escape_debug).collect())
            })
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Returns the version to answer an `initialize` with: the requested one, or the newest known.
pub fn negotiate(requested: &str) -> ProtocolVersion {
    match requested.parse::<ProtocolVersion>() {
        Ok(version) if version.era() == Era::Handshake => version,
        _ => ProtocolVersion::LATEST_HANDSHAKE,
    }
}

/// Returns whether a method is part of an era's core protocol, in either direction.
///
/// Unknown methods are part of neither; the caller decides about extensions.
pub fn has_method(era: Era, method: Method) -> bool {
    match method {
        Method::ServerDiscover
        | Method::SubscriptionsListen
        | Method::SubscriptionsAcknowledged
        | Method::TasksUpdate => era == Era::Stateless,
        Method::Initialize
        | Method::Initialized
        | Method::Ping
        | Method::LoggingSetLevel
        | Method::ResourcesSubscribe
        | Method::ResourcesUnsubscribe
        | Method::RootsListChanged
        | Method::ElicitationComplete
        | Method::TasksList
        | Method::TasksResult => era == Era::Handshake,
        // Requests of the server; the stateless era puts them into results instead.
        Method::RootsList | Method::SamplingCreateMessage | Method::ElicitationCreate => {
            era == Era::Handshake
        }
        Method::ToolsList
        | Method::ToolsCall
        | Method::PromptsList
        | Method::PromptsGet
        | Method::ResourcesList
        | Method::ResourceTemplatesList
        | Method::ResourcesRead
        | Method::CompletionComplete
        | Method::TasksGet
        | Method::TasksCancel
        | Method::TasksStatus
        | Method::Cancelled
        | Method::Progress
        | Method::LoggingMessage
        | Method::ToolsListChanged
        | Method::PromptsListChanged
        | Method::ResourcesListChanged
        | Method::ResourcesUpdated => true,
    }
}

#[cfg(test)]
mod tests;
