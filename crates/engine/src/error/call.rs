//! Why a request got no answer: each error with its code, whose fault it is, how the audit counts it,
//! and a hint. Entry point: [`CallError`].

use std::fmt;
use std::time::Duration;

use gantry_model::caller::KeyEnd;
use gantry_model::diagnose::{Diagnose, Fault};
use gantry_model::hook::HookPoint;
use gantry_model::id::{GrantId, ServerName};
use gantry_model::limits::Limited;
use gantry_model::spec::period;
use gantry_model::suspension::Suspendable;
use gantry_store::{CallStatus, ErrorKind};

use super::text::{because, key_end_text, more_about, next_try_text};
use super::{Full, Issue};
use crate::answers::AnswersFull;
use crate::audit::AuditError;
use crate::limits::LimitExceeded;
use crate::request::SuspendedBytes;
use crate::transport::http::HttpError;

/// Why a request got no answer of the server's.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No tool, prompt or resource of that name is known to the caller.
    #[error("Unknown tool: {name}")]
    UnknownTool {
        /// The requested name.
        name: String,
    },
    /// No such prompt or resource.
    #[error("unknown {kind}: {name}")]
    UnknownItem {
        /// `prompt`, `resource` or `resource template`.
        kind: &'static str,
        /// The name in the request.
        name: String,
    },
    /// No server of that name in the caller's project.
    #[error("no server `{name}`")]
    UnknownServer {
        /// The name in the request.
        name: String,
    },
    /// A method that is not served here.
    #[error("method `{method}` is not served here")]
    UnknownMethod {
        /// The requested method.
        method: String,
    },
    /// The caller's agent has no grant for it.
    #[error("agent `{agent}` has no grant for `{server}:{item}`")]
    NotGranted {
        /// Who asked.
        agent: String,
        /// Whose it is.
        server: ServerName,
        /// The requested item.
        item: String,
    },
    /// A grant refuses it.
    #[error("agent `{agent}` may not use `{server}:{item}`: {why}")]
    Forbidden {
        /// Who asked.
        agent: String,
        /// Whose it is.
        server: ServerName,
        /// The requested item.
        item: String,
        /// What the grant says.
        why: Forbidden,
        /// The grant.
        grant: Option<GrantId>,
    },
    /// The server or the tool is suspended.
    #[error("{what} is suspended")]
    Suspended {
        /// The suspended server or tool.
        what: Suspendable,
    },
    /// It is new or changed, and nobody approved it.
    #[error("`{server}:{item}` is quarantined: {why}")]
    Quarantined {
        /// Whose it is.
        server: ServerName,
        /// The tool, prompt or template.
        item: String,
        /// Why it is held back.
        why: &'static str,
    },
    /// A hook of the project refused it.
    #[error("hook `{hook}` refused the {}{}", point.as_str(), because(reason))]
    HookRefused {
        /// The hook.
        hook: String,
        /// What it saw.
        point: HookPoint,
        /// Why, in its words.
        reason: String,
    },
    /// A hook of the project could not be asked, and nothing passes without it.
    #[error("hook `{hook}` failed on the {}: {why}", point.as_str())]
    HookFailed {
        /// The hook.
        hook: String,
        /// What it was to see.
        point: HookPoint,
        /// What went wrong.
        why: String,
    },
    /// An approver refused the call.
    #[error("`{server}:{item}` was refused by {by}{}", because(reason))]
    ApprovalRefused {
        /// Whose it is.
        server: ServerName,
        /// The requested item.
        item: String,
        /// Who refused it.
        by: String,
        /// Why, in the approver's words.
        reason: String,
    },
    /// Nobody decided on the call in time.
    #[error("nobody approved the call of `{server}:{item}` within {}", period::show(*after))]
    ApprovalExpired {
        /// Whose it is.
        server: ServerName,
        /// The requested item.
        item: String,
        /// How long it was held.
        after: Duration,
    },
    /// The tool is not the version that the approver looked at.
    #[error("`{server}:{item}` changed while its call waited for an approver")]
    ApprovalStale {
        /// Whose it is.
        server: ServerName,
        /// The requested item.
        item: String,
    },
    /// So many calls wait for an approver that no further one can.
    #[error("{limit} wait for an approver already")]
    TooManyApprovals {
        /// How many, and of whose calls.
        limit: String,
    },
    /// The arguments do not fit the tool's schema.
    #[error("arguments of `{tool}` do not fit its schema")]
    Arguments {
        /// The requested tool.
        tool: String,
        /// The mismatches.
        issues: Vec<Issue>,
    },
    /// The result does not fit the tool's schema.
    #[error("result of `{server}:{tool}` does not fit its output schema")]
    Output {
        /// The server.
        server: ServerName,
        /// The tool.
        tool: String,
        /// The mismatches.
        issues: Vec<Issue>,
    },
    /// The params are invalid for the method.
    #[error("params of `{method}` cannot be used: {why}")]
    BadParams {
        /// The method.
        method: String,
        /// The error.
        why: String,
    },
    /// There is no room for the call now.
    #[error("server `{server}` is busy: {full}")]
    Busy {
        /// The server.
        server: ServerName,
        /// What is full.
        full: Full,
        /// When to try again.
        retry_after: Duration,
    },
    /// The caller has used as much as its key, its agent or its project may.
    #[error("the {} is limited to {}", .0.owner.as_str(), .0.what)]
    Limited(LimitExceeded),
    /// The server is not there now.
    #[error("server `{server}` is down: {reason}{}", next_try_text(*next_try))]
    Down {
        /// The server.
        server: ServerName,
        /// Why it is down.
        reason: String,
        /// When it is tried again.
        next_try: Option<Duration>,
    },
    /// The server ended while the call was with it.
    #[error("server `{server}` exited during the call ({how})")]
    Exited {
        /// The server.
        server: ServerName,
        /// How it ended.
        how: String,
    },
    /// The remote server could not be reached, or not be understood.
    #[error("server `{server}`: {error}")]
    Remote {
        /// The server.
        server: ServerName,
        /// The error.
        error: HttpError,
    },
    /// No answer came in time.
    #[error("server `{server}` did not answer within {}", period::show(*after))]
    Timeout {
        /// The server.
        server: ServerName,
        /// How long was waited.
        after: Duration,
    },
    /// The caller cancelled the call.
    #[error("the call was cancelled")]
    Cancelled,
    /// The caller's key was revoked or has expired, which ends its calls.
    #[error("{}", key_end_text(*end))]
    KeyEnded {
        /// How the key ended.
        end: KeyEnd,
    },
    /// The server does not read its input.
    #[error("server `{server}` has stopped reading its input")]
    NotReading {
        /// The server.
        server: ServerName,
    },
    /// The server's own JSON-RPC error.
    #[error("server `{server}` answered with error {code}: {message}")]
    Rpc {
        /// The server.
        server: ServerName,
        /// Its code.
        code: i64,
        /// Its message.
        message: String,
        /// Its data, raw.
        data: Option<Box<str>>,
    },
    /// The server's response is invalid.
    #[error("server `{server}` broke the protocol: {detail}")]
    Protocol {
        /// The server.
        server: ServerName,
        /// The violation.
        detail: String,
    },
    /// The server's answer was over the limit.
    #[error("response over {} MiB from server `{server}`", limit >> 20)]
    ResponseTooLarge {
        /// The server.
        server: ServerName,
        /// The limit in bytes.
        limit: usize,
    },
    /// The result is longer than the server's results may be, and cannot be cut.
    #[error("the result of server `{server}` is over {limit} bytes and cannot be cut")]
    ResultTooLong {
        /// The server.
        server: ServerName,
        /// The limit in bytes.
        limit: usize,
    },
    /// The server responded, but the response was not delivered: too much is unread.
    #[error("server `{server}` answered, but there is {full}")]
    Undelivered {
        /// The server.
        server: ServerName,
        /// Why there was no room.
        full: AnswersFull,
    },
    /// The client did not respond to a server request in time.
    #[error("server `{server}` sent the client a request that was not answered within {}", period::show(*after))]
    Unanswered {
        /// The server.
        server: ServerName,
        /// How long was waited.
        after: Duration,
    },
    /// The client refused a server request.
    #[error("server `{server}` sent the client a request that it declined: {message}")]
    Declined {
        /// The server.
        server: ServerName,
        /// The client's message.
        message: String,
    },
    /// Too many calls of the agent are suspended.
    #[error("{limit} calls of this agent already wait for answers")]
    TooManyHeld {
        /// The limit.
        limit: usize,
    },
    /// The suspended calls exceed a limit of bytes.
    #[error("suspended calls exceed {limit}")]
    TooMuchHeld {
        /// The limit that was exceeded.
        limit: SuspendedBytes,
    },
    /// There are too many resource subscriptions.
    #[error("{what}")]
    TooManySubscriptions {
        /// The limit that was reached, in words.
        what: String,
    },
    /// The call cannot be recorded, so it is not made.
    #[error("the call cannot be recorded")]
    Audit(#[source] AuditError),
    /// The gateway is stopping.
    #[error("the gateway is stopping")]
    Stopping,
    /// A native tool's handler, or our own code, panicked.
    #[error("the call failed inside the gateway")]
    Panicked,
}

/// Why a grant refuses a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forbidden {
    /// It denies it.
    Denied,
    /// It allows it only with other arguments.
    Arguments,
    /// The call needs an approval, which it did not get.
    Approval,
}

impl Forbidden {
    const fn code(self) -> &'static str {
        match self {
            Self::Denied => "grant.denied",
            Self::Arguments => "grant.arguments",
            Self::Approval => "grant.approval",
        }
    }

    const fn hint(self) -> &'static str {
        match self {
            Self::Denied => "use another tool of `tools/list`, or ask an administrator",
            Self::Arguments => {
                "use other arguments; `gantry why AGENT TOOL` tells an administrator which are granted"
            }
            Self::Approval => "ask an administrator to approve it or to grant it",
        }
    }
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Denied => "a grant denies it",
            Self::Arguments => "its grant does not allow these arguments",
            Self::Approval => "each call needs an approval",
        })
    }
}

impl CallError {
    /// Returns the refused item: the server, the item, and the grant that decided.
    pub(crate) fn not_granted(&self) -> Option<(&ServerName, &str, Option<GrantId>)> {
        if let Self::NotGranted { server, item, .. } = self {
            return Some((server, item, None));
        }
        if let Self::Forbidden {
            server,
            item,
            grant,
            ..
        } = self
        {
            return Some((server, item, *grant));
        }
        None
    }

    /// Returns the status of a call that failed, and whose error it was. A call is `refused` if it was
    /// never sent because it is not allowed or there is no room.
    pub(crate) fn class(&self) -> (CallStatus, ErrorKind) {
        match self {
            Self::Rpc { .. } => (CallStatus::Error, ErrorKind::JsonRpc),
            Self::Output { .. } => (CallStatus::Error, ErrorKind::Schema),
            Self::Arguments { .. } | Self::BadParams { .. } => {
                (CallStatus::Refused, ErrorKind::Schema)
            }
            Self::UnknownTool { .. }
            | Self::UnknownServer { .. }
            | Self::NotGranted { .. }
            | Self::Forbidden { .. }
            | Self::Quarantined { .. }
            | Self::HookRefused {
                point: HookPoint::Request,
                ..
            }
            | Self::HookFailed {
                point: HookPoint::Request,
                ..
            }
            | Self::Limited(_)
            | Self::ApprovalRefused { .. }
            | Self::ApprovalExpired { .. }
            | Self::ApprovalStale { .. }
            | Self::TooManyApprovals { .. }
            | Self::Busy { .. }
            | Self::TooManySubscriptions { .. } => (CallStatus::Refused, ErrorKind::Policy),
            Self::UnknownItem { .. }
            | Self::UnknownMethod { .. }
            | Self::Suspended { .. }
            | Self::HookRefused { .. }
            | Self::HookFailed { .. }
            | Self::TooManyHeld { .. }
            | Self::TooMuchHeld { .. } => (CallStatus::Error, ErrorKind::Policy),
            Self::KeyEnded { .. } => (CallStatus::Cancelled, ErrorKind::Policy),
            Self::Timeout { .. } => (CallStatus::Timeout, ErrorKind::Transport),
            Self::Down { .. }
            | Self::Exited { .. }
            | Self::Protocol { .. }
            | Self::Remote { .. }
            | Self::NotReading { .. }
            | Self::ResponseTooLarge { .. }
            | Self::ResultTooLong { .. } => (CallStatus::Error, ErrorKind::Transport),
            Self::Cancelled => (CallStatus::Cancelled, ErrorKind::Caller),
            Self::Unanswered { .. } => (CallStatus::Timeout, ErrorKind::Caller),
            Self::Declined { .. } => (CallStatus::Error, ErrorKind::Caller),
            Self::Undelivered { .. } | Self::Audit(_) | Self::Stopping | Self::Panicked => {
                (CallStatus::Error, ErrorKind::Gateway)
            }
        }
    }
}

impl Diagnose for CallError {
    fn code(&self) -> &'static str {
        match self {
            Self::UnknownTool { .. } => "tool.unknown",
            Self::UnknownItem { .. } => "item.unknown",
            Self::UnknownServer { .. } => "server.unknown",
            Self::UnknownMethod { .. } => "method.unknown",
            Self::NotGranted { .. } => "grant.unbound",
            Self::Forbidden { why, .. } => why.code(),
            Self::Suspended {
                what: Suspendable::Tool(..),
            } => "tool.suspended",
            Self::Suspended { .. } => "server.suspended",
            Self::Quarantined { .. } => "tool.quarantined",
            Self::HookRefused { .. } => "hook.refused",
            Self::HookFailed { .. } => "hook.failed",
            Self::ApprovalRefused { .. } => "approval.refused",
            Self::ApprovalExpired { .. } => "approval.expired",
            Self::ApprovalStale { .. } => "approval.stale",
            Self::TooManyApprovals { .. } => "approval.too_many",
            Self::Arguments { .. } => "schema.input",
            Self::Output { .. } => "schema.output",
            Self::BadParams { .. } => "request.params",
            Self::Busy { .. } => "server.busy",
            Self::Limited(exceeded) => match exceeded.what {
                Limited::Concurrency(_) => "limit.concurrency",
                Limited::CallsPerMinute(_)
                | Limited::CallsPerHour(_)
                | Limited::BytesPerMinute(_)
                | Limited::BytesPerHour(_) => "limit.rate",
            },
            Self::Down { .. } => "server.down",
            Self::Exited { .. } => "server.exited",
            Self::Remote { error, .. } => error.code(),
            Self::Timeout { .. } => "call.timeout",
            Self::Cancelled => "call.cancelled",
            Self::KeyEnded { end } => end.code(),
            Self::NotReading { .. } => "server.not_reading",
            Self::Rpc { .. } => "server.error",
            Self::Protocol { .. } => "server.protocol",
            Self::ResponseTooLarge { .. } => "server.response_too_large",
            Self::ResultTooLong { .. } => "server.result_too_long",
            Self::Undelivered { .. } => "call.undelivered",
            Self::Unanswered { .. } => "call.unanswered",
            Self::Declined { .. } => "call.declined",
            Self::TooManyHeld { .. } => "call.too_many_held",
            Self::TooMuchHeld { .. } => "call.too_much_held",
            Self::TooManySubscriptions { .. } => "listen.too_many",
            Self::Audit(_) => "audit.unavailable",
            Self::Stopping => "gateway.stopping",
            Self::Panicked => "gateway.panic",
        }
    }

    fn fault(&self) -> Fault {
        match self.class().1 {
            _ if matches!(self, Self::HookFailed { .. }) => Fault::Gateway,
            _ if matches!(self, Self::Undelivered { .. }) => Fault::Client,
            _ if matches!(self, Self::Output { .. }) => Fault::Server,
            ErrorKind::Schema | ErrorKind::Policy | ErrorKind::Caller => Fault::Client,
            ErrorKind::Transport | ErrorKind::JsonRpc | ErrorKind::Tool => Fault::Server,
            ErrorKind::Gateway => Fault::Gateway,
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "few errors have something to suggest"
    )]
    fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownTool { .. } => Some("`tools/list` shows what there is".into()),
            Self::NotGranted { .. } => {
                Some("ask an administrator to grant it, or use a tool of `tools/list`".into())
            }
            Self::Forbidden { why, .. } => Some(why.hint().into()),
            Self::Quarantined { server, item, .. } => Some(format!(
                "continue without it; an approver decides: `gantry tools diff {server}:{item}`"
            )),
            Self::ApprovalRefused { .. } => {
                Some("do not retry; continue without it".into())
            }
            Self::ApprovalExpired { .. } => {
                Some("ask a person to look at `gantry approvals ls`, and call again".into())
            }
            Self::ApprovalStale { .. } => Some("list the tools again, and call again".into()),
            Self::TooManyApprovals { .. } => Some("wait until some are decided".into()),
            Self::HookRefused { .. } => {
                Some("change what it objects to, or continue without it".into())
            }
            Self::HookFailed { .. } => {
                Some("an administrator can fix or remove the hook: `gantry hook ls`".into())
            }
            Self::Arguments { .. } => Some("correct the named fields and call again".into()),
            Self::Busy {
                full, retry_after, ..
            } => Some(full.hint(*retry_after)),
            Self::Limited(exceeded) => Some(format!(
                "the call was not made; try again in {}",
                period::about(exceeded.retry_after.max(Duration::from_millis(100)))
            )),
            // Models read these two: whether and when to retry, and what else to do. row 3.4
            Self::Timeout { .. } => Some(
                "the server may still be working; retry only if the tool is safe to repeat, otherwise \
                 continue without it"
                    .into(),
            ),
            Self::Exited { .. } => {
                Some("it is not known whether the call took effect; nothing was retried".into())
            }
            Self::Down {
                server, next_try, ..
            } => {
                let when = match next_try {
                    Some(_) => "after its next try",
                    None => "when it runs again",
                };
                Some(format!(
                    "retry {when}, or continue without it; {}",
                    more_about(server)
                ))
            }
            Self::NotReading { server } => Some(format!(
                "retry later, or continue without it; {}",
                more_about(server)
            )),
            Self::Remote { error, .. } => error.hint(),
            Self::TooMuchHeld {
                limit: SuspendedBytes::OfProject(_) | SuspendedBytes::OfAll(_),
            } => Some("try again in a while, or with less".into()),
            Self::TooManyHeld { .. } | Self::TooMuchHeld { .. } => {
                Some("answer or give up one of them first".into())
            }
            Self::TooManySubscriptions { .. } => {
                Some("end subscriptions that are not needed, or subscribe to a common parent".into())
            }
            Self::Audit(error) => error.hint(),
            Self::Undelivered { .. } => Some(
                "the call was made; read responses as they arrive, or request less at a time".into(),
            ),
            Self::Suspended { .. }
            | Self::KeyEnded {
                end: KeyEnd::Suspended,
            } => Some("an administrator can resume it; continue without it".into()),
            Self::KeyEnded { .. } => Some("ask an administrator for a new key".into()),
            _ => None,
        }
    }
}
