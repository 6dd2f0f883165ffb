//! A call whose progress the client wants to hear of.
//!
//! Answered as one JSON document if it ends before it reports anything; else as a stream of events
//! that ends with the answer. A client that reads too slowly loses progress, never the answer, and
//! is cut off after a while; one that goes away takes its call back (faults A1, A4). Entry point:
//! `Endpoint::stream`.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use gantry_engine::Progress;
use gantry_model::era::meta::PROGRESS_TOKEN;
use gantry_model::jsonrpc::{Raw, RawBuf, RequestId};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::answer::Answer;
use super::forward::Asked;
use super::{Endpoint, Visit};
use crate::http::context;
use crate::http::error::Problem;
use crate::http::limits::Room;
use crate::http::media::Accepts;
use crate::http::unpanicked;

/// How often a quiet stream shows that it lives.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Events that wait for a client; with [`EVENT_BYTES`] at most 1 MiB.
const WAITING: usize = 16;
/// The longest progress that is passed on.
const EVENT_BYTES: usize = 64 << 10;
/// How long a client may leave the answer unread.
const UNREAD: Duration = Duration::from_secs(30);

type Work = Pin<Box<dyn Future<Output = Answer> + Send>>;

impl Endpoint {
    /// Answers a request whose client takes events.
    pub(super) async fn stream(
        self: &Arc<Self>,
        visit: &Visit,
        asked: &Asked<'_>,
        accepts: Accepts,
        room: Room,
    ) -> Result<Response, Problem> {
        let context = context::read(&visit.parts.headers, asked.meta)?;
        let (sink, mut progress) = mpsc::channel(WAITING);
        let token = asked
            .meta
            .and_then(|meta| meta.get(PROGRESS_TOKEN))
            .and_then(RequestId::read);
        let sink = token.map(|token| Progress {
            token: token.raw().into(),
            sink,
        });
        let own = Owned::of(asked);
        let (endpoint, caller, scope) =
            (Arc::clone(self), visit.caller.clone(), visit.scope.clone());
        let mut work: Work = Box::pin(async move {
            let _room = room;
            let asked = own.asked();
            let work = asked.forward(&endpoint, (&caller, scope), context, sink);
            // Its own place, since the task that may run it must not die of it.
            let answer = unpanicked(work).await;
            answer.unwrap_or_else(|problem| Answer::problem(Some(own.id.as_id()), problem))
        });
        let mut first = None;
        if accepts.json {
            tokio::select! {
                biased; // Progress before the end, or a quick call would lose it.
                Some(params) = progress.recv() => first = Some(params),
                answer = &mut work => return Ok(answer.into_response()),
                () = sleep(KEEP_ALIVE) => {}
            }
        }
        let (tx, rx) = mpsc::channel(WAITING);
        if let Some(event) = first.and_then(|params| progress_event(&params)) {
            // The channel is empty.
            drop(tx.try_send(event));
        }
        self.tasks.spawn(pump(work, progress, tx));
        Ok(events(rx))
    }
}

/// Moves progress and, last, the answer to the client; ends early when the client is gone.
async fn pump(mut work: Work, mut progress: mpsc::Receiver<Box<str>>, tx: mpsc::Sender<Bytes>) {
    let mut alive = interval(KEEP_ALIVE);
    alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    alive.reset();
    let answer = loop {
        tokio::select! {
            // Fair: a flood of progress must not keep the call from its end, after which the rest of
            // the progress still goes first.
            () = tx.closed() => return,
            Some(params) = progress.recv() => {
                if let Some(event) = progress_event(&params) {
                    // A client that does not keep up misses it.
                    drop(tx.try_send(event));
                }
            }
            answer = &mut work => break answer,
            _ = alive.tick() => drop(tx.try_send(Bytes::from_static(b":\n\n"))),
        }
    };
    while let Ok(params) = progress.try_recv() {
        if let Some(event) = progress_event(&params) {
            drop(tx.try_send(event));
        }
    }
    if let Some(message) = answer.into_message()
        && timeout(UNREAD, tx.send(event(&message))).await.is_err()
    {
        tracing::debug!("a client did not read its answer and is cut off");
    }
}

fn progress_event(params: &str) -> Option<Bytes> {
    (params.len() <= EVENT_BYTES).then(|| notification("notifications/progress", params))
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

/// Writes a message as an event, on one line: in JSON a line break only stands between tokens.
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

/// Answers with a body of events.
pub(super) fn event_stream(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    let unbuffered = HeaderName::from_static("x-accel-buffering");
    headers.insert(unbuffered, HeaderValue::from_static("no"));
    response
}

/// A request with its own memory, fit to outlive the one it came in.
struct Owned {
    id: gantry_model::jsonrpc::OwnedRequestId,
    method: String,
    params: Option<RawBuf>,
    era: gantry_model::era::Era,
    owner: Option<super::inflight::Owner>,
}

impl Owned {
    fn of(asked: &Asked<'_>) -> Self {
        Self {
            id: asked.id.to_owned(),
            method: asked.method.to_owned(),
            params: asked.params.map(Raw::to_buf),
            era: asked.era,
            owner: asked.owner,
        }
    }

    fn asked(&self) -> Asked<'_> {
        let params = self.params.as_ref().map(RawBuf::as_raw);
        let (era, owner) = (self.era, self.owner);
        Asked {
            id: self.id.as_id(),
            method: &self.method,
            params,
            meta: None,
            era,
            owner,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &Bytes) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_message_is_one_event_whatever_it_holds() {
        assert_eq!(text(&event(b"{}")), "event: message\ndata: {}\n\n");
        // fault S21
        assert_eq!(text(&event(b"{\n\r\n}")), "event: message\ndata: {}\n\n");
        assert_eq!(
            text(&notification("notifications/progress", r#"{"progress":1}"#)),
            "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progress\":1}}\n\n",
        );
    }

    // fault A1
    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_loses_progress_and_gets_the_answer() {
        let (sink, progress) = mpsc::channel::<Box<str>>(100);
        for n in 0..100 {
            sink.try_send(format!("{{\"progress\":{n}}}").into())
                .unwrap();
        }
        let (tx, mut rx) = mpsc::channel(WAITING);
        let done = Answer::result(RequestId::Number("1"), Raw::EMPTY_OBJECT);
        let work: Work = Box::pin(async move { done });
        drop(sink);
        let reading = async {
            sleep(Duration::from_secs(1)).await;
            let mut last = None;
            let mut count = 0;
            while let Some(event) = rx.recv().await {
                (last, count) = (Some(event), count + 1);
            }
            (last, count)
        };
        let ((), (last, count)) = tokio::join!(pump(work, progress, tx), reading);
        assert_eq!(count, WAITING + 1);
        assert!(text(&last.unwrap()).contains("\"result\":{}"));
    }

    // fault A4
    #[tokio::test]
    async fn a_client_that_is_gone_ends_the_work() {
        let (_sink, progress) = mpsc::channel(1);
        let (tx, rx) = mpsc::channel(1);
        let (dropped, gone) = tokio::sync::oneshot::channel::<()>();
        let work: Work = Box::pin(async move {
            let _held = dropped;
            std::future::pending().await
        });
        drop(rx);
        pump(work, progress, tx).await;
        assert!(gone.await.is_err());
    }

    // fault A1
    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_reads_is_cut_off() {
        let (_sink, progress) = mpsc::channel(1);
        let (tx, _rx) = mpsc::channel(1);
        tx.try_send(Bytes::new()).unwrap();
        let done = Answer::result(RequestId::Number("1"), Raw::EMPTY_OBJECT);
        let before = tokio::time::Instant::now();
        pump(Box::pin(async move { done }), progress, tx).await;
        assert_eq!(before.elapsed(), UNREAD);
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_stream_shows_that_it_lives() {
        let (_sink, progress) = mpsc::channel(1);
        let (tx, mut rx) = mpsc::channel(4);
        let work: Work = Box::pin(async {
            sleep(KEEP_ALIVE * 2 + Duration::from_secs(1)).await;
            Answer::nothing()
        });
        pump(work, progress, tx).await;
        let mut comments = 0;
        while let Some(event) = rx.recv().await {
            assert_eq!(text(&event), ":\n\n");
            comments += 1;
        }
        assert_eq!(comments, 2);
    }
}
