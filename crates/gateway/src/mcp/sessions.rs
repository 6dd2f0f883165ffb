//! MCP sessions of the handshake era, bound to the key that opened them.
//!
//! Bounded in total, per project and per key (the least recently used one ends), idle for an hour
//! at most, and never longer than the key is valid. Under another key a session id is unknown
//! (fault T4). The lock is never held across an await. Entry points: [`Sessions::open`] and
//! [`Sessions::find`].

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use gantry_engine::{CallEvent, Quota, Scope, ServerRequests};
use gantry_model::caller::{Caller, KeyValidity};
use gantry_model::era::ProtocolVersion;
use gantry_model::id::{KeyId, ProjectName};
use gantry_model::mcp::{ClientCapabilities, LogLevel};
use http::HeaderValue;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::inflight::Inflight;
use super::notification_log::{Notification, NotificationLog, quota};
use super::subscribe::Subscribed;
use crate::http::error::Problem;

/// Sessions in all.
const SESSIONS: usize = 13_000;
/// Sessions of one project.
const PER_PROJECT: usize = 10_000;
/// Sessions of one key.
const PER_KEY: usize = 1_000;
/// How long a session may be idle.
const IDLE: Duration = Duration::from_secs(3600);
/// Maximum number of server requests between calls that wait for a session's stream.
const ASKS: usize = 16;
/// The interval for expiring idle sessions.
const SWEEP: Duration = Duration::from_secs(60);

/// A session id: 128 random bits as 32 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SessionId(u128);

impl SessionId {
    /// Creates an unguessable id.
    pub(super) fn random() -> Result<Self, Problem> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).map_err(|_| Problem::new("gateway.random"))?;
        Ok(Self(u128::from_ne_bytes(bits)))
    }

    /// Returns the header's value.
    pub(super) fn header(self) -> HeaderValue {
        HeaderValue::try_from(self.to_string()).expect("hex digits are a value")
    }

    /// Returns its bits, the engine's key for sessions.
    pub(super) fn bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for SessionId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let is_hex = text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if text.len() != 32 || !is_hex {
            return Err(());
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| ())
    }
}

/// The negotiated session of a client, and its state.
#[derive(Debug)]
pub(super) struct Session {
    /// Its name.
    pub(super) id: SessionId,
    /// The project that it belongs to.
    pub(super) project: ProjectName,
    /// The key that opened it.
    pub(super) key: KeyId,
    /// The validity of that key.
    validity: KeyValidity,
    /// The endpoint it was opened at.
    pub(super) scope: Scope,
    /// The negotiated protocol version.
    pub(super) version: ProtocolVersion,
    /// Its pending notifications.
    pub(super) log: Arc<NotificationLog>,
    /// Its resource subscriptions.
    pub(super) subscribed: Subscribed,
    /// The client's capabilities.
    pub(super) capabilities: ClientCapabilities,
    level: Mutex<Option<LogLevel>>,
    /// Receives server requests between calls, while a stream listens.
    asks: Mutex<Option<mpsc::Sender<ServerRequests>>>,
    seen_ms: AtomicU64,
    listening: AtomicBool,
    ended: CancellationToken,
}

impl Session {
    fn name(&self) -> (ProjectName, SessionId) {
        (self.project.clone(), self.id)
    }

    /// Sets the client's log level.
    pub(super) fn set_level(&self, level: LogLevel) {
        *self.level.lock() = Some(level);
    }

    /// Returns the client's log level, if set.
    pub(super) fn level(&self) -> Option<LogLevel> {
        *self.level.lock()
    }

    /// Takes the session's only stream slot, released when the guard is dropped.
    pub(super) fn listen(self: &Arc<Self>) -> Option<Listening> {
        let taken = self.listening.swap(true, Ordering::AcqRel);
        (!taken).then(|| Listening(Arc::clone(self)))
    }

    /// Returns the server requests between calls, while its stream listens.
    pub(super) fn asked(&self) -> mpsc::Receiver<ServerRequests> {
        let (asks, asked) = mpsc::channel(ASKS);
        *self.asks.lock() = Some(asks);
        asked
    }

    /// Sends a server request outside of calls; false if it cannot be delivered.
    pub(super) fn tell(&self, word: CallEvent) -> bool {
        match word {
            _ if self.is_ended() => false,
            CallEvent::Elicited(id) => {
                self.log.tell(Notification::Elicited(id.into()));
                true
            }
            CallEvent::Requests(ask) => {
                let asks = self.asks.lock();
                asks.as_ref().is_some_and(|asks| asks.try_send(ask).is_ok())
            }
            CallEvent::Progress(_) | CallEvent::Log(_) => false,
        }
    }

    /// Returns whether the session was ended.
    pub(super) fn is_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Waits until the session is ended.
    pub(super) async fn end(&self) {
        self.ended.cancelled().await;
    }
}

/// A session's stream slot.
#[derive(Debug)]
pub(super) struct Listening(pub(super) Arc<Session>);

impl Drop for Listening {
    fn drop(&mut self) {
        *self.0.asks.lock() = None;
        self.0.listening.store(false, Ordering::Release);
    }
}

/// Sessions by project and id.
type Table = HashMap<(ProjectName, SessionId), Arc<Session>>;

/// All sessions of the gateway, and the requests in flight that clients may cancel.
#[derive(Debug)]
pub struct Sessions {
    start: Instant,
    swept_ms: AtomicU64,
    table: RwLock<Table>,
    inflight: Inflight,
    /// The quota of all notifications.
    notifications: Quota<KeyId>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            swept_ms: AtomicU64::new(0),
            table: RwLock::default(),
            inflight: Inflight::default(),
            notifications: quota(),
        }
    }
}

impl Sessions {
    /// Opens a session.
    pub(super) fn open(
        &self,
        caller: &Caller,
        scope: Scope,
        (version, capabilities): (ProtocolVersion, ClientCapabilities),
    ) -> Result<Arc<Session>, Problem> {
        let id = SessionId::random()?;
        let now = self.now_ms();
        let (project, key) = (&caller.project, caller.key);
        let session = Arc::new(Session {
            id,
            project: project.clone(),
            key,
            validity: caller.validity.clone(),
            scope,
            version,
            log: self.log(caller),
            subscribed: Subscribed::default(),
            capabilities,
            level: Mutex::default(),
            asks: Mutex::default(),
            seen_ms: AtomicU64::new(now),
            listening: AtomicBool::new(false),
            ended: CancellationToken::new(),
        });
        let mut ended = match self.is_to_be_swept(now) {
            true => self.sweep(now),
            false => Vec::new(),
        };
        let mut table = self.table.write();
        let own = |session: &&Arc<Session>| session.key == key && session.project == *project;
        let own = || table.values().filter(own);
        let least_used = match own().count() {
            0..PER_KEY => None,
            _ => own()
                .min_by_key(|session| session.seen_ms.load(Ordering::Relaxed))
                .cloned(),
        };
        if let Some(session) = least_used {
            table.remove(&session.name());
            ended.push(session);
        }
        if table.len() >= SESSIONS {
            ended.extend(take_idle(&mut table, now));
        }
        let of_project = table.values().filter(|session| session.project == *project);
        let is_full = table.len() >= SESSIONS || of_project.count() >= PER_PROJECT;
        if !is_full {
            table.insert(session.name(), Arc::clone(&session));
        }
        drop(table);
        ended.iter().for_each(|session| end(session));
        // The key may have ended just before.
        if caller.validity.end_reason().is_some() {
            self.close(&session);
        }
        if is_full {
            return Err(Problem::new("session.full").with_retry_after(SWEEP));
        }
        Ok(session)
    }

    /// Ends the sessions of keys that have ended. fault U6
    fn end_with_keys(&self) {
        let mut table = self.table.write();
        let gone = |session: &Session| session.validity.end_reason().is_some();
        let gone = table.extract_if(|_, session| gone(session));
        let gone: Vec<_> = gone.map(|(_, session)| session).collect();
        drop(table);
        gone.iter().for_each(|session| end(session));
    }

    /// Returns whether it is time to expire idle sessions.
    fn is_to_be_swept(&self, now: u64) -> bool {
        let swept = self.swept_ms.load(Ordering::Relaxed);
        let is_time = now >= swept + ms(SWEEP);
        let ours = |()| {
            let (old, new) = (Ordering::Relaxed, Ordering::Relaxed);
            self.swept_ms.compare_exchange(swept, now, old, new).is_ok()
        };
        is_time.then_some(()).is_some_and(ours)
    }

    /// Removes idle sessions; the caller must end them.
    fn sweep(&self, now: u64) -> Vec<Arc<Session>> {
        let mut table = self.table.write();
        take_idle(&mut table, now)
    }

    /// Returns a session by id, if this caller's key opened it at this endpoint.
    pub(super) fn find(
        &self,
        id: SessionId,
        caller: &Caller,
        scope: &Scope,
    ) -> Option<Arc<Session>> {
        let now = self.now_ms();
        if self.is_to_be_swept(now) {
            self.sweep(now).iter().for_each(|session| end(session));
        }
        let table = self.table.read();
        let session = table
            .get(&(caller.project.clone(), id))
            .filter(|session| session.key == caller.key && session.scope == *scope)?;
        if is_idle(session, now) {
            return None;
        }
        session.seen_ms.store(now, Ordering::Relaxed);
        Some(Arc::clone(session))
    }

    /// Returns the session of a request in progress, if it has not ended.
    pub(super) fn under_way(&self, project: &ProjectName, id: SessionId) -> Option<Arc<Session>> {
        let table = self.table.read();
        table.get(&(project.clone(), id)).cloned()
    }

    /// Ends a session: its streams close, its calls continue, unless they wait for the client.
    pub(super) fn close(&self, session: &Session) {
        let mut table = self.table.write();
        let ended = table.remove(&session.name());
        drop(table);
        drop(ended);
        end(session);
    }

    /// Creates the notification log of a client.
    pub(super) fn log(&self, caller: &Caller) -> Arc<NotificationLog> {
        NotificationLog::new(self.notifications.permit(&caller.project, &caller.key))
    }

    /// Returns the requests in flight.
    pub(super) fn inflight(&self) -> &Inflight {
        &self.inflight
    }

    fn now_ms(&self) -> u64 {
        ms(self.start.elapsed())
    }
}

/// Ends sessions with their keys, while there are sessions.
pub(super) async fn follow_keys(sessions: Weak<Sessions>, mut changes: watch::Receiver<u64>) {
    while changes.changed().await.is_ok() {
        let Some(sessions) = sessions.upgrade() else {
            return;
        };
        sessions.end_with_keys();
    }
}

fn is_idle(session: &Session, now_ms: u64) -> bool {
    let listens = session.listening.load(Ordering::Relaxed);
    !listens && now_ms.saturating_sub(session.seen_ms.load(Ordering::Relaxed)) > ms(IDLE)
}

fn take_idle(table: &mut Table, now_ms: u64) -> Vec<Arc<Session>> {
    let idle = table.extract_if(|_, session| is_idle(session, now_ms));
    idle.map(|(_, session)| session).collect()
}

fn end(session: &Session) {
    session.ended.cancel();
    session.subscribed.clear();
}

fn ms(time: Duration) -> u64 {
    time.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(n: u128) -> Caller {
        Caller {
            project: ProjectName::local(),
            agent: "a".parse().unwrap(),
            key: KeyId::from_random(n),
            kind: gantry_model::caller::KeyKind::Agent,
            grants: Default::default(),
            users: Default::default(),
            validity: Default::default(),
            token: None,
            authenticated_in: Duration::ZERO,
        }
    }

    const AGREED: (ProtocolVersion, ClientCapabilities) =
        (ProtocolVersion::V2025_11_25, ClientCapabilities::NOTHING);

    fn open(sessions: &Sessions, n: u128) -> Arc<Session> {
        sessions.open(&caller(n), Scope::All, AGREED).unwrap()
    }

    // fault T4
    #[tokio::test]
    async fn a_session_is_for_its_own_key_and_endpoint() {
        let sessions = Sessions::default();
        let session = open(&sessions, 1);
        assert_eq!(session.id.to_string().parse(), Ok(session.id));
        assert!(sessions.find(session.id, &caller(1), &Scope::All).is_some());
        assert!(sessions.find(session.id, &caller(2), &Scope::All).is_none());
        let other = Scope::Server("one".parse().unwrap());
        assert!(sessions.find(session.id, &caller(1), &other).is_none());
        // Nor is it for a key of the same id in another project. row 3.2
        let mut stranger = caller(1);
        stranger.project = "other".parse().unwrap();
        assert!(sessions.find(session.id, &stranger, &Scope::All).is_none());
        assert!(sessions.under_way(&stranger.project, session.id).is_none());
        sessions.close(&session);
        assert!(session.is_ended());
        assert!(sessions.find(session.id, &caller(1), &Scope::All).is_none());
    }

    // fault U6
    #[tokio::test]
    async fn a_session_ends_with_its_key() {
        let sessions = Sessions::default();
        let (kept, other) = (open(&sessions, 1), caller(1));
        let session = sessions.open(&other, Scope::All, AGREED);
        other.validity.end(gantry_model::caller::KeyEnd::Revoked);
        sessions.end_with_keys();
        assert!(session.unwrap().is_ended() && !kept.is_ended());
        assert_eq!(sessions.table.read().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_sessions_end_and_listening_ones_stay() {
        let sessions = Sessions::default();
        let (idle, listening) = (open(&sessions, 1), open(&sessions, 1));
        let guard = listening.listen().unwrap();
        assert!(listening.listen().is_none());
        tokio::time::advance(IDLE + Duration::from_secs(1)).await;
        assert!(sessions.find(idle.id, &caller(1), &Scope::All).is_none());
        assert!(
            sessions
                .find(listening.id, &caller(1), &Scope::All)
                .is_some()
        );
        drop(guard);
        assert!(listening.listen().is_some());
        tokio::time::advance(SWEEP).await;
        // The next request of any caller removes idle sessions.
        assert!(sessions.find(idle.id, &caller(2), &Scope::All).is_none());
        assert!(idle.is_ended());
        open(&sessions, 2);
        assert_eq!(sessions.table.read().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn one_key_cannot_take_all_the_room() {
        let sessions = Sessions::default();
        let first = open(&sessions, 1);
        for _ in 0..PER_KEY {
            tokio::time::advance(Duration::from_millis(1)).await;
            open(&sessions, 1);
        }
        assert!(first.is_ended());
        assert_eq!(sessions.table.read().len(), PER_KEY);
        assert!(!open(&sessions, 2).is_ended());
    }

    #[test]
    fn only_our_own_form_is_a_session_id() {
        for bad in [
            "",
            "1",
            &"A".repeat(32),
            &"g".repeat(32),
            &"0".repeat(33),
            &"+".repeat(32),
        ] {
            assert_eq!(bad.parse::<SessionId>(), Err(()), "{bad}");
        }
    }
}
