//! Which call or session a request from a server is for, and the response to it.
//!
//! A request is for the call on whose stream it came, else for the only call or the only session of
//! its link; a request that cannot be attributed is refused (fault S15). Only
//! `Link::reachable_call` waits. Entry points: `Link::route_request`,
//! `Link::take_session_requests`, `Link::respond`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use gantry_model::id::AgentName;
use gantry_model::jsonrpc::{
    ErrorBody, INTERNAL_ERROR, OneLine, OwnedRequestId, Payload, Raw, RawBuf, Request,
};
use gantry_model::mcp::{ClientCapabilities, Method, asking_method};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use super::urls::visitor;
use crate::request::{Client, SessionChannel};
use crate::server::link::Link;
use crate::server::pending::{CallOwner, ReachableCall, Recipient};

/// The maximum number of requests to a session that are queued.
const WAITING: usize = 16;
/// The refusal of a request if the queue is full.
const TOO_MUCH: &str = "the client is asked too much at once";
/// The refusal of a request that the client does not support.
const UNDECLARED: &str = "the client cannot do that";

/// The channel to the caller of a running call, for events and requests.
#[derive(Debug, Clone)]
pub(crate) struct CallerChannel {
    pub(crate) client: Arc<Client>,
    /// Takes the server's requests to the client; `None` on a link without declared capabilities.
    pub(crate) asks: Option<mpsc::Sender<IncomingRequest>>,
}

/// A request of a server that belongs to one call or to one session.
#[derive(Debug)]
pub(crate) struct IncomingRequest {
    /// The server's id, echoed unchanged.
    pub(crate) id: OwnedRequestId,
    pub(crate) method: Method,
    pub(crate) params: Option<RawBuf>,
    /// The session that it is for; `None` if it is for one call, or came before the first call.
    pub(crate) session: Option<CallOwner>,
}

/// The requests of one link that are for a session, not for one call.
pub(in crate::server) struct SessionRequests {
    queue: mpsc::Sender<IncomingRequest>,
    /// Taken by the forwarder.
    queued: Mutex<Option<mpsc::Receiver<IncomingRequest>>>,
    /// Whether the link has had no call yet. Requests that come before go to the client of the first.
    is_new: AtomicBool,
    /// Notified when a call has begun.
    begun: Notify,
    /// The owners of the calls so far.
    callers: Mutex<LinkCallers>,
}

/// The client of a session, whether or not it has a call.
#[derive(Debug, Clone)]
pub(crate) struct SessionClient {
    pub(crate) owner: CallOwner,
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) channel: SessionChannel,
}

impl SessionClient {
    fn of(agent: &AgentName, client: &Client) -> Option<Self> {
        Some(Self {
            owner: (agent.clone(), Some(client.session?)),
            capabilities: client.capabilities,
            channel: client.channel.clone()?,
        })
    }
}

/// The owners of a link's calls.
#[derive(Debug, Default)]
enum LinkCallers {
    #[default]
    Nobody,
    /// One session only, which can be reached between its calls.
    Session(SessionClient),
    /// Several clients, or one without a session.
    Others,
}

impl SessionRequests {
    pub(in crate::server) fn new() -> Self {
        let (queue, queued) = mpsc::channel(WAITING);
        Self {
            queue,
            queued: Mutex::new(Some(queued)),
            is_new: AtomicBool::new(true),
            begun: Notify::new(),
            callers: Mutex::default(),
        }
    }

    /// Records that a call has begun.
    pub(in crate::server) fn begun(&self, agent: &AgentName, client: Option<&Client>) {
        let mut callers = self.callers.lock();
        let client = client.and_then(|client| SessionClient::of(agent, client));
        *callers = match (std::mem::take(&mut *callers), client) {
            (LinkCallers::Nobody, Some(client)) => LinkCallers::Session(client),
            (LinkCallers::Session(known), Some(client)) if known.owner == client.owner => {
                LinkCallers::Session(client)
            }
            (LinkCallers::Nobody | LinkCallers::Session(_) | LinkCallers::Others, _) => {
                LinkCallers::Others
            }
        };
        drop(callers);
        self.is_new.store(false, Ordering::Relaxed);
        self.begun.notify_waiters();
    }
}

/// Pauses the timeouts of all calls on a link until dropped.
pub(crate) struct PausedClocks(Arc<Link>);

impl Drop for PausedClocks {
    fn drop(&mut self) {
        self.0.pending.pause_all(false);
    }
}

impl Link {
    /// Routes a request of the server to the call it belongs to: the one on whose stream it came,
    /// or the only one; else to the session that owns the link. The error says why that is not
    /// possible.
    pub(in crate::server) fn route_request(
        &self,
        request: &Request<'_>,
        on: Option<u64>,
    ) -> Result<(), &'static str> {
        if !self.limits.asks {
            return Err("this gateway declared no client capabilities");
        }
        let Some(method) = asking_method(&request.method) else {
            return Err("the client has no such method");
        };
        let incoming = |session| IncomingRequest {
            id: request.id.to_owned(),
            method,
            params: request.params.map(Raw::to_buf),
            session,
        };
        let note_url = |visitor| {
            if method == Method::ElicitationCreate {
                self.note_url_request(request.params, visitor);
            }
        };
        let call = match on.map(Recipient::Call).or_else(|| self.pending.recipient()) {
            Some(Recipient::Call(call)) => call,
            Some(Recipient::Session(session)) => {
                // All calls belong to one session, which can be reached by any of them.
                if let Some(call) = self.pending.reachable_call(Some(&session), &[]) {
                    note_url(visitor(&call.caller_channel.client));
                }
                return self.queue_for_session(incoming(Some(session)));
            }
            // Some servers request roots right after the handshake.
            None if self.session_requests.is_new.load(Ordering::Relaxed) => {
                return self.queue_for_session(incoming(None));
            }
            // Between calls, the only session of the link.
            None => {
                let nobody = "it cannot be attributed to one call or session";
                let client = self.only_session().ok_or(nobody)?;
                if !client.capabilities.may_be_asked(method, request.params) {
                    return Err(UNDECLARED);
                }
                note_url((Weak::new(), Some(client.channel)));
                return self.queue_for_session(incoming(Some(client.owner)));
            }
        };
        let Some(CallerChannel {
            client,
            asks: Some(asks),
        }) = self.pending.caller_channel(call)
        else {
            return Err("it cannot be attributed to one call");
        };
        if !client.capabilities.may_be_asked(method, request.params) {
            return Err(UNDECLARED);
        }
        note_url(visitor(&client));
        asks.try_send(incoming(None)).map_err(|_| TOO_MUCH)
    }

    fn queue_for_session(&self, incoming: IncomingRequest) -> Result<(), &'static str> {
        let queued = self.session_requests.queue.try_send(incoming);
        queued.map_err(|_| TOO_MUCH)
    }

    /// Takes the receiver of requests to the link's session; `None` if it was already taken.
    pub(crate) fn take_session_requests(&self) -> Option<mpsc::Receiver<IncomingRequest>> {
        self.session_requests.queued.lock().take()
    }

    /// Returns the client of the only session that had calls on this link.
    pub(crate) fn only_session(&self) -> Option<SessionClient> {
        let callers = self.session_requests.callers.lock();
        match &*callers {
            LinkCallers::Session(client) => Some(client.clone()),
            LinkCallers::Nobody | LinkCallers::Others => None,
        }
    }

    /// Waits for a call through which the session can be reached, except these; `None` if there
    /// were calls and none is left.
    pub(crate) async fn reachable_call(
        &self,
        whose: Option<&CallOwner>,
        but: &[u64],
    ) -> Option<ReachableCall> {
        loop {
            let begun = self.session_requests.begun.notified();
            let is_new = self.session_requests.is_new.load(Ordering::Relaxed);
            if let Some(call) = self.pending.reachable_call(whose, but) {
                return Some(call);
            }
            if !is_new {
                return None;
            }
            begun.await;
        }
    }

    /// Pauses the timeouts of all calls while their client answers a request for any of them.
    pub(crate) fn pause_all(self: &Arc<Self>) -> PausedClocks {
        self.pending.pause_all(true);
        PausedClocks(Arc::clone(self))
    }

    /// Waits for the end of the link.
    pub(crate) async fn closed(&self) {
        self.ended.cancelled().await;
    }

    /// Sends the client's response to the server.
    pub(crate) fn respond(&self, id: &OwnedRequestId, outcome: &Result<RawBuf, RawBuf>) {
        let id = id.as_id();
        let line = match outcome {
            Ok(result) => OneLine::result(id, Payload::from(result)),
            Err(error) => match ErrorBody::read(error.as_raw()) {
                Some(error) => {
                    let data = error.data.map(Payload::Raw);
                    OneLine::error(Some(id), error.code, &error.message, data)
                }
                None => OneLine::error(Some(id), INTERNAL_ERROR, "the client failed", None),
            },
        };
        self.send_loosely(line);
    }

    /// Pauses the timeout of a call while its client answers a request, or resumes it.
    pub(crate) fn pause(&self, call: u64, asked: bool) {
        self.pending.pause(call, asked);
    }
}
