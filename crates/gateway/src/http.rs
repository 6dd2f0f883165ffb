//! Shared by all routes: host and key checks (`hosts`, `auth`), body limits and content types
//! (`limits`, `media`), and the mapping of errors to statuses (`error`).
//!
//! Web pages of other origins can use the MCP endpoint only, and only if configured (`cors`). The
//! routes are in `api` and `mcp`; `app/routes` joins them.

pub(crate) mod auth;
pub(crate) mod context;
pub(crate) mod cors;
pub(crate) mod delivery;
pub(crate) mod error;
pub(crate) mod framing;
mod hosts;
pub(crate) mod limits;
pub(crate) mod media;
pub(crate) mod resource;
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

/// A response in progress.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Answers every request.
pub(crate) type Service = Arc<dyn Fn(Request) -> Answering + Send + Sync>;

/// Awaits a response; a panic becomes a problem. fault P12
pub(crate) fn catch_panic<T>(
    work: impl Future<Output = T>,
) -> impl Future<Output = Result<T, Problem>> {
    let caught = AssertUnwindSafe(work).catch_unwind();
    caught.map(|done| done.map_err(|_| Problem::panic()))
}

/// Sets the headers that every response carries.
pub(crate) fn set_security_headers(headers: &mut HeaderMap) {
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let policy = "default-src 'none'; frame-ancestors 'none'";
    // A page declares its own policy.
    headers
        .entry(CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static(policy));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}

/// Returns the beginning of a text that a client sent, escaped, for an error message.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}

/// Answers 405.
pub(crate) async fn wrong_method() -> Problem {
    Problem::new("http.method").with_detail("method not allowed on this path")
}

#[cfg(test)]
mod tests;
