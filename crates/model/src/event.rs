//! Lifecycle events of servers, one line each; stored in `kb.mcp_server_events`.

use serde::{Deserialize, Serialize};

use crate::id::ServerName;

/// One thing that happened to a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerEvent {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// To which server.
    pub server: ServerName,
    /// What kind of thing.
    pub kind: EventKind,
    /// The whole sentence for a person, such as «exit code 1, restarting at once».
    pub detail: String,
}

/// The kinds of things that happen to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// It was registered.
    Registered,
    /// It is being started.
    Starting,
    /// It was given secrets of the project, which are named.
    SecretsUsed,
    /// It answers.
    Ready,
    /// It could not be started.
    StartFailed,
    /// It ended by itself.
    Exited,
    /// A person must sign in.
    NeedsSignIn,
    /// A person signed in.
    SignedIn,
    /// Its tokens were forgotten by order.
    SignedOut,
    /// The connection to it was lost, or it no longer answered.
    Disconnected,
    /// It will be started again after a wait.
    BackingOff,
    /// It crashes again and again.
    HealthWarning,
    /// It runs but does not answer.
    Unresponsive,
    /// It answers again.
    Recovered,
    /// A call to it got no answer in time.
    CallTimeout,
    /// Its tools, prompts or resources are others than before.
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
    /// It did something that the protocol does not allow.
    ProtocolError,
    /// Somebody asked for a restart.
    RestartRequested,
    /// It was stopped.
    Stopped,
    /// It was removed.
    Removed,
    /// It was started to be tried, and stopped again.
    Tested,
    /// Somebody looked at what a spec of that name would become; nothing was started.
    Previewed,
    /// Somebody tried keys that are not known; told of the gateway itself, as the server `native`.
    WrongKeys,
    /// Something of the journal of calls is missing or damaged; told of the gateway itself, as the
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
