//! HTTP+SSE, the transport of the first protocol version: a stream at `/sse` or
//! `/sse/servers/{name}` that starts with the URL to post to, and carries the responses.
//!
//! A posted message takes the usual path, and its response, a document or a stream, is copied onto
//! the client's stream, as are the session's notifications. Refusals before that are in the
//! response to the POST. A stream belongs to the key that opened it (fault T4) and has one session
//! at a time. Streams per key and concurrent messages are limited. Entry points:
//! `Endpoint::open_stream` and `Endpoint::take_message`.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use gantry_engine::{AnswerPermit, AnswerPool, Scope};
use gantry_model::caller::{Caller, Ended};
use gantry_model::id::KeyId;
use gantry_model::jsonrpc::{self, Limits, Message, OwnedRequestId, WireError};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::answer::Answer;
use super::listen::LOOK;
use super::sessions::{Session, SessionId};
use super::stream::{KEEP_ALIVE, event, event_stream};
use super::{AuthorizedRequest, Endpoint, SESSION_HEADER, unknown_server, wrong_method};
use crate::http::catch_panic;
use crate::http::delivery;
use crate::http::error::Problem;
use crate::http::limits::{BodyPermit, StreamPermit, read_body, stream_permit, unread};
use crate::http::media::Accepts;

/// Maximum number of queued events per client.
const WAITING: usize = 16;
/// Maximum number of concurrent messages per client.
const AT_A_TIME: usize = 64;
/// How long a client may leave an event unread.
const UNREAD: Duration = Duration::from_secs(30);
/// The response formats of these clients.
const BOTH: &str = "application/json, text/event-stream";
/// The longest answer.
const ANSWER: usize = 64 << 20;

/// The open streams, by name.
#[derive(Debug, Default)]
pub(super) struct Streams(Mutex<HashMap<SessionId, Arc<SseClient>>>);

impl Streams {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<SseClient>>> {
        self.0.lock()
    }
}

/// The stream of one client.
#[derive(Debug)]
struct SseClient {
    key: KeyId,
    /// The scope of its messages.
    scope: Scope,
    events: mpsc::Sender<Bytes>,
    /// The client's current session.
    session: Mutex<Option<Arc<Session>>>,
    room: Semaphore,
    ended: CancellationToken,
}

impl SseClient {
    fn session(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        self.session.lock()
    }

    /// Sends an event; a client that does not read is disconnected.
    async fn say(&self, event: Bytes) {
        if timeout(UNREAD, self.events.send(event)).await.is_err() {
            tracing::debug!("a client did not read its stream and was disconnected");
            self.ended.cancel();
        }
    }

    /// Copies a response onto the stream, unless it is too large.
    async fn pour(
        &self,
        (answers, caller): (&AnswerPool, &Caller),
        answer: Response,
    ) -> Result<(), Problem> {
        let kind = answer.headers().get(CONTENT_TYPE);
        let is_stream = kind.is_some_and(|kind| kind == "text/event-stream");
        let permit = answer.extensions().get::<AnswerPermit>();
        let mut permit = permit.cloned().unwrap_or_default();
        let body = answer.into_body();
        if body.is_end_stream() {
            return Ok(());
        }
        // The copy needs its own permit. An endless stream counts its pieces itself.
        if let Some(length) = body.size_hint().exact() {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let answers = answers.of(&caller.project);
            let found = answers.cover(Some(&caller.agent), &mut permit, length);
            found.map_err(delivery::refused)?;
        }
        if !is_stream {
            let whole = axum::body::to_bytes(body, ANSWER)
                .await
                .map_err(|_| Problem::new("server.response_too_large"))?;
            if !whole.is_empty() {
                let event = permit.tie(event(&whole));
                drop(whole);
                self.say(event).await;
            }
            return Ok(());
        }
        let mut pieces = body.into_data_stream();
        while let Some(Ok(piece)) = pieces.next().await {
            self.say(permit.tie(piece)).await;
        }
        Ok(())
    }
}

impl Endpoint {
    /// Answers a request for a stream.
    pub(super) async fn open_stream(
        self: &Arc<Self>,
        scope: Result<Scope, Problem>,
        request: Request,
    ) -> Response {
        self.guarded(request, &OnceLock::new(), |request| {
            self.opened(scope, request)
        })
        .await
    }

    /// Answers a request to `/messages`.
    pub(super) async fn take_message(self: &Arc<Self>, request: Request) -> Response {
        self.guarded(request, &OnceLock::new(), |request| self.taken(request))
            .await
    }

    async fn opened(
        self: &Arc<Self>,
        scope: Result<Scope, Problem>,
        request: Request,
    ) -> Result<Response, Problem> {
        let (authorized, _) = self.admitted(scope, request).await?;
        if let Scope::Server(name) = &authorized.scope
            && self.server_of(&authorized.caller, name).is_none()
        {
            return Err(unknown_server(name.as_str()));
        }
        if authorized.parts.method != Method::GET {
            return Ok(wrong_method("GET"));
        }
        if !Accepts::of(&authorized.parts.headers).events {
            return Err(Problem::new("http.accept")
                .with_detail("this answer is `text/event-stream`, which Accept does not allow"));
        }
        let permit = stream_permit(&self.listeners, &authorized.caller)?;
        let name = SessionId::random()?;
        let (events, waiting) = mpsc::channel(WAITING);
        let line = Arc::new(SseClient {
            key: authorized.caller.key,
            scope: authorized.scope,
            events,
            session: Mutex::default(),
            room: Semaphore::new(AT_A_TIME),
            ended: CancellationToken::new(),
        });
        self.streams.lock().insert(name, Arc::clone(&line));
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        look.reset();
        let outlet = Outlet {
            endpoint: Arc::clone(self),
            name,
            line,
            key_end: authorized.caller.validity.ended(),
            waiting,
            first: Some(format!("event: endpoint\ndata: /messages?session={name}\n\n").into()),
            look,
            heard: Instant::now(),
            _permit: permit,
        };
        let events = stream::unfold(outlet, |mut outlet| async move {
            let event = outlet.next().await?;
            outlet.heard = Instant::now();
            Some((Ok::<_, Infallible>(event), outlet))
        });
        Ok(event_stream(Body::from_stream(events)))
    }

    async fn taken(self: &Arc<Self>, request: Request) -> Result<Response, Problem> {
        let (mut authorized, body) = self.admitted(Ok(Scope::All), request).await?;
        if authorized.parts.method != Method::POST {
            return Ok(wrong_method("POST"));
        }
        let named = authorized.parts.uri.query().and_then(session_of);
        let line = named.and_then(|name| self.streams.lock().get(&name).cloned());
        let line = line.filter(|line| line.key == authorized.caller.key);
        let Some(line) = line else {
            return Err(unread(&authorized.parts.headers, body, no_stream()).await);
        };
        authorized.scope = line.scope.clone();
        let headers = &authorized.parts.headers;
        let account = (&authorized.caller.project, &authorized.caller.agent);
        let (bytes, room) = read_body(&self.gate.bodies, headers, body, account).await?;
        let headers = &mut authorized.parts.headers;
        headers.insert(ACCEPT, HeaderValue::from_static(BOTH));
        headers.remove(SESSION_HEADER);
        if let Some(session) = &*line.session() {
            headers.insert(SESSION_HEADER, session.id.header());
        }
        let endpoint = Arc::clone(self);
        let (told, taken) = oneshot::channel();
        self.tasks().spawn(async move {
            let ended = line.ended.clone();
            let work = Box::pin(endpoint.stream_call(authorized, line, (bytes, room), told));
            ended.run_until_cancelled(work).await;
        });
        taken.await.map_err(|_| no_stream())
    }

    /// Accepts a message, processes it, and sends the response on the client's stream.
    async fn stream_call(
        self: Arc<Self>,
        mut authorized: AuthorizedRequest,
        line: Arc<SseClient>,
        (bytes, room): (Bytes, BodyPermit),
        told: oneshot::Sender<Response>,
    ) {
        let read = jsonrpc::parse(&bytes, &Limits::default());
        let id = match &read {
            Ok(incoming) => match &incoming.message {
                Message::Request(request) => Some(request.id.to_owned()),
                Message::Notification(_) | Message::Response(_) => None,
            },
            Err(WireError::Batch) => None,
            Err(error) => {
                let id = jsonrpc::answered_id(&bytes, error);
                let problem = Problem::from(error.clone());
                return tell(told, Answer::problem(id, problem));
            }
        };
        let is_batch = read.is_err();
        let id = id.as_ref().map(OwnedRequestId::as_id);
        // Cancellations and client responses must get through even if all slots are taken.
        let wants_place = id.is_some() || is_batch;
        let place = match wants_place.then(|| line.room.try_acquire()).transpose() {
            Ok(place) => place,
            Err(_full) => return tell(told, Answer::problem(id, busy())),
        };
        tell(told, Answer::nothing());
        let accepts = Accepts::of(&authorized.parts.headers);
        let work = self.message(&authorized, (&bytes, read), accepts, &room);
        let answered = Box::pin(catch_panic(work)).await.and_then(|answer| answer);
        drop((bytes, room));
        let answer = match answered {
            Ok(answer) => answer,
            // A message that is not a request has no response.
            Err(_) if id.is_none() && !is_batch => return,
            Err(problem) => Answer::problem(id, problem).into_response(),
        };
        let begun = self.begun(&authorized, &line, &answer);
        let budget = (&self.services.answers, &authorized.caller);
        if let Err(problem) = line.pour(budget, answer).await {
            let answer = Answer::problem(id, problem).into_response();
            // It is short.
            drop(line.pour(budget, answer).await);
        }
        drop(place);
        if let Some(session) = begun {
            // The session's notifications are sent on the same stream.
            let headers = &mut authorized.parts.headers;
            headers.insert(SESSION_HEADER, session.id.header());
            if let Ok(stream) = self.get(&authorized) {
                let budget = (&self.services.answers, &authorized.caller);
                drop(line.pour(budget, stream).await);
            }
        }
    }

    /// Returns the session that a response opens. The stream's previous session ends at once: it
    /// cannot reach its client.
    fn begun(
        &self,
        authorized: &AuthorizedRequest,
        line: &SseClient,
        answer: &Response,
    ) -> Option<Arc<Session>> {
        let name = answer.headers().get(SESSION_HEADER)?;
        let id = name.to_str().ok()?.parse().ok()?;
        let session = self.sessions.find(id, &authorized.caller, &line.scope)?;
        let before = line.session().replace(Arc::clone(&session));
        if let Some(before) = before {
            self.sessions.close(&before);
        }
        // The end of the stream looks for its session afterwards.
        if line.ended.is_cancelled() {
            self.sessions.close(&session);
        }
        Some(session)
    }
}

/// Answers a POST; a client that is gone needs no response.
fn tell(told: oneshot::Sender<Response>, answer: Answer) {
    drop(told.send(answer.into_response()));
}

fn no_stream() -> Problem {
    Problem::new("session.unknown")
        .with_detail("unknown or expired stream")
        .with_hint("open a new stream with GET on the path of the first")
}

fn busy() -> Problem {
    Problem::new("listen.too_many")
        .with_detail(format!(
            "{AT_A_TIME} messages of this stream are waiting already"
        ))
        .with_retry_after(Duration::from_secs(1))
}

/// Returns the stream that a query names.
fn session_of(query: &str) -> Option<SessionId> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, name) = pairs.find(|(key, _)| *key == "session")?;
    name.parse().ok()
}

/// The receiving end of a client's stream.
struct Outlet {
    endpoint: Arc<Endpoint>,
    name: SessionId,
    line: Arc<SseClient>,
    key_end: Ended,
    waiting: mpsc::Receiver<Bytes>,
    first: Option<Bytes>,
    look: Interval,
    heard: Instant,
    _permit: StreamPermit,
}

impl Outlet {
    /// Returns the next event; nothing at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            tokio::select! {
                event = self.waiting.recv() => return event,
                () = self.line.ended.cancelled() => return None,
                _ = &mut self.key_end => return None,
                _ = self.look.tick() => {
                    if self.endpoint.engine().is_draining() {
                        return None;
                    }
                    if self.heard.elapsed() >= KEEP_ALIVE {
                        return Some(Bytes::from_static(b":\n\n"));
                    }
                }
            }
        }
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.endpoint.streams.lock().remove(&self.name);
        self.line.ended.cancel();
        let session = self.line.session().take();
        if let Some(session) = session {
            self.endpoint.sessions.close(&session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_one_stream() {
        let name = "0123456789abcdef0123456789abcdef";
        let found = |query: &str| session_of(query).map(|name| name.to_string());
        assert_eq!(found(&format!("session={name}")).as_deref(), Some(name));
        assert_eq!(found(&format!("x=1&session={name}")).as_deref(), Some(name));
        for bad in ["", "session", "session=", "session=12", "sessionId=x"] {
            assert_eq!(found(bad), None, "{bad}");
        }
    }
}
