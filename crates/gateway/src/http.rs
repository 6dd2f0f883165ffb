//! The HTTP surface: what is checked on every route, and how the routes are joined.
//!
//! Names and keys are judged here (`hosts`, `auth`), sizes and forms of content too (`limits`,
//! `media`), and errors get their status (`error`); what a route does is in `api` and `mcp`.
//! Foreign pages may read nothing, but for those of configured origins the MCP endpoint (`cors`).
//! Entry point: `service`.

pub(crate) mod auth;
pub(crate) mod context;
pub(crate) mod cors;
pub(crate) mod delivery;
pub(crate) mod error;
mod framing;
mod hosts;
pub(crate) mod limits;
pub(crate) mod media;

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use gantry_engine::{Engine, Scope};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tower::Service as _;

pub use self::cors::{NoOrigin, Origin};
pub use self::hosts::HostPolicy;

use self::auth::Gate;
use self::error::Problem;
use crate::{api, mcp};

/// What the routes work with.
#[derive(Clone)]
pub struct AppState {
    /// What runs.
    pub engine: Engine,
    /// The names this gateway answers to.
    pub hosts: Arc<HostPolicy>,
    /// The MCP sessions of older protocol generations.
    pub sessions: Arc<mcp::Sessions>,
    /// The version that is shown to clients.
    pub version: &'static str,
    /// Whether clients are told what servers want models to know, all servers' joined.
    pub instructions: mcp::Instructions,
}

/// An answer on its way.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Answers every request.
pub(crate) type Service = Arc<dyn Fn(Request) -> Answering + Send + Sync>;

/// Joins all routes.
///
/// The peer's address is taken from the request extension [`auth::Admission`].
pub(crate) fn service(state: AppState) -> Service {
    let gate = Gate::new(state.engine, state.hosts);
    let api = api::router(gate.clone(), state.version)
        .fallback(no_route)
        .layer(from_fn_with_state(gate.clone(), guard));
    let told = (state.version, state.instructions);
    let endpoint = mcp::Endpoint::new(gate, state.sessions, told);
    let router = mcp::router(Arc::clone(&endpoint)).merge(api);
    let answer = move |request: Request| -> Answering {
        // Messages to the endpoint are by far the most, and need no router to tell.
        if request.method() == Method::POST && request.uri().path() == mcp::PATH {
            let endpoint = Arc::clone(&endpoint);
            return Box::pin(async move { endpoint.serve(Ok(Scope::All), request).await });
        }
        ask(&router, request)
    };
    Arc::new(move |request: Request| framing::judged(request, &answer))
}

/// Has a router answer.
pub(crate) fn ask(router: &Router, request: Request) -> Answering {
    let answering = router.clone().call(request);
    Box::pin(answering.map(|Ok(response)| response))
}

/// Checks the names, catches panics and seals the answer of every route but `/mcp`, which does so itself.
async fn guard(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let mut response = match gate.hosts.check(request.uri(), request.headers()) {
        Ok(()) => catch_panic(next.run(request))
            .await
            .unwrap_or_else(Problem::into_response),
        Err(problem) => problem.into_response(),
    };
    seal(response.headers_mut());
    response
}

/// Waits for an answer; a panic on the way becomes a problem. fault P12
pub(crate) fn catch_panic<T>(
    work: impl Future<Output = T>,
) -> impl Future<Output = Result<T, Problem>> {
    let caught = AssertUnwindSafe(work).catch_unwind();
    caught.map(|done| done.map_err(|_| Problem::panic()))
}

/// Sets the headers that every answer carries.
pub(crate) fn seal(headers: &mut HeaderMap) {
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let policy = "default-src 'none'; frame-ancestors 'none'";
    // A page says itself what it needs beside its text.
    headers
        .entry(CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static(policy));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}

async fn no_route() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "http.route").with_detail("there is nothing at this path")
}

/// Answers a method that a path does not take.
pub(crate) async fn wrong_method() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "http.method")
        .with_detail("this path does not take this method")
}

#[cfg(test)]
mod tests;
