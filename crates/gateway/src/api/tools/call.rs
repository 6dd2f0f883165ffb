//! Calls in the shapes of models' APIs: one, a list, or the assistant's whole message, answered in
//! the same shape.
//!
//! A failed call is an answer to the model here, in a 200, so that a list is always answered whole;
//! only a body without any call is refused. One call in MCP's own shape is answered as ever, with
//! a problem document if it fails.

use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use gantry_engine::{CallOptions, ModelAnswer, ModelAnswers, Scope};
use gantry_model::shape::{Calls, FormError, Shape};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;

use super::{shape_of, understood};
use crate::api::body::{JsonBody, document};
use crate::api::call::{call_tool, now_or_later, surface};
use crate::api::{Api, Who};
use crate::http::context;
use crate::http::error::Problem;

/// Names the rows of the audit, in the order of the calls.
const CALLS: &str = "x-gantry-call-id";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    shape: Option<String>,
    timeout_ms: Option<u64>,
}

// row 4.3, row 4.6
pub(super) async fn call(
    State(api): State<Api>,
    Who(caller): Who,
    asked: Result<Query<Asked>, QueryRejection>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, Problem> {
    let asked = understood(asked)?;
    let shape = shape_of(asked.shape.as_deref())?;
    let is_object = body.raw().is_object();
    let calls = match Calls::read(shape, body.raw()) {
        Ok(calls) if calls.shape == Shape::Mcp && !calls.is_list => {
            return call_tool(&api, caller, &headers, &body).await;
        }
        // Which member is wrong is told best by who knows MCP's own shape.
        Err(FormError::Unknown | FormError::Other { shape: Shape::Mcp }) if is_object => {
            return call_tool(&api, caller, &headers, &body).await;
        }
        calls => calls?,
    };
    let options = CallOptions {
        surface: surface(&headers),
        scope: Scope::All,
        context: context::read(&headers, None)?,
        timeout: asked.timeout_ms.map(Duration::from_millis),
    };
    let (engine, room, agent) = (api.engine().clone(), body.room(), caller.clone());
    let work = Box::pin(async move {
        let answers = engine.call_all(&caller, &calls, &options).await;
        drop(room);
        Ok(answered(&answers))
    });
    now_or_later(&api, &headers, &agent, work).await
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
    response
}

/// Writes one answer as a single call in MCP's shape is answered.
fn enveloped(answer: &ModelAnswer) -> String {
    let call = answer
        .call
        .map_or(String::new(), |call| format!("\"call\":\"{call}\","));
    let (is_error, result) = (answer.is_error, answer.answer.text());
    format!("{{{call}\"is_error\":{is_error},\"result\":{result}}}")
}
