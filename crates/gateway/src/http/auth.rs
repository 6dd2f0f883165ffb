//! Authenticates requests: one `Authorization: Bearer` key, or on the REST API a browser session,
//! which yields the same [`Caller`] as the key it came from.
//!
//! Every failure is a denial. Wrong keys and codes are counted per address and answered 429 beyond
//! a limit; valid keys are not affected. The first failure of an address within a window, and every
//! tenfold more, is an event and an audit row.
//!
//! The caller is recorded in the [`Admission`] of its connection, so that everything a key runs
//! ends with the key. Entry points: the methods of [`Gate`].

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use gantry_engine::{Actor, Engine, SourceRefused, Surface};
use gantry_model::caller::{Caller, KeyEnd, KeyKind, Permission};
use gantry_model::diagnose::{Diagnose, Fault};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::error::Problem;
use super::hosts::HostPolicy;
use super::limits::{Bodies, bodies};
use super::resource::ProtectedResource;
use super::session::{self, BrowserSessions, Session, TOKEN_HEADER};

/// The error code for an agent's key on an administrator's route.
const AGENT_KEY: &str = "auth.agent_key";
/// The error code for an administrator's key without the permission.
const ROLE: &str = "auth.role";
/// Maximum number of wrong keys and codes per address within [`WINDOW`].
const ATTEMPTS: u32 = 20;
/// The window for counting wrong keys.
const WINDOW: Duration = Duration::from_secs(10);
/// Maximum number of separately counted addresses; all others share one count.
const ADDRESSES: usize = 4096;

/// The checks in front of every route: hosts, and keys.
#[derive(Clone)]
pub(crate) struct Gate {
    /// The engine, which knows the keys.
    pub(crate) engine: Engine,
    /// The accepted host names.
    pub(crate) hosts: Arc<HostPolicy>,
    /// What long bodies may take.
    pub(crate) bodies: Bodies,
    /// The browsers that are signed in.
    pub(crate) sessions: BrowserSessions,
    /// What clients find out about signing in, if tokens are accepted.
    pub(crate) resource: Arc<Option<ProtectedResource>>,
    failed: Arc<FailedLogins>,
}

/// The authenticated caller, and its browser session, if any.
pub(crate) struct Authenticated {
    pub(crate) caller: Caller,
    pub(crate) session: Option<Arc<Session>>,
}

impl Authenticated {
    /// Returns the same credential with the caller as it acts.
    pub(crate) fn acting_as(self, caller: Caller) -> Self {
        Self { caller, ..self }
    }
}

impl Gate {
    /// Makes the gate of one gateway.
    pub(crate) fn new(engine: Engine, hosts: Arc<HostPolicy>, sessions: BrowserSessions) -> Self {
        Self {
            resource: Arc::new(ProtectedResource::of(&engine)),
            engine,
            hosts,
            bodies: bodies(),
            sessions,
            failed: Arc::default(),
        }
    }

    /// Returns the caller of any key or browser session.
    pub(crate) fn anyone(&self, parts: &Parts) -> Result<Authenticated, Problem> {
        self.check_fresh()?;
        // A cookie is only valid with its token: browsers send it to every port of this machine.
        let Some(token) = parts.headers.get(TOKEN_HEADER) else {
            let caller = self.known(parts, Surface::Rest)?;
            let session = None;
            return Ok(Authenticated { caller, session });
        };
        if parts.headers.contains_key(AUTHORIZATION) {
            return Err(unauthorized(
                "auth.two_keys",
                "a key and a browser session were sent: send one of them",
            ));
        }
        self.hosts.check_own_page(parts)?;
        let found = token.to_str().ok().and_then(|token| {
            let mut cookies = session::cookies(&parts.headers);
            cookies.find_map(|cookie| self.sessions.find(cookie, token))
        });
        let session = found.ok_or_else(no_session)?;
        let Some(caller) = self.engine.current(session.caller()) else {
            self.sessions.end(&session);
            return Err(no_session());
        };
        self.enter(parts, &caller)?;
        let session = Some(session);
        Ok(Authenticated { caller, session })
    }

    /// Refuses everybody while it cannot be known whether a key was revoked.
    fn check_fresh(&self) -> Result<(), Problem> {
        match self.engine.keys_are_stale() {
            false => Ok(()),
            true => Err(Problem::new("auth.stale_keys").with_detail(
                "the database has been away for a minute: keys may have been revoked on another gateway",
            )),
        }
    }

    fn known(&self, parts: &Parts, surface: Surface) -> Result<Caller, Problem> {
        let begun = Instant::now();
        let key = bearer(&parts.headers, parts.uri.query());
        let caller = key.and_then(|key| self.judge(parts, key, surface));
        let mut caller = caller.map_err(|problem| self.point_to_issuers(problem))?;
        caller.authenticated_in = begun.elapsed();
        Ok(caller)
    }

    /// Tells a client that is refused where it finds out how to sign in, if that is possible (RFC 9728).
    fn point_to_issuers(&self, problem: Problem) -> Problem {
        match (&*self.resource, problem.challenge()) {
            (Some(resource), Some(challenge)) => {
                let metadata = resource.metadata_url();
                let challenge = format!("{challenge}, resource_metadata=\"{metadata}\"");
                let problem = problem.with_challenge(challenge);
                match problem.code() {
                    "auth.no_key" => problem.with_hint(format!(
                        "sign in at the authorization server that `{metadata}` names, or send a bearer \
                         key: `gantry connect CLIENT` writes one into a client's configuration"
                    )),
                    _ => problem,
                }
            }
            (None, _) | (_, None) => problem,
        }
    }

    /// Returns the caller of a key in the body of a sign-in.
    pub(crate) fn holder(&self, parts: &Parts, key: &str) -> Result<Caller, Problem> {
        self.judge(parts, key, Surface::Rest)
    }

    fn judge(&self, parts: &Parts, key: &str, surface: Surface) -> Result<Caller, Problem> {
        #[cfg(test)]
        super::tests::judge(key);
        self.check_fresh()?;
        if let Some(token) = self.engine.authenticate_token(key) {
            return match token {
                Ok(caller) if caller.validity.end_reason() == Some(KeyEnd::Suspended) => {
                    Err(suspended())
                }
                Ok(caller) => {
                    self.enter(parts, &caller)?;
                    Ok(caller)
                }
                // Nobody guesses when the issuer's keys are not there.
                Err(error) if error.fault() == Fault::Gateway => {
                    Err(Problem::of(&error).with_challenge(CHALLENGE_WRONG))
                }
                Err(error) => Err(self
                    .refuse(parts, surface)
                    .unwrap_or_else(|| Problem::of(&error).with_challenge(CHALLENGE_WRONG))),
            };
        }
        match self.engine.authenticate(key) {
            Some(caller) if caller.validity.end_reason() == Some(KeyEnd::Suspended) => {
                Err(suspended())
            }
            Some(caller) => {
                self.enter(parts, &caller)?;
                Ok(caller)
            }
            None => Err(self.refuse(parts, surface).unwrap_or_else(|| {
                Problem::new("auth.wrong_key")
                    .with_detail("this key is not known, has expired, or was revoked")
                    .with_challenge(CHALLENGE_WRONG)
            })),
        }
    }

    /// Records the caller on the connection, unless its key may not be used from there.
    fn enter(&self, parts: &Parts, caller: &Caller) -> Result<(), Problem> {
        let Err(SourceRefused) = self.engine.enter(caller, address(parts)) else {
            admit(parts, caller);
            return Ok(());
        };
        let code = "auth.source";
        self.engine.count_wrong_key();
        if let Some(project) = self.engine.project(&caller.project) {
            let by = actor(caller, parts);
            drop(project.refuse_act(&by, "key.use", &caller.key.to_string(), code));
        }
        Err(Problem::new(code)
            .with_detail("this key may not be used from this address")
            .with_hint("use it from one of its ranges, or have an administrator change them"))
    }

    /// Returns the caller of a sign-in code, which is then used up.
    pub(crate) fn redeem(&self, parts: &Parts, code: &str) -> Result<Caller, Problem> {
        let caller = self.sessions.redeem(code);
        let caller = caller.and_then(|caller| self.engine.current(&caller));
        caller.ok_or_else(|| {
            self.refuse(parts, Surface::Rest).unwrap_or_else(|| {
                Problem::new("auth.wrong_code")
                    .with_detail("this sign-in code is unknown, was used, or has expired")
                    .with_hint("a link works once, for five minutes; `gantry open` makes another")
            })
        })
    }

    /// Counts a wrong key or code; returns the refusal if there were too many.
    fn refuse(&self, parts: &Parts, surface: Surface) -> Option<Problem> {
        self.engine.count_wrong_key();
        let (too_many, report) = self.failed.refuse(peer(parts));
        if let Some(report) = report {
            self.engine.report_wrong_keys(surface, report);
        }
        too_many
    }

    /// Returns the agent behind a request to `/mcp`; an admin key is refused (403). fault U4
    pub(crate) fn agent(&self, parts: &Parts) -> Result<Caller, Problem> {
        let caller = self.known(parts, Surface::Mcp)?;
        match caller.kind {
            KeyKind::Agent => Ok(caller),
            KeyKind::Admin(_) => {
                let (by, code) = (actor(&caller, parts), "auth.admin_key");
                let path = parts.uri.path();
                if let Some(project) = self.engine.project(&caller.project) {
                    drop(project.refuse_act(&by, "mcp.request", path, code));
                }
                Err(Problem::new(code)
                    .with_detail("an admin key cannot list or call tools")
                    .with_hint("use the agent key"))
            }
        }
    }
}

/// Refuses a caller without a permission, and every agent (403). fault U4
pub(crate) fn permit(caller: &Caller, needed: Permission) -> Result<(), Problem> {
    match caller.kind {
        KeyKind::Admin(role) if role.may(needed) => Ok(()),
        KeyKind::Admin(role) => {
            let roles: Vec<String> = needed.roles().map(|role| format!("`{role}`")).collect();
            Err(Problem::new(ROLE)
                .with_detail(format!(
                    "a key with the role `{role}` may not do this: it needs `{}`",
                    needed.as_str()
                ))
                .with_hint(format!("use a key with the role {}", roles.join(" or "))))
        }
        KeyKind::Agent => Err(Problem::new(AGENT_KEY).with_detail("this route needs an admin key")),
    }
}

/// Records the caller on the connection.
fn admit(parts: &Parts, caller: &Caller) {
    if let Some(admission) = parts.extensions.get::<Admission>() {
        admission.enter(caller);
    }
}

/// Tells the holder of a key that its agent or project is suspended.
fn suspended() -> Problem {
    Problem::new("auth.suspended")
        .with_detail("the agent or its project is suspended, or the project is not loaded")
        .with_hint("ask an administrator to resume it; grants and keys are kept")
}

fn no_session() -> Problem {
    unauthorized(
        "auth.session",
        "unknown or expired session: the cookie and `X-Gantry-Session` must belong to one that lasts",
    )
    .with_hint("`gantry open` makes a sign-in link")
}

/// The caller of a connection's current request. One per connection, since its requests are
/// sequential.
#[derive(Debug, Clone)]
pub(crate) struct Admission(Arc<Admitted>);

#[derive(Debug)]
struct Admitted {
    /// The client's address.
    peer: SocketAddr,
    /// The current request is authenticated.
    is_current: AtomicBool,
    /// Changes when another caller is authenticated.
    version: AtomicU64,
    caller: Mutex<Option<Caller>>,
}

impl Admission {
    /// Creates it for a connection from this address.
    pub(crate) fn new(peer: SocketAddr) -> Self {
        Self(Arc::new(Admitted {
            peer,
            is_current: AtomicBool::default(),
            version: AtomicU64::default(),
            caller: Mutex::default(),
        }))
    }

    /// Returns the client's address.
    pub(crate) fn peer(&self) -> IpAddr {
        self.0.peer.ip().to_canonical()
    }

    /// Starts a new, unauthenticated request.
    pub(crate) fn reset(&self) {
        self.0.is_current.store(false, Ordering::Relaxed);
    }

    fn enter(&self, caller: &Caller) {
        let mut known = self.lock();
        let is_known = |known: &Caller| known.validity.is_same(&caller.validity);
        if !known.as_ref().is_some_and(is_known) {
            *known = Some(caller.clone());
            self.0.version.fetch_add(1, Ordering::Relaxed);
        }
        self.0.is_current.store(true, Ordering::Relaxed);
    }

    /// Returns the caller of the current request.
    pub(crate) fn caller(&self) -> Option<Caller> {
        let caller = || self.lock().clone();
        self.0.is_current.load(Ordering::Relaxed).then(caller)?
    }

    /// Returns the version of the admission if the current request is authenticated.
    pub(crate) fn current(&self) -> Option<u64> {
        let version = || self.0.version.load(Ordering::Relaxed);
        self.0.is_current.load(Ordering::Relaxed).then(version)
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Option<Caller>> {
        self.0.caller.lock()
    }
}

/// The message for clients that send no key, or look for a sign-in.
pub(crate) const SEND_A_KEY: &str = "this gateway has no sign-in: send a bearer key, as the header \
    `Authorization: Bearer KEY`; `gantry connect CLIENT` writes one into a client's configuration, \
    `gantry key new` makes one";

const NO_KEY: &str = "no key was sent: send a bearer key, as the header `Authorization: Bearer KEY`; \
    `gantry connect CLIENT` or `gantry key new` gives one";

const CHALLENGE: &str = "Bearer realm=\"gantry\"";
/// Asks for another key.
pub(crate) const CHALLENGE_WRONG: &str = "Bearer realm=\"gantry\", error=\"invalid_token\"";

fn unauthorized(code: &'static str, detail: &'static str) -> Problem {
    Problem::new(code)
        .with_detail(detail)
        .with_challenge(CHALLENGE)
}

/// Returns the one key of a request. fault U1
pub(crate) fn bearer<'h>(headers: &'h HeaderMap, query: Option<&str>) -> Result<&'h str, Problem> {
    if query.is_some_and(carries_key) {
        return Err(
            unauthorized("auth.key_in_url", "keys in URLs are never accepted")
                .with_hint("send the key as `Authorization: Bearer KEY`, and make a new one"),
        );
    }
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Err(no_key());
    };
    if values.next().is_some() {
        return Err(unauthorized(
            "auth.two_keys",
            "more than one Authorization header was sent",
        ));
    }
    let text = value.to_str().unwrap_or_default();
    let (scheme, key) = text.split_once(' ').unwrap_or((text, ""));
    let key = key.trim_matches(' ');
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(unauthorized(
            "auth.scheme",
            "only `Authorization: Bearer KEY` is accepted",
        ));
    }
    if key.is_empty() || key.contains([' ', ',']) {
        return Err(no_key());
    }
    Ok(key)
}

/// Asks for a key, in a text that clients show to users.
fn no_key() -> Problem {
    unauthorized("auth.no_key", NO_KEY).with_hint(SEND_A_KEY)
}

fn carries_key(query: &str) -> bool {
    const NAMES: [&str; 6] = [
        "key",
        "api_key",
        "apikey",
        "token",
        "access_token",
        "authorization",
    ];
    let names = query
        .split('&')
        .map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
    names
        .into_iter()
        .any(|name| NAMES.iter().any(|known| name.eq_ignore_ascii_case(known)))
}

/// Returns who acts, and from where.
pub(crate) fn actor(caller: &Caller, parts: &Parts) -> Actor {
    Actor::over_http(caller, address(parts))
}

/// Returns the address that a request came from.
pub(crate) fn address(parts: &Parts) -> Option<IpAddr> {
    parts.extensions.get().map(Admission::peer)
}

fn peer(parts: &Parts) -> IpAddr {
    match address(parts).unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)) {
        IpAddr::V4(address) => IpAddr::V4(address),
        // One subscriber has a whole /64.
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & (u128::MAX << 64)).into()),
    }
}

/// Wrong keys per address. fault U5
#[derive(Debug, Default)]
struct FailedLogins(Mutex<HashMap<IpAddr, Window>>);

#[derive(Debug, Clone, Copy)]
struct Window {
    since: Instant,
    failures: u32,
}

impl FailedLogins {
    /// Counts a wrong key or code. Returns the refusal if there were too many, and what to record,
    /// if anything.
    fn refuse(&self, peer: IpAddr) -> (Option<Problem>, Option<String>) {
        let now = Instant::now();
        let window = self.count(peer, now);
        let report = is_reported(window.failures).then(|| match window.failures {
            1 => format!("a wrong key from {peer}"),
            count => format!("{count} wrong keys from {peer} within {WINDOW:?}"),
        });
        if window.failures > ATTEMPTS {
            let rest = (window.since + WINDOW).saturating_duration_since(now);
            let problem = Problem::new("auth.attempts")
                .with_detail("too many wrong keys from this address")
                .with_retry_after(rest);
            return (Some(problem), report);
        }
        (None, report)
    }

    fn count(&self, peer: IpAddr, now: Instant) -> Window {
        let mut windows = self.0.lock();
        if windows.len() >= ADDRESSES {
            windows.retain(|_, window| now.duration_since(window.since) < WINDOW);
        }
        let is_room = windows.len() < ADDRESSES || windows.contains_key(&peer);
        let peer = if is_room {
            peer
        } else {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        };
        let window = windows.entry(peer).or_insert(Window {
            since: now,
            failures: 0,
        });
        if now.duration_since(window.since) >= WINDOW {
            *window = Window {
                since: now,
                failures: 0,
            };
        }
        window.failures = window.failures.saturating_add(1);
        *window
    }
}

/// Returns whether a failure is reported: the first, the last before 429, and every tenfold more.
/// The metrics count all.
fn is_reported(failures: u32) -> bool {
    let mut rest = failures;
    while rest > ATTEMPTS && rest.is_multiple_of(10) {
        rest /= 10;
    }
    [1, ATTEMPTS].contains(&rest)
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn verdict(values: &[&str], query: Option<&str>) -> Result<String, &'static str> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, value.parse().unwrap());
        }
        bearer(&headers, query)
            .map(str::to_owned)
            .map_err(|problem| {
                assert_eq!(problem.status(), StatusCode::UNAUTHORIZED);
                problem.code()
            })
    }

    // fault U1
    #[test]
    fn exactly_one_bearer_key_is_taken() {
        assert_eq!(verdict(&["Bearer abc"], None).as_deref(), Ok("abc"));
        assert_eq!(
            verdict(&["bearer  abc "], Some("lines=3")).as_deref(),
            Ok("abc")
        );
        assert_eq!(verdict(&[], None), Err("auth.no_key"));
        assert_eq!(verdict(&[], Some("key=abc")), Err("auth.key_in_url"));
        assert_eq!(
            verdict(&["Bearer abc"], Some("x=1&Access_Token=abc")),
            Err("auth.key_in_url")
        );
        assert_eq!(
            verdict(&["Bearer abc", "Bearer abc"], None),
            Err("auth.two_keys")
        );
        assert_eq!(verdict(&["Basic YTpi"], None), Err("auth.scheme"));
        assert_eq!(verdict(&["abc"], None), Err("auth.scheme"));
        for empty in ["Bearer", "Bearer ", "Bearer a b", "Bearer a,Bearer b"] {
            assert_eq!(verdict(&[empty], None), Err("auth.no_key"), "{empty}");
        }
    }

    // fault U5
    #[tokio::test]
    async fn wrong_keys_are_counted_per_address_within_a_bound() {
        let attempts = FailedLogins::default();
        let (one, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let now = Instant::now();
        for _ in 0..ATTEMPTS {
            assert!(attempts.refuse(one).0.is_none());
        }
        let (problem, news) = attempts.refuse(one);
        assert_eq!(problem.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(news, None);
        let (problem, news) = attempts.refuse(other);
        assert!(problem.is_none());
        assert_eq!(news.as_deref(), Some("a wrong key from 192.0.2.2"));
        let told: Vec<u32> = (1..=30_000).filter(|count| is_reported(*count)).collect();
        assert_eq!(told, [1, 20, 200, 2_000, 20_000]);
        assert_eq!(attempts.count(one, now + WINDOW * 2).failures, 1);
        for n in 0..20_000_u32 {
            attempts.count(IpAddr::V4(n.into()), now + WINDOW * 2);
        }
        assert!(attempts.0.lock().len() <= ADDRESSES + 1);
    }
}
