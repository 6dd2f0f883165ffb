//! Lifecycle events of servers, one line each; stored in `kb.mcp_server_events`.

use serde::{Deserialize, Serialize};

use crate::id::ServerName;

/// An event of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerEvent {
    /// The time, in milliseconds since 1970.
    pub at_ms: u64,
    /// The server.
    pub server: ServerName,
    /// The kind.
    pub kind: EventKind,
    /// The text for people, such as "exit code 1, restarting at once".
    pub detail: String,
}

/// The kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// It was registered.
    Registered,
    /// It is being started.
    Starting,
    /// It received secrets of the project, which are named.
    SecretsUsed,
    /// It is ready.
    Ready,
    /// It could not be started.
    StartFailed,
    /// It exited by itself.
    Exited,
    /// A person must sign in.
    NeedsSignIn,
    /// A person signed in.
    SignedIn,
    /// Its tokens were deleted on request.
    SignedOut,
    /// The connection to it was lost, or it no longer answered.
    Disconnected,
    /// It will be started again after a backoff.
    BackingOff,
    /// It crashes or fails repeatedly. Reported once, until it recovers.
    HealthWarning,
    /// It runs but does not respond.
    Unresponsive,
    /// It responds again.
    Recovered,
    /// A call to it timed out.
    CallTimeout,
    /// Its tools, prompts or resources have changed.
    CatalogChanged,
    /// It lists tools that are new or changed, and nobody approved them.
    ToolsUnapproved,
    /// Somebody approved or refused a version of one of its tools.
    ToolDecided,
    /// Its texts seem to instruct models, or hide something from people.
    SuspiciousText,
    /// A call to it waits for an approver.
    ApprovalAsked,
    /// Somebody allowed or refused a call to it.
    ApprovalDecided,
    /// The tag of its image points to another image now; it keeps the one it has.
    ImageChanged,
    /// It violated the protocol.
    ProtocolError,
    /// A restart was requested.
    RestartRequested,
    /// It was stopped.
    Stopped,
    /// It was removed.
    Removed,
    /// It was started for a test, and stopped again.
    Tested,
    /// A spec of that name was previewed; nothing was started.
    Previewed,
    /// Unknown keys were used; reported for the gateway itself, as the server `native`.
    WrongKeys,
    /// A part of the call journal is missing or damaged; reported for the gateway itself, as the
    /// server `native`.
    JournalDamaged,
}

impl EventKind {
    /// Returns the kind as stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Registered => "registered",
            Self::Starting => "starting",
            Self::SecretsUsed => "secrets_used",
            Self::Ready => "ready",
            Self::StartFailed => "start_failed",
            Self::Exited => "exited",
            Self::NeedsSignIn => "needs_sign_in",
            Self::SignedIn => "signed_in",
            Self::SignedOut => "signed_out",
            Self::Disconnected => "disconnected",
            Self::BackingOff => "backing_off",
            Self::HealthWarning => "health_warning",
            Self::Unresponsive => "unresponsive",
            Self::Recovered => "recovered",
            Self::CallTimeout => "call_timeout",
            Self::CatalogChanged => "catalog_changed",
            Self::ToolsUnapproved => "tools_unapproved",
            Self::ToolDecided => "tool_decided",
            Self::SuspiciousText => "suspicious_text",
            Self::ApprovalAsked => "approval_asked",
            Self::ApprovalDecided => "approval_decided",
            Self::ImageChanged => "image_changed",
            Self::ProtocolError => "protocol_error",
            Self::RestartRequested => "restart_requested",
            Self::Stopped => "stopped",
            Self::Removed => "removed",
            Self::Tested => "tested",
            Self::Previewed => "previewed",
            Self::WrongKeys => "wrong_keys",
            Self::JournalDamaged => "journal_damaged",
        }
    }
}
