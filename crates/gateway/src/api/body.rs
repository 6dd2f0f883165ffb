//! JSON request and response bodies of the REST routes.
//!
//! A body is validated by the same strict parser as MCP messages (no duplicate keys, bounded depth)
//! and then read into a strict type; errors name the field by a JSON pointer. Entry points:
//! [`JsonBody`], [`json`] and [`document`].

use std::fmt;
use std::marker::PhantomData;

use axum::body::Body;
use axum::extract::{FromRef, FromRequest, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use gantry_model::caller::Caller;
use gantry_model::jsonrpc::{self, Limits, Raw, WireError, pointer_step};
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::Body as _;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_path_to_error::{Path, Segment};

use crate::http::error::{FieldIssue, Problem};
use crate::http::limits::{Account, Bodies, BodyPermit, read_body};

/// A validated JSON body and its permit.
pub(super) struct JsonBody(Bytes, BodyPermit);

impl<S: Send + Sync> FromRequest<S> for JsonBody
where
    Bodies: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let caller = parts.extensions.get::<Caller>();
        let caller = caller.ok_or_else(|| Problem::new("auth.no_key"))?;
        let account = (&caller.project, &caller.agent);
        Self::read_for(&Bodies::from_ref(state), account, &parts.headers, body).await
    }
}

/// A body that may be left out.
pub(super) struct OptionalBody(Option<JsonBody>);

impl<S: Send + Sync> FromRequest<S> for OptionalBody
where
    Bodies: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if request.body().is_end_stream() {
            return Ok(Self(None));
        }
        JsonBody::from_request(request, state)
            .await
            .map(|body| Self(Some(body)))
    }
}

impl OptionalBody {
    /// Deserializes the body; an omitted one is the default value.
    pub(super) fn read<T: DeserializeOwned + Default>(&self) -> Result<T, Problem> {
        self.0
            .as_ref()
            .map_or_else(|| Ok(T::default()), JsonBody::read)
    }
}

impl JsonBody {
    /// Reads a body, charged to an agent's quota.
    pub(super) async fn read_for(
        bodies: &Bodies,
        account: Account<'_>,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Self, Problem> {
        let (bytes, room) = read_body(bodies, headers, body, account).await?;
        let text = std::str::from_utf8(&bytes).map_err(|error| WireError::NotUtf8 {
            at: error.valid_up_to(),
        })?;
        jsonrpc::validate(text, &Limits::default())?;
        Ok(Self(bytes, room))
    }

    /// Returns the body's permit, to be kept as long as its data.
    pub(super) fn room(&self) -> BodyPermit {
        self.1.clone()
    }

    /// Returns the raw body.
    pub(super) fn raw(&self) -> Raw<'_> {
        Raw::trusted(std::str::from_utf8(&self.0).expect("a body was checked when it was read"))
    }

    /// Deserializes the body; errors name the field (422).
    pub(super) fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        // Serde would accept a list as the members of a struct, in their order.
        if self.0.trim_ascii_start().starts_with(b"[") {
            let message = "invalid type: sequence, expected an object".to_owned();
            let path = String::new();
            return Err(Problem::new("request.body")
                .with_detail(format!("the body cannot be used: {message}"))
                .with_issues(vec![FieldIssue { path, message }]));
        }
        let mut reader = serde_json::Deserializer::from_slice(&self.0);
        serde_path_to_error::deserialize(&mut reader).map_err(|error| unusable(&error))
    }
}

/// Deserializes a member that is an object. Serde would accept a list as the members of a struct, in their order.
pub(super) fn object<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_map(ObjectVisitor(PhantomData))
}

/// The same for a member that may be null.
pub(super) fn optional_object<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_option(OptionVisitor(PhantomData))
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

struct OptionVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OptionVisitor<T> {
    type Value = Option<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object or null")
    }

    fn visit_none<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        object(deserializer).map(Some)
    }
}

/// Names the wrong field and its position (422).
fn unusable(error: &serde_path_to_error::Error<serde_json::Error>) -> Problem {
    let message = error.inner().to_string();
    // Without the line and column, which mean little in generated JSON.
    let place = format!(
        " at line {} column {}",
        error.inner().line(),
        error.inner().column()
    );
    let message = message.strip_suffix(&place).unwrap_or(&message).to_owned();
    let mut path = pointer(error.path());
    if let Some(field) = message.strip_prefix("missing field `") {
        // A missing field is reported at its own path, as everywhere.
        path = format!("{path}/{}", pointer_step(field.trim_end_matches('`')));
    }
    let detail = match path.as_str() {
        "" => format!("the body cannot be used: {message}"),
        path => format!("the body cannot be used: `{path}`: {message}"),
    };
    Problem::new("request.body")
        .with_detail(detail)
        .with_issues(vec![FieldIssue { path, message }])
}

/// Converts a path to a JSON pointer (RFC 6901).
fn pointer(path: &Path) -> String {
    let parts = path.iter().filter_map(|part| match part {
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Map { key } => Some(pointer_step(key)),
        // Enum variants and unnamed values have no path segment.
        Segment::Enum { .. } | Segment::Unknown => None,
    });
    parts.fold(String::new(), |pointer, part| format!("{pointer}/{part}"))
}

/// Answers with a value as JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    document(
        status,
        serde_json::to_vec(value).expect("views are always JSON"),
    )
}

/// Answers 201 with the created object and its location.
pub(super) fn created(location: &str, value: &impl Serialize) -> Response {
    let mut response = json(StatusCode::CREATED, value);
    let location = HeaderValue::try_from(location).expect("ids and names are safe in a header");
    response.headers_mut().insert(LOCATION, location);
    response
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
            token: None,
            authenticated_in: std::time::Duration::ZERO,
        };
        let request = http::Request::builder().header(CONTENT_TYPE, kind);
        let request = request.extension(caller).body(Body::from(text)).unwrap();
        let body = JsonBody::from_request(request, &crate::http::limits::bodies()).await;
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

    #[test]
    fn what_does_not_fit_is_pointed_at() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only whether it can be read is looked at")]
        struct Shape {
            name: String,
            list: Option<Vec<u32>>,
            inner: Option<std::collections::BTreeMap<String, u32>>,
        }
        for (value, path) in [
            (serde_json::json!({"name": 7}), "/name"),
            (
                serde_json::json!({"name": "`quoted`", "list": [1, "x"]}),
                "/list/1",
            ),
            (
                serde_json::json!({"name": "a", "inner": {"a/b~c": "x"}}),
                "/inner/a~1b~0c",
            ),
            (serde_json::json!({"name": "a", "nmae": 1}), "/nmae"),
            (serde_json::json!({"list": []}), "/name"),
            (serde_json::json!([]), ""),
        ] {
            let shape: Result<Shape, _> = serde_path_to_error::deserialize(value.clone());
            let problem = unusable(&shape.err().unwrap());
            assert_eq!(problem.issues()[0].path, path, "{value}");
        }
    }
}
