//! HTTP+SSE, the way of the first protocol version: a stream at `/sse` that begins with where to
//! post, and answers that come on it.
//!
//! A posted message goes the way of any other and what it is answered with, a document or a stream,
//! is poured onto the client's one stream; so is what its session is told. A stream belongs to the
//! key that opened it (fault T4), and with it everything ends that it began. So many per key, so many messages at a
//! time. Entry points: `Endpoint::open_stream` and `Endpoint::take_message`.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use gantry_engine::Scope;
use gantry_model::id::KeyId;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::answer::Answer;
use super::listen::{LOOK, Seat};
use super::sessions::SessionId;
use super::stream::{KEEP_ALIVE, event, event_stream};
use super::{Endpoint, SESSION_HEADER, Visit, wrong_method};
use crate::http::auth::bearer;
use crate::http::error::Problem;
use crate::http::limits::read_body;
use crate::http::media::{Accepts, json_only};

/// Events that wait for a client.
const WAITING: usize = 16;
/// Messages of one client that are answered at a time.
const AT_A_TIME: usize = 64;
/// How long a client may leave an event unread.
const UNREAD: Duration = Duration::from_secs(30);
/// The longest answer.
const ANSWER: usize = 64 << 20;

/// The streams there are, by their name.
#[derive(Debug, Default)]
pub(super) struct Streams(Mutex<HashMap<SessionId, Arc<Line>>>);

impl Streams {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Line>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way to one client.
#[derive(Debug)]
struct Line {
    key: KeyId,
    events: mpsc::Sender<Bytes>,
    /// The session that the client has begun on it.
    session: Mutex<Option<HeaderValue>>,
    room: Arc<Semaphore>,
    ended: CancellationToken,
}

impl Line {
    fn session(&self) -> Option<HeaderValue> {
        let session = self.session.lock();
        session.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends an event; a client that does not read is cut off.
    async fn say(&self, event: Bytes) {
        if timeout(UNREAD, self.events.send(event)).await.is_err() {
            tracing::debug!("a client did not read its stream and is cut off");
            self.ended.cancel();
        }
    }

    /// Pours an answer onto the stream.
    async fn pour(&self, answer: Response) {
        let kind = answer.headers().get(CONTENT_TYPE);
        let is_stream = kind.is_some_and(|kind| kind == "text/event-stream");
        let body = answer.into_body();
        if body.is_end_stream() {
            return;
        }
        if !is_stream {
            if let Ok(whole) = axum::body::to_bytes(body, ANSWER).await
                && !whole.is_empty()
            {
                self.say(event(&whole)).await;
            }
            return;
        }
        let mut pieces = body.into_data_stream();
        while let Some(Ok(piece)) = pieces.next().await {
            self.say(piece).await;
        }
    }
}

impl Endpoint {
    /// Answers a request to `/sse`.
    pub(super) async fn open_stream(self: &Arc<Self>, request: Request) -> Response {
        self.guarded(self.opened(request)).await
    }

    /// Answers a request to `/messages`.
    pub(super) async fn take_message(self: &Arc<Self>, request: Request) -> Response {
        self.guarded(self.taken(request)).await
    }

    async fn opened(self: &Arc<Self>, request: Request) -> Result<Response, Problem> {
        let visit = self.visit(request.into_parts().0)?;
        if visit.parts.method != Method::GET {
            return Ok(wrong_method("GET"));
        }
        if !Accepts::of(&visit.parts.headers).events {
            return Err(Problem::new(StatusCode::NOT_ACCEPTABLE, "http.accept")
                .with_detail("this answer is `text/event-stream`, which Accept does not allow"));
        }
        let seat = self.listeners.seat(visit.caller.key)?;
        let key = bearer(&visit.parts.headers, visit.parts.uri.query())?;
        let name = SessionId::random()?;
        let (events, waiting) = mpsc::channel(WAITING);
        let line = Arc::new(Line {
            key: visit.caller.key,
            events,
            session: Mutex::default(),
            room: Arc::new(Semaphore::new(AT_A_TIME)),
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
            key: key.into(),
            waiting,
            first: Some(format!("event: endpoint\ndata: /messages?session={name}\n\n").into()),
            look,
            heard: Instant::now(),
            _seat: seat,
        };
        let events = stream::unfold(outlet, |mut outlet| async move {
            let event = outlet.next().await?;
            outlet.heard = Instant::now();
            Some((Ok::<_, Infallible>(event), outlet))
        });
        Ok(event_stream(Body::from_stream(events)))
    }

    async fn taken(self: &Arc<Self>, request: Request) -> Result<Response, Problem> {
        let (parts, body) = request.into_parts();
        let mut visit = self.visit(parts)?;
        if visit.parts.method != Method::POST {
            return Ok(wrong_method("POST"));
        }
        let named = visit.parts.uri.query().and_then(session_of);
        let line = named.and_then(|name| self.streams.lock().get(&name).cloned());
        let line = line.filter(|line| line.key == visit.caller.key);
        let line = line.ok_or_else(|| {
            Problem::new(StatusCode::NOT_FOUND, "session.unknown")
                .with_detail("this stream has ended, or never was")
                .with_hint("open another at `/sse`")
        })?;
        json_only(&visit.parts.headers)?;
        let (bytes, _room) = read_body(&visit.parts.headers, body).await?;
        let place = Arc::clone(&line.room).try_acquire_owned().map_err(|_| {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "listen.too_many")
                .with_detail(format!("{AT_A_TIME} messages of this stream wait already"))
                .with_retry_after(Duration::from_secs(1))
        })?;
        let headers = &mut visit.parts.headers;
        let both = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(ACCEPT, both);
        headers.remove(SESSION_HEADER);
        if let Some(session) = line.session() {
            headers.insert(SESSION_HEADER, session);
        }
        let endpoint = Arc::clone(self);
        self.tasks().spawn(async move {
            let ended = line.ended.clone();
            let work = Box::pin(endpoint.attend(visit, line, bytes, place));
            ended.run_until_cancelled(work).await;
        });
        Ok(Answer::nothing().into_response())
    }

    /// Has a message answered and pours the answer onto the client's stream.
    async fn attend(
        self: Arc<Self>,
        mut visit: Visit,
        line: Arc<Line>,
        message: Bytes,
        place: OwnedSemaphorePermit,
    ) {
        let answer = Box::pin(self.guarded(self.post(&visit, Body::from(message)))).await;
        let begun = answer.headers().get(SESSION_HEADER).cloned();
        if let Some(name) = &begun {
            let mut session = line.session.lock().unwrap_or_else(PoisonError::into_inner);
            *session = Some(name.clone());
        }
        line.pour(answer).await;
        drop(place);
        if let Some(name) = begun {
            // What the session is told outside of its requests comes the same way, to the end.
            visit.parts.headers.insert(SESSION_HEADER, name);
            if let Ok(stream) = self.get(&visit) {
                line.pour(stream).await;
            }
        }
    }

    /// Says who comes to the endpoint of everything.
    fn visit(&self, parts: http::request::Parts) -> Result<Visit, Problem> {
        self.gate.hosts.check(&parts.uri, &parts.headers)?;
        let caller = self.gate.agent(&parts)?;
        Ok(Visit {
            caller,
            scope: Scope::All,
            parts,
        })
    }
}

/// Returns the stream that a query names.
fn session_of(query: &str) -> Option<SessionId> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, name) = pairs.find(|(key, _)| *key == "session")?;
    name.parse().ok()
}

/// What a client's stream is written from.
struct Outlet {
    endpoint: Arc<Endpoint>,
    name: SessionId,
    line: Arc<Line>,
    key: Box<str>,
    waiting: mpsc::Receiver<Bytes>,
    first: Option<Bytes>,
    look: Interval,
    heard: Instant,
    _seat: Seat,
}

impl Outlet {
    /// Returns the next event; none when the stream is to end.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            tokio::select! {
                event = self.waiting.recv() => return event,
                () = self.line.ended.cancelled() => return None,
                _ = self.look.tick() => {
                    let engine = self.endpoint.engine();
                    if engine.authenticate(&self.key).is_none() || engine.is_draining() {
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
        let session = self.line.session();
        let session = session.and_then(|name| name.to_str().ok()?.parse().ok());
        let sessions = &self.endpoint.sessions;
        let session = session.and_then(|id| sessions.find(id, self.line.key, &Scope::All));
        if let Some(session) = session {
            sessions.close(&session);
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
