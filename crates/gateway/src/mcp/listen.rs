//! Streams on which clients hear that lists and resources have changed: GET of a session in the
//! handshake era, `subscriptions/listen` in the stateless one.
//!
//! One stream per session, so many per key. A stream ends when its client goes, its session ends,
//! its key is revoked (fault U6) or the gateway stops. A list is told of when a server that this
//! caller sees here has changed it, at most once a second; others' changes are not told. A session's
//! stream can be taken up again by `Last-Event-ID`. Entry points: `Endpoint::listen_on_session` and
//! `Endpoint::listen_on_request`.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use gantry_engine::{Ask, Capabilities, Engine, ListMarks, Scope, Speaker, Subscription};
use gantry_model::caller::{Caller, Ended};
use gantry_model::era::meta::SUBSCRIPTION_ID;
use gantry_model::id::KeyId;
use gantry_model::jsonrpc::{self, Edit, OwnedRequestId, Raw, RawBuf, Request};
use http::StatusCode;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use super::asks::Entered;
use super::ring::{ELICITED, List, News, Ring};
use super::sessions::{Listening, Session};
use super::stream::{Desk, KEEP_ALIVE, event_stream, marked, notification, refuse};
use super::{Endpoint, Visit};
use crate::http::error::Problem;

/// Streams of one key in the stateless era.
const PER_KEY: usize = 64;
/// How often a stream looks whether the gateway stops, and whether it was quiet for long.
pub(super) const LOOK: Duration = Duration::from_millis(500);
/// The least time between two changes that are told.
const APART: Duration = Duration::from_secs(1);
/// Asks a client whose stream was cut to come again soon.
const RETRY: &str = "retry: 2000\n";

impl Endpoint {
    /// Opens the stream of a session.
    pub(super) fn listen_on_session(
        &self,
        visit: &Visit,
        session: &Arc<Session>,
    ) -> Result<Response, Problem> {
        let listening = session.listen().ok_or_else(|| {
            Problem::new(StatusCode::CONFLICT, "session.listening")
                .with_detail("this session has a stream already")
        })?;
        let has = self.engine().capabilities(&visit.caller, &visit.scope);
        let ring = Arc::clone(&session.ring);
        let asked = session.asked();
        let mut ear = self.ear(visit, Wanted::of(&has), Place::Session(listening), ring);
        ear.asked = Some(asked);
        let heard = visit.parts.headers.get("last-event-id");
        let heard = heard.and_then(|id| id.to_str().ok()?.parse().ok());
        ear.position = ear.ring.begin(heard);
        ear.ring.come_again(&ear.seen);
        Ok(ear.into_response())
    }

    /// Opens a stream of the stateless era, which begins with what was agreed on.
    pub(super) async fn listen_on_request(
        &self,
        visit: &Visit,
        request: &Request<'_>,
    ) -> Result<Response, Problem> {
        let asked = request
            .params
            .and_then(|params| params.get("notifications"))
            .ok_or_else(|| {
                Problem::new(StatusCode::BAD_REQUEST, "request.params")
                    .with_rpc(jsonrpc::INVALID_PARAMS, "`notifications` must be an object")
            })?;
        let has = self.engine().capabilities(&visit.caller, &visit.scope);
        let wanted = Wanted::of(&has).only(asked);
        let seat = self.listeners.seat(visit.caller.key)?;
        let ring = self.sessions.ring(visit.caller.key);
        let subscribed = self.subscribe_all(visit, request, asked, &ring).await?;
        let (uris, kept): (Vec<_>, _) = subscribed.into_iter().unzip();
        let place = Place::Request(request.id.to_owned(), seat, kept);
        let mut ear = self.ear(visit, wanted, place, ring);
        ear.acknowledge(&uris);
        Ok(ear.into_response())
    }

    fn ear(&self, visit: &Visit, wanted: Wanted, place: Place, ring: Arc<Ring>) -> Ear {
        let engine = self.engine();
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        look.reset();
        // Looked at after the count: what changes meanwhile is looked for again.
        let mut changes = engine.changes();
        changes.mark_unchanged();
        let caller = engine.current(&visit.caller);
        let caller = caller.unwrap_or_else(|| visit.caller.clone());
        let seen = engine.list_marks(&caller, &visit.scope, place.speaker());
        let now = Instant::now();
        Ear {
            engine: engine.clone(),
            key_end: caller.validity.ended(),
            caller,
            scope: visit.scope.clone(),
            changes,
            seen,
            wanted,
            place,
            ring,
            position: 0,
            retry: RETRY,
            look,
            looked: now,
            is_due: false,
            heard: now,
            waiting: VecDeque::new(),
            desk: Arc::clone(&self.desk),
            asked: None,
            open: Vec::new(),
        }
    }
}

/// Which changes a client wants to hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wanted {
    tools: bool,
    prompts: bool,
    resources: bool,
}

impl Wanted {
    fn of(has: &Capabilities) -> Self {
        Self {
            tools: true,
            prompts: has.prompts,
            resources: has.resources,
        }
    }

    fn only(self, asked: Raw<'_>) -> Self {
        let asks = |list: List| {
            let wish = asked.get(list.wish()).and_then(Raw::boolean);
            self.has(list) && wish.unwrap_or(false)
        };
        Self {
            tools: asks(List::Tools),
            prompts: asks(List::Prompts),
            resources: asks(List::Resources),
        }
    }

    fn has(self, list: List) -> bool {
        match list {
            List::Tools => self.tools,
            List::Prompts => self.prompts,
            List::Resources => self.resources,
        }
    }
}

/// Where a stream was opened; kept so that its place is free again with its end.
enum Place {
    Session(Listening),
    Request(
        OwnedRequestId,
        #[expect(dead_code, reason = "held for its drop")] Seat,
        #[expect(dead_code, reason = "held for its drop")] Vec<Subscription>,
    ),
}

impl Place {
    /// Returns which of the caller's clients listens.
    fn speaker(&self) -> Speaker {
        match self {
            Self::Session(listening) => Speaker::Session(listening.0.id.bits()),
            Self::Request(..) => Speaker::Key,
        }
    }

    /// Waits for the end of the session that the stream belongs to.
    async fn end(&self) {
        match self {
            Self::Session(listening) => listening.0.end().await,
            Self::Request(..) => std::future::pending().await,
        }
    }
}

/// One open stream.
struct Ear {
    engine: Engine,
    /// Who listens; what it may use is asked for again before each word.
    caller: Caller,
    key_end: Ended,
    scope: Scope,
    changes: watch::Receiver<u64>,
    /// What the lists were when they were last looked at.
    seen: ListMarks,
    wanted: Wanted,
    place: Place,
    ring: Arc<Ring>,
    /// The number of the last news that were told.
    position: u64,
    /// What goes before the first event of a session: when to come again.
    retry: &'static str,
    look: Interval,
    /// When the lists were last looked at.
    looked: Instant,
    /// Somebody's lists have changed; whether these have is looked at when its time has come.
    is_due: bool,
    /// When the client last heard anything.
    heard: Instant,
    waiting: VecDeque<Bytes>,
    desk: Arc<Desk>,
    /// What servers ask between calls, on the stream of a session.
    asked: Option<mpsc::Receiver<Ask>>,
    /// What of it is not answered.
    open: Vec<Entered>,
}

impl Ear {
    fn into_response(self) -> Response {
        let events = stream::unfold(self, |mut ear| async move {
            let event = ear.next().await?;
            ear.heard = Instant::now();
            Some((Ok::<_, Infallible>(event), ear))
        });
        event_stream(Body::from_stream(events))
    }

    /// Returns the next event; none when the stream is to end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if let Some((number, news)) = self.ring.after(self.position) {
                self.position = number;
                self.put(number, news);
                self.ring.heard(number);
                continue;
            }
            tokio::select! {
                changed = self.changes.changed(), if !self.is_due => {
                    changed.ok()?;
                    self.is_due = true;
                }
                () = sleep_until(self.looked + APART), if self.is_due => {
                    self.is_due = false;
                    self.look_at_lists();
                }
                () = self.ring.wait() => {}
                Some(ask) = question(&mut self.asked) => self.ask(ask),
                () = self.place.end() => return None,
                _ = &mut self.key_end => return None,
                _ = self.look.tick() => {
                    if self.engine.is_draining() {
                        return None;
                    }
                    let over = self.open.extract_if(.., |entered| !entered.is_open());
                    self.waiting.extend(over.flat_map(|mut entered| entered.withdraw()));
                    if self.heard.elapsed() >= KEEP_ALIVE {
                        return Some(Bytes::from_static(b":\n\n"));
                    }
                }
            }
        }
    }

    /// Asks the client of the session, if there is room for it.
    fn ask(&mut self, ask: Ask) {
        let Place::Session(listening) = &self.place else {
            return;
        };
        let seat = self.desk.seats.seat(&self.caller.agent, 0);
        match seat.and_then(|seat| seat.load(ask.length())) {
            Ok(load) => {
                let (entered, events) = self.desk.asks.enter(listening.0.id, ask, load);
                self.open.push(entered);
                self.waiting.extend(events);
            }
            Err(full) => refuse(ask, full),
        }
    }

    /// Tells of the lists that are others than before.
    fn look_at_lists(&mut self) {
        self.changes.mark_unchanged();
        self.looked = Instant::now();
        // Whose key is gone hears nothing more; the stream ends by itself.
        if let Some(caller) = self.engine.current(&self.caller) {
            let who = self.place.speaker();
            let now = self.engine.list_marks(&caller, &self.scope, who);
            self.ring.tell_changes(&self.seen, &now);
            self.seen = now;
        }
    }

    /// Puts news into words, if the client may hear them.
    fn put(&mut self, number: u64, news: News) {
        let told = match news {
            News::Changed(list) => {
                let told = || (list.notification(), self.params(&[]));
                self.wanted.has(list).then(told)
            }
            News::Updated(uri) => {
                let caller = self.engine.current(&self.caller);
                let who = self.place.speaker();
                let may = caller
                    .is_some_and(|caller| self.engine.may_read(&caller, &self.scope, who, &uri));
                let uri = RawBuf::string(&uri);
                let params = || self.params(&[("uri", uri.as_raw())]);
                let told = || ("notifications/resources/updated", params());
                may.then(told)
            }
            News::Elicited(id) => {
                let id = RawBuf::string(&id);
                Some((ELICITED, self.params(&[("elicitationId", id.as_raw())])))
            }
        };
        let Some((method, params)) = told else {
            return;
        };
        let fields = match self.place {
            Place::Session(_) => format!("{}id: {number}\n", std::mem::take(&mut self.retry)),
            Place::Request(..) => String::new(),
        };
        let event = marked(&fields, method, params.text());
        self.waiting.push_back(event);
    }

    fn acknowledge(&mut self, uris: &[String]) {
        let mut agreed = Edit::new(Raw::EMPTY_OBJECT);
        for list in List::ALL {
            if self.wanted.has(list) {
                agreed.set(list.wish(), Raw::TRUE);
            }
        }
        if !uris.is_empty() {
            let uris = RawBuf::serialize(&uris).expect("texts are always JSON");
            agreed.set_buf("resourceSubscriptions", uris);
        }
        let agreed = agreed.to_buf();
        let params = self.params(&[("notifications", agreed.as_raw())]);
        let event = notification("notifications/subscriptions/acknowledged", params.text());
        self.waiting.push_back(event);
    }

    /// Returns the params of a notification, marked with the subscription it belongs to.
    fn params(&self, members: &[(&str, Raw<'_>)]) -> RawBuf {
        let mut params = Edit::new(Raw::EMPTY_OBJECT);
        for (key, value) in members {
            params.set(key, *value);
        }
        match &self.place {
            Place::Session(_) => {}
            Place::Request(id, ..) => {
                params.set_meta(SUBSCRIPTION_ID, id.as_id().into());
            }
        }
        params.to_buf()
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.ring.leave(self.seen);
    }
}

/// Waits for the next question.
async fn question(asked: &mut Option<mpsc::Receiver<Ask>>) -> Option<Ask> {
    asked.as_mut()?.recv().await
}

/// How many streams each key has in the stateless era.
#[derive(Debug, Clone, Default)]
pub(super) struct Listeners(Arc<Mutex<HashMap<KeyId, usize>>>);

impl Listeners {
    /// Takes a place for a stream.
    pub(super) fn seat(&self, key: KeyId) -> Result<Seat, Problem> {
        self.take(key).ok_or_else(|| {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "listen.too_many")
                .with_detail(format!("this key has {PER_KEY} streams already"))
                .with_retry_after(APART)
        })
    }

    fn take(&self, key: KeyId) -> Option<Seat> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(key).or_default();
        if *count >= PER_KEY {
            return None;
        }
        *count += 1;
        Some(Seat {
            key,
            listeners: self.clone(),
        })
    }
}

/// A place for a stream.
#[derive(Debug)]
pub(super) struct Seat {
    key: KeyId,
    listeners: Listeners,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self
            .listeners
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_a_key_are_bounded() {
        let listeners = Listeners::default();
        let (one, other) = (KeyId::from_random(1), KeyId::from_random(2));
        let seats: Vec<_> = (0..PER_KEY).map(|_| listeners.take(one).unwrap()).collect();
        assert!(listeners.take(one).is_none());
        assert!(listeners.take(other).is_some());
        drop(seats);
        assert!(listeners.0.lock().unwrap().is_empty());
    }

    #[test]
    fn a_client_hears_of_what_it_asked_for_and_what_there_is() {
        let has = Wanted {
            tools: true,
            prompts: false,
            resources: true,
        };
        let asked = Raw::trusted(r#"{"toolsListChanged":true,"promptsListChanged":true}"#);
        let wanted = has.only(asked);
        assert_eq!(
            wanted,
            Wanted {
                tools: true,
                prompts: false,
                resources: false
            }
        );
        let heard = List::ALL.map(|list| wanted.has(list));
        assert_eq!(heard, [true, false, false]);
    }
}
