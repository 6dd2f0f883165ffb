//! What every route shares: names and keys are checked here (`hosts`, `auth`), sizes and forms of
//! content too (`limits`, `media`), and errors get their status (`error`).
//!
//! Foreign pages may read nothing, but for those of configured origins the MCP endpoint (`cors`).
//! Knows no route: those are in `api` and `mcp`, and `app/routes` joins them.

pub(crate) mod auth;
pub(crate) mod context;
pub(crate) mod cors;
pub(crate) mod delivery;
pub(crate) mod error;
pub(crate) mod framing;
mod hosts;
pub(crate) mod limits;
pub(crate) mod media;
pub(crate) mod session;

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use futures_util::FutureExt;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue};

pub use self::cors::{NoOrigin, Origin};
pub use self::hosts::HostPolicy;
pub use self::session::BrowserSessions;

use self::error::Problem;

/// How many connections there may be in all.
pub const CONNECTIONS: usize = 10_240;

/// An answer on its way.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Answers every request.
pub(crate) type Service = Arc<dyn Fn(Request) -> Answering + Send + Sync>;

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

/// Answers a method that a path does not take.
pub(crate) async fn wrong_method() -> Problem {
    Problem::new("http.method").with_detail("this path does not take this method")
}

#[cfg(test)]
mod tests;
