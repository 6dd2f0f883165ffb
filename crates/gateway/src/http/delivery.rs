//! The last thing that is done with an answer: what it takes of memory is counted until its client has
//! it, whichever route made it.
//!
//! The answer to a call brings its permit along as an extension; any other long answer takes one here,
//! or is replaced by a refusal if there is no room. The permit is tied to the bytes themselves, since
//! they are kept on the way to the socket after their body is gone. Entry point: [`counted`].

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gantry_engine::{AnswerBudget, AnswerPermit, AnswersFull, SHORT_ANSWER};
use http::StatusCode;
use http_body::{Frame, SizeHint};

use super::auth::Admission;
use super::error::Problem;

/// When to come again if there is no room.
const COME_AGAIN: Duration = Duration::from_secs(1);

/// Has an answer counted until its client has read it.
pub(crate) fn counted(
    budget: &AnswerBudget,
    admission: &Admission,
    response: Response,
) -> Response {
    let length = response.body().size_hint().exact();
    if length.is_some_and(|length| length <= SHORT_ANSWER as u64) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let permit = match (parts.extensions.remove::<AnswerPermit>(), length) {
        (Some(permit), _) => permit,
        // A stream makes its pieces as they are read, and counts what waits itself.
        (None, None) => AnswerPermit::default(),
        (None, Some(length)) => {
            let caller = admission.caller();
            let agent = caller.as_ref().map(|caller| &caller.agent);
            match budget.take(agent, usize::try_from(length).unwrap_or(usize::MAX)) {
                Ok(permit) => permit,
                Err(full) => return refused(full).into_response(),
            }
        }
    };
    if permit.is_empty() {
        return Response::from_parts(parts, body);
    }
    Response::from_parts(parts, Body::new(Counted { body, permit }))
}

fn refused(full: AnswersFull) -> Problem {
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "http.answers_full")
        .with_detail(format!("{full}"))
        .with_hint("read answers as they come")
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
