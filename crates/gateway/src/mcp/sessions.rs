//! The sessions of protocol generations that have them, sealed to the key that opened them.
//!
//! Bounded: so many in all, so many per key (its least used one then ends), and none that was idle
//! for an hour, nor longer than its key is valid; what one listened to ends with it, outside of the
//! table's lock. A session id under another key is as unknown as one that never was (fault T4). Never
//! held across an await. Entry points: [`Sessions::open`] and [`Sessions::find`].

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use gantry_engine::{Ask, Scope, Word};
use gantry_model::caller::KeyValidity;
use gantry_model::era::ProtocolVersion;
use gantry_model::id::KeyId;
use gantry_model::mcp::{ClientCan, LogLevel};
use http::{HeaderValue, StatusCode};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::inflight::Inflight;
use super::ring::budget::Budget;
use super::ring::{News, Ring};
use super::subscribe::Subscribed;
use crate::http::error::Problem;

/// Sessions in all.
const SESSIONS: usize = 10_000;
/// Sessions of one key.
const PER_KEY: usize = 1_000;
/// How long a session may be idle.
const IDLE: Duration = Duration::from_secs(3600);
/// What servers ask of one session between calls that may wait for its stream.
const ASKS: usize = 16;
/// How often idle sessions are looked for.
const SWEEP: Duration = Duration::from_secs(60);

/// A session's name: 128 random bits as 32 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SessionId(u128);

impl SessionId {
    /// Makes a name that nobody can guess.
    pub(super) fn random() -> Result<Self, Problem> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits)
            .map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "gateway.random"))?;
        Ok(Self(u128::from_ne_bytes(bits)))
    }

    /// Returns the header's value.
    pub(super) fn header(self) -> HeaderValue {
        HeaderValue::try_from(self.to_string()).expect("hex digits are a value")
    }

    /// Returns its bits, by which the engine tells sessions apart.
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

/// What a client told at its handshake, and what it has going on.
#[derive(Debug)]
pub(super) struct Session {
    /// Its name.
    pub(super) id: SessionId,
    /// The key that opened it.
    pub(super) key: KeyId,
    /// The validity of that key.
    validity: KeyValidity,
    /// The endpoint it was opened at.
    pub(super) scope: Scope,
    /// The protocol version that was agreed on.
    pub(super) version: ProtocolVersion,
    /// What it is to be told outside of its requests.
    pub(super) ring: Arc<Ring>,
    /// The resources it listens to.
    pub(super) subscribed: Subscribed,
    /// What the client can do for servers.
    pub(super) can: ClientCan,
    level: Mutex<Option<LogLevel>>,
    /// Takes what servers ask between calls, while a stream listens.
    asks: Mutex<Option<mpsc::Sender<Ask>>>,
    seen_ms: AtomicU64,
    listening: AtomicBool,
    ended: CancellationToken,
}

impl Session {
    /// Remembers from which level on the client wants log messages.
    pub(super) fn set_level(&self, level: LogLevel) {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
    }

    /// Returns from which level on the client wants log messages; none if it never said so.
    pub(super) fn level(&self) -> Option<LogLevel> {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the one place for a listening stream; it is free again when the guard is dropped.
    pub(super) fn listen(self: &Arc<Self>) -> Option<Listening> {
        let taken = self.listening.swap(true, Ordering::AcqRel);
        (!taken).then(|| Listening(Arc::clone(self)))
    }

    /// Returns what servers ask between calls, as long as its stream listens.
    pub(super) fn asked(&self) -> mpsc::Receiver<Ask> {
        let (asks, asked) = mpsc::channel(ASKS);
        *self.asks.lock().unwrap_or_else(PoisonError::into_inner) = Some(asks);
        asked
    }

    /// Tells the client something outside of its calls; false if that does not reach it.
    pub(super) fn tell(&self, word: Word) -> bool {
        match word {
            _ if self.is_ended() => false,
            Word::Elicited(id) => {
                self.ring.tell(News::Elicited(id.into()));
                true
            }
            Word::Ask(ask) => {
                let asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
                asks.as_ref().is_some_and(|asks| asks.try_send(ask).is_ok())
            }
            Word::Progress(_) | Word::Log(_) => false,
        }
    }

    /// Tells whether the session was ended.
    pub(super) fn is_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Waits until the session is ended.
    pub(super) async fn end(&self) {
        self.ended.cancelled().await;
    }
}

/// The right to listen on a session.
#[derive(Debug)]
pub(super) struct Listening(pub(super) Arc<Session>);

impl Drop for Listening {
    fn drop(&mut self) {
        *self.0.asks.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.0.listening.store(false, Ordering::Release);
    }
}

/// All sessions of the gateway, and the requests in flight that a client may take back.
#[derive(Debug)]
pub struct Sessions {
    start: Instant,
    swept_ms: AtomicU64,
    table: RwLock<HashMap<SessionId, Arc<Session>>>,
    inflight: Inflight,
    /// What all that clients are to be told may take.
    news: Arc<Budget>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            swept_ms: AtomicU64::new(0),
            table: RwLock::default(),
            inflight: Inflight::default(),
            news: Arc::default(),
        }
    }
}

impl Sessions {
    /// Opens a session.
    pub(super) fn open(
        &self,
        (key, validity): (KeyId, &KeyValidity),
        scope: Scope,
        (version, can): (ProtocolVersion, ClientCan),
    ) -> Result<Arc<Session>, Problem> {
        let id = SessionId::random()?;
        let now = self.now_ms();
        let session = Arc::new(Session {
            id,
            key,
            validity: validity.clone(),
            scope,
            version,
            ring: self.ring(key),
            subscribed: Subscribed::default(),
            can,
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
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let own = || table.values().filter(|session| session.key == key);
        let least_used = match own().count() {
            0..PER_KEY => None,
            _ => own()
                .min_by_key(|session| session.seen_ms.load(Ordering::Relaxed))
                .cloned(),
        };
        if let Some(session) = least_used {
            table.remove(&session.id);
            ended.push(session);
        }
        if table.len() >= SESSIONS {
            ended.extend(take_idle(&mut table, now));
        }
        let is_full = table.len() >= SESSIONS;
        if !is_full {
            table.insert(session.id, Arc::clone(&session));
        }
        drop(table);
        ended.iter().for_each(|session| end(session));
        // Whoever ends sessions with their keys may have looked just before.
        if validity.end_reason().is_some() {
            self.close(&session);
        }
        if is_full {
            return Err(
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "session.full")
                    .with_retry_after(SWEEP),
            );
        }
        Ok(session)
    }

    /// Ends the sessions of keys that have ended. fault U6
    fn end_with_keys(&self) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let gone = |session: &Session| session.validity.end_reason().is_some();
        let gone = table.extract_if(|_, session| gone(session));
        let gone: Vec<_> = gone.map(|(_, session)| session).collect();
        drop(table);
        gone.iter().for_each(|session| end(session));
    }

    /// Tells, once in a while, that idle sessions are to be looked for.
    fn is_to_be_swept(&self, now: u64) -> bool {
        let swept = self.swept_ms.load(Ordering::Relaxed);
        let is_time = now >= swept + ms(SWEEP);
        let ours = |()| {
            let (old, new) = (Ordering::Relaxed, Ordering::Relaxed);
            self.swept_ms.compare_exchange(swept, now, old, new).is_ok()
        };
        is_time.then_some(()).is_some_and(ours)
    }

    /// Takes idle sessions out; they are still to be ended.
    fn sweep(&self, now: u64) -> Vec<Arc<Session>> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        take_idle(&mut table, now)
    }

    /// Returns the session of that name, if this key opened it at this endpoint.
    pub(super) fn find(&self, id: SessionId, key: KeyId, scope: &Scope) -> Option<Arc<Session>> {
        let now = self.now_ms();
        if self.is_to_be_swept(now) {
            self.sweep(now).iter().for_each(|session| end(session));
        }
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let session = table
            .get(&id)
            .filter(|session| session.key == key && session.scope == *scope)?;
        if is_idle(session, now) {
            return None;
        }
        session.seen_ms.store(now, Ordering::Relaxed);
        Some(Arc::clone(session))
    }

    /// Returns the session of that name whose request is under way, if it has not ended.
    pub(super) fn under_way(&self, id: SessionId) -> Option<Arc<Session>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.get(&id).cloned()
    }

    /// Ends a session; its streams close, its calls go on, unless they wait for its client's answers.
    pub(super) fn close(&self, session: &Session) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let ended = table.remove(&session.id);
        drop(table);
        drop(ended);
        end(session);
    }

    /// Makes the log of what a client of this key is to be told.
    pub(super) fn ring(&self, key: KeyId) -> Arc<Ring> {
        Ring::new(self.news.share(key))
    }

    /// Returns the requests in flight.
    pub(super) fn inflight(&self) -> &Inflight {
        &self.inflight
    }

    fn now_ms(&self) -> u64 {
        ms(self.start.elapsed())
    }
}

/// Ends sessions with their keys, for as long as there are any to be.
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

fn take_idle(table: &mut HashMap<SessionId, Arc<Session>>, now_ms: u64) -> Vec<Arc<Session>> {
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

    fn key(n: u128) -> KeyId {
        KeyId::from_random(n)
    }

    fn open(sessions: &Sessions, n: u128) -> Arc<Session> {
        sessions
            .open(
                (key(n), &KeyValidity::default()),
                Scope::All,
                (ProtocolVersion::V2025_11_25, ClientCan::NOTHING),
            )
            .unwrap()
    }

    // fault T4
    #[tokio::test]
    async fn a_session_is_for_its_own_key_and_endpoint() {
        let sessions = Sessions::default();
        let session = open(&sessions, 1);
        assert_eq!(session.id.to_string().parse(), Ok(session.id));
        assert!(sessions.find(session.id, key(1), &Scope::All).is_some());
        assert!(sessions.find(session.id, key(2), &Scope::All).is_none());
        let other = Scope::Server("one".parse().unwrap());
        assert!(sessions.find(session.id, key(1), &other).is_none());
        sessions.close(&session);
        assert!(session.is_ended());
        assert!(sessions.find(session.id, key(1), &Scope::All).is_none());
    }

    // fault U6
    #[tokio::test]
    async fn a_session_ends_with_its_key() {
        let sessions = Sessions::default();
        let (kept, validity) = (open(&sessions, 1), KeyValidity::default());
        let agreed = (ProtocolVersion::V2025_11_25, ClientCan::NOTHING);
        let session = sessions.open((key(1), &validity), Scope::All, agreed);
        validity.end(gantry_model::caller::KeyEnd::Revoked);
        sessions.end_with_keys();
        assert!(session.unwrap().is_ended() && !kept.is_ended());
        assert_eq!(sessions.table.read().unwrap().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_sessions_end_and_listening_ones_stay() {
        let sessions = Sessions::default();
        let (idle, listening) = (open(&sessions, 1), open(&sessions, 1));
        let guard = listening.listen().unwrap();
        assert!(listening.listen().is_none());
        tokio::time::advance(IDLE + Duration::from_secs(1)).await;
        assert!(sessions.find(idle.id, key(1), &Scope::All).is_none());
        assert!(sessions.find(listening.id, key(1), &Scope::All).is_some());
        drop(guard);
        assert!(listening.listen().is_some());
        tokio::time::advance(SWEEP).await;
        // Whoever comes next, the idle ones go.
        assert!(sessions.find(idle.id, key(2), &Scope::All).is_none());
        assert!(idle.is_ended());
        open(&sessions, 2);
        assert_eq!(sessions.table.read().unwrap().len(), 2);
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
        assert_eq!(sessions.table.read().unwrap().len(), PER_KEY);
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
