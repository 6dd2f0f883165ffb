//! The only place where an error becomes an HTTP status, a problem document or a JSON-RPC error.
//!
//! A [`Problem`] is rendered for REST as RFC 9457 (`into_response`) and for `/mcp` as a JSON-RPC
//! error (`mcp/answer.rs`). A fault of the gateway shows its code and call id only; the log has
//! the chain. `status` holds the table from our own codes to statuses, `map` the one from the engine's
//! errors to problems.

mod document;
mod map;
mod own;
mod status;

use std::borrow::Cow;
use std::time::Duration;

use axum::response::Response;
use gantry_model::diagnose::{Diagnose, Fault, chain};
use gantry_model::era::error::{MISSING_CAPABILITY, URL_ELICITATION_REQUIRED};
use gantry_model::era::shape;
use gantry_model::id::CallId;
use gantry_model::jsonrpc;
use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

#[cfg(test)]
pub(crate) use self::document::ProblemDocument;

/// An error response.
#[derive(Debug)]
pub(crate) struct Problem(Box<Parts>);

#[derive(Debug)]
struct Parts {
    status: StatusCode,
    code: &'static str,
    detail: String,
    fault: Fault,
    hint: Option<String>,
    call: Option<CallId>,
    retry_after: Option<Duration>,
    issues: Vec<FieldIssue>,
    rpc: Option<RpcError>,
    carrier: Carrier,
    challenge: Option<Cow<'static, str>>,
}

/// How a problem is sent on `/mcp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// With its HTTP status: the request was refused before it became a call.
    Status,
    /// In a 200, so that clients' libraries hand the JSON-RPC error to the agent.
    Answer,
    /// As a tool result with `isError`, from which a model can recover (SEP-1303).
    ToolResult,
}

/// The capability that a stateless-era client needs for URL elicitation.
const URL_CAPABILITY: &str = r#"{"requiredCapabilities":{"elicitation":{"url":{}}}}"#;

/// The code of a problem, as an extension of its response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProblemCode(pub(crate) &'static str);

/// A JSON-RPC error with a code of its own.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RpcError {
    /// The code.
    pub(crate) code: i64,
    /// The message.
    pub(crate) message: String,
    /// The raw data, as the server sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) data: Option<Box<RawValue>>,
}

/// An error in one field.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FieldIssue {
    /// Its position: a JSON pointer (RFC 6901) into the body or the arguments, `/NAME` for a query.
    pub(crate) path: String,
    /// What is wrong with it.
    pub(crate) message: String,
}

impl Problem {
    /// Creates a problem with a stable code, which decides the status; 500 and above is our own
    /// fault.
    pub(crate) fn new(code: &'static str) -> Self {
        Self::with_status(status::of(code), code)
    }

    fn with_status(status: StatusCode, code: &'static str) -> Self {
        let fault = if status.is_server_error() {
            Fault::Gateway
        } else {
            Fault::Client
        };
        Self(Box::new(Parts {
            status,
            code,
            detail: String::new(),
            fault,
            hint: None,
            call: None,
            retry_after: None,
            issues: Vec::new(),
            rpc: None,
            carrier: Carrier::Status,
            challenge: None,
        }))
    }

    /// Takes code, fault, text and hint of an error; its code decides the status.
    pub(crate) fn of(error: &impl Diagnose) -> Self {
        Self::from_error(status::of(error.code()), error)
    }

    fn from_error(status: StatusCode, error: &impl Diagnose) -> Self {
        let mut problem = Self::with_status(status, error.code());
        problem.0.fault = error.fault();
        if error.fault() == Fault::Gateway {
            let (code, server) = (error.code(), error.server());
            tracing::error!(code, server, error = %chain(error), "request failed");
            problem.0.hint = own::hint(error.code()).map(str::to_owned);
        } else {
            problem.0.detail = chain(error);
            problem.0.hint = error.hint();
        }
        problem
    }

    /// Makes the answer to a request whose handler panicked.
    pub(crate) fn panic() -> Self {
        tracing::error!(code = "gateway.panic", "a request handler panicked");
        Self::new("gateway.panic")
    }

    /// Sets the message for this request.
    pub(crate) fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = detail.into();
        self
    }

    /// Says what to do about it.
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Answers 400 whatever the code: the request is malformed.
    pub(crate) fn malformed(mut self) -> Self {
        self.0.status = StatusCode::BAD_REQUEST;
        self
    }

    /// Names the call.
    pub(crate) fn with_call(mut self, call: Option<CallId>) -> Self {
        self.0.call = call;
        self
    }

    /// Sets `Retry-After`.
    pub(crate) fn with_retry_after(mut self, wait: Duration) -> Self {
        self.0.retry_after = Some(wait);
        self
    }

    /// Sets the wrong fields.
    pub(crate) fn with_issues(mut self, issues: Vec<FieldIssue>) -> Self {
        self.0.issues = issues;
        self
    }

    /// Sets a specific JSON-RPC code and message.
    pub(crate) fn with_rpc(mut self, code: i64, message: impl Into<String>) -> Self {
        self.0.rpc = Some(RpcError {
            code,
            message: message.into(),
            data: None,
        });
        self
    }

    /// Adds the challenge of RFC 6750.
    pub(crate) fn with_challenge(mut self, challenge: impl Into<Cow<'static, str>>) -> Self {
        self.0.challenge = Some(challenge.into());
        self
    }

    /// Returns the challenge, if there is one.
    pub(crate) fn challenge(&self) -> Option<&str> {
        self.0.challenge.as_deref()
    }

    fn with_carrier(mut self, carrier: Carrier) -> Self {
        self.0.carrier = carrier;
        self
    }

    /// Returns the HTTP status on REST.
    pub(crate) fn status(&self) -> StatusCode {
        self.0.status
    }

    /// Returns the HTTP status on `/mcp`.
    pub(crate) fn mcp_status(&self) -> StatusCode {
        match self.0.carrier {
            Carrier::Status => self.0.status,
            Carrier::Answer | Carrier::ToolResult => StatusCode::OK,
        }
    }

    /// Returns whether it is sent as a tool result.
    pub(crate) fn is_tool_result(&self) -> bool {
        self.0.carrier == Carrier::ToolResult
    }

    /// Adapts the problem to the stateless era: there an unknown method is 404, a missing client
    /// capability is 400, and an unknown resource has no code of its own.
    pub(crate) fn for_stateless(mut self) -> Self {
        if let Some(rpc) = &mut self.0.rpc {
            let needs_url = rpc.code == URL_ELICITATION_REQUIRED;
            rpc.code = shape::error_code_to_modern(rpc.code);
            if needs_url {
                rpc.data = RawValue::from_string(URL_CAPABILITY.to_owned()).ok();
            }
            if rpc.code == MISSING_CAPABILITY {
                self.0.status = StatusCode::BAD_REQUEST;
                self.0.carrier = Carrier::Status;
            }
        }
        if self.0.code == "method.unknown" {
            self.0.carrier = Carrier::Status;
        }
        self
    }

    /// Returns the hint, unless the fault is ours.
    pub(crate) fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Returns the stable code.
    pub(crate) fn code(&self) -> &'static str {
        self.0.code
    }

    /// Returns the fields that are wrong.
    pub(crate) fn issues(&self) -> &[FieldIssue] {
        &self.0.issues
    }

    /// Returns the JSON-RPC code: the error's own, else -31000 minus the status.
    ///
    /// That range is reserved by neither JSON-RPC nor MCP. fault A5
    pub(crate) fn rpc_code(&self) -> i64 {
        match &self.0.rpc {
            Some(rpc) => rpc.code,
            None if self.0.status == StatusCode::INTERNAL_SERVER_ERROR => jsonrpc::INTERNAL_ERROR,
            None => -31_000 - i64::from(self.0.status.as_u16()),
        }
    }

    /// Returns the JSON-RPC message.
    pub(crate) fn rpc_message(&self) -> &str {
        self.0
            .rpc
            .as_ref()
            .map_or_else(|| self.detail(), |rpc| &rpc.message)
    }

    /// Returns the JSON-RPC data: the server's unchanged, else our own details.
    pub(crate) fn rpc_data(&self) -> Option<String> {
        if let Some(data) = self.0.rpc.as_ref().and_then(|rpc| rpc.data.as_deref()) {
            return Some(data.get().to_owned());
        }
        if self.0.code == map::SERVER_ERROR {
            return None;
        }
        Some(self.own_data())
    }

    /// Returns the message; a generic one if the fault is ours.
    pub(crate) fn detail(&self) -> &str {
        match (self.0.fault, self.0.detail.is_empty()) {
            (Fault::Client | Fault::Server, false) => &self.0.detail,
            (Fault::Gateway, _) => own::detail(self.0.code, self.0.status),
            (Fault::Client | Fault::Server, true) => title(self.0.status),
        }
    }

    /// Sets the headers of the problem.
    pub(crate) fn dress(&self, response: &mut Response) {
        let headers = response.headers_mut();
        if let Some(wait) = self.0.retry_after {
            let seconds = wait.as_millis().div_ceil(1000).max(1) as u64;
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(challenge) = &self.0.challenge
            && let Ok(challenge) = HeaderValue::try_from(challenge.as_ref())
        {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
    }
}

/// Answers 404.
pub(crate) fn no_route() -> Problem {
    Problem::new("http.route").with_detail("not found")
}

fn title(status: StatusCode) -> &'static str {
    status.canonical_reason().unwrap_or("Error")
}

#[cfg(test)]
mod tests;
