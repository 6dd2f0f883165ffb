//! Follows stored events: `text/event-stream` of `/api/v1/events` and of one server's events.
//!
//! A stream starts with the newest page, or after `Last-Event-ID`, and reads the store whenever the
//! feed reports a write. So it misses nothing, even across a restart, and needs no queue. It ends
//! with its client, its key or session, or the gateway. Entry points: [`is_wanted`] and [`open`].

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::{FutureExt as _, pending};
use futures_util::{Stream, stream};
use gantry_engine::{EngineError, Project};
use gantry_model::caller::{Caller, Ended};
use gantry_model::event::ServerEvent;
use gantry_model::id::ServerName;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::watch;
use tokio::time::timeout;

use super::EventsQuery;
use crate::api::Api;
use crate::api::query::{bad, limit};
use crate::api::views::EventView;
use crate::http::error::Problem;
use crate::http::limits::{StreamPermit, stream_permit};
use crate::http::session::Session;

/// Maximum number of streams per key.
pub(in crate::api) const PER_KEY: usize = 16;
/// The longest silence of a stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Events read at once.
const BATCH: u32 = 100;

/// Returns whether a client asks for a stream: it accepts event streams and not JSON.
pub(in crate::api) fn is_wanted(headers: &HeaderMap) -> bool {
    let named = |wanted: &str| {
        let values = headers.get_all(ACCEPT).iter();
        let ranges = values.filter_map(|value| value.to_str().ok());
        ranges.flat_map(|value| value.split(',')).any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            // A weight of zero is a refusal.
            let is_refused =
                parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
            kind.eq_ignore_ascii_case(wanted) && !is_refused
        })
    };
    named("text/event-stream") && !named("application/json")
}

/// Opens a stream of the events of all servers, or of one.
pub(super) async fn open(
    (api, project): (&Api, &Arc<Project>),
    (caller, session): (&Caller, Option<Arc<Session>>),
    server: Option<ServerName>,
    headers: &HeaderMap,
    asked: &EventsQuery,
) -> Result<Response, Problem> {
    if let Some(cursor) = &asked.cursor {
        return Err(bad("cursor", cursor)
            .with_hint("a stream goes forward: leave `cursor` out, or send `Last-Event-ID`"));
    }
    let limit = limit(asked.limit, 100)?;
    let slot = stream_permit(&api.streams, caller)?;
    // Before the first read, so that no event in between is missed.
    let written = project.events_written();
    let heard = headers.get("last-event-id");
    let heard: Option<u64> = heard.and_then(|id| id.to_str().ok()?.trim().parse().ok());
    let mut following = Following {
        server,
        after: heard.unwrap_or(0),
        // A client whose stream is cut reconnects soon; this is also the first byte.
        waiting: VecDeque::from([Bytes::from_static(b"retry: 2000\n\n")]),
        written,
        end: StreamEnd::new(project, caller, session),
        project: Arc::clone(project),
        _slot: slot,
    };
    if heard.is_none() {
        let name = following.server.as_ref().map(ServerName::as_str);
        let newest = following.project.events(name, None, limit).await?;
        following.take(newest);
    }
    let body = stream::unfold(following, |mut following| async move {
        let next = following.next().await?;
        Some((Ok::<_, Infallible>(next), following))
    });
    Ok(event_stream(body))
}

/// Answers with server-sent events.
pub(in crate::api) fn event_stream(
    events: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
) -> Response {
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    let unbuffered = HeaderName::from_static("x-accel-buffering");
    headers.insert(unbuffered, HeaderValue::from_static("no"));
    response
}

/// What ends a stream: the gateway stops, or the key or the browser session that opened it ends.
pub(in crate::api) struct StreamEnd {
    stopping: Pin<Box<dyn Future<Output = ()> + Send>>,
    key: Ended,
    session: Option<Arc<Session>>,
}

impl StreamEnd {
    /// Combines what ends a stream of this caller.
    pub(in crate::api) fn new(
        project: &Project,
        caller: &Caller,
        session: Option<Arc<Session>>,
    ) -> Self {
        Self {
            stopping: Box::pin(project.stopping()),
            key: caller.validity.ended(),
            session,
        }
    }

    /// Waits for the end.
    pub(in crate::api) async fn comes(&mut self) {
        let session = async {
            match &self.session {
                Some(session) => session.ended().await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = &mut self.stopping => {}
            _ = &mut self.key => {}
            () = session => {}
        }
    }

    /// Returns whether the session is still valid; an open stream counts as use.
    pub(in crate::api) fn touch(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.touch())
    }
}

/// A stream that is open.
struct Following {
    project: Arc<Project>,
    server: Option<ServerName>,
    /// The number of the last event read.
    after: u64,
    waiting: VecDeque<Bytes>,
    written: watch::Receiver<u64>,
    end: StreamEnd,
    _slot: StreamPermit,
}

impl Following {
    /// Returns the next event; nothing at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            // Checked even while events keep coming.
            if !self.end.touch() || self.end.comes().now_or_never().is_some() {
                return None;
            }
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            self.written.mark_unchanged();
            match self.more().await {
                Ok(()) if !self.waiting.is_empty() => continue,
                Ok(()) => {}
                // After a failure the database is read again at the next write.
                Err(error) => tracing::debug!(%error, "events cannot be followed for a moment"),
            }
            tokio::select! {
                biased; // Its end first.
                () = self.end.comes() => return None,
                more = timeout(KEEP_ALIVE, self.written.changed()) => match more {
                    Ok(Ok(())) => {}
                    Ok(Err(_gone)) => return None,
                    Err(_quiet) if !self.end.touch() => return None,
                    Err(_quiet) => return Some(Bytes::from_static(b":\n\n")),
                },
            }
        }
    }

    async fn more(&mut self) -> Result<(), EngineError> {
        let server = self.server.as_ref();
        let next = self.project.events_after(server, self.after, BATCH).await?;
        self.take(next);
        Ok(())
    }

    fn take(&mut self, events: Vec<(u64, ServerEvent)>) {
        for (number, event) in events {
            let view =
                serde_json::to_string(&EventView::of(&event)).expect("views are always JSON");
            self.after = self.after.max(number);
            let text = format!("id: {number}\ndata: {view}\n\n");
            self.waiting.push_back(Bytes::from(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_for_who_asks_for_it() {
        for (accept, wanted) in [
            ("text/event-stream", true),
            ("Text/Event-Stream; charset=utf-8, */*;q=0.1", true),
            ("application/json, text/event-stream", false),
            ("text/event-stream;q=0", false),
            ("*/*", false),
            ("text/*", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(is_wanted(&headers), wanted, "{accept}");
        }
        assert!(!is_wanted(&HeaderMap::new()));
    }
}
