//! Ambiguous request framing: a transfer coding other than `chunked` is refused, and after a
//! chunked request with a `Content-Length` the connection is closed.
//!
//! hyper ignores the length in that case. A proxy in front of us might have used it, and what we
//! read as the next request would be the body of this one (fault H11).

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::header::{CONNECTION, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue};

use super::error::Problem;
use super::{Answering, set_security_headers};

/// Answers a request unless its framing is ambiguous.
pub(crate) fn judged(request: Request, answer: impl FnOnce(Request) -> Answering) -> Answering {
    if !request.headers().contains_key(TRANSFER_ENCODING) {
        return answer(request);
    }
    let answering = if is_doubtful(request.headers()) {
        Box::pin(async { doubtful() })
    } else {
        answer(request)
    };
    Box::pin(async move {
        let mut response = answering.await;
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        response
    })
}

fn is_doubtful(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_plain = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    !codings.next().is_some_and(is_plain) || codings.next().is_some()
}

fn doubtful() -> Response {
    let problem = Problem::new("http.framing")
        .with_detail("ambiguous request framing")
        .with_hint("send `Content-Length`, or `Transfer-Encoding: chunked` and nothing else in it");
    let mut response = problem.into_response();
    set_security_headers(response.headers_mut());
    response
}
