//! Calls in the formats of models' APIs: one, a list, or the assistant's whole message, answered in
//! the same format.
//!
//! A failed call is a result for the model, in a 200, so a list is always answered in full; only a
//! body without any call is refused. A single call in MCP format fails with a problem document.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use gantry_engine::{
    Announced, AnswerPermit, CallOptions, ModelAnswer, ModelAnswers, Scope, Surface,
};
use gantry_model::shape::{Calls, FormError, Shape};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::shape_of;
use crate::api::body::{JsonBody, document};
use crate::api::call::{Accepted, call_tool, now_or_later};
use crate::api::query::Asked;
use crate::api::{Api, Who};
use crate::http::context;
use crate::http::error::Problem;

/// The header with the audit ids, in the order of the calls.
const CALLS: &str = "x-gantry-call-id";

/// The format of a call, and its timeout.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::api) struct CallAsked {
    /// `mcp`, `anthropic`, `openai`, `openai-responses` or `gemini`; by default detected from the
    /// body.
    shape: Option<String>,
    /// Timeout of each call; the server's own timeout applies as well.
    #[param(minimum = 0, format = "uint64")]
    timeout_ms: Option<u64>,
}

// rows 4.3 and 4.6
/// Calls a tool by its exposed name, in MCP format or in that of a model's API: one call, a list,
/// or the assistant's whole message, answered in the same format. The caller's grants apply, the
/// arguments are validated, and the call is recorded.
#[utoipa::path(post, path = "/api/v1/tools/call", tag = "tools", params(CallAsked,
        ("Prefer" = Option<String>, Header, description = "`respond-async`: answer 202 at once.")), responses(
    (status = 200, description = "`Answered`, or the answers in the shape of the calls.", body = serde_json::Value),
    (status = 202, description = "With `Prefer: respond-async`: accepted; `Location` is the URL of its outcome.",
        body = Accepted, headers(("Location" = String, description = "The URL of its outcome."),
            ("Preference-Applied" = String, description = "`respond-async`."))),
))]
pub(in crate::api) async fn call(
    State(api): State<Api>,
    Who(caller): Who,
    Asked(asked): Asked<CallAsked>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, Problem> {
    let shape = shape_of(asked.shape.as_deref())?;
    let is_object = body.raw().is_object();
    let calls = match Calls::read(shape, body.raw()) {
        Ok(calls) if calls.shape == Shape::Mcp && !calls.is_list => {
            return call_tool(&api, caller, &headers, &body).await;
        }
        // The MCP reader gives the better error message.
        Err(FormError::Unknown | FormError::Other { shape: Shape::Mcp }) if is_object => {
            return call_tool(&api, caller, &headers, &body).await;
        }
        calls => calls?,
    };
    let options = CallOptions {
        surface: Surface::Rest,
        scope: Scope::All,
        context: context::read(&headers, None)?,
        timeout: asked.timeout_ms.map(Duration::from_millis),
    };
    let (engine, room, agent) = (api.engine().clone(), body.room(), caller.clone());
    let count = calls.calls.len();
    let work = |announced: Vec<Announced>| {
        Box::pin(async move {
            let answers = engine.call_announced(&caller, &calls, &options, announced);
            let answers = answers.await;
            drop(room);
            Ok(answered(&answers))
        })
    };
    now_or_later(&api, &headers, (&agent, count), work).await
}

fn answered(answers: &ModelAnswers) -> Response {
    let text = match answers.shape {
        Shape::Mcp => {
            let texts: Vec<_> = answers.answers.iter().map(enveloped).collect();
            format!("[{}]", texts.join(","))
        }
        Shape::Anthropic | Shape::OpenAi | Shape::OpenAiResponses | Shape::Gemini => {
            answers.to_json()
        }
    };
    let mut response = document(StatusCode::OK, text);
    let ids = answers.answers.iter().filter_map(|answer| answer.call);
    let ids: Vec<_> = ids.map(|id| id.to_string()).collect();
    if let Ok(ids) = HeaderValue::try_from(ids.join(", ")) {
        response.headers_mut().insert(CALLS, ids);
    }
    let mut permit = AnswerPermit::default();
    for answer in &answers.answers {
        permit.join(answer.permit.clone());
    }
    if !permit.is_empty() {
        response.extensions_mut().insert(permit);
    }
    response
}

/// Writes one response as a single MCP call is answered.
fn enveloped(answer: &ModelAnswer) -> String {
    let call = answer
        .call
        .map_or(String::new(), |call| format!("\"call\":\"{call}\","));
    let (is_error, result) = (answer.is_error, answer.answer.text());
    format!("{{{call}\"is_error\":{is_error},\"result\":{result}}}")
}
