//! HTTP with SSE, as of 2024-11-05: one event stream for everything the server sends, and an endpoint
//! of the same origin to post to, which the first event names.
//!
//! The stream is the connection: when it ends, so does the session. Entry points: [`Session::new`]
//! and [`Session::run`].

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gantry_model::event_stream::Events;
use parking_lot::Mutex;
use reqwest::Response;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

use super::http::{
    Content, HttpError, OutgoingMessage, Remote, RemoteRequest, Replies, SessionCommand, chunk,
    drained, each_message,
};
use super::pace::Pace;
use crate::transport::Failure;

/// How long the head of the stream, and then its first event, may take.
const OPENING: Duration = Duration::from_secs(30);
/// Time limit for posting a message; its response arrives on the stream.
const POSTING: Duration = Duration::from_secs(30);
/// The longest event, after decompression. fault H5
const LONGEST_EVENT: usize = 16 << 20;
/// The longest `endpoint` event, which holds only a URL. fault H5
const LONGEST_PLACE: usize = 64 << 10;

/// An open link to a server over HTTP with SSE.
pub(crate) struct Session<R> {
    remote: Remote,
    replies: R,
    tracker: TaskTracker,
    /// Where messages are posted, once the server has named it.
    place: OnceLock<Url>,
    over: CancellationToken,
    why: Mutex<Option<HttpError>>,
}

impl<R: Replies> Session<R> {
    /// Prepares a session; nothing is sent yet.
    pub(crate) fn new(remote: Remote, replies: R, tracker: TaskTracker) -> Arc<Self> {
        Arc::new(Self {
            remote,
            replies,
            tracker,
            place: OnceLock::new(),
            over: CancellationToken::new(),
            why: Mutex::default(),
        })
    }

    /// Posts and receives until the session is closed (returns nothing) or the stream ends.
    pub(crate) async fn run(
        self: Arc<Self>,
        out: mpsc::Receiver<SessionCommand>,
        closed: CancellationToken,
    ) -> Option<HttpError> {
        let ended = tokio::select! {
            biased; // The end first, ours before the server's.
            () = closed.cancelled() => None,
            () = self.over.cancelled() => None,
            ended = self.live(out) => Some(ended),
        };
        self.over.cancel();
        let why = self.why.lock().take();
        why.or(ended)
    }

    async fn live(self: &Arc<Self>, mut out: mpsc::Receiver<SessionCommand>) -> HttpError {
        let (mut response, mut events) = match self.open().await {
            Ok(opened) => opened,
            Err(error) => return error,
        };
        let hearing = self.hear(&mut response, &mut events);
        let mut hearing = std::pin::pin!(hearing);
        loop {
            // Unbiased: a server that never pauses must not keep calls from being posted.
            tokio::select! {
                ended = &mut hearing => return ended,
                next = out.recv() => match next {
                    Some(SessionCommand::Message(letter)) if letter.head.method.as_ref() == "notifications/initialized" => {
                        // Later messages must find the handshake complete.
                        tokio::select! {
                            ended = &mut hearing => return ended,
                            () = self.deliver(letter) => {}
                        }
                    }
                    Some(SessionCommand::Message(letter)) => self.post(letter),
                    Some(SessionCommand::TakenBack { notice: Some(body), .. }) => {
                        let head = super::http::MessageHead::of("notifications/cancelled");
                        self.post(OutgoingMessage { call: None, body, head });
                    }
                    Some(SessionCommand::TakenBack { notice: None, .. } | SessionCommand::Speak(_)) => {}
                    None => return HttpError::cut(&self.remote.origin, "the link was closed"),
                },
            }
        }
    }

    /// Opens the stream and reads the URL to post to.
    async fn open(&self) -> Result<(Response, Events), HttpError> {
        let mut asking = RemoteRequest::events(&self.remote.url);
        asking.within = Some(OPENING);
        let mut response = self.remote.send(&asking).await?;
        if !response.status().is_success() || Content::of(&response) != Content::Events {
            return Err(self.remote.unusable(response).await);
        }
        let mut events = Events::new(LONGEST_PLACE);
        let first = tokio::time::timeout(OPENING, self.first(&mut response, &mut events)).await;
        let silent = |_| HttpError::Silent {
            origin: self.remote.origin.clone(),
            what: "named no place to post to",
            after: OPENING,
        };
        let place = self.remote.place(&first.map_err(silent)??)?;
        drop(self.place.set(place));
        events.bound(LONGEST_EVENT);
        Ok((response, events))
    }

    /// Returns what the event `endpoint` names.
    async fn first(
        &self,
        response: &mut Response,
        events: &mut Events,
    ) -> Result<String, HttpError> {
        let origin = &self.remote.origin;
        loop {
            match events.next_event() {
                Ok(Some(event)) if event.name == "endpoint" => {
                    let named = String::from_utf8_lossy(&event.data);
                    return Ok(named.trim().to_owned());
                }
                Ok(Some(_)) => continue,
                Ok(None) => {}
                Err(_endless) => return Err(HttpError::session(origin, "its event has no end")),
            }
            match chunk(origin, response).await? {
                Some(piece) => events.push(&piece),
                None => return Err(HttpError::cut(origin, "it named no place to post to")),
            }
        }
    }

    /// Reads the stream to its end and returns why it ended.
    async fn hear(&self, response: &mut Response, events: &mut Events) -> HttpError {
        let origin = &self.remote.origin;
        let mut pace = Pace::default();
        loop {
            loop {
                match events.next_event() {
                    Ok(Some(event)) => {
                        if matches!(event.name.as_str(), "" | "message") {
                            each_message(event.data, |message| self.replies.line(message));
                        }
                        pace.took(|| self.replies.rest()).await;
                    }
                    Ok(None) => break,
                    Err(_endless) => {
                        let why = "it sent an event over 16 MiB";
                        return HttpError::session(origin, why);
                    }
                }
            }
            match chunk(origin, response).await {
                Ok(Some(piece)) => events.push(&piece),
                Ok(None) => return HttpError::cut(origin, "the server ended the stream"),
                Err(error) => return error,
            }
        }
    }

    fn post(self: &Arc<Self>, letter: OutgoingMessage) {
        let session = Arc::clone(self);
        self.tracker.spawn(async move {
            let over = session.over.clone();
            over.run_until_cancelled(session.deliver(letter)).await;
        });
    }

    /// Posts a message; its response arrives on the stream.
    async fn deliver(&self, letter: OutgoingMessage) {
        let Some(place) = self.place.get() else {
            return;
        };
        let mut asking = RemoteRequest::post(place, letter.body.clone(), "application/json, */*");
        asking.within = Some(POSTING);
        asking.set_trace(letter.head.trace.as_ref());
        let error = match self.remote.limit.refusal_of(&letter.head.method) {
            Some(limited) => limited,
            None => match self.remote.send(&asking).await {
                Ok(response) if response.status().is_success() => return drained(response).await,
                Ok(response) => self.remote.unusable(response).await,
                Err(error) => error,
            },
        };
        // A 404 means that the session is gone.
        let is_gone = matches!(&error, HttpError::Status { status: 404, .. });
        let ends = error.ends_session() || is_gone;
        if let Some(call) = letter.call {
            self.replies.fail(call, Failure::Remote(error.clone()));
        }
        if ends {
            let mut why = self.why.lock();
            why.get_or_insert(error);
            self.over.cancel();
        }
    }
}
