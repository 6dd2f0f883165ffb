//! Joins the MCP endpoint and the REST API behind the checks they share.
//!
//! Entry point: [`service`].

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use gantry_engine::{Engine, Scope};
use gantry_model::spec::Guarded;
use http::Method;
use tower::Service as _;

use crate::http::auth::Gate;
use crate::http::error::{self, Problem};
use crate::http::{
    Answering, BrowserSessions, HostPolicy, Service, catch_panic, framing, set_security_headers,
};
use crate::{api, mcp};

/// The shared state of all routes.
#[derive(Clone)]
pub(crate) struct AppState {
    /// The engine.
    pub(crate) engine: Engine,
    /// The accepted host names.
    pub(crate) hosts: Arc<HostPolicy>,
    /// The MCP sessions of the handshake era.
    pub(crate) sessions: Arc<mcp::Sessions>,
    /// The browsers that are signed in.
    pub(crate) browsers: BrowserSessions,
    /// The version that is shown to clients.
    pub(crate) version: &'static str,
    /// Whether clients get the instructions of all servers, joined.
    pub(crate) instructions: mcp::Instructions,
    /// The paths that no hosted server may write to.
    pub(crate) guarded: Arc<Guarded>,
}

/// Joins all routes.
///
/// The peer's address is taken from the request extension `Admission`.
pub(crate) fn service(state: AppState) -> Service {
    let gate = Gate::new(state.engine, state.hosts, state.browsers);
    let api = api::router(gate.clone(), state.guarded, state.version)
        .fallback(no_route)
        .layer(from_fn_with_state(gate.clone(), guard));
    let told = (state.version, state.instructions);
    let endpoint = mcp::Endpoint::new(gate, state.sessions, told);
    let router = mcp::router(Arc::clone(&endpoint)).merge(api);
    let answer = move |request: Request| -> Answering {
        // Messages to the endpoint are by far the most frequent, and skip the router.
        if request.method() == Method::POST && request.uri().path() == mcp::PATH {
            let endpoint = Arc::clone(&endpoint);
            return Box::pin(async move { endpoint.serve(Ok(Scope::All), request).await });
        }
        ask(&router, api::within_project(request))
    };
    Arc::new(move |request: Request| framing::judged(request, &answer))
}

/// Passes a request to a router.
pub(crate) fn ask(router: &Router, request: Request) -> Answering {
    let answering = router.clone().call(request);
    Box::pin(answering.map(|Ok(response)| response))
}

/// Checks Host and Origin, catches panics and sets the security headers of every route but `/mcp`,
/// which does so itself.
async fn guard(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let mut response = match gate.hosts.check(request.uri(), request.headers()) {
        Ok(()) => catch_panic(next.run(request))
            .await
            .unwrap_or_else(Problem::into_response),
        Err(problem) => problem.into_response(),
    };
    set_security_headers(response.headers_mut());
    response
}

async fn no_route() -> Problem {
    error::no_route()
}
