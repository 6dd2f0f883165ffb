//! Events as they happen: `text/event-stream` of `/api/v1/events` and of one server's events.
//!
//! A stream begins with the newest page, or behind `Last-Event-ID`, and reads on from the store
//! whenever more was written, so that it never misses one and holds no queue of its own. It ends when
//! its client goes, its key ends or the gateway stops. Entry points: [`is_wanted`] and [`open`].

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use gantry_engine::{Engine, EngineError, Project};
use gantry_model::caller::Caller;
use gantry_model::event::ServerEvent;
use gantry_model::id::{KeyId, ServerName};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::EventsAsked;
use crate::api::Api;
use crate::api::query::{bad, limit};
use crate::api::views::EventView;
use crate::http::error::Problem;

/// Streams that one key may have open.
const PER_KEY: usize = 16;
/// How often a stream looks whether the gateway stops, and whether it was quiet for long.
const LOOK: Duration = Duration::from_millis(500);
/// How long a stream may be quiet.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Events that are read at once.
const BATCH: u32 = 100;

/// Tells whether a client wants a stream: it names that form, and does not name JSON.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let named = |wanted: &str| {
        let values = headers.get_all(ACCEPT).iter();
        let ranges = values.filter_map(|value| value.to_str().ok());
        ranges.flat_map(|value| value.split(',')).any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            // A weight of nothing is a refusal.
            let is_refused =
                parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
            kind.eq_ignore_ascii_case(wanted) && !is_refused
        })
    };
    named("text/event-stream") && !named("application/json")
}

/// How many streams each key has.
#[derive(Debug, Clone, Default)]
pub(in crate::api) struct Streams(Arc<Mutex<HashMap<KeyId, usize>>>);

impl Streams {
    fn open(&self, key: KeyId) -> Option<Place> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(key).or_default();
        if *count >= PER_KEY {
            return None;
        }
        *count += 1;
        Some(Place {
            key,
            streams: self.clone(),
        })
    }
}

/// One stream's place among those of its key.
#[derive(Debug)]
struct Place {
    key: KeyId,
    streams: Streams,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self
            .streams
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.key) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                open.remove(&self.key);
            }
        }
    }
}

/// Opens a stream of the events of all servers, or of one.
pub(super) async fn open(
    (api, project): (&Api, &Arc<Project>),
    caller: &Caller,
    server: Option<ServerName>,
    headers: &HeaderMap,
    asked: &EventsAsked,
) -> Result<Response, Problem> {
    if let Some(cursor) = &asked.cursor {
        return Err(bad("cursor", cursor)
            .with_hint("a stream goes forward: leave `cursor` out, or send `Last-Event-ID`"));
    }
    let limit = limit(asked.limit, 100)?;
    let place = api.streams.open(caller.key).ok_or_else(|| {
        Problem::new("listen.too_many")
            .with_detail(format!("this key has {PER_KEY} streams of events already"))
            .with_retry_after(Duration::from_secs(1))
    })?;
    // Before the first look, so that nothing that comes meanwhile is missed.
    let written = project.events_written();
    let heard = headers.get("last-event-id");
    let heard: Option<u64> = heard.and_then(|id| id.to_str().ok()?.trim().parse().ok());
    let mut following = Following {
        engine: api.engine().clone(),
        project: Arc::clone(project),
        server,
        after: heard.unwrap_or(0),
        // A client that was cut comes again soon; and whoever waits for the first byte has it.
        waiting: VecDeque::from([Bytes::from_static(b"retry: 2000\n\n")]),
        written,
        spoke: Instant::now(),
        _place: place,
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
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    let unbuffered = HeaderName::from_static("x-accel-buffering");
    headers.insert(unbuffered, HeaderValue::from_static("no"));
    Ok(response)
}

/// A stream that is open.
struct Following {
    engine: Engine,
    project: Arc<Project>,
    server: Option<ServerName>,
    /// The number of the last event that was taken.
    after: u64,
    waiting: VecDeque<Bytes>,
    written: watch::Receiver<u64>,
    /// When something was last said.
    spoke: Instant,
    _place: Place,
}

impl Following {
    /// Returns what is said next; nothing when the gateway stops.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                self.spoke = Instant::now();
                return Some(event);
            }
            self.written.mark_unchanged();
            match self.more().await {
                Ok(()) if !self.waiting.is_empty() => continue,
                Ok(()) => {}
                // A database that fails for a moment is asked again with the next look.
                Err(error) => tracing::debug!(%error, "events cannot be followed for a moment"),
            }
            match timeout(LOOK, self.written.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_gone)) => return None,
                Err(_elapsed) if self.engine.is_draining() => return None,
                Err(_elapsed) if self.spoke.elapsed() >= KEEP_ALIVE => {
                    self.spoke = Instant::now();
                    return Some(Bytes::from_static(b":\n\n"));
                }
                Err(_elapsed) => {}
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

    #[test]
    fn a_key_has_so_many_streams_and_gets_its_places_back() {
        let streams = Streams::default();
        let key = KeyId::from_random(1);
        let open: Vec<_> = (0..PER_KEY).map(|_| streams.open(key).unwrap()).collect();
        assert!(streams.open(key).is_none());
        assert!(streams.open(KeyId::from_random(2)).is_some());
        drop(open);
        assert!(streams.0.lock().unwrap().is_empty());
    }
}
