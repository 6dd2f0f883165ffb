//! What comes into the engine and what goes out: requests of any surface and their replies.

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
    /// Asked of the server itself, if the caller is an administrator; else from the catalog.
    FromServer,
}

/// Which client of a caller sent a request. A server that sends requests to its clients has an
/// instance for each of them, and only that client sees what it changes there.
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
    /// Where it came in.
    pub surface: Surface,
    /// Which servers it may reach.
    pub scope: Scope,
    /// The MCP method.
    pub method: &'a str,
    /// Its params, a valid JSON object.
    pub params: Params<'a>,
    /// What it belongs to in the caller's world.
    pub context: Context,
    /// How the caller gets progress, logs and requests while the call runs, if it can.
    pub client: Option<Client>,
    /// A shorter time than the server's own.
    pub timeout: Option<Duration>,
    /// Whether lists come from memory.
    pub lists: Lists,
    /// Which of the caller's clients it is.
    pub identity: ClientIdentity,
    /// Why the caller cancels the call, if it says so before the call is dropped.
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
    /// The generation of the protocol that the caller speaks.
    pub era: Era,
    /// The capabilities that the caller declared.
    pub capabilities: ClientCapabilities,
    /// The session it speaks in, if it has one: what concerns a call of one session is never told
    /// to another, nor asked of it, even if both have the same key.
    pub session: Option<u128>,
    /// The caller's own progress token, raw JSON, put back into each notification; none if it wants
    /// no progress.
    pub progress_token: Option<Box<str>>,
    /// From which level on the caller wants to hear what the server logs.
    pub log_level: Option<LogLevel>,
    /// Takes what the caller receives before its response. Progress and logs that do not fit are
    /// dropped; requests wait for a slot.
    pub events: mpsc::Sender<CallEvent>,
    /// How the caller's session is reached outside of its calls, if it has one.
    pub channel: Option<SessionChannel>,
}

/// Reaches a session outside of its calls, on the stream that its client listens on. Never waits.
#[derive(Clone)]
pub struct SessionChannel(Arc<dyn Fn(CallEvent) -> bool + Send + Sync>);

impl SessionChannel {
    /// Makes one of what takes [`CallEvent::Elicited`] and [`CallEvent::Requests`], and tells whether it did.
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
    /// The id of an elicitation that is complete: a person is through at the URL it was sent to.
    Elicited(Box<str>),
    /// Something that the server needs before it goes on.
    Requests(ServerRequests),
}

/// What a server needs of the caller before it goes on: one or more requests, answered together.
#[derive(Debug)]
pub struct ServerRequests {
    /// What is asked for; no two have the same key.
    pub requests: Vec<ServerRequest>,
    /// When the call ends if nobody has answered.
    pub until: Instant,
    /// Takes the answer; dropped without one, it takes back the call that asks.
    pub answer: oneshot::Sender<RequestOutcome>,
    /// For how long they stand.
    pub lifetime: RequestLifetime,
}

impl ServerRequests {
    /// Returns how many bytes are asked.
    pub fn length(&self) -> usize {
        let params = self
            .requests
            .iter()
            .filter_map(|asked| asked.params.as_ref());
        params.map(|params| params.text().len()).sum()
    }
}

/// How long a question stands.
#[derive(Debug, Clone)]
pub enum RequestLifetime {
    /// As long as the call that it is for.
    Call,
    /// Until this is cancelled, since it may be for any call of the client's session; the call that it
    /// is told with may end before.
    Session(CancellationToken),
}

/// One request of a server to its client.
#[derive(Debug, Clone)]
pub struct ServerRequest {
    /// Its name within the ask.
    pub key: Box<str>,
    /// What is to be done: sample, elicit or list roots.
    pub method: Method,
    /// Its params, without secrets of the server's.
    pub params: Option<RawBuf>,
}

/// What became of requests to a caller.
#[derive(Debug)]
pub enum RequestOutcome {
    /// The caller answered each request.
    Answered(Vec<ClientResponse>),
    /// So many calls of the caller wait for answers already that this one cannot.
    TooMany {
        /// How many may wait.
        limit: usize,
    },
    /// The calls that wait for answers would hold too many bytes with this one.
    TooMuch(SuspendedBytes),
}

/// How many bytes calls may hold while they wait for their callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuspendedBytes {
    /// So many those of one agent.
    OfAgent(usize),
    /// So many those of one project.
    OfProject(usize),
    /// So many those of all projects.
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

/// What a caller said to one request.
#[derive(Debug, Clone)]
pub struct ClientResponse {
    /// The key of the request.
    pub key: Box<str>,
    /// The raw result, an object, or the raw error.
    pub outcome: Result<RawBuf, RawBuf>,
}

/// A call whose id was given out before it is made, so that its outcome can be asked for under it.
#[derive(Debug)]
pub struct Announced {
    pub(crate) id: CallId,
    /// Told when the call is on record; dropped if it ends without.
    pub(crate) recorded: Option<oneshot::Sender<()>>,
}

impl Announced {
    /// Announces a call to nobody.
    pub(crate) fn unheard(id: CallId) -> Self {
        Self { id, recorded: None }
    }

    /// Says that the call is on record.
    pub(crate) fn record(self) {
        if let Some(recorded) = self.recorded {
            // Who asked for the id may be gone.
            recorded.send(()).ok();
        }
    }

    /// Returns the id of the call to be.
    pub fn id(&self) -> CallId {
        self.id
    }
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The call it belongs to; `None` for what is served from memory.
    pub call: Option<CallId>,
    /// The raw `result`, on one line.
    pub result: Bytes,
    /// The generation of the server that shaped it; `None` for what we rendered in the older shape.
    pub upstream: Option<Era>,
    /// The tool says that it failed.
    pub is_error: bool,
    /// It has parts for which clients of the handshake era reject the whole of it.
    pub is_odd: bool,
    /// What the output schema has against it, if it was passed on all the same.
    pub warning: Option<String>,
    /// What the result takes of the budget for answers; to be kept as long as anything of it is.
    pub permit: AnswerPermit,
}
