//! Requests of a server to its client: tied to the one call they can belong to, else to the one session
//! whose calls all are, and answered on the link. Nothing here waits, and a request that cannot be tied
//! is never passed on (fault S15). Entry points: `Link::hand_on`, `Link::take_questions` and
//! `Link::reply`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use gantry_model::id::AgentName;
use gantry_model::jsonrpc::{
    ErrorBody, INTERNAL_ERROR, OneLine, OwnedRequestId, Payload, Raw, RawBuf, Request,
};
use gantry_model::mcp::{ClientCan, Method, asking_method};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use super::Link;
use super::elicited::addressee;
use crate::request::{Client, SessionChannel};
use crate::server::pending::{Meant, Party, Spokesman};

/// Requests that may wait to be asked of a session.
const WAITING: usize = 16;
/// Why a request is not passed on that somebody has to answer.
const TOO_MUCH: &str = "the client is asked too much at once";

/// How the caller of a call hears of it while it runs, and can be asked.
#[derive(Debug, Clone)]
pub(crate) struct Voice {
    pub(crate) client: Arc<Client>,
    /// Takes what the server asks of the client; none on a link that declared nothing.
    pub(crate) asks: Option<mpsc::Sender<Asked>>,
}

/// A request of a server's that belongs to one call, or to one session.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The server's id, echoed as it is.
    pub(crate) id: OwnedRequestId,
    pub(crate) method: Method,
    pub(crate) params: Option<RawBuf>,
    /// The session that it is for; none if it is for one call, or came before the first.
    pub(crate) session: Option<Party>,
}

/// What a server asks of a session, and not of one call.
pub(super) struct Questions {
    asked: mpsc::Sender<Asked>,
    /// Taken by whoever asks the client.
    to_ask: Mutex<Option<mpsc::Receiver<Asked>>>,
    /// There was no call yet: what is asked now the client of the first is asked.
    is_new: AtomicBool,
    /// Rings when a call has begun.
    begun: Notify,
    /// Whose calls there were so far.
    callers: Mutex<Callers>,
}

/// The client of a session, whether or not it has a call.
#[derive(Debug, Clone)]
pub(crate) struct SessionClient {
    pub(crate) party: Party,
    pub(crate) can: ClientCan,
    pub(crate) channel: SessionChannel,
}

impl SessionClient {
    fn of(agent: &AgentName, client: &Client) -> Option<Self> {
        Some(Self {
            party: (agent.clone(), Some(client.session?)),
            can: client.can,
            channel: client.channel.clone()?,
        })
    }
}

/// Whose calls a link had.
#[derive(Debug, Default)]
enum Callers {
    #[default]
    Nobody,
    /// Those of one session only, which can be asked between them.
    Session(SessionClient),
    /// Those of several clients, or of one without a session.
    Others,
}

impl Questions {
    pub(super) fn new() -> Self {
        let (asked, to_ask) = mpsc::channel(WAITING);
        Self {
            asked,
            to_ask: Mutex::new(Some(to_ask)),
            is_new: AtomicBool::new(true),
            begun: Notify::new(),
            callers: Mutex::default(),
        }
    }

    /// Notes that a call has begun.
    pub(super) fn begun(&self, agent: &AgentName, client: Option<&Client>) {
        let mut callers = self.callers.lock();
        let client = client.and_then(|client| SessionClient::of(agent, client));
        *callers = match (std::mem::take(&mut *callers), client) {
            (Callers::Nobody, Some(client)) => Callers::Session(client),
            (Callers::Session(known), Some(client)) if known.party == client.party => {
                Callers::Session(client)
            }
            (Callers::Nobody | Callers::Session(_) | Callers::Others, _) => Callers::Others,
        };
        drop(callers);
        self.is_new.store(false, Ordering::Relaxed);
        self.begun.notify_waiters();
    }
}

/// The clocks of all calls on a link stand still until this is dropped.
pub(crate) struct Paused(Arc<Link>);

impl Drop for Paused {
    fn drop(&mut self) {
        self.0.pending.pause_all(false);
    }
}

impl Link {
    /// Hands a request of the server's to the call it belongs to: the one on whose stream it came,
    /// or else the only one that the server has; one that may belong to any call of a session to
    /// whoever asks its client. The error says why that cannot be.
    pub(super) fn hand_on(
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
        let asked = |session| Asked {
            id: request.id.to_owned(),
            method,
            params: request.params.map(Raw::to_buf),
            session,
        };
        let call = match on.map(Meant::Call).or_else(|| self.pending.meant()) {
            Some(Meant::Call(call)) => call,
            Some(Meant::Session(session)) => {
                // All calls there are of one session, which hears what any of them would.
                if method == Method::ElicitationCreate
                    && let Some(spokesman) = self.pending.spokesman(Some(&session), &[])
                {
                    self.asks_to_url(request.params, addressee(&spokesman.voice.client));
                }
                let asking = self.questions.asked.try_send(asked(Some(session)));
                return asking.map_err(|_| TOO_MUCH);
            }
            // Some servers ask for roots as soon as they are greeted.
            None if self.questions.is_new.load(Ordering::Relaxed) => {
                let asking = self.questions.asked.try_send(asked(None));
                return asking.map_err(|_| TOO_MUCH);
            }
            // Between its calls, the one session whose link it is.
            None => {
                let nobody = "there is no one call or session that this could be for";
                let client = self.session().ok_or(nobody)?;
                if !client.can.may_be_asked(method, request.params) {
                    return Err("the client cannot do that");
                }
                if method == Method::ElicitationCreate {
                    let to = (Weak::new(), Some(client.channel));
                    self.asks_to_url(request.params, to);
                }
                let asking = self.questions.asked.try_send(asked(Some(client.party)));
                return asking.map_err(|_| TOO_MUCH);
            }
        };
        let Some(Voice {
            client,
            asks: Some(asks),
        }) = self.pending.voice(call)
        else {
            return Err("there is no one call that this could be for");
        };
        if !client.can.may_be_asked(method, request.params) {
            return Err("the client cannot do that");
        }
        if method == Method::ElicitationCreate {
            self.asks_to_url(request.params, addressee(&client));
        }
        asks.try_send(asked(None)).map_err(|_| TOO_MUCH)
    }

    /// Takes what the server asks of a session; nothing if somebody has it already.
    pub(crate) fn take_questions(&self) -> Option<mpsc::Receiver<Asked>> {
        self.questions.to_ask.lock().take()
    }

    /// Returns the client of the only session that had calls on this link.
    pub(crate) fn session(&self) -> Option<SessionClient> {
        let callers = self.questions.callers.lock();
        match &*callers {
            Callers::Session(client) => Some(client.clone()),
            Callers::Nobody | Callers::Others => None,
        }
    }

    /// Waits for a call whose client can be asked for the whole session, but none of these; nothing
    /// if there were calls, and no such is left.
    pub(crate) async fn spokesman(&self, whose: Option<&Party>, but: &[u64]) -> Option<Spokesman> {
        loop {
            let begun = self.questions.begun.notified();
            let is_new = self.questions.is_new.load(Ordering::Relaxed);
            if let Some(spokesman) = self.pending.spokesman(whose, but) {
                return Some(spokesman);
            }
            if !is_new {
                return None;
            }
            begun.await;
        }
    }

    /// Stops the clocks of all calls while their client is asked for any of them.
    pub(crate) fn pause_all(self: &Arc<Self>) -> Paused {
        self.pending.pause_all(true);
        Paused(Arc::clone(self))
    }

    /// Waits for the end of the link.
    pub(crate) async fn over(&self) {
        self.ended.cancelled().await;
    }

    /// Answers a request of the server's with what the client said.
    pub(crate) fn reply(&self, id: &OwnedRequestId, outcome: &Result<RawBuf, RawBuf>) {
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

    /// Stops the clock of a call while its caller is asked, or starts it again.
    pub(crate) fn pause(&self, call: u64, asked: bool) {
        self.pending.pause(call, asked);
    }
}
