//! A call in the words of the audit: what it was to be, and how it ended.

use gantry_model::caller::Caller;
use gantry_model::diagnose::Diagnose;
use gantry_model::id::CallId;
use gantry_model::jsonrpc::Raw;
use gantry_model::secret::Redactor;
use gantry_store::CallStatus;

use super::target::Target;
use crate::audit::{Intent, RowCode};
use crate::clock::unix_ms;
use crate::error::CallError;
use crate::request::{Answered, Request};

/// Says what a call is to be; without a target it is one that nobody could be found for.
pub(super) fn intent<'a>(
    id: CallId,
    caller: &'a Caller,
    key: &'a str,
    request: &'a Request<'_>,
    target: Option<&'a Target<'_>>,
    schema_version: Option<&'a str>,
    redactor: &'a Redactor,
) -> Intent<'a> {
    Intent {
        id,
        project: caller.project.as_str(),
        agent: caller.agent.as_str(),
        key,
        context: &request.context,
        users: caller.users,
        surface: request.surface,
        server: target.map_or("", |target| target.server_str()),
        server_id: target.and_then(Target::server_id),
        method: request.method,
        tool: target.map_or("", |target| &target.item),
        schema_version,
        started_ms: unix_ms(),
        input: target
            .map_or(request.params, |target| target.arguments.or(request.params))
            .map(Raw::text),
        redactor,
    }
}

/// Says how a call ended in the words of the audit.
pub(super) fn describe(
    ended: &Result<Answered, CallError>,
) -> (CallStatus, Option<String>, Option<String>) {
    match ended {
        Ok(answered) if answered.is_error => (
            CallStatus::Error,
            Some(RowCode::ToolError.code().into()),
            None,
        ),
        Ok(_) => (CallStatus::Ok, None, None),
        Err(error) => failed(error),
    }
}

/// Says what a call failed of in the words of the audit.
pub(super) fn failed(error: &CallError) -> (CallStatus, Option<String>, Option<String>) {
    let status = if matches!(
        error,
        CallError::Timeout { .. } | CallError::Unanswered { .. }
    ) {
        CallStatus::Timeout
    } else if matches!(error, CallError::Cancelled | CallError::KeyEnded { .. }) {
        CallStatus::Cancelled
    } else if is_refusal(error) {
        CallStatus::Refused
    } else {
        CallStatus::Error
    };
    let code = if let CallError::Rpc { code, .. } = error {
        code.to_string()
    } else {
        error.code().to_owned()
    };
    (status, Some(code), Some(error.to_string()))
}

/// Tells whether a call that was recorded was never sent, because it may not be or has no room.
fn is_refusal(error: &CallError) -> bool {
    matches!(
        error,
        CallError::Busy { .. }
            | CallError::TooManySubscriptions { .. }
            | CallError::UnknownTool { .. }
            | CallError::UnknownServer { .. }
            | CallError::Unbound { .. }
            | CallError::Arguments { .. }
            | CallError::BadParams { .. }
    )
}
