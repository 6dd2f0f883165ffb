//! Browser sessions, and the single-use codes that open them.
//!
//! A session has two secrets: a cookie and a token that the page sends as a header. Neither is
//! valid alone, since browsers send a cookie of 127.0.0.1 to every port. A session ends with its
//! key, by request, when idle or at its maximum age. Only digests are kept, compared in constant
//! time, in memory. Entry points: [`BrowserSessions::new_code`], [`BrowserSessions::redeem`] and
//! [`BrowserSessions::find`].

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gantry_model::caller::Caller;
use gantry_model::id::{KeyId, ProjectName};
use http::HeaderMap;
use http::header::{COOKIE, HOST};
use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The header with the page's token.
pub(crate) const TOKEN_HEADER: &str = "x-gantry-session";

/// How long a code is valid.
pub(crate) const CODE_LIFETIME: Duration = Duration::from_secs(5 * 60);
/// How many cookies of its name are tried in a request.
const MOST_COOKIES: usize = 8;
/// Maximum number of unused codes; a new one replaces the oldest of the largest project.
const CODES: usize = 256;
/// Maximum number of unused codes per key; a new one replaces the oldest.
const CODES_PER_KEY: usize = 4;
/// How long a session lasts.
const LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// How long a session may be idle.
const IDLE: Duration = Duration::from_secs(3600);
/// Maximum number of sessions; a new one ends the longest idle one of the largest project.
const SESSIONS: usize = 256;
/// Sessions of one key.
const PER_KEY: usize = 16;

type Sha256Digest = [u8; 32];

/// The browser sessions of a gateway. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct BrowserSessions(Arc<Mutex<Registry>>);

#[derive(Debug, Default)]
struct Registry {
    /// Oldest first.
    codes: VecDeque<Code>,
    sessions: Vec<Arc<Session>>,
}

#[derive(Debug)]
struct Code {
    digest: Sha256Digest,
    caller: Caller,
    until: Instant,
}

/// A signed-in browser.
#[derive(Debug)]
pub(crate) struct Session {
    cookie: Sha256Digest,
    token: Sha256Digest,
    /// The caller of the key it came from.
    caller: Caller,
    until: Instant,
    last_used: Mutex<Instant>,
    ended: CancellationToken,
}

/// The secrets of a new session; shown once.
pub(crate) struct NewSession {
    pub(crate) cookie: String,
    pub(crate) token: String,
    pub(crate) session: Arc<Session>,
}

impl Session {
    /// Returns the caller, as of the sign-in.
    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Records its use; returns whether it is still valid.
    pub(crate) fn touch(&self) -> bool {
        let now = Instant::now();
        let mut last_used = self.last_used();
        let is_open = !self.ended.is_cancelled() && now < self.until && now < *last_used + IDLE;
        if is_open {
            *last_used = now;
        }
        is_open
    }

    /// Returns its maximum remaining time.
    pub(crate) fn time_left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Waits until it is ended or replaced.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    fn last_used(&self) -> MutexGuard<'_, Instant> {
        self.last_used.lock()
    }
}

impl BrowserSessions {
    /// Creates a code for one session of the caller's key.
    pub fn new_code(&self, caller: &Caller) -> String {
        let code = random_text::<16>();
        let mut registry = self.0.lock();
        registry.forget_codes(Instant::now());
        registry.make_room_for_code(caller.key);
        registry.codes.push_back(Code {
            digest: digest(&code),
            caller: caller.clone(),
            until: Instant::now() + CODE_LIFETIME,
        });
        code
    }

    /// Redeems a code, once, and returns its caller; the key may have ended since.
    pub(crate) fn redeem(&self, code: &str) -> Option<Caller> {
        let wanted = digest(code);
        let mut registry = self.0.lock();
        registry.forget_codes(Instant::now());
        let mut found = None;
        // Every code is compared, in constant time.
        for (index, known) in registry.codes.iter().enumerate() {
            if bool::from(known.digest.ct_eq(&wanted)) {
                found = Some(index);
            }
        }
        let code = registry.codes.remove(found?)?;
        Some(code.caller)
    }

    /// Opens a session for a caller.
    pub(crate) fn open(&self, caller: Caller) -> NewSession {
        let (cookie, token) = (random_text::<32>(), random_text::<32>());
        let now = Instant::now();
        let session = Arc::new(Session {
            cookie: digest(&cookie),
            token: digest(&token),
            until: now + LIFETIME,
            last_used: Mutex::new(now),
            ended: CancellationToken::new(),
            caller,
        });
        let mut registry = self.0.lock();
        registry.forget_ended(now);
        let key = session.caller.key;
        if registry.of(key).count() >= PER_KEY {
            registry.end_least_used(|session| session.caller.key == key);
        } else if registry.sessions.len() >= SESSIONS {
            let callers = registry.sessions.iter().map(|session| &session.caller);
            let project = largest(callers).cloned();
            registry.end_least_used(|session| Some(&session.caller.project) == project.as_ref());
        }
        registry.sessions.push(Arc::clone(&session));
        NewSession {
            cookie,
            token,
            session,
        }
    }

    /// Returns the session of both secrets, and records its use.
    pub(crate) fn find(&self, cookie: &str, token: &str) -> Option<Arc<Session>> {
        let (cookie, token) = (digest(cookie), digest(token));
        let registry = self.0.lock();
        let mut found = None;
        for session in &registry.sessions {
            let is_it = session.cookie.ct_eq(&cookie) & session.token.ct_eq(&token);
            if bool::from(is_it) {
                found = Some(session);
            }
        }
        let session = found.filter(|session| session.touch())?;
        Some(Arc::clone(session))
    }

    /// Ends a session and its streams.
    pub(crate) fn end(&self, session: &Arc<Session>) {
        session.ended.cancel();
        let mut registry = self.0.lock();
        registry.sessions.retain(|one| !Arc::ptr_eq(one, session));
    }
}

impl Registry {
    fn forget_codes(&mut self, now: Instant) {
        self.codes.retain(|code| now < code.until);
    }

    /// Removes the key's oldest code if it has too many, or that of the largest project if there
    /// are too many in total.
    fn make_room_for_code(&mut self, key: KeyId) {
        let of_key = |code: &Code| code.caller.key == key;
        let count = self.codes.iter().filter(|code| of_key(code)).count();
        let oldest = if count >= CODES_PER_KEY {
            self.codes.iter().position(of_key)
        } else if self.codes.len() >= CODES {
            let project = largest(self.codes.iter().map(|code| &code.caller));
            let mut codes = self.codes.iter();
            codes.position(|code| Some(&code.caller.project) == project)
        } else {
            None
        };
        if let Some(oldest) = oldest {
            self.codes.remove(oldest);
        }
    }

    fn forget_ended(&mut self, now: Instant) {
        self.sessions.retain(|session| {
            let is_idle = now >= *session.last_used() + IDLE;
            let has_key = session.caller.validity.end_reason().is_none();
            let stays = has_key && !is_idle && now < session.until;
            if !stays {
                session.ended.cancel();
            }
            stays
        });
    }

    fn of(&self, key: KeyId) -> impl Iterator<Item = &Arc<Session>> {
        let sessions = self.sessions.iter();
        sessions.filter(move |session| session.caller.key == key)
    }

    fn end_least_used(&mut self, among: impl Fn(&Session) -> bool) {
        let sessions = self.sessions.iter().enumerate();
        let candidates = sessions.filter(|(_, session)| among(session));
        let oldest = candidates.min_by_key(|(_, session)| *session.last_used());
        if let Some(index) = oldest.map(|(index, _)| index) {
            self.sessions.swap_remove(index).ended.cancel();
        }
    }
}

/// Returns the project with the most callers.
fn largest<'a>(callers: impl Iterator<Item = &'a Caller>) -> Option<&'a ProjectName> {
    let mut counts: HashMap<&ProjectName, usize> = HashMap::new();
    for caller in callers {
        *counts.entry(&caller.project).or_default() += 1;
    }
    let largest = counts.into_iter().max_by_key(|(_, count)| *count);
    largest.map(|(project, _)| project)
}

/// Returns the name of the cookie. Cookies are shared by all ports of a host, so the name
/// identifies the gateway.
pub(crate) fn cookie_name(headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let port = host.and_then(|host| host.rsplit_once(':'));
    let port = port.and_then(|(_, port)| port.parse::<u16>().ok());
    format!("gantry_{}", port.unwrap_or(80))
}

/// Returns the session cookies of a request. Another program's page on this host can set one of the
/// same name, which must not lock a person out.
pub(crate) fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let name = cookie_name(headers);
    let values = headers.get_all(COOKIE).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    let pairs = values.flat_map(|value| value.split(';'));
    let own = pairs.filter_map(move |pair| {
        let (found, value) = pair.trim().split_once('=')?;
        (found == name).then_some(value)
    });
    own.take(MOST_COOKIES)
}

fn digest(text: &str) -> Sha256Digest {
    Sha256::digest(text.as_bytes()).into()
}

/// Returns random bytes as text.
fn random_text<const BYTES: usize>() -> String {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gantry_model::caller::{KeyEnd, KeyKind, KeyValidity, Role, UserTrust};
    use gantry_model::grant::GrantSet;

    use super::*;

    fn caller(key: u128) -> Caller {
        Caller {
            project: ProjectName::local(),
            agent: "operator".parse().unwrap(),
            key: KeyId::from_random(key),
            kind: KeyKind::Admin(Role::Admin),
            grants: Arc::new(GrantSet::everything()),
            users: UserTrust::Trusted,
            validity: KeyValidity::default(),
            token: None,
            authenticated_in: Duration::ZERO,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_code_works_once_and_for_minutes() {
        let sessions = BrowserSessions::default();
        let code = sessions.new_code(&caller(1));
        assert!(sessions.redeem("another").is_none());
        assert_eq!(sessions.redeem(&code).unwrap().key, caller(1).key);
        assert!(sessions.redeem(&code).is_none(), "it was used");
        let late = sessions.new_code(&caller(1));
        tokio::time::advance(CODE_LIFETIME).await;
        assert!(sessions.redeem(&late).is_none(), "it has expired");
        let other = sessions.new_code(&caller(2));
        let all = (0..=CODES_PER_KEY).map(|_| sessions.new_code(&caller(1)));
        let all: Vec<String> = all.collect();
        assert!(
            sessions.redeem(&all[0]).is_none(),
            "a newer one replaced it"
        );
        assert!(sessions.redeem(&all[1]).is_some());
        assert!(sessions.redeem(&other).is_some(), "it is another key's");
    }

    #[tokio::test]
    async fn a_project_with_many_keys_takes_nothing_from_another() {
        let sessions = BrowserSessions::default();
        let guest = Caller {
            project: "guest".parse().unwrap(),
            ..caller(1)
        };
        let code = sessions.new_code(&guest);
        let open = sessions.open(guest);
        for key in 2..2 + 2 * CODES.max(SESSIONS) as u128 {
            sessions.new_code(&caller(key));
            sessions.open(caller(key));
        }
        assert_eq!(sessions.0.lock().codes.len(), CODES);
        assert_eq!(sessions.0.lock().sessions.len(), SESSIONS);
        assert!(sessions.redeem(&code).is_some());
        assert!(sessions.find(&open.cookie, &open.token).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_takes_both_secrets_and_ends_in_time() {
        let sessions = BrowserSessions::default();
        let new = sessions.open(caller(1));
        let other = sessions.open(caller(1));
        let (cookie, token) = (new.cookie.as_str(), new.token.as_str());
        assert!(sessions.find(cookie, token).is_some());
        for (cookie, token) in [
            (cookie, ""),
            ("", token),
            (token, cookie),
            (cookie, other.token.as_str()),
            (cookie, cookie),
        ] {
            assert!(sessions.find(cookie, token).is_none());
        }
        // Idle for too long, then used all the time but too old.
        tokio::time::advance(IDLE).await;
        assert!(sessions.find(cookie, token).is_none());
        let used = sessions.open(caller(1));
        assert_eq!(
            sessions.0.lock().sessions.len(),
            1,
            "the others are forgotten"
        );
        let mut alive = Duration::ZERO;
        while sessions.find(&used.cookie, &used.token).is_some() {
            tokio::time::advance(IDLE / 2).await;
            alive += IDLE / 2;
        }
        assert_eq!(alive, LIFETIME);
        let ended = sessions.open(caller(1));
        sessions.end(&ended.session);
        assert!(sessions.find(&ended.cookie, &ended.token).is_none());
        ended.session.ended().await;
    }

    #[tokio::test]
    async fn sessions_are_bounded_and_go_with_their_key() {
        let sessions = BrowserSessions::default();
        let first = sessions.open(caller(1));
        for _ in 0..PER_KEY {
            sessions.open(caller(1));
        }
        assert!(sessions.find(&first.cookie, &first.token).is_none());
        assert_eq!(sessions.0.lock().sessions.len(), PER_KEY);
        for key in 2..2 * SESSIONS as u128 {
            sessions.open(caller(key));
        }
        assert_eq!(sessions.0.lock().sessions.len(), SESSIONS);
        let with_key = sessions.open(caller(9999));
        with_key.session.caller.validity.end(KeyEnd::Revoked);
        sessions.open(caller(1));
        with_key.session.ended().await;
    }

    #[test]
    fn the_cookie_is_the_one_of_this_port() {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "127.0.0.1:4180".parse().unwrap());
        headers.append(
            COOKIE,
            "a=b; gantry_4181=other; xgantry_4180=x".parse().unwrap(),
        );
        let found = |headers: &HeaderMap| cookies(headers).map(str::to_owned).collect::<Vec<_>>();
        assert!(found(&headers).is_empty());
        let both = "gantry_4180=planted; gantry_4180=mine";
        headers.append(COOKIE, both.parse().unwrap());
        assert_eq!(found(&headers), ["planted", "mine"]);
        let many = vec!["gantry_4180=planted"; 1_000].join("; ");
        headers.append(COOKIE, many.parse().unwrap());
        assert_eq!(found(&headers).len(), MOST_COOKIES);
    }
}
