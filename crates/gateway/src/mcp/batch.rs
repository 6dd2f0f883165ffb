//! JSON-RPC batches, which one protocol version allows: several messages in one body, answered one
//! after the other.
//!
//! Refused in all others (400, -32600). Bounded, and never answered by a stream; a member whose
//! response exceeds the memory budget gets an error. Entry point: `Endpoint::batch`.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use gantry_engine::{AnswerPermit, ClientIdentity};
use gantry_model::era::{Era, ProtocolVersion};
use gantry_model::jsonrpc::{self, Limits, Message, Raw, RequestId, WireError};
use http::HeaderValue;
use http::header::CONTENT_TYPE;

use super::answer::Answer;
use super::forward::Asked;
use super::post::{own_answer, owner};
use super::sessions::Session;
use super::subscribe::is_subscription;
use super::{AuthorizedRequest, Endpoint};
use crate::http::error::Problem;
use crate::http::{context, delivery};

/// Messages of one batch.
const MESSAGES: usize = 32;
/// The permit needed to refuse all of them.
const REFUSALS: usize = 12 << 10;

impl Endpoint {
    /// Answers a batch. Invariant: `bytes` were validated and are a JSON array.
    pub(super) async fn batch(
        &self,
        authorized: &AuthorizedRequest,
        bytes: &[u8],
    ) -> Result<Response, Problem> {
        let session = self.session(authorized)?;
        let version = session.as_deref().map(|session| session.version);
        if !version.is_some_and(ProtocolVersion::allows_batches) {
            return Err(WireError::Batch.into());
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Problem::from(WireError::Batch))?;
        let batch = jsonrpc::validate(text, &Limits::default())?;
        let count = batch.items().take(MESSAGES + 1).count();
        if count == 0 || count > MESSAGES {
            let message = format!("a batch has 1 to {MESSAGES} messages");
            return Err(Problem::new("wire.batch").with_rpc(jsonrpc::INVALID_REQUEST, message));
        }
        let mut answers = Vec::from(b"[");
        let mut permit = AnswerPermit::default();
        for item in batch.items() {
            let mut answer = self.member(authorized, session.as_deref(), item).await;
            permit.join(answer.permit());
            // Before it is copied, while the others are awaited.
            let length = answers.len() + answer.length() + REFUSALS;
            let agent = Some(&authorized.caller.agent);
            let budget = self.services.answers.of(&authorized.caller.project);
            if answer.length() > 0
                && let Err(full) = budget.cover(agent, &mut permit, length)
            {
                let id = item.get("id").and_then(RequestId::read);
                answer = Answer::problem(id, delivery::refused(full));
            }
            if let Some(message) = answer.into_message() {
                if answers.len() > 1 {
                    answers.push(b',');
                }
                answers.extend_from_slice(&message);
            }
        }
        if answers.len() == 1 {
            return Ok(Answer::nothing().into_response());
        }
        answers.push(b']');
        let mut response = Response::new(Body::from(answers));
        let kind = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        if !permit.is_empty() {
            response.extensions_mut().insert(permit);
        }
        Ok(response)
    }

    async fn member(
        &self,
        authorized: &AuthorizedRequest,
        session: Option<&Session>,
        item: Raw<'_>,
    ) -> Answer {
        let owner = owner(authorized, session);
        let request = match jsonrpc::parse(item.text().as_bytes(), &Limits::default()) {
            Ok(incoming) => match incoming.message {
                Message::Request(request) => request,
                Message::Notification(notification) => {
                    self.notified(authorized, &notification, session);
                    return Answer::nothing();
                }
                Message::Response(response) => {
                    self.replied(&response, session);
                    return Answer::nothing();
                }
            },
            Err(error) => {
                let id = jsonrpc::answered_id(item.text().as_bytes(), &error);
                return Answer::problem(id, error.into());
            }
        };
        if request.method == "initialize" {
            let problem = Problem::new("wire.batch").with_rpc(
                jsonrpc::INVALID_REQUEST,
                "`initialize` cannot be part of a batch",
            );
            return Answer::problem(Some(request.id), problem);
        }
        if let Some(answer) = own_answer(&request, session) {
            return answer;
        }
        if is_subscription(&request.method) {
            let answer = Box::pin(self.subscription(authorized, &request, session)).await;
            return answer.unwrap_or_else(|problem| Answer::problem(Some(request.id), problem));
        }
        let mut asked = Asked::of(&request, request.params.into(), Era::Handshake, Some(owner));
        if let Some(session) = session {
            asked.identity = ClientIdentity::Session(session.id.bits());
        }
        match context::read(&authorized.parts.headers, asked.params.meta) {
            Ok(context) => {
                let who = (&authorized.caller, &authorized.scope);
                let outcome = self.forward(who, &asked, context, None).await;
                Answer::outcome(asked.id, (asked.method, asked.era), outcome, &self.identity)
            }
            Err(problem) => Answer::problem(Some(request.id), problem),
        }
    }
}
