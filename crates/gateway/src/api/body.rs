//! JSON in and out of the REST routes.
//!
//! A body is checked once by the same strict reader as MCP's messages, so that no key stands twice
//! and nothing is nested too deep, and then read into a strict type. Entry points: [`JsonBody`],
//! [`json`] and [`document`].

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gantry_model::caller::Caller;
use gantry_model::jsonrpc::{self, Limits, Raw, WireError};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};

use crate::http::error::{FieldIssue, Problem};
use crate::http::limits::{self, Room};

/// A body that was read and is valid JSON, and its room.
pub(super) struct JsonBody(Bytes, Room);

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let caller = parts.extensions.get::<Caller>();
        let caller = caller.ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED, "auth.no_key"))?;
        let (bytes, room) = limits::read_body(&parts.headers, body, &caller.agent).await?;
        let text = std::str::from_utf8(&bytes).map_err(|error| WireError::NotUtf8 {
            at: error.valid_up_to(),
        })?;
        jsonrpc::validate(text, &Limits::default())?;
        Ok(Self(bytes, room))
    }
}

impl JsonBody {
    /// Returns the room that the body takes, to be kept as long as what was read of it.
    pub(super) fn room(&self) -> Room {
        self.1.clone()
    }

    /// Returns the body as it came.
    pub(super) fn raw(&self) -> Raw<'_> {
        Raw::trusted(std::str::from_utf8(&self.0).expect("a body was checked when it was read"))
    }

    /// Reads the body into a type; what does not fit is named (422).
    pub(super) fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        serde_json::from_slice(&self.0).map_err(|error| unusable(&error))
    }
}

/// Names what does not fit (422).
pub(super) fn unusable(error: &serde_json::Error) -> Problem {
    let message = error.to_string();
    let path = message.split('`').nth(1).unwrap_or_default().to_owned();
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "request.body")
        .with_detail(format!("the body cannot be used: {message}"))
        .with_issues(vec![FieldIssue { path, message }])
}

/// Answers with a value as JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    document(
        status,
        serde_json::to_vec(value).expect("views are always JSON"),
    )
}

/// Answers with a JSON text.
pub(super) fn document(status: StatusCode, text: impl Into<Body>) -> Response {
    let kind = HeaderValue::from_static("application/json");
    (status, [(CONTENT_TYPE, kind)], text.into()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(kind: &str, text: &'static str) -> Result<u32, (u16, &'static str)> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Shape {
            n: u32,
        }
        let caller = Caller {
            project: gantry_model::id::ProjectName::local(),
            agent: "a".parse().unwrap(),
            key: gantry_model::id::KeyId::from_random(1),
            kind: gantry_model::caller::KeyKind::Agent,
            grants: Default::default(),
            users: Default::default(),
            validity: Default::default(),
        };
        let request = http::Request::builder().header(CONTENT_TYPE, kind);
        let request = request.extension(caller).body(Body::from(text)).unwrap();
        let body = JsonBody::from_request(request, &()).await;
        let shape = body.and_then(|body| body.read::<Shape>().map(|shape| shape.n));
        shape.map_err(|problem| (problem.status().as_u16(), problem.code()))
    }

    #[tokio::test]
    async fn bodies_are_strict() {
        let kind = "application/json";
        assert_eq!(read(kind, r#"{"n":7}"#).await, Ok(7));
        assert_eq!(
            read("text/plain", r#"{"n":7}"#).await,
            Err((415, "http.content_type"))
        );
        assert_eq!(read(kind, "{").await, Err((400, "wire.truncated")));
        assert_eq!(
            read(kind, r#"{"n":7,"n":8}"#).await,
            Err((400, "wire.duplicate_key"))
        );
        assert_eq!(read(kind, r#"{"m":7}"#).await, Err((422, "request.body")));
        assert_eq!(read(kind, r#"{"n":"7"}"#).await, Err((422, "request.body")));
    }
}
