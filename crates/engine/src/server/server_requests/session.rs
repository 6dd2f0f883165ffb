//! Requests from a server that are for a session: all calls on its link belong to one client, and
//! the request does not name its call.
//!
//! The client gets them through any of its calls whose stream is still open; that call may end
//! before the response comes, as long as another one runs. Between calls it gets them on its
//! session's stream. Entry point: [`SessionForwarder::serve`].

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use gantry_model::jsonrpc::{Edit, INTERNAL_ERROR, METHOD_NOT_FOUND, Raw, RawBuf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::IncomingRequest;
use crate::request::{CallEvent, Client, RequestLifetime, RequestOutcome, ServerRequests};
use crate::server::handle::ServerHandle;
use crate::server::link::Link;
use crate::server::pending::CallOwner;

/// The maximum number of requests of a session at once; others wait.
const AT_ONCE: usize = 16;

/// Forwards the requests of a link to the client of its session.
pub(crate) struct SessionForwarder {
    pub(crate) server: Arc<ServerHandle>,
    pub(crate) link: Arc<Link>,
    /// Cancelled when the gateway drains and no client can respond.
    pub(crate) draining: CancellationToken,
}

/// The outcome of a request that was sent through one of the session's calls.
enum SendOutcome {
    /// The client responded, or never will.
    Settled(Result<RawBuf, RawBuf>),
    /// It did not reach the client, or the client has left that call.
    Lost,
}

impl SessionForwarder {
    /// Forwards requests of the server until the link ends.
    pub(crate) async fn serve(self, mut incoming: mpsc::Receiver<IncomingRequest>) {
        let mut open = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = self.link.closed() => return,
                Some(request) = incoming.recv(), if open.len() < AT_ONCE => {
                    open.push(self.settle(request));
                }
                Some(()) = open.next() => {}
            }
        }
    }

    /// Forwards a request, and sends the server the response.
    async fn settle(&self, request: IncomingRequest) {
        let _paused = self.link.pause_all();
        let outcome = tokio::select! {
            outcome = self.forward(&request) => outcome,
            () = self.draining.cancelled() => Err(failure("the gateway stops")),
        };
        self.link.respond(&request.id, &outcome);
    }

    async fn forward(&self, request: &IncomingRequest) -> Result<RawBuf, RawBuf> {
        let until = Instant::now() + self.server.spec.calls.ask_timeout;
        let mut tried = Vec::new();
        let mut session = request.session.clone();
        loop {
            let call = self.link.reachable_call(session.as_ref(), &tried);
            let Ok(Some(call)) = timeout_at(until, call).await else {
                return self
                    .forward_between_calls(request, session.as_ref(), until)
                    .await;
            };
            tried.push(call.id);
            // Once its owner is known, the request goes to no other client. fault T4
            let whose = session.insert(call.owner);
            let client = call.caller_channel.client;
            let params = request.params.as_ref().map(RawBuf::as_raw);
            if !client.capabilities.may_be_asked(request.method, params) {
                return Err(error(METHOD_NOT_FOUND, "the client cannot do that"));
            }
            let sent = self.send_with_call(request, whose, client, until).await;
            if let SendOutcome::Settled(outcome) = sent {
                return outcome;
            }
        }
    }

    /// Sends a request on the stream of the session, and waits for the response while it is open.
    async fn forward_between_calls(
        &self,
        request: &IncomingRequest,
        whose: Option<&CallOwner>,
        until: Instant,
    ) -> Result<RawBuf, RawBuf> {
        let unheard = || failure("the client cannot be asked any more");
        let client = self.link.only_session();
        // The request goes to no other client. fault T4
        let client = client.filter(|client| whose.is_none_or(|whose| client.owner == *whose));
        let client = client.ok_or_else(unheard)?;
        let params = request.params.as_ref().map(RawBuf::as_raw);
        if !client.capabilities.may_be_asked(request.method, params) {
            return Err(error(METHOD_NOT_FOUND, "the client cannot do that"));
        }
        let (requests, answered, _over) = self.for_client(request, until);
        if !client.channel.send(CallEvent::Requests(requests)) {
            return Err(unheard());
        }
        match timeout_at(until, answered).await {
            Ok(Ok(outcome)) => response(outcome),
            Ok(Err(_gone)) => Err(unheard()),
            Err(_elapsed) => Err(failure("the client did not answer in time")),
        }
    }

    /// Returns the request for the client, the receiver of its response, and its cancellation
    /// token.
    fn for_client(
        &self,
        request: &IncomingRequest,
        until: Instant,
    ) -> (ServerRequests, oneshot::Receiver<RequestOutcome>, DropGuard) {
        let over = CancellationToken::new();
        let (answer, answered) = oneshot::channel();
        let requests = ServerRequests {
            requests: vec![request.for_client(1, &self.server)],
            until,
            answer,
            lifetime: RequestLifetime::Session(over.clone()),
        };
        (requests, answered, over.drop_guard())
    }

    /// Sends a request through one call, and waits for the response while any call of the client
    /// runs.
    async fn send_with_call(
        &self,
        request: &IncomingRequest,
        whose: &CallOwner,
        mut client: Arc<Client>,
        until: Instant,
    ) -> SendOutcome {
        let (requests, mut answered, _over) = self.for_client(request, until);
        let sent = timeout_at(until, client.events.send(CallEvent::Requests(requests))).await;
        if !matches!(sent, Ok(Ok(()))) {
            return SendOutcome::Lost;
        }
        loop {
            tokio::select! {
                biased; // A response that is there counts.
                outcome = &mut answered => {
                    return outcome.map_or(SendOutcome::Lost, |outcome| SendOutcome::Settled(response(outcome)));
                }
                () = client.events.closed() => {
                    match self.link.reachable_call(Some(whose), &[]).await {
                        Some(next) => client = next.caller_channel.client,
                        // None of its calls is running any more.
                        None => {
                            return SendOutcome::Settled(Err(failure("the client's calls have ended")));
                        }
                    }
                }
                () = sleep_until(until) => {
                    return SendOutcome::Settled(Err(failure("the client did not answer in time")));
                }
            }
        }
    }
}

fn response(outcome: RequestOutcome) -> Result<RawBuf, RawBuf> {
    match outcome {
        RequestOutcome::Answered(responses) => match responses.into_iter().next() {
            Some(response) => response.outcome,
            None => Err(failure("the client said nothing")),
        },
        RequestOutcome::TooMany { .. } | RequestOutcome::TooMuch(_) => {
            Err(failure("too much waits for the client already"))
        }
    }
}

fn failure(why: &str) -> RawBuf {
    error(INTERNAL_ERROR, why)
}

fn error(code: i64, why: &str) -> RawBuf {
    let mut error = Edit::new(Raw::EMPTY_OBJECT);
    error
        .set_buf("code", RawBuf::integer(code))
        .set_buf("message", RawBuf::string(why));
    error.to_buf()
}
