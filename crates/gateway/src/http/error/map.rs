//! The table from the engine's errors to problems.
//!
//! | error | REST | `/mcp` | JSON-RPC code |
//! |---|---|---|---|
//! | unknown tool, prompt, resource | 404 | 200 | -32602, a resource -32002 before 2026-07-28 |
//! | unknown server | 404 | 404 | -31404 |
//! | unknown method | 404 | 200, modern 404 | -32601 |
//! | no grant, suspended, quarantined | 403 | 403 | -31403 |
//! | refused by a hook of the project or by an approver, not approved in time | 403 | 200 | -31403 |
//! | a hook of the project failed | 502 | 200 | -31502 |
//! | arguments against the schema | 422, `issues` | 200, a result with `isError` | – |
//! | params of no use | 400 | 200 | -32602 |
//! | queue full | 429, Retry-After | 429, Retry-After | -31429 |
//! | down | 503, Retry-After | 200 | -31503 |
//! | remote: silent | 504 | 200 | -31504 |
//! | remote: asks to be left alone | 503, Retry-After | 200 | -31503 |
//! | remote: anything else | 502 | 200 | -31502 |
//! | exited, not reading, protocol, response too large, output schema | 502 | 200 | -31502 |
//! | timeout, server request unanswered | 504 | 200 | -31504 |
//! | the client declined what the server asked | 422 | 200 | -31422 |
//! | too many calls wait for their client, too many subscriptions | 429 | 429 | -31429 |
//! | the answer was not delivered: too much is unread | 429, Retry-After | 200 | -31429 |
//! | cancelled | 499 | no answer | -31499 |
//! | the key was revoked or has expired | 401 | 401 | -31401 |
//! | the server's own error | 404 (-32601, -32002), 400 (-32602), 502 | 200 | as the server said |
//! | audit unavailable, stopping | 503 | 503 | -31503 |
//! | database locked, full, busy or failing | 503, Retry-After | – | – |
//! | panic | 500 | 500 | -32603 |
//!
//! What is refused before it becomes a call keeps its HTTP status on `/mcp`; what became of a call
//! travels in a 200, because clients' libraries hand only that to the agent.

use std::time::Duration;

use gantry_engine::images::{ImageError, Responsible};
use gantry_engine::{
    AdminError, CallError, CallFailure, EngineError, HttpError, Issue, RegistryLoginError,
    SecretError, SignInError, VolumeError,
};
use gantry_model::caller::KeyEnd;
use gantry_model::diagnose::{Diagnose as _, chain};
use gantry_model::era::EraError;
use gantry_model::era::error::RESOURCE_NOT_FOUND;
use gantry_model::jsonrpc::{self, WireError, pointer_step};
use gantry_model::shape::{FormError, ShapeNameError};
use gantry_model::spec::SpecError;
use http::StatusCode;
use serde_json::value::RawValue;

use super::status::client_closed_request;
use super::{Carrier, FieldIssue, Problem, RpcError};
use crate::http::auth::CHALLENGE_WRONG;

/// `Retry-After` while the database or the gateway is temporarily unavailable.
const COME_AGAIN: Duration = Duration::from_secs(5);

/// The kind of item that has its own error code in the handshake era if unknown.
const RESOURCE: &str = "resource";

/// The code of a server's own JSON-RPC error, which is forwarded unchanged.
pub(super) const SERVER_ERROR: &str = "server.error";

impl From<CallFailure> for Problem {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "`place` decides on every error; few have more to say than their status"
    )]
    fn from(failure: CallFailure) -> Self {
        let error = failure.error;
        let (status, carrier) = place(&error);
        let problem = Self::from_error(status, &error)
            .with_carrier(carrier)
            .with_call(failure.call);
        match error {
            CallError::UnknownItem { kind, .. } if kind == RESOURCE => {
                let message = problem.detail().to_owned();
                problem.with_rpc(RESOURCE_NOT_FOUND, message)
            }
            CallError::UnknownTool { .. }
            | CallError::UnknownItem { .. }
            | CallError::BadParams { .. } => {
                let message = problem.detail().to_owned();
                problem.with_rpc(jsonrpc::INVALID_PARAMS, message)
            }
            CallError::UnknownMethod { .. } => {
                problem.with_rpc(jsonrpc::METHOD_NOT_FOUND, "Method not found")
            }
            CallError::Arguments { issues, .. } | CallError::Output { issues, .. } => {
                problem.with_issues(issues.into_iter().map(FieldIssue::from).collect())
            }
            CallError::Busy { retry_after, .. } => problem.with_retry_after(retry_after),
            CallError::Limited(exceeded) => problem.with_retry_after(exceeded.retry_after),
            CallError::Down {
                next_try: Some(wait),
                ..
            } => problem.with_retry_after(wait),
            CallError::Rpc {
                code,
                message,
                data,
                ..
            } => {
                let mut problem = problem;
                let data = data.and_then(|data| RawValue::from_string(data.into()).ok());
                problem.0.rpc = Some(RpcError {
                    code,
                    message,
                    data,
                });
                problem
            }
            CallError::Remote {
                error:
                    HttpError::Limited { retry_after, .. }
                    | HttpError::Failed {
                        retry_after: Some(retry_after),
                        ..
                    },
                ..
            } => problem.with_retry_after(retry_after),
            CallError::Stopping => problem.with_retry_after(COME_AGAIN),
            CallError::Undelivered { .. } => problem.with_retry_after(Duration::from_secs(1)),
            CallError::KeyEnded {
                end: KeyEnd::Suspended,
            } => problem,
            CallError::KeyEnded { .. } => problem.with_challenge(CHALLENGE_WRONG),
            _ => problem,
        }
    }
}

fn place(error: &CallError) -> (StatusCode, Carrier) {
    match error {
        CallError::UnknownTool { .. }
        | CallError::UnknownItem { .. }
        | CallError::UnknownMethod { .. } => (StatusCode::NOT_FOUND, Carrier::Answer),
        CallError::UnknownServer { .. } => (StatusCode::NOT_FOUND, Carrier::Status),
        CallError::NotGranted { .. }
        | CallError::Forbidden { .. }
        | CallError::Suspended { .. }
        | CallError::Quarantined { .. }
        | CallError::KeyEnded {
            end: KeyEnd::Suspended,
        } => (StatusCode::FORBIDDEN, Carrier::Status),
        CallError::HookRefused { .. }
        | CallError::ApprovalRefused { .. }
        | CallError::ApprovalExpired { .. }
        | CallError::ApprovalStale { .. } => (StatusCode::FORBIDDEN, Carrier::Answer),
        CallError::TooManyApprovals { .. } => (StatusCode::TOO_MANY_REQUESTS, Carrier::Answer),
        CallError::HookFailed { .. } => (StatusCode::BAD_GATEWAY, Carrier::Answer),
        CallError::Undelivered { .. } => (StatusCode::TOO_MANY_REQUESTS, Carrier::Answer),
        CallError::KeyEnded { .. } => (StatusCode::UNAUTHORIZED, Carrier::Status),
        CallError::Arguments { .. } => (StatusCode::UNPROCESSABLE_ENTITY, Carrier::ToolResult),
        CallError::BadParams { .. } => (StatusCode::BAD_REQUEST, Carrier::Answer),
        CallError::Busy { .. } | CallError::Limited(_) => {
            (StatusCode::TOO_MANY_REQUESTS, Carrier::Status)
        }
        CallError::Down { .. } => (StatusCode::SERVICE_UNAVAILABLE, Carrier::Answer),
        CallError::Remote {
            error: HttpError::Silent { .. },
            ..
        } => (StatusCode::GATEWAY_TIMEOUT, Carrier::Answer),
        CallError::Remote {
            error: HttpError::Limited { .. },
            ..
        } => (StatusCode::SERVICE_UNAVAILABLE, Carrier::Answer),
        CallError::Output { .. }
        | CallError::Exited { .. }
        | CallError::Remote { .. }
        | CallError::NotReading { .. }
        | CallError::Protocol { .. }
        | CallError::ResponseTooLarge { .. }
        | CallError::ResultTooLong { .. } => (StatusCode::BAD_GATEWAY, Carrier::Answer),
        CallError::Timeout { .. } | CallError::Unanswered { .. } => {
            (StatusCode::GATEWAY_TIMEOUT, Carrier::Answer)
        }
        CallError::Declined { .. } => (StatusCode::UNPROCESSABLE_ENTITY, Carrier::Answer),
        CallError::TooManyHeld { .. }
        | CallError::TooMuchHeld { .. }
        | CallError::TooManySubscriptions { .. } => {
            (StatusCode::TOO_MANY_REQUESTS, Carrier::Status)
        }
        CallError::Cancelled => (client_closed_request(), Carrier::Answer),
        CallError::Rpc { code, .. } => (rpc_status(*code), Carrier::Answer),
        CallError::Audit(_) | CallError::Stopping => {
            (StatusCode::SERVICE_UNAVAILABLE, Carrier::Status)
        }
        CallError::Panicked => (StatusCode::INTERNAL_SERVER_ERROR, Carrier::Status),
    }
}

/// Returns the HTTP status for a server's own error. row 1.5
fn rpc_status(code: i64) -> StatusCode {
    match code {
        jsonrpc::METHOD_NOT_FOUND | RESOURCE_NOT_FOUND => StatusCode::NOT_FOUND,
        jsonrpc::INVALID_PARAMS => StatusCode::BAD_REQUEST,
        _ => StatusCode::BAD_GATEWAY,
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        let status = match &error {
            EngineError::Admin(error) => admin_status(error),
            EngineError::Spec(_)
            | EngineError::Name(_)
            | EngineError::Grant(_)
            | EngineError::Native { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            EngineError::Conflict { .. }
            | EngineError::OfFile { .. }
            | EngineError::Builtin { .. }
            | EngineError::AgentExists { .. }
            | EngineError::LastAdmin
            | EngineError::NeedsApproval { .. }
            | EngineError::NoImage { .. }
            | EngineError::Disabled { .. }
            | EngineError::Misconfigured { .. } => StatusCode::CONFLICT,
            EngineError::UnknownServer { .. } | EngineError::UnknownAgent { .. } => {
                StatusCode::NOT_FOUND
            }
            EngineError::Volume(VolumeError::Unknown { .. }) => StatusCode::NOT_FOUND,
            EngineError::Volume(VolumeError::InUse { .. }) => StatusCode::CONFLICT,
            EngineError::Image(error) => image_status(error),
            EngineError::RegistryLogin(error) => match error {
                RegistryLoginError::Name { .. }
                | RegistryLoginError::Unusable { .. }
                | RegistryLoginError::TooMany => StatusCode::UNPROCESSABLE_ENTITY,
                RegistryLoginError::Unknown { .. } => StatusCode::NOT_FOUND,
                RegistryLoginError::NoVault | RegistryLoginError::Vault(_) => {
                    StatusCode::INTERNAL_SERVER_ERROR
                }
            },
            EngineError::StartFailed { .. } => StatusCode::BAD_GATEWAY,
            EngineError::Audit(_) | EngineError::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            EngineError::SignIn(error) => sign_in_status(error),
            EngineError::Secret(error) => secret_status(error),
            EngineError::Store(error) if error.is_passing() => StatusCode::SERVICE_UNAVAILABLE,
            EngineError::Locked { .. }
            | EngineError::Folder { .. }
            | EngineError::Open { .. }
            | EngineError::Store(_)
            | EngineError::Volume(VolumeError::Files { .. })
            | EngineError::Driver(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut problem = Self::from_error(status, &error);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            problem = problem.with_retry_after(COME_AGAIN);
        }
        let EngineError::Spec(error) = error else {
            return problem;
        };
        let message = match &error {
            SpecError::Range { given, range, .. } => format!("is {given}, allowed is {range}"),
            SpecError::Command { .. }
            | SpecError::Both { .. }
            | SpecError::Remote { .. }
            | SpecError::Hosting { .. }
            | SpecError::Writable { .. }
            | SpecError::Shell { .. }
            | SpecError::Script { .. }
            | SpecError::Variable { .. }
            | SpecError::Nul { .. }
            | SpecError::RelativeFolder { .. }
            | SpecError::Restart { .. } => chain(&error),
        };
        problem.with_issues(vec![FieldIssue {
            path: registered_as(&error.field()),
            message,
        }])
    }
}

/// Returns the JSON pointer of a spec's field in a registration body.
fn registered_as(member: &str) -> String {
    if let Some(index) = member
        .strip_prefix("args[")
        .and_then(|rest| rest.strip_suffix(']'))
    {
        return format!("/args/{index}");
    }
    if let Some(index) = member
        .strip_prefix("volumes[")
        .and_then(|rest| rest.strip_suffix(']'))
    {
        return format!("/volumes/{index}");
    }
    // Everything after `env.` or `headers.` is a name, even with dots.
    match member.split_once('.') {
        Some((table @ ("env" | "headers"), name)) => format!("/{table}/{}", pointer_step(name)),
        Some(_) => {
            let parts = member.split('.').map(pointer_step);
            parts.fold(String::new(), |pointer, part| format!("{pointer}/{part}"))
        }
        None => format!("/{}", pointer_step(member)),
    }
}

/// Returns the status of an administrator's invalid or forbidden request.
fn admin_status(error: &AdminError) -> StatusCode {
    match error {
        AdminError::RoleAbove { .. }
        | AdminError::SuspendedAbove { .. }
        | AdminError::Policy(_)
        | AdminError::NeedsSecondPerson { .. }
        | AdminError::PolicyOfInstallation
        | AdminError::OwnRegistration { .. } => StatusCode::FORBIDDEN,
        AdminError::Setting(_) | AdminError::KeyLifetime { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        AdminError::UnknownRegistration { .. }
        | AdminError::UnknownHold { .. }
        | AdminError::UnknownKey { .. }
        | AdminError::ToolVersionUnknown { .. }
        | AdminError::UnknownHook { .. }
        | AdminError::UnknownApproval { .. }
        | AdminError::UnknownProduct { .. }
        | AdminError::UnknownGrant { .. }
        | AdminError::UnknownGroup { .. }
        | AdminError::UnknownProject { .. } => StatusCode::NOT_FOUND,
        AdminError::TooManyPending => StatusCode::TOO_MANY_REQUESTS,
        AdminError::ProductChanged { .. }
        | AdminError::TooManyHolds { .. }
        | AdminError::KeyRotated { .. }
        | AdminError::ToolVersionChanged { .. }
        | AdminError::ApprovalChanged { .. }
        | AdminError::ApprovalElsewhere { .. }
        | AdminError::OfProduct { .. }
        | AdminError::RegistrationDecided { .. }
        | AdminError::RegistrationLost { .. }
        | AdminError::ServerSuspended { .. }
        | AdminError::TooManyGrants { .. }
        | AdminError::TooManyGroups { .. }
        | AdminError::GroupExists { .. }
        | AdminError::GroupInUse { .. }
        | AdminError::FilesGroup
        | AdminError::ProjectExists { .. }
        | AdminError::ProjectNameUsed { .. }
        | AdminError::ProjectOfFolder { .. } => StatusCode::CONFLICT,
    }
}

/// Returns the status of an image that could not be pulled, imported or removed.
fn image_status(error: &ImageError) -> StatusCode {
    match (error.code(), error.responsible()) {
        ("image.reference", _) => StatusCode::BAD_REQUEST,
        ("image.absent" | "image.not_found", _) => StatusCode::NOT_FOUND,
        ("image.unauthorized" | "image.address_refused", _) => StatusCode::FORBIDDEN,
        ("image.cancelled", _) => client_closed_request(),
        (_, Responsible::User) => StatusCode::UNPROCESSABLE_ENTITY,
        (_, Responsible::Registry | Responsible::Image) => StatusCode::BAD_GATEWAY,
        (_, Responsible::Host) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn secret_status(error: &SecretError) -> StatusCode {
    match error {
        SecretError::Unknown { .. } => StatusCode::NOT_FOUND,
        SecretError::Name(_)
        | SecretError::Value { .. }
        | SecretError::Origin { .. }
        | SecretError::Bindings { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        SecretError::Forbidden { .. } => StatusCode::FORBIDDEN,
        SecretError::Changed { .. } => StatusCode::CONFLICT,
        // The key is missing or wrong: the request itself is valid.
        SecretError::Vault(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

fn sign_in_status(error: &SignInError) -> StatusCode {
    match error {
        SignInError::NotTaken { .. } => StatusCode::CONFLICT,
        SignInError::Unknown | SignInError::Refused { .. } | SignInError::Issuer { .. } => {
            StatusCode::BAD_REQUEST
        }
        SignInError::Needed { .. }
        | SignInError::Scope { .. }
        | SignInError::Moved { .. }
        | SignInError::Unnamed { .. }
        | SignInError::Unavailable { .. } => StatusCode::BAD_GATEWAY,
        SignInError::Vault(_) | SignInError::Sealed { .. } | SignInError::Store(_) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

impl From<WireError> for Problem {
    fn from(error: WireError) -> Self {
        let problem = Self::from_error(StatusCode::BAD_REQUEST, &error);
        let message = problem.detail().to_owned();
        problem.with_rpc(error.rpc_code(), message)
    }
}

impl From<EraError> for Problem {
    fn from(error: EraError) -> Self {
        let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::BAD_REQUEST);
        let mut problem = Self::from_error(status, &error);
        let data = error
            .data()
            .and_then(|data| RawValue::from_string(data.into_text()).ok());
        problem.0.rpc = Some(RpcError {
            code: error.rpc_code(),
            message: error.to_string(),
            data,
        });
        problem
    }
}

impl From<ShapeNameError> for Problem {
    fn from(error: ShapeNameError) -> Self {
        Self::from_error(StatusCode::BAD_REQUEST, &error)
    }
}

impl From<FormError> for Problem {
    fn from(error: FormError) -> Self {
        Self::from_error(StatusCode::UNPROCESSABLE_ENTITY, &error)
    }
}

impl From<Issue> for FieldIssue {
    fn from(issue: Issue) -> Self {
        Self {
            path: issue.path,
            message: issue.message,
        }
    }
}
