//! The input and output of the engine: requests of any surface and their replies.

use std::fmt::{self, Debug, Display, Formatter};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use gantry_model::caller::Context;
use gantry_model::era::Era;
use gantry_model::id::{CallId, ServerName};
use gantry_model::jsonrpc::RawBuf;
use gantry_model::mcp::{ClientCapabilities, LogLevel, Method, Params};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::answers::AnswerPermit;
pub use crate::audit::Surface;

/// Which servers a request may reach.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All that the caller may use, under exposed names.
    All,
    /// One server, under its own names.
    Server(ServerName),
}

/// Whether a list may be answered from memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lists {
    /// Served from the catalog.
    #[default]
    FromCatalog,
    /// Requested from the server itself, if the caller is an administrator; else from the catalog.
    FromServer,
}

/// Which client of a caller sent a request. A server that sends requests to its clients has an
/// instance for each of them, and only that client sees its changes there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientIdentity {
    /// One that declared no capabilities.
    #[default]
    Anyone,
    /// One without a session, known by its key.
    Key,
    /// The one of a session.
    Session(u128),
}

impl ClientIdentity {
    /// Returns the session, if it has one.
    pub(crate) fn session(self) -> Option<u128> {
        match self {
            Self::Session(session) => Some(session),
            Self::Anyone | Self::Key => None,
        }
    }
}

/// One request of a caller.
#[derive(Debug)]
pub struct Request<'a> {
    /// The surface it came from.
    pub surface: Surface,
    /// Which servers it may reach.
    pub scope: Scope,
    /// The MCP method.
    pub method: &'a str,
    /// Its params, a valid JSON object.
    pub params: Params<'a>,
    /// The caller's context: user, session, run.
    pub context: Context,
    /// The channel for progress, logs and requests while the call runs, if the caller has one.
    pub client: Option<Box<Client>>,
    /// A shorter timeout than the server's own.
    pub timeout: Option<Duration>,
    /// Whether lists come from memory.
    pub lists: Lists,
    /// Which of the caller's clients it is.
    pub identity: ClientIdentity,
    /// Why the caller cancels the call, if set before the call is dropped.
    pub reason: Option<CancelReason>,
}

/// The longest reason that is sent to a server.
const LONGEST_REASON: usize = 1024;

/// Why a caller cancels its call, in its own words.
#[derive(Debug, Clone, Default)]
pub struct CancelReason(Arc<OnceLock<Box<str>>>);

impl CancelReason {
    /// Sets the reason; only the first counts, truncated if too long.
    pub fn say(&self, why: &str) {
        let why = &why[..why.floor_char_boundary(LONGEST_REASON)];
        self.0.get_or_init(|| why.into());
    }

    /// Returns the reason, if there is one.
    pub(crate) fn said(&self) -> Option<&str> {
        self.0.get().map(|why| &**why)
    }
}

/// The caller's side of a call while it runs.
#[derive(Debug)]
pub struct Client {
    /// The protocol era of the caller.
    pub era: Era,
    /// The capabilities that the caller declared.
    pub capabilities: ClientCapabilities,
    /// Its session, if it has one: messages and requests that concern a call of one session never
    /// reach another, even with the same key.
    pub session: Option<u128>,
    /// The caller's own progress token, raw JSON, repeated in each notification; `None` if it wants
    /// no progress.
    pub progress_token: Option<Box<str>>,
    /// The minimum level of log messages for the caller.
    pub log_level: Option<LogLevel>,
    /// Whether texts in progress are withheld from it: the project's hooks would not see them.
    pub withholds_texts: bool,
    /// Takes what the caller receives before its response. Progress and logs that do not fit are
    /// dropped; requests wait for a slot.
    pub events: mpsc::Sender<CallEvent>,
    /// The channel to the caller's session outside of its calls, if it has one.
    pub channel: Option<SessionChannel>,
}

/// The channel to a session outside of its calls, on its client's notification stream. Never waits.
#[derive(Clone)]
pub struct SessionChannel(Arc<dyn Fn(CallEvent) -> bool + Send + Sync>);

impl SessionChannel {
    /// Creates a channel from a function that accepts [`CallEvent::Elicited`] and
    /// [`CallEvent::Requests`], and returns whether it did.
    pub fn new(send: impl Fn(CallEvent) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(send))
    }

    pub(crate) fn send(&self, event: CallEvent) -> bool {
        (self.0)(event)
    }
}

impl Debug for SessionChannel {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("SessionChannel")
    }
}

/// What a caller receives before its response.
#[derive(Debug)]
pub enum CallEvent {
    /// The raw params of a progress notification.
    Progress(Box<str>),
    /// The raw params of a log message.
    Log(Box<str>),
    /// The id of a completed URL elicitation.
    Elicited(Box<str>),
    /// Requests that the server needs answered before it continues.
    Requests(ServerRequests),
}

/// Requests of a server to the caller: one or more, answered together.
#[derive(Debug)]
pub struct ServerRequests {
    /// The requests, with distinct keys.
    pub requests: Vec<ServerRequest>,
    /// Until when a response is waited for. Then the call ends, unless it can continue without one.
    pub until: Instant,
    /// Takes the response; dropping it cancels the call.
    pub answer: oneshot::Sender<RequestOutcome>,
    /// How long they stay open.
    pub lifetime: RequestLifetime,
}

impl ServerRequests {
    /// Returns their length in bytes.
    pub fn length(&self) -> usize {
        let params = self
            .requests
            .iter()
            .filter_map(|asked| asked.params.as_ref());
        params.map(|params| params.text().len()).sum()
    }
}

/// How long a request stays open.
#[derive(Debug, Clone)]
pub enum RequestLifetime {
    /// As long as its call.
    Call,
    /// Until this is cancelled, since it may be for any call of the client's session; the call that
    /// carried it may end earlier.
    Session(CancellationToken),
}

/// One request of a server to its client.
#[derive(Debug, Clone)]
pub struct ServerRequest {
    /// Its name among these requests.
    pub key: Box<str>,
    /// The method: sampling, elicitation or listing roots.
    pub method: Method,
    /// Its params, with the server's secrets redacted.
    pub params: Option<RawBuf>,
}

/// The outcome of requests to a caller.
#[derive(Debug)]
pub enum RequestOutcome {
    /// The caller answered each request.
    Answered(Vec<ClientResponse>),
    /// Too many calls of the caller are already suspended.
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// The suspended calls would exceed a limit of bytes.
    TooMuch(SuspendedBytes),
}

/// The limit of bytes of suspended calls that was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuspendedBytes {
    /// Of one agent.
    OfAgent(usize),
    /// Of one project.
    OfProject(usize),
    /// Of all projects.
    OfAll(usize),
}

impl Display for SuspendedBytes {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let (whose, limit) = match self {
            Self::OfAgent(limit) => ("this agent", limit),
            Self::OfProject(limit) => ("this project", limit),
            Self::OfAll(limit) => ("all projects together", limit),
        };
        write!(formatter, "those of {whose} at most {} MiB", limit >> 20)
    }
}

/// A caller's response to one request.
#[derive(Debug, Clone)]
pub struct ClientResponse {
    /// The key of the request.
    pub key: Box<str>,
    /// The raw result, an object, or the raw error.
    pub outcome: Result<RawBuf, RawBuf>,
}

/// A call whose id was assigned in advance, so that its outcome can be queried.
#[derive(Debug)]
pub struct Announced {
    pub(crate) id: CallId,
    /// Notified when the call is recorded; dropped if it ends without a record.
    pub(crate) recorded: Option<oneshot::Sender<()>>,
}

impl Announced {
    /// Creates an id without a receiver.
    pub(crate) fn unheard(id: CallId) -> Self {
        Self { id, recorded: None }
    }

    /// Reports that the call is recorded.
    pub(crate) fn record(self) {
        if let Some(recorded) = self.recorded {
            // The receiver may be gone.
            recorded.send(()).ok();
        }
    }

    /// Returns the id of the future call.
    pub fn id(&self) -> CallId {
        self.id
    }
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The id of its call; `None` for results from memory.
    pub call: Option<CallId>,
    /// The raw `result`, on one line.
    pub result: Bytes,
    /// The era of the server's result; `None` for results of the gateway, in the handshake format.
    pub upstream: Option<Era>,
    /// Whether the tool reports a failure.
    pub is_error: bool,
    /// Whether clients of the handshake era would reject the whole result because of a part.
    pub is_odd: bool,
    /// What the output schema has against it, if it was passed on all the same.
    pub warning: Option<String>,
    /// Its share of the response budget; hold it as long as the result.
    pub permit: AnswerPermit,
}
