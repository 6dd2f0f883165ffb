//! Counts the memory of a response until its client has read it, whichever route made it.
//!
//! The response to a call carries its permit as an extension; what a long response needs beyond it
//! is reserved here, or the response is replaced by a refusal. Only bytes that are shared in memory
//! anyway ([`Shared`]) need no permit. The permit is attached to the bytes themselves, which
//! outlive their body on the way to the socket. Entry point: [`counted`].

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gantry_engine::{AnswerPermit, AnswerPool, AnswersFull, SHORT_ANSWER};
use http_body::{Frame, SizeHint};

use super::auth::Admission;
use super::error::Problem;

/// `Retry-After` if there is no memory.
const COME_AGAIN: Duration = Duration::from_secs(1);

/// Marks a response whose bytes are shared in memory, such as a cached list. Applies to these bytes
/// only: a copy is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shared;

/// Counts a response until its client has read it.
pub(crate) fn counted(answers: &AnswerPool, admission: &Admission, response: Response) -> Response {
    let length = response.body().size_hint().exact();
    if length.is_some_and(|length| length <= SHORT_ANSWER as u64) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let is_shared = parts.extensions.remove::<Shared>().is_some();
    let permit = parts.extensions.remove::<AnswerPermit>();
    let mut permit = permit.unwrap_or_default();
    // A stream produces its pieces on demand and counts them itself.
    let length = length.filter(|_| !is_shared);
    let length = length.map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    if let Some(length) = length.filter(|length| *length > permit.bytes()) {
        let caller = admission.caller();
        let budget = match &caller {
            Some(caller) => answers.of(&caller.project),
            None => answers.without_key(),
        };
        let agent = caller.as_ref().map(|caller| &caller.agent);
        if let Err(full) = budget.cover(agent, &mut permit, length) {
            return refused(full).into_response();
        }
    }
    if permit.is_empty() {
        return Response::from_parts(parts, body);
    }
    Response::from_parts(parts, Body::new(Counted { body, permit }))
}

/// The refusal of a response that exceeds the memory budget.
pub(crate) fn refused(full: AnswersFull) -> Problem {
    Problem::new("http.answers_full")
        .with_detail(format!("{full}"))
        .with_hint("read responses as they arrive")
        .with_retry_after(COME_AGAIN)
}

/// A body whose bytes hold a permit.
struct Counted {
    body: Body,
    permit: AnswerPermit,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        let permit = &self.permit;
        frame.map(|frame| {
            let tied = |frame: Frame<Bytes>| frame.map_data(|data| permit.tie(data));
            frame.map(|frame| frame.map(tied))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    const MIB: usize = 1 << 20;

    // fault A1: an answer that is made of many is counted whole.
    #[test]
    fn a_permit_pays_for_its_own_bytes_only() {
        let pool = AnswerPool::new(4 * MIB);
        let budget = pool.without_key();
        let answer = |permit: Option<usize>, length: usize, is_shared: bool| {
            let mut response = Response::new(Body::from(vec![b'x'; length]));
            if let Some(bytes) = permit {
                let permit = budget.take(None, bytes).unwrap();
                response.extensions_mut().insert(permit);
            }
            if is_shared {
                response.extensions_mut().insert(Shared);
            }
            let admission = Admission::new(([127, 0, 0, 1], 0).into());
            counted(&pool, &admission, response)
        };
        let full = StatusCode::TOO_MANY_REQUESTS;
        // An eighth of the free memory is reserved for shorter responses.
        let too_long = 4 * MIB - MIB / 4;
        // A call's response has a permit; a list's has none.
        assert_eq!(answer(Some(17 << 10), too_long, false).status(), full);
        assert_eq!(answer(None, too_long, false).status(), full);
        let first = answer(Some(17 << 10), MIB, false);
        assert_eq!(first.status(), StatusCode::OK);
        // Shared bytes need no permit.
        assert_eq!(answer(None, too_long, true).status(), StatusCode::OK);
        drop(first);
        assert_eq!(answer(Some(MIB), MIB + 100, false).status(), StatusCode::OK);
    }
}
