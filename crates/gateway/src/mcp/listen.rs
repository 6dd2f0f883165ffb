//! Notification streams: GET of a session in the handshake era, `subscriptions/listen` in the
//! stateless one.
//!
//! One stream per session, a limited number per key. A stream ends with its client, its session,
//! its key (fault U6) or the gateway. A list change is reported if a server visible to the caller
//! changed it, at most once a second. A session's stream can be resumed by `Last-Event-ID`. Entry
//! points: `Endpoint::listen_on_session` and `Endpoint::listen_on_request`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use gantry_engine::{
    Capabilities, ClientIdentity, Engine, ListRevisions, Scope, ServerRequests, Subscription,
};
use gantry_model::caller::{Caller, Ended};
use gantry_model::era::meta::SUBSCRIPTION_ID;
use gantry_model::jsonrpc::{self, Edit, OwnedRequestId, Raw, RawBuf, Request};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use super::notification_log::{ELICITED, List, Notification, NotificationLog};
use super::server_requests::RequestGuard;
use super::sessions::{Listening, Session};
use super::stream::{CallServices, KEEP_ALIVE, event_stream, marked, notification, refuse};
use super::{AuthorizedRequest, Endpoint};
use crate::http::error::Problem;
use crate::http::limits::{StreamPermit, stream_permit};

/// Maximum number of streams per key in the stateless era.
pub(super) const PER_KEY: usize = 64;
/// The interval for checking shutdown and idleness.
pub(super) const LOOK: Duration = Duration::from_millis(500);
/// The minimum time between two reported changes.
const APART: Duration = Duration::from_secs(1);
/// Tells a client when to reconnect.
const RETRY: &str = "retry: 2000\n";

impl Endpoint {
    /// Opens the stream of a session.
    pub(super) fn listen_on_session(
        &self,
        authorized: &AuthorizedRequest,
        session: &Arc<Session>,
    ) -> Result<Response, Problem> {
        let listening = session.listen().ok_or_else(|| {
            Problem::new("session.listening").with_detail("this session has a stream already")
        })?;
        let has = self
            .engine()
            .capabilities(&authorized.caller, &authorized.scope);
        let log = Arc::clone(&session.log);
        let asked = session.asked();
        let mut cursor = self.cursor(
            authorized,
            Wanted::of(&has),
            StreamOwner::Session(listening),
            log,
        );
        cursor.asked = Some(asked);
        let heard = authorized.parts.headers.get("last-event-id");
        let heard = heard.and_then(|id| id.to_str().ok()?.parse().ok());
        cursor.position = cursor.log.begin(heard);
        cursor.log.come_again(&cursor.seen);
        Ok(cursor.into_response())
    }

    /// Opens a stateless-era stream, which starts with the accepted subscriptions.
    pub(super) async fn listen_on_request(
        &self,
        authorized: &AuthorizedRequest,
        request: &Request<'_>,
    ) -> Result<Response, Problem> {
        let asked = request
            .params
            .and_then(|params| params.get("notifications"))
            .ok_or_else(|| {
                Problem::new("request.params")
                    .with_rpc(jsonrpc::INVALID_PARAMS, "`notifications` must be an object")
            })?;
        let has = self
            .engine()
            .capabilities(&authorized.caller, &authorized.scope);
        let wanted = Wanted::of(&has).only(asked);
        let permit = stream_permit(&self.listeners, &authorized.caller)?;
        let log = self.sessions.log(&authorized.caller);
        let subscribed = self.subscribe_all(authorized, request, asked, &log).await?;
        let (uris, kept): (Vec<_>, _) = subscribed.into_iter().unzip();
        let place = StreamOwner::Request(request.id.to_owned(), permit, kept);
        let mut cursor = self.cursor(authorized, wanted, place, log);
        cursor.acknowledge(&uris);
        Ok(cursor.into_response())
    }

    fn cursor(
        &self,
        authorized: &AuthorizedRequest,
        wanted: Wanted,
        place: StreamOwner,
        log: Arc<NotificationLog>,
    ) -> LogCursor {
        let engine = self.engine();
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        look.reset();
        // Read after the counter: later changes are noticed.
        let mut changes = engine.changes(&authorized.caller);
        changes.mark_unchanged();
        let caller = engine.current(&authorized.caller);
        let caller = caller.unwrap_or_else(|| authorized.caller.clone());
        let seen = engine.list_revisions(&caller, &authorized.scope, place.identity());
        let now = Instant::now();
        LogCursor {
            engine: engine.clone(),
            key_end: caller.validity.ended(),
            caller,
            scope: authorized.scope.clone(),
            changes,
            seen,
            wanted,
            place,
            log,
            position: 0,
            retry: RETRY,
            look,
            looked: now,
            is_due: false,
            heard: now,
            waiting: VecDeque::new(),
            services: Arc::clone(&self.services),
            asked: None,
            open: Vec::new(),
        }
    }
}

/// The requested notifications.
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

/// The session or subscriptions of a stream; dropped with it.
enum StreamOwner {
    Session(Listening),
    Request(
        OwnedRequestId,
        #[expect(dead_code, reason = "held for its drop")] StreamPermit,
        #[expect(dead_code, reason = "held for its drop")] Vec<Subscription>,
    ),
}

impl StreamOwner {
    /// Returns the client's identity.
    fn identity(&self) -> ClientIdentity {
        match self {
            Self::Session(listening) => ClientIdentity::Session(listening.0.id.bits()),
            Self::Request(..) => ClientIdentity::Key,
        }
    }

    /// Waits for the end of the stream's session.
    async fn end(&self) {
        match self {
            Self::Session(listening) => listening.0.end().await,
            Self::Request(..) => std::future::pending().await,
        }
    }
}

/// One open stream.
struct LogCursor {
    engine: Engine,
    /// The caller; its grants are checked before each notification.
    caller: Caller,
    key_end: Ended,
    scope: Scope,
    changes: watch::Receiver<u64>,
    /// The last seen revisions of the lists.
    seen: ListRevisions,
    wanted: Wanted,
    place: StreamOwner,
    log: Arc<NotificationLog>,
    /// The number of the last notification sent.
    position: u64,
    /// The `retry` field before the first event.
    retry: &'static str,
    look: Interval,
    /// When the lists were last checked.
    looked: Instant,
    /// Some list changed; whether it is one of these is checked when due.
    is_due: bool,
    /// When the last event was sent.
    heard: Instant,
    waiting: VecDeque<Bytes>,
    services: Arc<CallServices>,
    /// Server requests between calls, on a session's stream.
    asked: Option<mpsc::Receiver<ServerRequests>>,
    /// Its unanswered requests.
    open: Vec<RequestGuard>,
}

impl LogCursor {
    fn into_response(self) -> Response {
        let events = stream::unfold(self, |mut cursor| async move {
            let event = cursor.next().await?;
            cursor.heard = Instant::now();
            Some((Ok::<_, Infallible>(event), cursor))
        });
        event_stream(Body::from_stream(events))
    }

    /// Returns the next event; nothing at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if let Some((number, news)) = self.log.after(self.position) {
                self.position = number;
                self.put(number, news);
                self.log.heard(number);
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
                () = self.log.wait() => {}
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

    /// Sends a server request to the session's client, if there is room.
    fn ask(&mut self, ask: ServerRequests) {
        let StreamOwner::Session(listening) = &self.place else {
            return;
        };
        let owner = (&self.caller.project, &self.caller.agent);
        let call = self.services.quota.call(owner, 0);
        match call.and_then(|call| call.suspend(ask.length())) {
            Ok(load) => {
                let (entered, events) = self.services.open_requests.send(listening.0.id, ask, load);
                self.open.push(entered);
                self.waiting.extend(events);
            }
            Err(full) => refuse(ask, full),
        }
    }

    /// Reports the lists that changed.
    fn look_at_lists(&mut self) {
        self.changes.mark_unchanged();
        self.looked = Instant::now();
        // After revocation nothing more is sent; the stream ends.
        if let Some(caller) = self.engine.current(&self.caller) {
            let who = self.place.identity();
            let now = self.engine.list_revisions(&caller, &self.scope, who);
            self.log.tell_changes(&self.seen, &now);
            self.seen = now;
        }
    }

    /// Formats a notification, if the client may receive it.
    fn put(&mut self, number: u64, news: Notification) {
        let told = match news {
            Notification::Changed(list) => {
                let told = || (list.notification(), self.params(&[]));
                self.wanted.has(list).then(told)
            }
            Notification::Updated(uri) => {
                let caller = self.engine.current(&self.caller);
                let who = self.place.identity();
                let may = caller
                    .is_some_and(|caller| self.engine.may_read(&caller, &self.scope, who, &uri));
                let uri = RawBuf::string(&uri);
                let params = || self.params(&[("uri", uri.as_raw())]);
                let told = || ("notifications/resources/updated", params());
                may.then(told)
            }
            Notification::Elicited(id) => {
                let id = RawBuf::string(&id);
                Some((ELICITED, self.params(&[("elicitationId", id.as_raw())])))
            }
        };
        let Some((method, params)) = told else {
            return;
        };
        let fields = match self.place {
            StreamOwner::Session(_) => format!("{}id: {number}\n", std::mem::take(&mut self.retry)),
            StreamOwner::Request(..) => String::new(),
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

    /// Returns the params of a notification, with its subscription id.
    fn params(&self, members: &[(&str, Raw<'_>)]) -> RawBuf {
        let mut params = Edit::new(Raw::EMPTY_OBJECT);
        for (key, value) in members {
            params.set(key, *value);
        }
        match &self.place {
            StreamOwner::Session(_) => {}
            StreamOwner::Request(id, ..) => {
                params.set_meta(SUBSCRIPTION_ID, id.as_id().into());
            }
        }
        params.to_buf()
    }
}

impl Drop for LogCursor {
    fn drop(&mut self) {
        self.log.leave(self.seen);
    }
}

/// Waits for the next server request.
async fn question(asked: &mut Option<mpsc::Receiver<ServerRequests>>) -> Option<ServerRequests> {
    asked.as_mut()?.recv().await
}

#[cfg(test)]
mod tests {
    use super::*;

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
