//! The keys of `_meta` that belong to the protocol or to Gantry, and which of them are sent to
//! servers.
//!
//! Values under Gantry's own keys are not forwarded, in neither direction: the other side would take
//! them for Gantry's own statements. A client's are read at the edge, a server's are dropped.
//! Everything else in `_meta` belongs to the peers and is forwarded unchanged.

use super::{Era, ProtocolVersion};
use crate::jsonrpc::{Edit, Raw, RawBuf};
use crate::mcp::Params;

/// The version of a request (stateless era, required).
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The client's capabilities (stateless era, required).
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The client's name and version (stateless era, recommended).
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// The minimum level of log messages for the client (stateless era).
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// The responding server (stateless era, on results).
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// The subscription of a notification (stateless era).
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// The requester's token for progress notifications (both eras).
pub const PROGRESS_TOKEN: &str = "progressToken";

/// The task of a message (2025-11-25); tasks are not forwarded.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// The user behind the agent.
pub const USER_ID: &str = "io.gantry/user-id";
/// The user behind the agent, as claimed by an agent that is not trusted to name users.
pub const ASSERTED_USER_ID: &str = "io.gantry/asserted-user-id";
/// The conversation, a label of the agent's.
pub const SESSION_ID: &str = "io.gantry/session-id";
/// The run, a label of the agent's.
pub const RUN_ID: &str = "io.gantry/run-id";
/// The step of the run, a label of the agent's.
pub const STEP: &str = "io.gantry/step";
/// The call that a call is made for, by its id.
pub const PARENT_CALL_ID: &str = "io.gantry/parent-call-id";
/// The place in a W3C trace that a request comes from, as in the HTTP header of the same name.
pub const TRACE_PARENT: &str = "traceparent";
/// What the systems of that trace tell each other, as in the HTTP header of the same name.
pub const TRACE_STATE: &str = "tracestate";
/// How many secrets were redacted in a result.
pub const REDACTED: &str = "io.gantry/redacted";
/// What a result that was passed on all the same has against its output schema.
pub const OUTPUT_ISSUES: &str = "io.gantry/output-issues";
/// How many places of a result nobody would have seen, and were taken out.
pub const CLEANED: &str = "io.gantry/cleaned";
/// What was cut off a result that is too long.
pub const TRUNCATED: &str = "io.gantry/truncated";
/// The prefix of Gantry's own keys; readers may ignore case.
const OURS: &str = "io.gantry/";

/// The keys that describe the client's link and are never sent on another.
const PER_REQUEST: [&str; 5] = [
    PROTOCOL_VERSION,
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    RELATED_TASK,
];

/// Gantry's name and version, as sent to servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    info: RawBuf,
}

impl Identity {
    /// Names a program and its version.
    pub fn new(name: &str, version: &str) -> Self {
        let mut edit = Edit::new(Raw::EMPTY_OBJECT);
        edit.set_buf("name", RawBuf::string(name))
            .set_buf("version", RawBuf::string(version));
        Self {
            info: edit.to_buf(),
        }
    }

    /// Names Gantry itself, in this build's version.
    pub fn gantry() -> Self {
        Self::new("gantry", env!("CARGO_PKG_VERSION"))
    }

    /// Returns the `Implementation` object.
    pub fn info(&self) -> Raw<'_> {
        self.info.as_raw()
    }
}

fn is_ours(key: &str) -> bool {
    let start = key.as_bytes().get(..OURS.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(OURS.as_bytes()))
}

/// Removes Gantry's own keys from the `_meta` of what a server sent.
pub fn remove_ours<'a>(edit: &mut Edit<'a>, meta: Raw<'a>) {
    for key in meta.members().filter_map(|member| member.key.string()) {
        if is_ours(&key) {
            edit.remove_meta(key);
        }
    }
}

/// Prepares params for a server: removes the keys of the client's link and Gantry's own; in the
/// stateless era, sets those of the server's link.
///
/// The caller may change more (a tool's name, the progress token) before the edit is written.
/// Declares no client capabilities: a shared link offers none.
pub fn upstream_params<'a>(
    version: ProtocolVersion,
    params: Option<Raw<'a>>,
    identity: &'a Identity,
) -> Edit<'a> {
    upstream_params_with(version, &params.into(), identity)
}

/// Does the same with params that were already parsed.
pub fn upstream_params_with<'a>(
    version: ProtocolVersion,
    params: &Params<'a>,
    identity: &'a Identity,
) -> Edit<'a> {
    let mut edit = Edit::new(params.whole.unwrap_or(Raw::EMPTY_OBJECT));
    // Most params carry none of them, and then nothing needs to be rebuilt.
    for member in params.meta.into_iter().flat_map(Raw::members) {
        let Some(key) = member.key.string() else {
            continue;
        };
        if is_ours(&key) || PER_REQUEST.contains(&&*key) {
            edit.remove_meta(key);
        }
    }
    if version.era() == Era::Stateless {
        edit.set_meta_buf(PROTOCOL_VERSION, RawBuf::string(version.as_str()))
            .set_meta(CLIENT_INFO, identity.info())
            .set_meta(CLIENT_CAPABILITIES, Raw::EMPTY_OBJECT);
    }
    edit
}
