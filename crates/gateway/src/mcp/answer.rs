//! The response to one JSON-RPC message, or none.
//!
//! A new envelope is written around the raw result; a large result is not copied. Results are
//! converted between eras here. Entry points: the constructors of [`Answer`].

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody as _};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gantry_engine::{AnswerPermit, CallError, CallFailure, Reply, SHORT_ANSWER};
use gantry_model::era::meta::Identity;
use gantry_model::era::{Era, shape};
use gantry_model::jsonrpc::{self, Edit, Payload, Raw, RawBuf, RequestId};
use gantry_model::mcp::Method;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::{Frame, SizeHint};

use crate::http::delivery::Shared;
use crate::http::error::Problem;

/// Larger results are sent without being copied.
const BIG: usize = 16 << 10;
/// The number of headers reserved in a response.
const HEADERS: usize = 12;
/// How long a stateless-era client may cache lists from the catalog.
pub(super) const TTL_MS: i64 = 5_000;

/// The answer to one message.
#[derive(Debug)]
pub(super) struct Answer {
    status: StatusCode,
    text: Text,
    problem: Option<Problem>,
    /// Its permit of the response budget.
    permit: AnswerPermit,
    /// Its result is shared in memory, unless copied.
    is_shared: bool,
}

#[derive(Debug)]
enum Text {
    /// No response: to a notification, or to a cancelled request.
    Nothing,
    Whole(Vec<u8>),
    /// A result between the parts of its envelope; the last is always `}`.
    Around(Vec<u8>, Bytes),
}

impl Answer {
    /// Acknowledges a message without a response.
    pub(super) fn nothing() -> Self {
        Self {
            status: StatusCode::ACCEPTED,
            text: Text::Nothing,
            problem: None,
            permit: AnswerPermit::default(),
            is_shared: false,
        }
    }

    /// Answers with our own result.
    pub(super) fn result<'a>(id: RequestId<'_>, result: impl Into<Payload<'a>>) -> Self {
        let mut out = Vec::new();
        jsonrpc::write_result(&mut out, id, result.into());
        Self {
            status: StatusCode::OK,
            text: Text::Whole(out),
            problem: None,
            permit: AnswerPermit::default(),
            is_shared: false,
        }
    }

    /// Answers with the outcome of a request, in the client's era.
    pub(super) fn outcome(
        id: RequestId<'_>,
        (method, era): (&str, Era),
        outcome: Result<Reply, CallFailure>,
        identity: &Identity,
    ) -> Self {
        match outcome {
            Ok(reply) => Self::reply(id, (method, era), reply, identity.info()),
            // Cancelled by its client, which does not wait.
            Err(CallFailure {
                call: None,
                error: CallError::Cancelled,
            }) => Self::nothing(),
            Err(failure) => Self::failure(id, era, Problem::from(failure)),
        }
    }

    /// Answers with the engine's reply.
    fn reply(
        id: RequestId<'_>,
        (method, era): (&str, Era),
        reply: Reply,
        server_info: Raw<'_>,
    ) -> Self {
        let (permit, is_list) = (reply.permit.clone(), reply.call.is_none());
        let mut answer = Self::shaped(id, (method, era), reply, server_info);
        answer.permit = permit;
        answer.is_shared = is_list && matches!(answer.text, Text::Around(..));
        answer
    }

    fn shaped(
        id: RequestId<'_>,
        (method, era): (&str, Era),
        reply: Reply,
        server_info: Raw<'_>,
    ) -> Self {
        match (era, reply.upstream) {
            (Era::Handshake, None | Some(Era::Handshake)) if reply.is_odd => {
                match as_raw(&reply.result) {
                    Some(result) => Self::result(id, &shape::without_odd(result)),
                    None => Self::problem(Some(id), Problem::panic()),
                }
            }
            (Era::Handshake, None | Some(Era::Handshake)) => Self::untouched(id, b"", reply.result),
            (Era::Handshake, Some(Era::Stateless)) => match as_raw(&reply.result) {
                Some(result) if reply.is_odd => {
                    let fit = shape::without_odd(result);
                    Self::result(id, &shape::to_legacy(fit.as_raw()))
                }
                Some(result) => Self::result(id, &shape::to_legacy(result)),
                None => Self::problem(Some(id), Problem::panic()),
            },
            (Era::Stateless, upstream) => {
                let kind =
                    Method::parse(method).map_or(shape::ResultKind::Plain, shape::ResultKind::of);
                // Our own lists lack the members of the stateless era.
                if upstream.is_none() && kind == shape::ResultKind::Cacheable {
                    return Self::untouched(id, LIST_MEMBERS.as_bytes(), reply.result);
                }
                match as_raw(&reply.result) {
                    Some(result) => {
                        Self::result(id, &shape::to_modern(result, kind, Some(server_info)))
                    }
                    None => Self::problem(Some(id), Problem::panic()),
                }
            }
        }
    }

    /// Answers with a failure in the client's era: an error, or a tool result that a model reads as
    /// one.
    pub(super) fn failure(id: RequestId<'_>, era: Era, problem: Problem) -> Self {
        let problem = match era {
            Era::Handshake => problem,
            Era::Stateless => problem.for_stateless(),
        };
        if problem.is_tool_result() {
            return Self::result(id, &repairable(&problem, era));
        }
        Self::problem(Some(id), problem)
    }

    /// Answers with an error.
    pub(super) fn problem(id: Option<RequestId<'_>>, problem: Problem) -> Self {
        let mut out = Vec::new();
        let data = problem.rpc_data();
        let data = data.as_deref().map(|data| Payload::Raw(Raw::trusted(data)));
        jsonrpc::write_error(
            &mut out,
            id,
            problem.rpc_code(),
            problem.rpc_message(),
            data,
        );
        Self {
            status: problem.mcp_status(),
            text: Text::Whole(out),
            problem: Some(problem),
            permit: AnswerPermit::default(),
            is_shared: false,
        }
    }

    /// Writes the envelope around a result; `members` come first.
    fn untouched(id: RequestId<'_>, members: &[u8], result: Bytes) -> Self {
        let mut head = Vec::with_capacity(64 + members.len() + result.len().min(BIG));
        head.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        head.extend_from_slice(id.raw().as_bytes());
        head.extend_from_slice(b",\"result\":");
        let rest = match members {
            [] => result,
            members => {
                head.push(b'{');
                head.extend_from_slice(members);
                if result.len() > 2 {
                    head.push(b',');
                }
                result.slice(1..)
            }
        };
        if rest.len() > BIG {
            return Self {
                status: StatusCode::OK,
                text: Text::Around(head, rest),
                problem: None,
                permit: AnswerPermit::default(),
                is_shared: false,
            };
        }
        head.extend_from_slice(&rest);
        head.push(b'}');
        Self {
            status: StatusCode::OK,
            text: Text::Whole(head),
            problem: None,
            permit: AnswerPermit::default(),
            is_shared: false,
        }
    }

    /// Returns its permit; a copied list needs another one.
    pub(super) fn permit(&self) -> AnswerPermit {
        self.permit.clone()
    }

    /// Returns the length of its message.
    pub(super) fn length(&self) -> usize {
        match &self.text {
            Text::Nothing => 0,
            Text::Whole(text) => text.len(),
            Text::Around(head, result) => head.len() + result.len() + 1,
        }
    }

    /// Returns the message, if there is one.
    pub(super) fn into_message(self) -> Option<Vec<u8>> {
        match self.text {
            Text::Nothing => None,
            Text::Whole(text) => Some(text),
            Text::Around(mut head, result) => {
                head.reserve_exact(result.len() + 1);
                head.extend_from_slice(&result);
                head.push(b'}');
                Some(head)
            }
        }
    }
}

/// The cache hints of our lists in the stateless era; must agree with [`TTL_MS`].
const LIST_MEMBERS: &str = r#""resultType":"complete","ttlMs":5000,"cacheScope":"private""#;

fn as_raw(result: &Bytes) -> Option<Raw<'_>> {
    std::str::from_utf8(result).ok().map(Raw::trusted)
}

/// Lists each wrong field, so that a model can correct its call. fault A8
fn repairable(problem: &Problem, era: Era) -> RawBuf {
    let mut text = String::from(problem.detail());
    for issue in problem.issues() {
        let path = if issue.path.is_empty() {
            "(arguments)"
        } else {
            &issue.path
        };
        text.push_str(&format!("\n- {path}: {}", issue.message));
    }
    let mut block = Edit::new(Raw::EMPTY_OBJECT);
    block
        .set_buf("type", RawBuf::string("text"))
        .set_buf("text", RawBuf::string(&text));
    let content = format!("[{}]", block.to_buf().text());
    let mut result = Edit::new(Raw::EMPTY_OBJECT);
    result
        .set("content", Raw::trusted(&content))
        .set("isError", Raw::TRUE);
    if era == Era::Stateless {
        result.set_buf("resultType", RawBuf::string("complete"));
    }
    result.to_buf()
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let body = match self.text {
            Text::Nothing => Body::empty(),
            Text::Whole(text) => Body::from(text),
            Text::Around(head, result) => {
                Body::new(Segments([head.into(), result, Bytes::from_static(b"}")]))
            }
        };
        let mut response = Response::new(body);
        // Reserved in advance, so that it never grows and hyper reuses it.
        *response.headers_mut() = HeaderMap::with_capacity(HEADERS);
        *response.status_mut() = self.status;
        if self.status != StatusCode::ACCEPTED {
            let kind = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, kind);
        }
        if let Some(problem) = &self.problem {
            problem.dress(&mut response);
        }
        // Checked only if it is long.
        if response.body().size_hint().lower() > SHORT_ANSWER as u64 {
            if self.is_shared {
                response.extensions_mut().insert(Shared);
            } else if !self.permit.is_empty() {
                response.extensions_mut().insert(self.permit);
            }
        }
        response
    }
}

/// A body of known length in three pieces, none of them copied.
struct Segments([Bytes; 3]);

impl http_body::Body for Segments {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self
            .0
            .iter_mut()
            .find(|segment| !segment.is_empty())
            .map(std::mem::take);
        Poll::Ready(next.map(|segment| Ok(Frame::data(segment))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.iter().all(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|segment| segment.len() as u64).sum())
    }
}

#[cfg(test)]
mod tests;
