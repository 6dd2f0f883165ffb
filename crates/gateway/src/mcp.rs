//! The MCP endpoint: `/mcp` for everything the key's agent may use, `/mcp/servers/{name}` for one
//! server under its own names, `/sse` and `/sse/servers/{name}` for clients of the first protocol
//! version.
//!
//! One URL speaks every protocol version; `model::era` tells them apart. A call belongs to its
//! request: when the client disconnects, the call is cancelled. Entry points: `router`,
//! `Endpoint::serve`.

mod active_call;
mod answer;
mod batch;
mod forward;
mod inflight;
mod initialize;
mod listen;
mod no_oauth;
mod notification_log;
mod post;
mod quota;
mod server_requests;
mod sessions;
mod sse;
mod stream;
mod subscribe;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use gantry_engine::{Engine, Scope, ServerView};
use gantry_model::caller::Caller;
use gantry_model::era::meta::Identity;
use gantry_model::era::{Era, ProtocolVersion};
use gantry_model::grant::MethodClass;
use gantry_model::id::ServerName;
use gantry_model::jsonrpc;
use http::header::ALLOW;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio_util::task::TaskTracker;

pub use self::initialize::Instructions;
pub use self::sessions::Sessions;

use self::answer::Answer;
use self::server_requests::SuspendedCalls;
use self::sessions::Session;
use self::stream::CallServices;
use crate::http::auth::Gate;
use crate::http::error::Problem;
use crate::http::limits::{Streams, streams, unread};
use crate::http::media::Accepts;
use crate::http::{Origin, catch_panic, cors, set_security_headers, shown};

/// The state of the endpoint.
pub(crate) struct Endpoint {
    gate: Gate,
    sessions: Arc<Sessions>,
    listeners: Streams,
    streams: sse::Streams,
    services: Arc<CallServices>,
    identity: Identity,
    instructions: Instructions,
}

/// An authenticated request, and the scope it addresses.
struct AuthorizedRequest {
    caller: Caller,
    scope: Scope,
    parts: Parts,
}

/// The path of the endpoint that offers everything the agent may use.
pub(crate) const PATH: &str = "/mcp";

/// Returns the endpoint's routes.
pub(crate) fn router(endpoint: Arc<Endpoint>) -> Router {
    // Users copy URLs with a trailing slash.
    Router::new()
        .route("/mcp", any(everything))
        .route("/mcp/", any(everything))
        .route("/mcp/servers/{name}", any(one_server))
        .route("/mcp/servers/{name}/", any(one_server))
        .route("/sse", any(stream_of_everything))
        .route("/sse/", any(stream_of_everything))
        .route("/sse/servers/{name}", any(stream_of_one_server))
        .route("/sse/servers/{name}/", any(stream_of_one_server))
        .route("/messages", any(take_message))
        .route("/messages/", any(take_message))
        .merge(no_oauth::routes())
        .with_state(endpoint)
}

async fn everything(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response {
    endpoint.serve(Ok(Scope::All), request).await
}

async fn one_server(
    State(endpoint): State<Arc<Endpoint>>,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    endpoint.serve(scope_of(name), request).await
}

async fn stream_of_everything(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response {
    endpoint.open_stream(Ok(Scope::All), request).await
}

async fn stream_of_one_server(
    State(endpoint): State<Arc<Endpoint>>,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    endpoint.open_stream(scope_of(name), request).await
}

async fn take_message(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response {
    endpoint.take_message(request).await
}

/// Returns the scope that a path names.
fn scope_of(name: Result<Path<String>, PathRejection>) -> Result<Scope, Problem> {
    let name = name.map_or_else(|_| String::new(), |Path(name)| name);
    let server = name.parse().map(Scope::Server);
    server.map_err(|_| unknown_server(&name))
}

fn unknown_server(name: &str) -> Problem {
    Problem::new("server.unknown").with_detail(format!("no server `{}`", shown(name)))
}

impl Endpoint {
    /// Creates the endpoint of a gateway.
    pub(crate) fn new(
        gate: Gate,
        sessions: Arc<Sessions>,
        (version, instructions): (&'static str, Instructions),
    ) -> Arc<Self> {
        let identity = Identity::new("gantry", version);
        let services = CallServices {
            identity: identity.clone(),
            sessions: Arc::clone(&sessions),
            open_requests: Arc::default(),
            suspended: SuspendedCalls::new(),
            quota: Arc::default(),
            tasks: TaskTracker::new(),
            answers: gate.engine.answers().clone(),
        };
        let ending = sessions::follow_keys(Arc::downgrade(&sessions), gate.engine.key_changes());
        services.tasks.spawn(ending);
        Arc::new(Self {
            gate,
            sessions,
            listeners: streams(listen::PER_KEY),
            streams: sse::Streams::default(),
            services: Arc::new(services),
            identity,
            instructions,
        })
    }

    fn engine(&self) -> &Engine {
        &self.gate.engine
    }

    fn tasks(&self) -> &TaskTracker {
        &self.services.tasks
    }

    /// Answers a request to all servers or to one.
    pub(crate) async fn serve(
        self: &Arc<Self>,
        scope: Result<Scope, Problem>,
        request: Request,
    ) -> Response {
        let posted = OnceLock::new();
        self.guarded(request, &posted, |request| {
            self.answer(scope, request, &posted)
        })
        .await
    }

    /// Checks Host and Origin, and awaits the response; there always is one, with the common
    /// headers and CORS headers where allowed. After a panic, `posted` says whose response it is.
    async fn guarded<A>(
        &self,
        request: Request,
        posted: &OnceLock<Bytes>,
        answer: impl FnOnce(Request) -> A,
    ) -> Response
    where
        A: Future<Output = Result<Response, Problem>>,
    {
        let hosts = &self.gate.hosts;
        let page = match hosts.check_page(request.uri(), request.headers()) {
            Ok(page) => page,
            Err(problem) => {
                let (parts, body) = request.into_parts();
                let problem = unread(&parts.headers, body, problem).await;
                return self.sealed(Err(problem), None);
            }
        };
        if page.is_some() && cors::is_preflight(request.method(), request.headers()) {
            return self.sealed(Ok(cors::preflight(request.headers())), page);
        }
        let served = catch_panic(answer(request))
            .await
            .unwrap_or_else(|problem| {
                let id = posted.get().and_then(|bytes| jsonrpc::salvage_id(bytes));
                Ok(Answer::problem(id, problem).into_response())
            });
        self.sealed(served, page)
    }

    fn sealed(&self, served: Result<Response, Problem>, page: Option<&Origin>) -> Response {
        let mut response = served.unwrap_or_else(|problem| {
            tracing::debug!(
                code = problem.code(),
                "a request to the endpoint was refused"
            );
            Answer::problem(None, problem).into_response()
        });
        let headers = response.headers_mut();
        set_security_headers(headers);
        if self.gate.hosts.has_origins() {
            cors::vary(headers);
        }
        page.into_iter().for_each(|page| page.dress(headers));
        response
    }

    async fn answer(
        self: &Arc<Self>,
        scope: Result<Scope, Problem>,
        request: Request,
        posted: &OnceLock<Bytes>,
    ) -> Result<Response, Problem> {
        let (authorized, body) = self.admitted(scope, request).await?;
        match authorized.parts.method {
            Method::POST => self.post(&authorized, body, posted).await,
            Method::GET if !authorized.is_stateless() => self.get(&authorized),
            Method::DELETE if !authorized.is_stateless() => self.delete(&authorized),
            _ => Ok(wrong_method("POST")),
        }
    }

    /// Authenticates a request; a refused one has its body drained.
    async fn admitted(
        &self,
        scope: Result<Scope, Problem>,
        request: Request,
    ) -> Result<(AuthorizedRequest, Body), Problem> {
        let (parts, body) = request.into_parts();
        match self
            .gate
            .agent(&parts)
            .and_then(|caller| Ok((caller, scope?)))
        {
            Ok((caller, scope)) => {
                let authorized = AuthorizedRequest {
                    caller,
                    scope,
                    parts,
                };
                Ok((authorized, body))
            }
            Err(problem) => Err(unread(&parts.headers, body, problem).await),
        }
    }

    /// Returns a server; `None` if no grant of the caller names it, as if it did not exist.
    fn server_of(&self, caller: &Caller, name: &ServerName) -> Option<ServerView> {
        match caller.grants.shows(MethodClass::Lifecycle, name, None) {
            true => self
                .engine()
                .project(&caller.project)?
                .server(name.as_str()),
            false => None,
        }
    }

    /// Opens the notification stream of a session.
    fn get(self: &Arc<Self>, authorized: &AuthorizedRequest) -> Result<Response, Problem> {
        if !Accepts::of(&authorized.parts.headers).events {
            return Err(Problem::new("http.accept")
                .with_detail("this answer is `text/event-stream`, which Accept does not allow"));
        }
        match self.session(authorized)? {
            Some(session) => self.listen_on_session(authorized, &session),
            // Without a session there are no notifications.
            None => Ok(wrong_method("POST")),
        }
    }

    /// Ends a session.
    fn delete(&self, authorized: &AuthorizedRequest) -> Result<Response, Problem> {
        let session = self.session(authorized)?.ok_or_else(|| {
            Problem::new("session.missing")
                .with_detail("`Mcp-Session-Id` must name the session to end")
        })?;
        self.sessions.close(&session);
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    /// Returns the session that the request names, if it names one. fault T4
    fn session(&self, authorized: &AuthorizedRequest) -> Result<Option<Arc<Session>>, Problem> {
        let mut values = authorized.parts.headers.get_all(SESSION_HEADER).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        let id = match values.next() {
            None => value.to_str().ok().and_then(|text| text.parse().ok()),
            Some(_) => None,
        };
        let session = id.and_then(|id| {
            self.sessions
                .find(id, &authorized.caller, &authorized.scope)
        });
        session.map(Some).ok_or_else(|| {
            Problem::new("session.unknown")
                .with_detail("unknown or expired session")
                .with_hint("start again with `initialize`")
        })
    }
}

/// `Mcp-Session-Id`, as a header name.
const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
/// `MCP-Protocol-Version`, as a header name.
const VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");

impl AuthorizedRequest {
    /// Returns whether the request's header names a protocol version without sessions.
    fn is_stateless(&self) -> bool {
        let version = self
            .parts
            .headers
            .get(VERSION_HEADER)
            .and_then(|value| value.to_str().ok());
        let version = version.and_then(|text| text.parse::<ProtocolVersion>().ok());
        version.is_some_and(|version| version.era() == Era::Stateless)
    }
}

fn wrong_method(allowed: &'static str) -> Response {
    let detail = match allowed {
        "GET" => "open the stream with GET",
        _ => "send messages with POST",
    };
    let problem = Problem::new("http.method").with_detail(detail);
    let mut response = Answer::problem(None, problem).into_response();
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// Returns up to two values of a header; an invalid one never matches.
fn values<'h>(headers: &'h HeaderMap, name: &HeaderName) -> ([&'h str; 2], usize) {
    let mut found = [""; 2];
    let mut count = 0;
    for (slot, value) in found.iter_mut().zip(headers.get_all(name)) {
        *slot = value.to_str().unwrap_or("\u{7f}");
        count += 1;
    }
    (found, count)
}

#[cfg(test)]
mod tests {
    use gantry_model::era::headers::{PROTOCOL_VERSION, SESSION_ID};

    use super::*;

    #[test]
    fn our_header_names_are_the_models() {
        assert!(SESSION_HEADER.as_str().eq_ignore_ascii_case(SESSION_ID));
        assert!(
            VERSION_HEADER
                .as_str()
                .eq_ignore_ascii_case(PROTOCOL_VERSION)
        );
    }

    #[test]
    fn header_values_keep_their_number() {
        let mut headers = HeaderMap::new();
        assert_eq!(values(&headers, &VERSION_HEADER).1, 0);
        headers.append(VERSION_HEADER, "a".parse().unwrap());
        assert_eq!(values(&headers, &VERSION_HEADER), (["a", ""], 1));
        headers.append(VERSION_HEADER, HeaderValue::from_bytes(b"\xff").unwrap());
        headers.append(VERSION_HEADER, "c".parse().unwrap());
        assert_eq!(values(&headers, &VERSION_HEADER), (["a", "\u{7f}"], 2));
    }
}
