//! A call that reports progress or asks its client something before its response.
//!
//! Answered as one JSON document if it ends before that; else as an event stream that ends with the
//! response. A slow reader loses progress, never a request or the response, and is disconnected
//! after a while; disconnecting cancels the call (faults A1, A4). Entry points: `Endpoint::stream`,
//! `CallServices::stream_call`.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use gantry_engine::{
    AnswerBudget, AnswerPermit, AnswerPool, CallError, CallEvent, Client, RequestOutcome,
    ServerRequests, SessionChannel,
};
use gantry_model::era::Era;
use gantry_model::era::meta::{Identity, PROGRESS_TOKEN};
use gantry_model::jsonrpc::{Edit, Raw, RawBuf, RequestId};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::task::TaskTracker;

use super::active_call::{ActiveCall, CallInfo, Token, Waiter};
use super::answer::Answer;
use super::forward::{Asked, not_made};
use super::inflight::Owner;
use super::notification_log::ELICITED;
use super::quota::SuspendedQuota;
use super::server_requests::{OpenRequests, RequestGuard, SuspendedCalls};
use super::sessions::{Session, SessionId, Sessions};
use super::{AuthorizedRequest, Endpoint};
use crate::http::catch_panic;
use crate::http::context;
use crate::http::delivery;
use crate::http::error::Problem;
use crate::http::limits::BodyPermit;
use crate::http::media::Accepts;

/// The interval of heartbeats.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Maximum number of queued events; at 64 KiB each at most 1 MiB.
const WAITING: usize = 16;
/// How long a client may leave a server request or the response unread.
const UNREAD: Duration = Duration::from_secs(30);

/// The services needed to stream a call.
pub(super) struct CallServices {
    /// The gateway's identity.
    pub(super) identity: Identity,
    /// The sessions of handshake-era clients.
    pub(super) sessions: Arc<Sessions>,
    /// Open server requests to them.
    pub(super) open_requests: Arc<OpenRequests>,
    /// The suspended calls of stateless-era clients.
    pub(super) suspended: Arc<SuspendedCalls>,
    /// The quota of suspended calls.
    pub(super) quota: Arc<SuspendedQuota>,
    /// The tasks that stream to clients.
    pub(super) tasks: TaskTracker,
    /// The memory budget of unread responses.
    pub(super) answers: AnswerPool,
}

impl Endpoint {
    /// Answers a request whose client accepts events, or can be asked.
    pub(super) async fn stream(
        self: &Arc<Self>,
        authorized: &AuthorizedRequest,
        asked: &Asked<'_>,
        accepts: Accepts,
        room: BodyPermit,
    ) -> Result<Response, Problem> {
        let context = context::read(&authorized.parts.headers, asked.params.meta)?;
        let (words, heard) = mpsc::channel(WAITING);
        let session = asked.owner.and_then(Owner::session);
        let session = session
            .and_then(|session| self.sessions.under_way(&authorized.caller.project, session));
        let client = Client {
            era: asked.era,
            capabilities: asked.capabilities,
            session: asked.owner.and_then(Owner::session).map(SessionId::bits),
            progress_token: token(asked.params.meta).filter(|_| accepts.events),
            log_level: asked.level,
            withholds_texts: false,
            events: words,
            channel: session.map(|session| {
                // Weak: notifications for an ended session are dropped.
                let session = Arc::downgrade(&session);
                let send = move |word| session.upgrade().is_some_and(|session| session.tell(word));
                SessionChannel::new(send)
            }),
        };
        let call = Arc::new(CallInfo::of(asked, authorized));
        let (endpoint, caller) = (Arc::clone(self), authorized.caller.clone());
        let called = Arc::clone(&call);
        let work = Box::pin(async move {
            let (asked, who) = (called.asked(), (&caller, &called.scope));
            let work = endpoint.forward(who, &asked, context, Some(Box::new(client)));
            // Its own slot, since the call may move to another task.
            match catch_panic(work).await {
                Ok(outcome) => outcome,
                Err(_problem) => Err(not_made(CallError::Panicked)),
            }
        });
        let under_way = ActiveCall {
            call,
            work,
            words: heard,
            room,
            seat: None,
        };
        let turn = Waiter {
            id: asked.id.to_owned(),
            token: Token::First,
        };
        Ok(self.services.stream_call(under_way, turn, accepts).await)
    }
}

/// Returns the raw progress token of a request.
pub(super) fn token(meta: Option<Raw<'_>>) -> Option<Box<str>> {
    let token = meta?.get(PROGRESS_TOKEN).and_then(RequestId::read)?;
    Some(token.raw().into())
}

impl CallServices {
    /// Waits for a call on behalf of one request.
    pub(super) async fn stream_call(
        self: &Arc<Self>,
        mut under_way: ActiveCall,
        turn: Waiter,
        accepts: Accepts,
    ) -> Response {
        let mut first = None;
        while accepts.json && first.is_none() {
            tokio::select! {
                biased; // What is said before the end, or a quick call would lose it.
                Some(word) = under_way.words.recv() => match word {
                    CallEvent::Requests(ask) if under_way.call.era == Era::Stateless => {
                        match under_way.sit(&self.quota, &ask) {
                            Ok(load) => {
                                let place = self.suspended.enter(ask, load);
                                return place.suspend(self, under_way, &turn).into_response();
                            }
                            Err(full) => refuse(ask, full),
                        }
                    }
                    word if accepts.events => first = Some(word),
                    CallEvent::Progress(_) | CallEvent::Log(_) | CallEvent::Elicited(_) | CallEvent::Requests(_) => {}
                },
                outcome = &mut under_way.work => {
                    let answer = turn.answer(&under_way.call, outcome, &self.identity);
                    // Events received between the two checks.
                    let words = std::iter::from_fn(|| under_way.words.try_recv().ok());
                    let told = words.take(WAITING).filter_map(|word| said(&turn, word));
                    let told: Vec<Bytes> = told.filter(|_| accepts.events).collect();
                    return match told.is_empty() {
                        true => answer.into_response(),
                        false => self.at_once(&under_way.call, &turn, told, answer),
                    };
                }
                () = sleep(KEEP_ALIVE), if accepts.events => break,
            }
        }
        let (tx, rx) = mpsc::channel(WAITING);
        let services = Arc::clone(self);
        self.tasks.spawn(pump(services, under_way, turn, first, tx));
        events(rx)
    }
}

/// Fails a call because the quota of suspended calls is exhausted.
pub(super) fn refuse(ask: ServerRequests, full: RequestOutcome) {
    // A call that just ended needs no answer.
    drop(ask.answer.send(full));
}

/// Streams events and the response to the client; ends early when the client is gone.
async fn pump(
    services: Arc<CallServices>,
    mut under_way: ActiveCall,
    turn: Waiter,
    mut first: Option<CallEvent>,
    tx: mpsc::Sender<Bytes>,
) {
    let mut alive = interval(KEEP_ALIVE);
    alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    alive.reset();
    let call = Arc::clone(&under_way.call);
    let mut asked: Vec<RequestGuard> = Vec::new();
    let mut asked_in: Option<Arc<Session>> = None;
    let answer = loop {
        let word = tokio::select! {
            // Not biased: a flood of progress must not delay the end; queued events are still sent
            // first.
            () = tx.closed() => return,
            Some(word) = next(&mut first, &mut under_way.words) => word,
            outcome = &mut under_way.work => {
                while let Some(word) = first.take().or_else(|| under_way.words.try_recv().ok()) {
                    services.tell((&tx, &call), &turn, word);
                }
                // Released before the response: the client may start its next call at once.
                (under_way.room, under_way.seat) = (BodyPermit::default(), None);
                break turn.answer(&under_way.call, outcome, &services.identity);
            }
            _ = alive.tick() => {
                drop(tx.try_send(Bytes::from_static(b":\n\n")));
                continue;
            }
            () = end_of(asked_in.as_deref()) => {
                // No one can answer any more, and the call fails.
                asked_in = None;
                asked.clear();
                continue;
            }
        };
        match word {
            CallEvent::Requests(ask) if under_way.call.era == Era::Stateless => {
                match under_way.sit(&services.quota, &ask) {
                    Ok(load) => {
                        let place = services.suspended.enter(ask, load);
                        break place.suspend(&services, under_way, &turn);
                    }
                    Err(full) => refuse(ask, full),
                }
            }
            CallEvent::Requests(ask) => {
                let session = under_way.call.session();
                // A request that ends from here on is noticed in the next iteration.
                let session =
                    session.and_then(|id| services.sessions.under_way(&under_way.call.project, id));
                let Some(session) = session else {
                    continue;
                };
                let load = match under_way.sit(&services.quota, &ask) {
                    Ok(load) => load,
                    Err(full) => {
                        refuse(ask, full);
                        continue;
                    }
                };
                let (entered, events) = services.open_requests.send(session.id, ask, load);
                asked.retain(RequestGuard::is_open);
                asked.push(entered);
                asked_in = Some(session);
                for event in events {
                    if !deliver(&tx, event).await {
                        return;
                    }
                }
            }
            word @ (CallEvent::Progress(_) | CallEvent::Log(_) | CallEvent::Elicited(_)) => {
                services.tell((&tx, &call), &turn, word);
            }
        }
    };
    let (lasting, mut of_call): (Vec<_>, Vec<_>) =
        asked.into_iter().partition(RequestGuard::outlives_call);
    for event in of_call.iter_mut().flat_map(RequestGuard::withdraw) {
        drop(tx.try_send(event));
    }
    if let Some(session) = asked_in {
        // Requests that may belong to another call of the session stay open.
        for entered in lasting {
            let session = Arc::clone(&session);
            services.tasks.spawn(async move {
                tokio::select! {
                    () = entered.over() => {}
                    () = session.end() => {}
                }
            });
        }
    }
    if let Some((event, permit)) = services.last(&call, &turn, answer)
        && !deliver(&tx, permit.tie(event)).await
    {
        tracing::debug!("a client did not read its response and was disconnected");
    }
}

/// Waits for the end of a session, if there is one.
async fn end_of(session: Option<&Session>) {
    match session {
        Some(session) => session.end().await,
        None => std::future::pending().await,
    }
}

async fn next(
    first: &mut Option<CallEvent>,
    words: &mut mpsc::Receiver<CallEvent>,
) -> Option<CallEvent> {
    match first.take() {
        Some(word) => Some(word),
        None => words.recv().await,
    }
}

impl CallServices {
    /// Sends a notification; a client that does not keep up misses it, as does one whose agent has
    /// too much unread.
    fn tell(&self, (tx, call): (&mpsc::Sender<Bytes>, &CallInfo), turn: &Waiter, word: CallEvent) {
        if let Some(event) = said(turn, word)
            && let Ok(permit) = self.room(call).take_all(Some(&call.agent), event.len())
        {
            drop(tx.try_send(permit.tie(event)));
        }
    }

    fn room(&self, call: &CallInfo) -> AnswerBudget {
        self.answers.of(&call.project)
    }

    /// Returns the event with the response, and its permit of the response budget; an error if the budget
    /// is used up. The response to a call has its permit already, the copy of a list does not.
    fn last(
        &self,
        call: &CallInfo,
        turn: &Waiter,
        answer: Answer,
    ) -> Option<(Bytes, AnswerPermit)> {
        let mut permit = answer.permit();
        let found = self
            .room(call)
            .cover(Some(&call.agent), &mut permit, answer.length());
        let answer = match found {
            Ok(()) => answer,
            Err(full) => Answer::problem(Some(turn.id.as_id()), delivery::refused(full)),
        };
        Some((event(&answer.into_message()?), permit))
    }

    /// Answers with the events of an ended call, as far as there is room, and its response.
    fn at_once(
        &self,
        call: &CallInfo,
        turn: &Waiter,
        mut told: Vec<Bytes>,
        answer: Answer,
    ) -> Response {
        let (last, mut permit) = self.last(call, turn, answer).unwrap_or_default();
        let length = told.iter().map(Bytes::len).sum();
        match self.room(call).take_all(Some(&call.agent), length) {
            Ok(room) => permit.join(room),
            Err(_full) => told.clear(),
        }
        told.push(last);
        let mut response = event_stream(Body::from(told.concat()));
        response.extensions_mut().insert(permit);
        response
    }
}

/// Formats a notification as an event.
fn said(turn: &Waiter, word: CallEvent) -> Option<Bytes> {
    match word {
        CallEvent::Progress(params) => turn.progress(&params),
        CallEvent::Log(params) => turn.log(&params),
        CallEvent::Elicited(id) => {
            let mut params = Edit::new(Raw::EMPTY_OBJECT);
            params.set_buf("elicitationId", RawBuf::string(&id));
            Some(notification(ELICITED, params.to_buf().text()))
        }
        CallEvent::Requests(_) => None,
    }
}

/// Waits until the client has room for an event; false if it never reads.
async fn deliver(tx: &mpsc::Sender<Bytes>, event: Bytes) -> bool {
    matches!(timeout(UNREAD, tx.send(event)).await, Ok(Ok(())))
}

/// Writes a notification as an event with these fields before it.
pub(super) fn marked(fields: &str, method: &str, params: &str) -> Bytes {
    let event = notification(method, params);
    match fields {
        "" => event,
        fields => [fields.as_bytes(), &event].concat().into(),
    }
}

/// Writes a notification as an event.
pub(super) fn notification(method: &str, params: &str) -> Bytes {
    let mut message = Vec::with_capacity(params.len() + 80);
    let params = Raw::trusted(params);
    gantry_model::jsonrpc::write_notification(&mut message, method, Some(params.into()));
    event(&message)
}

/// Writes a message as an event in one line: in JSON a line break can only be between tokens.
pub(super) fn event(message: &[u8]) -> Bytes {
    let mut event = Vec::with_capacity(message.len() + 24);
    event.extend_from_slice(b"event: message\ndata: ");
    for line in message.split(|b| matches!(b, b'\n' | b'\r')) {
        event.extend_from_slice(line);
    }
    event.extend_from_slice(b"\n\n");
    event.into()
}

/// Answers with the events of a channel.
fn events(mut rx: mpsc::Receiver<Bytes>) -> Response {
    let next = move |context: &mut Context<'_>| rx.poll_recv(context);
    let events = stream::poll_fn(next).map(Ok::<_, Infallible>);
    event_stream(Body::from_stream(events))
}

/// Converts a JSON response to a stream of one event; a refusal stays as it is.
pub(super) async fn as_events(answer: Response) -> Result<Response, Problem> {
    let kind = answer.headers().get(CONTENT_TYPE);
    let is_json = kind.is_some_and(|kind| kind == "application/json");
    if !is_json || !answer.status().is_success() {
        return Ok(answer);
    }
    let (mut head, body) = answer.into_parts();
    let whole = axum::body::to_bytes(body, usize::MAX).await;
    let whole = whole.map_err(|_| Problem::panic())?;
    let stream = event_stream(Body::from(event(&whole)));
    head.headers.extend(stream.headers().clone());
    Ok(Response::from_parts(head, stream.into_body()))
}

/// Answers with a body of events.
pub(super) fn event_stream(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    let unbuffered = HeaderName::from_static("x-accel-buffering");
    headers.insert(unbuffered, HeaderValue::from_static("no"));
    response
}

#[cfg(test)]
mod tests;
