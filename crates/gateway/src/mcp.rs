//! The MCP endpoint: `/mcp` for all that a key's agent may use, `/mcp/servers/{name}` for one
//! server under its own names, `/sse` and `/sse/servers/{name}` for clients of the first protocol
//! version.
//!
//! One URL speaks every protocol generation; `era` of the model tells them apart. A call lives in
//! its request: when the client goes away, the call is cancelled. Never imports `api`. Entry
//! points: `router`, `Endpoint::serve`.

mod answer;
mod batch;
mod forward;
mod hello;
mod inflight;
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
mod turn;

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
use gantry_model::grant::{MethodClass, Verdict};
use gantry_model::id::ServerName;
use gantry_model::jsonrpc;
use http::header::ALLOW;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio_util::task::TaskTracker;

pub use self::hello::Instructions;
pub use self::sessions::Sessions;

use self::answer::Answer;
use self::server_requests::SuspendedCalls;
use self::sessions::Session;
use self::stream::Desk;
use crate::http::auth::Gate;
use crate::http::error::Problem;
use crate::http::limits::unread;
use crate::http::media::Accepts;
use crate::http::{Origin, catch_panic, cors, seal};

/// What the endpoint works with.
pub(crate) struct Endpoint {
    gate: Gate,
    sessions: Arc<Sessions>,
    listeners: listen::Listeners,
    streams: sse::Streams,
    desk: Arc<Desk>,
    identity: Identity,
    instructions: Instructions,
}

/// Who came, and to which door.
struct Visit {
    caller: Caller,
    scope: Scope,
    parts: Parts,
}

/// Where everything is offered that a key's agent may use.
pub(crate) const PATH: &str = "/mcp";

/// Returns the endpoint's routes.
pub(crate) fn router(endpoint: Arc<Endpoint>) -> Router {
    // Clients put a slash behind what people give them.
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
    let name: String = name.chars().take(64).flat_map(char::escape_debug).collect();
    Problem::new("server.unknown").with_detail(format!("no server `{name}`"))
}

impl Endpoint {
    /// Makes the endpoint of one gateway.
    pub(crate) fn new(
        gate: Gate,
        sessions: Arc<Sessions>,
        (version, instructions): (&'static str, Instructions),
    ) -> Arc<Self> {
        let identity = Identity::new("gantry", version);
        let desk = Desk {
            identity: identity.clone(),
            sessions: Arc::clone(&sessions),
            open_requests: Arc::default(),
            suspended: SuspendedCalls::new(),
            quota: Arc::default(),
            tasks: TaskTracker::new(),
            answers: gate.engine.answers().clone(),
        };
        let ending = sessions::follow_keys(Arc::downgrade(&sessions), gate.engine.key_changes());
        desk.tasks.spawn(ending);
        Arc::new(Self {
            gate,
            sessions,
            listeners: listen::listeners(),
            streams: sse::Streams::default(),
            desk: Arc::new(desk),
            identity,
            instructions,
        })
    }

    fn engine(&self) -> &Engine {
        &self.gate.engine
    }

    fn tasks(&self) -> &TaskTracker {
        &self.desk.tasks
    }

    /// Answers a request to a door that leads to all servers or to one.
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

    /// Judges the names that a request is addressed to and comes from, and waits for its answer;
    /// whatever happens on the way, there is one, with the headers that every answer has. A page of
    /// an allowed origin may read it. What was posted says whose answer a panic is.
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
        seal(headers);
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
        let (visit, body) = self.admitted(scope, request).await?;
        match visit.parts.method {
            Method::POST => self.post(&visit, body, posted).await,
            Method::GET if !visit.is_stateless() => self.get(&visit),
            Method::DELETE if !visit.is_stateless() => self.delete(&visit),
            _ => Ok(wrong_method("POST")),
        }
    }

    /// Says who comes, and to which door; who may not is told so, whatever they still send.
    async fn admitted(
        &self,
        scope: Result<Scope, Problem>,
        request: Request,
    ) -> Result<(Visit, Body), Problem> {
        let (parts, body) = request.into_parts();
        match self
            .gate
            .agent(&parts)
            .and_then(|caller| Ok((caller, scope?)))
        {
            Ok((caller, scope)) => {
                let visit = Visit {
                    caller,
                    scope,
                    parts,
                };
                Ok((visit, body))
            }
            Err(problem) => Err(unread(&parts.headers, body, problem).await),
        }
    }

    /// Returns a server, unless no grant of the caller's names it: then there is none for it.
    fn server_of(&self, caller: &Caller, name: &ServerName) -> Option<ServerView> {
        let verdict = caller.grants.check(MethodClass::Lifecycle, name, None);
        match verdict {
            Verdict::Allowed => self
                .engine()
                .project(&caller.project)?
                .server(name.as_str()),
            Verdict::Unbound => None,
        }
    }

    /// Opens the stream on which a session hears of changes.
    fn get(self: &Arc<Self>, visit: &Visit) -> Result<Response, Problem> {
        if !Accepts::of(&visit.parts.headers).events {
            return Err(Problem::new("http.accept")
                .with_detail("this answer is `text/event-stream`, which Accept does not allow"));
        }
        match self.session(visit)? {
            Some(session) => self.listen_on_session(visit, &session),
            // Without a session there is nothing to hear.
            None => Ok(wrong_method("POST")),
        }
    }

    /// Ends a session.
    fn delete(&self, visit: &Visit) -> Result<Response, Problem> {
        let session = self.session(visit)?.ok_or_else(|| {
            Problem::new("session.missing")
                .with_detail("`Mcp-Session-Id` must name the session to end")
        })?;
        self.sessions.close(&session);
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    /// Returns the session that the request names, if it names one. fault T4
    fn session(&self, visit: &Visit) -> Result<Option<Arc<Session>>, Problem> {
        let mut values = visit.parts.headers.get_all(SESSION_HEADER).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        let id = match values.next() {
            None => value.to_str().ok().and_then(|text| text.parse().ok()),
            Some(_) => None,
        };
        let session = id.and_then(|id| self.sessions.find(id, &visit.caller, &visit.scope));
        session.map(Some).ok_or_else(|| {
            Problem::new("session.unknown")
                .with_detail("unknown or expired session")
                .with_hint("begin anew with `initialize`")
        })
    }
}

/// `Mcp-Session-Id`, as the header map wants it.
const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
/// `MCP-Protocol-Version`, as the header map wants it.
const VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");

impl Visit {
    /// Tells whether the request's header names a version without sessions and streams.
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

/// Returns up to two values of a header; one that is no text stands as one that nothing equals.
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
