//! Where a request ends, if that can be doubted: one that says its length twice, in two ways, is
//! refused, and after one in pieces the connection is closed, whatever follows on it.
//!
//! A proxy before us might have taken the other way, and what we would read as the next request is
//! then the body of somebody else's (fault H11). What cannot be read at all is hyper's to refuse.

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::error::Problem;
use super::{Answering, seal};

/// Answers a request unless its end is in doubt.
pub(super) fn judged(request: Request, answer: impl FnOnce(Request) -> Answering) -> Answering {
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
    let is_one = codings.next().is_some_and(is_plain) && codings.next().is_none();
    !is_one || headers.contains_key(CONTENT_LENGTH)
}

fn doubtful() -> Response {
    let problem = Problem::new(StatusCode::BAD_REQUEST, "http.framing")
        .with_detail("the request says in two ways where it ends")
        .with_hint("send `Content-Length` or `Transfer-Encoding: chunked`, not both");
    let mut response = problem.into_response();
    seal(response.headers_mut());
    response
}
