//! What the audit is told of a call: its properties before it is sent, and how it ended.

use std::time::Duration;

use gantry_model::caller::{Context, UserTrust};
use gantry_model::id::{CallId, GrantId, ServerId};
use gantry_model::secret::Redactor;
use gantry_store::{CallStatus, ErrorKind, UserSource};

use super::Measurements;

/// The surface of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Surface {
    /// The MCP endpoint.
    Mcp,
    /// The REST interface.
    Rest,
    /// The command line; only in rows of earlier versions.
    Cli,
    /// A program that embeds the engine.
    Library,
}

impl Surface {
    /// Returns the surface as stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Rest => "rest",
            Self::Cli => "cli",
            Self::Library => "library",
        }
    }

    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Mcp => 1,
            Self::Rest => 2,
            Self::Cli => 3,
            Self::Library => 4,
        }
    }

    pub(super) const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Mcp,
            2 => Self::Rest,
            3 => Self::Cli,
            4 => Self::Library,
            _ => return None,
        })
    }
}

/// The properties of a call before it is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Intent<'a> {
    /// The call's identity.
    pub(crate) id: CallId,
    /// The caller's project.
    pub(crate) project: &'a str,
    /// The caller's agent.
    pub(crate) agent: &'a str,
    /// The caller's key, by its id.
    pub(crate) key: &'a str,
    /// The caller's context: user, session, run.
    pub(crate) context: &'a Context,
    /// Whether the user id in it is trusted.
    pub(crate) users: UserTrust,
    /// Its surface.
    pub(crate) surface: Surface,
    /// The name of the server it is for.
    pub(crate) server: &'a str,
    /// The server's id; `None` for native tools, and if no server was found.
    pub(crate) server_id: Option<ServerId>,
    /// The MCP method.
    pub(crate) method: &'a str,
    /// The tool, the prompt's name or the resource's URI; may be empty.
    pub(crate) tool: &'a str,
    /// The version of the tool's schema that the call was checked against.
    pub(crate) schema_version: Option<&'a str>,
    /// When it arrived, in milliseconds since 1970.
    pub(crate) started_ms: u64,
    /// Its arguments, as JSON.
    pub(crate) input: Option<&'a str>,
    /// The secrets to redact in them.
    pub(crate) redactor: &'a Redactor,
    /// The revision of the grants that decided.
    pub(crate) policy_revision: Option<u64>,
    /// The grant that decided.
    pub(crate) grant: Option<GrantId>,
    /// Who said which user it is.
    pub(crate) user_source: Option<UserSource>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome<'a> {
    /// Its status.
    pub(crate) status: CallStatus,
    /// The code of its error.
    pub(crate) code: Option<&'a str>,
    /// The text of its error.
    pub(crate) error: Option<&'a str>,
    /// Its result, as JSON.
    pub(crate) output: Option<&'a [u8]>,
    /// How long it took.
    pub(crate) duration: Duration,
    /// The secrets to redact in error and result.
    pub(crate) redactor: &'a Redactor,
    /// What was measured on the way.
    pub(crate) measured: Measurements,
    /// Whose error it was.
    pub(crate) error_kind: Option<ErrorKind>,
}
