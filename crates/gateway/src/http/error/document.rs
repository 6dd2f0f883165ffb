//! How a problem is written: as a document of RFC 9457, and as the data of a JSON-RPC error.

use axum::response::{IntoResponse, Response};
use gantry_model::diagnose::Fault;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde::Serialize;
use utoipa::ToSchema;

use super::{FieldIssue, Problem, ProblemCode, RpcError, title};

#[derive(Serialize)]
struct RpcData<'a> {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    issues: &'a [FieldIssue],
}

/// A problem document of RFC 9457 with our extension members.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemDocument<'a> {
    /// The URL of this code's page on this gateway.
    #[schema(example = "/errors/server.unknown")]
    r#type: String,
    /// The status in words.
    title: &'static str,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// The message for this request.
    detail: &'a str,
    /// The stable code.
    #[schema(example = "server.unknown")]
    code: &'static str,
    /// The responsible party: `client`, `server` or `gateway`.
    fault: &'static str,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    hint: Option<&'a str>,
    /// The call's id in the audit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    call: Option<String>,
    /// When to retry, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    retry_after: Option<f64>,
    /// The fields that are wrong.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schema(value_type = Vec<FieldIssue>, required = false)]
    issues: &'a [FieldIssue],
    /// The server's own JSON-RPC error.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<RpcError>)]
    error: Option<&'a RpcError>,
}

impl Problem {
    /// Returns the document of the problem.
    pub(crate) fn document(&self) -> ProblemDocument<'_> {
        let parts = &self.0;
        ProblemDocument {
            r#type: format!("/errors/{}", parts.code),
            title: title(parts.status),
            status: parts.status.as_u16(),
            detail: self.detail(),
            code: parts.code,
            fault: match parts.fault {
                Fault::Client => "client",
                Fault::Server => "server",
                Fault::Gateway => "gateway",
            },
            hint: parts.hint.as_deref(),
            call: parts.call.map(|call| call.to_string()),
            retry_after: parts.retry_after.map(|wait| wait.as_secs_f64()),
            issues: &parts.issues,
            error: parts.rpc.as_ref(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let parts = &self.0;
        let body = serde_json::to_vec(&self.document()).expect("texts and numbers are always JSON");
        let kind = HeaderValue::from_static("application/problem+json");
        let mut response = (parts.status, [(CONTENT_TYPE, kind)], body).into_response();
        response.extensions_mut().insert(ProblemCode(parts.code));
        self.dress(&mut response);
        response
    }
}

impl Problem {
    /// Returns our details as JSON.
    pub(super) fn own_data(&self) -> String {
        let data = RpcData {
            code: self.0.code,
            call: self.0.call.map(|call| call.to_string()),
            hint: self.0.hint.as_deref(),
            retry_after_ms: self.0.retry_after.map(|wait| wait.as_millis() as u64),
            issues: &self.0.issues,
        };
        serde_json::to_string(&data).expect("texts and numbers are always JSON")
    }
}
