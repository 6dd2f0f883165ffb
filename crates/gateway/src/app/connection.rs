//! One client connection: serves requests one after the other, and enforces its deadlines.
//!
//! A request head must be complete 10 s after its first byte, a response read within 30 s, and a
//! connection may be idle for two minutes (faults A1, A2). A request whose key ends has half a
//! second left (fault U6). Entry point: `run`.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::FutureExt as _;
use gantry_engine::AnswerPool;
use gantry_model::caller::Ended;
use http::{Request, Response};
use http_body::Frame;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::self_wake::SelfWake;
use super::tls::Socket;
use crate::http::auth::Admission;
use crate::http::{Answering, Service, delivery};

/// Timeouts of a client.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// The timeout of a request's head, from its first byte; for the first request, from the
    /// connection.
    pub head: Duration,
    /// The longest time in which a client reads nothing of a response.
    pub unread: Duration,
    /// Between two requests.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            unread: Duration::from_secs(30),
            idle: Duration::from_secs(120),
        }
    }
}

/// Maximum number of request headers.
const HEADERS: usize = 64;

/// Maximum size of a request head, and of one read or write: a connection keeps buffers of this
/// size while it is open.
const BUFFER_BYTES: usize = 16 << 10;

/// A head that takes longer than this is suspicious.
const LONG_HEAD: Duration = Duration::from_secs(1);

/// Grace for a request whose key ends: time to report it, or to answer the client that revoked its
/// own key.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Serves a connection until either side closes it; `stop` lets the request in flight finish.
pub(super) async fn run(
    (stream, from): (Socket, SocketAddr),
    (service, answers): (Service, AnswerPool),
    timeouts: Timeouts,
    watch: &Arc<Watch>,
    stop: &CancellationToken,
) -> Result<(), hyper::Error> {
    let io = TokioIo::new(TrackedIo {
        stream,
        watch: Arc::clone(watch),
    });
    let admission = Admission::new(from);
    let counted = Counted {
        service,
        answers,
        watch: Arc::clone(watch),
        admission: admission.clone(),
    };
    let mut builder = http1::Builder::new();
    builder
        .keep_alive(true)
        .max_headers(HEADERS)
        .max_header_size(BUFFER_BYTES)
        .max_buf_size(BUFFER_BYTES)
        .half_close(false);
    let mut connection = pin!(builder.serve_connection(io, counted));
    let mut stopped = pin!(stop.cancelled().fuse());
    let mut deadline = Deadline::new(timeouts);
    let mut alarm = pin!(sleep_until(deadline.at));
    let mut key = KeyWatch::default();

    let again = SelfWake::new();
    let mut serve = |context: &mut Context<'_>| {
        if stopped.as_mut().poll_unpin(context).is_ready() {
            connection.as_mut().graceful_shutdown();
        }
        if let Poll::Ready(ended) = connection.as_mut().poll(context) {
            return Poll::Ready(ended);
        }
        if !watch.is_idle() && key.has_ended(&admission, context) {
            tracing::debug!("connection is closed: the key of its request has ended");
            return Poll::Ready(Ok(()));
        }
        if deadline.observe(watch) {
            alarm.as_mut().reset(deadline.at);
        }
        while alarm.as_mut().poll(context).is_ready() {
            match deadline.ring(watch) {
                Verdict::Wait => alarm.as_mut().reset(deadline.at),
                Verdict::End(reason) => {
                    tracing::debug!(reason, "connection is closed");
                    return Poll::Ready(Ok(()));
                }
            }
        }
        Poll::Pending
    };
    poll_fn(|context| again.poll(context, &mut serve)).await
}

/// Watches the key of the current request.
#[derive(Default)]
struct KeyWatch {
    /// The version of the admission, and the end of its key.
    ended: Option<(u64, Ended)>,
    last_words: Option<Pin<Box<Sleep>>>,
}

impl KeyWatch {
    /// Returns whether the key has ended and the grace period is over.
    fn has_ended(&mut self, admission: &Admission, context: &mut Context<'_>) -> bool {
        let Some(version) = admission.current() else {
            self.last_words = None;
            return false;
        };
        if self.ended.as_ref().is_none_or(|(of, _)| *of != version) {
            let caller = admission.caller();
            self.ended = caller.map(|caller| (version, caller.validity.ended()));
            self.last_words = None;
        }
        let Some((_, ended)) = &mut self.ended else {
            return false;
        };
        if Pin::new(ended).poll(context).is_pending() {
            return false;
        }
        let rest = self
            .last_words
            .get_or_insert_with(|| Box::pin(sleep(LAST_WORDS)));
        rest.as_mut().poll(context).is_ready()
    }
}

/// The state of the connection, updated while its parts are polled.
#[derive(Debug)]
pub(super) struct Watch {
    opened: Instant,
    phase: AtomicU8,
    /// When the last head started, in milliseconds since the connection was opened.
    head_ms: AtomicU64,
    /// Number of requests: an exchange may start and end within one poll.
    served: AtomicU64,
    /// Bytes that the client took.
    taken: AtomicU64,
    /// 1 while the client's receive window is full.
    stalled: AtomicU8,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            opened: Instant::now(),
            phase: AtomicU8::new(IDLE),
            head_ms: AtomicU64::new(0),
            served: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            stalled: AtomicU8::new(0),
        }
    }
}

/// Nothing received since the last response.
const IDLE: u8 = 0;
/// A request has started and its head is incomplete.
const HEAD: u8 = 1;
/// A request is being answered.
const BUSY: u8 = 2;

impl Watch {
    /// Returns whether no request is being answered and no response is unread.
    pub(super) fn is_idle(&self) -> bool {
        self.phase() != BUSY && self.stalled.load(Ordering::Relaxed) == 0
    }

    /// Returns whether no part of a request was received and no response is unread.
    pub(super) fn rests(&self) -> bool {
        self.phase() == IDLE && self.is_idle()
    }

    /// Returns whether nothing was ever received.
    pub(super) fn is_unused(&self) -> bool {
        self.rests() && self.served.load(Ordering::Relaxed) == 0
    }

    /// Returns whether a request head takes suspiciously long.
    pub(super) fn dawdles(&self) -> bool {
        let begun = Duration::from_millis(self.head_ms.load(Ordering::Relaxed));
        self.phase() == HEAD && self.is_idle() && self.opened.elapsed() >= begun + LONG_HEAD
    }

    fn begin_head(&self) {
        let now = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.head_ms.store(now, Ordering::Relaxed);
        self.enter(HEAD);
    }

    #[cfg(test)]
    pub(super) fn begin_for_test(&self) {
        self.enter(BUSY);
    }

    #[cfg(test)]
    pub(super) fn begin_head_for_test(&self) {
        self.begin_head();
    }

    fn phase(&self) -> u8 {
        self.phase.load(Ordering::Relaxed)
    }

    fn enter(&self, phase: u8) {
        self.phase.store(phase, Ordering::Relaxed);
    }
}

/// The next deadline to check. The timer is reset only when a deadline moves closer, which never
/// happens in a quick exchange: one that fires too early checks and is set again.
struct Deadline {
    timeouts: Timeouts,
    at: Instant,
    phase: u8,
    served: u64,
    since: Instant,
    stalled: Option<(Instant, u64)>,
}

enum Verdict {
    Wait,
    End(&'static str),
}

impl Deadline {
    fn new(timeouts: Timeouts) -> Self {
        let now = Instant::now();
        // A new connection must send its first request soon.
        Self {
            timeouts,
            at: now + timeouts.head,
            phase: HEAD,
            served: 0,
            since: now,
            stalled: None,
        }
    }

    /// Updates the deadline; returns whether the timer must fire earlier.
    fn observe(&mut self, watch: &Watch) -> bool {
        let served = watch.served.load(Ordering::Relaxed);
        let phase = match watch.phase() {
            // The first head is due from the start, not only from its first byte.
            IDLE if served == 0 => HEAD,
            phase => phase,
        };
        let stalled = watch.stalled.load(Ordering::Relaxed) != 0;
        let moved = phase != self.phase || served != self.served;
        if !moved && stalled == self.stalled.is_some() {
            return false;
        }
        let now = Instant::now();
        if moved {
            (self.phase, self.served, self.since) = (phase, served, now);
        }
        if stalled != self.stalled.is_some() {
            self.stalled = stalled.then(|| (now, watch.taken.load(Ordering::Relaxed)));
        }
        let due = self.due(now);
        let sooner = due < self.at;
        if sooner {
            self.at = due;
        }
        sooner
    }

    fn due(&self, now: Instant) -> Instant {
        let unread = self.stalled.map(|(since, _)| since + self.timeouts.unread);
        let other = match self.phase {
            HEAD => self.since + self.timeouts.head,
            IDLE => self.since + self.timeouts.idle,
            _ => now + self.timeouts.unread,
        };
        unread.map_or(other, |unread| unread.min(other))
    }

    /// Checks the deadlines when the timer fires.
    fn ring(&mut self, watch: &Watch) -> Verdict {
        let now = Instant::now();
        if let Some((since, taken)) = self.stalled {
            let taken_now = watch.taken.load(Ordering::Relaxed);
            if taken_now != taken {
                self.stalled = Some((now, taken_now));
            } else if now >= since + self.timeouts.unread {
                return Verdict::End("the client does not read its response");
            }
        }
        let waited = now.duration_since(self.since);
        match self.phase {
            HEAD if waited >= self.timeouts.head => {
                Verdict::End("no complete request head in time")
            }
            IDLE if waited >= self.timeouts.idle => Verdict::End("idle"),
            _ => {
                self.at = self.due(now);
                Verdict::Wait
            }
        }
    }
}

/// The service as hyper calls it; records the start and end of each exchange.
struct Counted {
    service: Service,
    answers: AnswerPool,
    watch: Arc<Watch>,
    admission: Admission,
}

impl hyper::service::Service<Request<Incoming>> for Counted {
    type Response = Response<Answer>;
    type Error = std::convert::Infallible;
    type Future = Answered;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let mut request = request.map(Body::new);
        self.admission.reset();
        request.extensions_mut().insert(self.admission.clone());
        self.watch.enter(BUSY);
        self.watch.served.fetch_add(1, Ordering::Relaxed);
        Answered {
            answering: (self.service)(request),
            watch: Arc::clone(&self.watch),
            answers: self.answers.clone(),
            admission: self.admission.clone(),
        }
    }
}

/// A response in progress.
struct Answered {
    answering: Answering,
    watch: Arc<Watch>,
    answers: AnswerPool,
    admission: Admission,
}

impl Future for Answered {
    type Output = Result<Response<Answer>, std::convert::Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answered = self.answering.as_mut().poll(context);
        let watch = &self.watch;
        answered.map(|response| {
            let response = delivery::counted(&self.answers, &self.admission, response);
            Ok(response.map(|body| Answer {
                body,
                watch: Arc::clone(watch),
            }))
        })
    }
}

/// A response body; the connection is idle when it is dropped.
struct Answer {
    body: Body,
    watch: Arc<Watch>,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.watch.enter(IDLE);
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

/// The socket; records when a request starts and when the client stops reading.
struct TrackedIo {
    stream: Socket,
    watch: Arc<Watch>,
}

impl TrackedIo {
    fn note(&self, written: &Poll<io::Result<usize>>) {
        match written {
            Poll::Pending => self.watch.stalled.store(1, Ordering::Relaxed),
            Poll::Ready(Ok(bytes)) => {
                self.watch.stalled.store(0, Ordering::Relaxed);
                self.watch.taken.fetch_add(*bytes as u64, Ordering::Relaxed);
            }
            Poll::Ready(Err(_)) => {}
        }
    }
}

impl AsyncRead for TrackedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before && self.watch.phase() == IDLE {
            self.watch.begin_head();
        }
        read
    }
}

impl AsyncWrite for TrackedIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
