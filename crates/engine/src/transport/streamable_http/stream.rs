//! Event streams: a call's own, and in the handshake era the one for everything else.
//!
//! A stream that is cut is resumed after the last event that had an id; else the calls that waited on
//! it end at once. faults H6, H7

use std::sync::Arc;
use std::time::Duration;

use gantry_model::backoff::Backoff;
use gantry_model::event_stream::{Event, Events};
use reqwest::{Response, StatusCode};
use tokio::sync::oneshot;

use super::super::http::{
    Content, HttpError, RemoteRequest, Replies, chunk, drained, each_message,
};
use super::super::pace::Pace;
use super::{LONGEST_EVENT, Session, UNAWAITED};
use crate::random::jitter;
use crate::transport::Failure;

/// Delay before a stream is resumed, if the server sends none.
const RESUME: Duration = Duration::from_secs(1);
/// The shortest wait that a server may ask for.
const SHORTEST_RETRY: Duration = Duration::from_millis(100);
/// How long the first message after the handshake waits for the notification stream.
const MOMENT: Duration = Duration::from_millis(250);
/// How often a call's stream is resumed without a new event.
const BARREN: u32 = 3;

/// Why reading a stream ended.
enum Read {
    /// The call was answered.
    Answered,
    /// The stream is over, or was cut.
    Ended(HttpError),
}

/// The outcome of opening the notification stream.
enum Opened {
    Stream(Response),
    /// The server offers none, which is allowed.
    None,
    /// The session is unknown to the server.
    Expired,
}

impl<R: Replies> Session<R> {
    /// Reads a call's own stream until the call is answered.
    pub(super) async fn follow(&self, response: Response, call: u64) -> Result<(), Failure> {
        let mut events = Events::new(LONGEST_EVENT);
        let mut response = response;
        let (mut barren, mut last_id) = (0, None);
        loop {
            let ended = match self.read_call(&mut response, &mut events, call).await? {
                Read::Answered => {
                    drained(response).await;
                    return Ok(());
                }
                Read::Ended(error) => error,
            };
            if !self.replies.waits(call) {
                return Ok(());
            }
            let Some(id) = events.last_id().filter(|_| self.is_handshake()) else {
                return Err(Failure::Remote(ended));
            };
            barren = if last_id.as_deref() == Some(id) {
                barren + 1
            } else {
                0
            };
            if barren >= BARREN {
                return Err(Failure::Remote(ended));
            }
            last_id = Some(id.to_owned());
            let wait = events.retry().unwrap_or(RESUME).max(SHORTEST_RETRY);
            tokio::time::sleep(wait).await;
            events.resume();
            response = match self.open(last_id.as_deref()).await {
                Ok(Opened::Stream(response)) => response,
                // A stream that cannot be resumed is cut for good.
                Ok(Opened::None | Opened::Expired) => return Err(Failure::Remote(ended)),
                Err(error) if is_there(&error) => return Err(Failure::Remote(ended)),
                Err(error) => return Err(Failure::Remote(error)),
            };
        }
    }

    async fn read_call(
        &self,
        response: &mut Response,
        events: &mut Events,
        call: u64,
    ) -> Result<Read, Failure> {
        let origin = &self.remote.origin;
        let mut pace = Pace::default();
        loop {
            let piece = match chunk(origin, response).await {
                Ok(Some(piece)) => piece,
                Ok(None) => {
                    let why = "the stream ended without the answer";
                    return Ok(Read::Ended(HttpError::cut(origin, why)));
                }
                Err(error) => return Ok(Read::Ended(error)),
            };
            events.push(&piece);
            loop {
                match events.next_event() {
                    Ok(Some(event)) => {
                        deliver(event, |message| self.replies.line_of(call, message));
                        pace.took(|| self.replies.rest()).await;
                    }
                    Ok(None) => break,
                    Err(_endless) => return Err(Failure::TooLarge(LONGEST_EVENT)),
                }
            }
            if !self.replies.waits(call) {
                return Ok(Read::Answered);
            }
        }
    }

    /// Opens the notification stream, if the server offers one, and waits a moment for it: requests
    /// of the server during a call may arrive there.
    pub(super) async fn begin_listening(self: &Arc<Self>) {
        if !self.is_handshake() || self.over.is_cancelled() {
            return;
        }
        let session = Arc::clone(self);
        let over = self.over.clone();
        let (opening, opened) = oneshot::channel();
        self.tracker.spawn(async move {
            let listening = session.listen(opening);
            if let Some(Err(error)) = over.run_until_cancelled(listening).await {
                session.end(error);
            }
        });
        drop(tokio::time::timeout(MOMENT, opened).await);
    }

    /// Listens until the server offers no stream; an error ends the session. `opening` is dropped
    /// with the first response.
    async fn listen(self: &Arc<Self>, opening: oneshot::Sender<()>) -> Result<(), HttpError> {
        let mut opening = Some(opening);
        let backoff = Backoff::default();
        let (mut attempt, mut last_id) = (0, None);
        loop {
            let (generation, _) = self.generation();
            let opened = match self.open(last_id.as_deref()).await {
                Err(error) if error.ends_session() => return Err(error),
                opened => opened,
            };
            drop(opening.take());
            let (mut asked_for, mut least) = (None, None);
            match opened {
                Ok(Opened::None) => return Ok(()),
                Ok(Opened::Expired) => {
                    self.renew(generation).await?;
                    last_id = None;
                    attempt += 1;
                }
                Ok(Opened::Stream(mut response)) => {
                    let mut events = Events::new(LONGEST_EVENT);
                    if self.hear(&mut response, &mut events).await > 0 {
                        attempt = 0;
                    }
                    asked_for = events.retry().map(|wait| wait.max(SHORTEST_RETRY));
                    let newest = events.last_id().map(str::to_owned);
                    if newest.is_none() && last_id.is_none() {
                        self.replies.missed_news();
                    }
                    last_id = newest.or(last_id);
                    self.replies.doubt();
                }
                // It may have forgotten the event; later ones are missed.
                Err(HttpError::Status { status: 400, .. }) if last_id.is_some() => {
                    last_id = None;
                    self.replies.missed_news();
                }
                Err(error) => {
                    // `Retry-After` is honoured. fault H9
                    least = error.retry_after();
                    if !is_there(&error) {
                        self.replies.doubt();
                    }
                }
            }
            let wait = asked_for.unwrap_or_else(|| RESUME.max(backoff.delay(attempt, jitter())));
            attempt += 1;
            tokio::time::sleep(wait.max(least.unwrap_or_default())).await;
        }
    }

    /// Reads a stream to its end; returns its number of events.
    async fn hear(&self, response: &mut Response, events: &mut Events) -> usize {
        let (mut heard, mut pace) = (0, Pace::default());
        while let Ok(Some(piece)) = chunk(&self.remote.origin, response).await {
            events.push(&piece);
            loop {
                match events.next_event() {
                    Ok(Some(event)) => {
                        heard += 1;
                        deliver(event, |message| self.replies.line(message));
                        pace.took(|| self.replies.rest()).await;
                    }
                    Ok(None) => break,
                    Err(_endless) => return heard,
                }
            }
        }
        heard
    }

    /// Requests a stream: the notification stream, or the rest of one after an event.
    async fn open(&self, after: Option<&str>) -> Result<Opened, HttpError> {
        let mut asking = RemoteRequest::events(&self.remote.url);
        asking.within = Some(UNAWAITED);
        self.name_session(&mut asking);
        if let Some(id) = after {
            asking.set("last-event-id", id);
        }
        let sent = asking.headers.get("mcp-session-id");
        let response = self.remote.send(&asking).await?;
        self.check(&response, "", sent)?;
        match response.status() {
            status if status.is_success() && Content::of(&response) == Content::Events => {
                Ok(Opened::Stream(response))
            }
            StatusCode::NOT_FOUND if sent.is_some() => Ok(Opened::Expired),
            StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_IMPLEMENTED => Ok(Opened::None),
            status if status.is_client_error() || status.is_server_error() => {
                Err(self.remote.unusable(response).await)
            }
            _ => Ok(Opened::None),
        }
    }
}

/// Returns whether a server that refused a stream still answers.
fn is_there(error: &HttpError) -> bool {
    matches!(
        error,
        HttpError::Status { .. } | HttpError::Forbidden { .. } | HttpError::Limited { .. }
    )
}

/// Hands over the messages of an event; other kinds of event are ignored.
fn deliver(event: Event, take: impl FnMut(bytes::Bytes)) {
    if matches!(event.name.as_str(), "" | "message") && !event.data.is_empty() {
        each_message(event.data, take);
    }
}
