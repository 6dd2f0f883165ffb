//! Browser sessions, `/api/v1/session`. A code from a sign-in link, or a key, is exchanged for a
//! cookie and a token; a page sends both with every request. Entry point: [`routes`].

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, middleware};
use gantry_engine::{Actor, EngineError, Project};
use gantry_model::caller::{Caller, Permission, Role};
use gantry_model::id::AgentName;
use http::header::{CONTENT_LENGTH, SET_COOKIE};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::{JsonBody, json};
use super::views::now_ms;
use super::{Api, By, In, Who};
use crate::http::auth::actor;
use crate::http::error::Problem;
use crate::http::session::{CODE_LIFETIME, Session, cookie_name};
use crate::http::wrong_method;

/// The longest body of a sign-in, in bytes.
const LONGEST: u64 = 4096;

/// Returns the routes. Signing in needs no key; the rest takes any key, or the session itself.
pub(super) fn routes(api: &Api) -> Router<Api> {
    Router::new()
        .route("/api/v1/session", get(show).post(sign_in).delete(sign_out))
        .route("/api/v1/session/codes", post(new_code))
        .method_not_allowed_fallback(wrong_method)
        .route_layer(middleware::from_fn_with_state(api.clone(), admit))
}

/// Admits sign-ins without a key, and the other routes with a key or session.
async fn admit(state: State<Api>, request: Request, next: Next) -> Response {
    let is_sign_in = request.method() == Method::POST && request.uri().path() == "/api/v1/session";
    match is_sign_in {
        true => next.run(request).await,
        false => super::any_key(state, request, next).await,
    }
}

/// Credentials of a sign-in: exactly one of them.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SignIn {
    /// The code of a sign-in link, which works once.
    code: Option<String>,
    /// A key.
    key: Option<String>,
}

/// A session that was opened.
#[derive(Serialize, ToSchema)]
pub(super) struct SignedIn {
    /// The value of `X-Gantry-Session`; returned only here.
    token: String,
    #[serde(flatten)]
    session: SessionView,
}

/// Who is signed in.
#[derive(Serialize, ToSchema)]
pub(super) struct SessionView {
    /// What the key may do: `agent`, or the role of an administrator: `installation`, `admin`,
    /// `operator`, `approver`, `auditor`.
    #[schema(example = "admin")]
    role: &'static str,
    /// The agent that the key identifies.
    agent: String,
    /// The projects it may see.
    projects: Vec<String>,
    /// When the session ends at the latest, in milliseconds since 1970; absent for a key.
    expires_ms: Option<u64>,
}

impl SessionView {
    fn of(api: &Api, caller: &Caller, session: Option<&Session>) -> Self {
        let left = session.map(|session| session.time_left().as_millis() as u64);
        Self {
            role: caller.kind.role().map_or("agent", Role::as_str),
            agent: caller.agent.to_string(),
            projects: projects(api, caller),
            expires_ms: left.map(|left| now_ms().saturating_add(left)),
        }
    }
}

/// Returns the projects that a caller may name: its own, or all that are loaded.
fn projects(api: &Api, caller: &Caller) -> Vec<String> {
    if !caller.kind.may(Permission::Install) {
        return vec![caller.project.to_string()];
    }
    let open = api.engine().projects();
    let mut names: Vec<String> = open.iter().map(|known| known.name().to_string()).collect();
    names.sort();
    names
}

/// A code for a sign-in link.
#[derive(Serialize, ToSchema)]
pub(super) struct NewCode {
    /// The code.
    code: String,
    /// The path of the link. The code is in its fragment, which browsers do not send.
    #[schema(example = "/#code=…")]
    path: String,
    /// Until when it can be used, in milliseconds since 1970.
    expires_ms: u64,
}

/// Returns the path of the link that signs in with a code.
pub(crate) fn link_path(code: &str) -> String {
    format!("/#code={code}")
}

/// Signs a browser in: a code or a key becomes a cookie and a token, and every later request carries
/// both. Takes no key in a header; `Origin` must be the gateway's own.
#[utoipa::path(post, path = "/api/v1/session", tag = "session", request_body = SignIn, responses(
    (status = 201, description = "Signed in; the cookie is in `Set-Cookie`.", body = SignedIn),
    (status = 401, description = "`auth.wrong_code`: the code is unknown, used or expired; \
        `auth.wrong_key`: there is no such key."),
))]
pub(super) async fn sign_in(
    State(api): State<Api>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    api.gate.hosts.check_own_page(&parts)?;
    let length = parts.headers.get(CONTENT_LENGTH);
    let length: Option<u64> = length.and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_none_or(|length| length > LONGEST) {
        let code = "http.body_too_large";
        return Err(Problem::new(code).with_detail(format!(
            "a sign-in needs `Content-Length`, of at most {LONGEST} bytes"
        )));
    }
    // Unauthenticated bodies share one account.
    let nobody: AgentName = "sign-in".parse().map_err(EngineError::from)?;
    let project = api.engine().default_project();
    let account = (project.name(), &nobody);
    let body = JsonBody::read_for(&api.gate.bodies, account, &parts.headers, body).await?;
    let asked: SignIn = body.read()?;
    let caller = match (asked.code, asked.key) {
        (Some(code), None) => api.gate.redeem(&parts, &code)?,
        (None, Some(key)) => api.gate.holder(&parts, &key)?,
        (Some(_), Some(_)) | (None, None) => {
            return Err(Problem::new("request.body")
                .with_detail("the body cannot be used: give `code` or `key`, one of them"));
        }
    };
    let by = actor(&caller, &parts);
    let project = api.project(&caller)?;
    record(&project, &caller, &by, "session.open").await;
    let new = api.gate.sessions.open(caller.clone());
    let signed_in = SignedIn {
        session: SessionView::of(&api, &caller, Some(&new.session)),
        token: new.token,
    };
    let mut response = json(StatusCode::CREATED, &signed_in);
    let lasts = new.session.time_left().as_millis().div_ceil(1000);
    set_cookie(&mut response, &parts, &new.cookie, lasts);
    Ok(response)
}

/// Shows who is signed in, or whose key it is.
#[utoipa::path(get, path = "/api/v1/session", tag = "session", responses(
    (status = 200, description = "Who it is.", body = SessionView),
))]
pub(super) async fn show(
    State(api): State<Api>,
    Who(caller): Who,
    session: Option<Extension<Arc<Session>>>,
) -> Response {
    let session = session.as_deref().map(|session| &**session);
    json(StatusCode::OK, &SessionView::of(&api, &caller, session))
}

/// Signs a browser out: its session ends, with every stream it has open. A key is not affected.
#[utoipa::path(delete, path = "/api/v1/session", tag = "session", responses(
    (status = 204, description = "The session is ended."),
))]
pub(super) async fn sign_out(
    State(api): State<Api>,
    In(project): In,
    Who(caller): Who,
    By(actor): By,
    session: Option<Extension<Arc<Session>>>,
    parts: Parts,
) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Some(Extension(session)) = session {
        api.gate.sessions.end(&session);
        record(&project, &caller, &actor, "session.end").await;
        set_cookie(&mut response, &parts, "", 0);
    }
    response
}

/// Makes a code for a sign-in link. It works once, within five minutes, and signs in as the key that
/// made it.
#[utoipa::path(post, path = "/api/v1/session/codes", tag = "session", responses(
    (status = 201, description = "The code.", body = NewCode),
))]
pub(super) async fn new_code(
    State(api): State<Api>,
    In(project): In,
    Who(caller): Who,
    By(actor): By,
) -> Response {
    record(&project, &caller, &actor, "session.code").await;
    let code = api.gate.sessions.new_code(&caller);
    let lasts_ms = CODE_LIFETIME.as_millis() as u64;
    let made = NewCode {
        path: link_path(&code),
        code,
        expires_ms: now_ms().saturating_add(lasts_ms),
    };
    json(StatusCode::CREATED, &made)
}

/// Records administrators' sessions. Agents are left out: they could flood the record.
async fn record(project: &Project, caller: &Caller, by: &Actor, act: &'static str) {
    if caller.kind.is_admin() {
        project.record_session(by, act).await;
    }
}

fn set_cookie(response: &mut Response, parts: &Parts, value: &str, max_age: u128) {
    let name = cookie_name(&parts.headers);
    // A browser behind a TLS proxy sends an https origin.
    let origin = parts.headers.get(http::header::ORIGIN);
    let is_secure = origin.is_some_and(|origin| origin.as_bytes().starts_with(b"https://"));
    let secure = if is_secure { "; Secure" } else { "" };
    let cookie =
        format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={max_age}{secure}");
    let cookie = HeaderValue::try_from(cookie).expect("a cookie of ours is a header's value");
    response.headers_mut().insert(SET_COOKIE, cookie);
}
