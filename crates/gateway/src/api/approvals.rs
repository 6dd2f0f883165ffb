//! Calls that wait for an approver, `/api/v1/approvals`: shown with their arguments, allowed or refused, once.
//! Which calls wait is said by grants with the effect `ask`.

use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use gantry_engine::HeldCall;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::{OptionalBody, json};
use super::keys::label;
use super::query::{Asked, Page, Paging};
use super::views::rfc3339;
use super::{Api, By, In, Named};
use crate::http::error::Problem;

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/approvals", get(list))
        .route("/api/v1/approvals/{call}", get(one))
        .route("/api/v1/approvals/{call}/allow", post(allow))
        .route("/api/v1/approvals/{call}/refuse", post(refuse))
}

/// A call that waits for an approver.
#[derive(Serialize, ToSchema)]
pub(super) struct ApprovalView {
    /// The call's id, in the record as well.
    #[schema(example = "call_0123456789abcdef0123456789abcdef")]
    call: String,
    /// Who calls.
    agent: String,
    /// For whom, as far as it is known.
    user: Option<String>,
    /// The server.
    server: String,
    /// The tool, prompt or resource.
    name: String,
    /// The method.
    method: String,
    /// The version of the tool, to which the approval is bound.
    tool_version: Option<String>,
    /// The arguments as JSON text, without the server's secrets, with invisible characters escaped,
    /// cut if they are long.
    arguments: String,
    /// How many bytes all arguments have.
    arguments_bytes: usize,
    /// The SHA-256 of the arguments, to which the approval is bound.
    arguments_hash: String,
    /// The grant that asks for an approval.
    grant: Option<String>,
    /// Since when it waits.
    since: String,
    /// When it is refused if nobody decides.
    expires: String,
    /// The same, in milliseconds since 1970.
    expires_ms: u64,
}

impl ApprovalView {
    fn of(held: HeldCall) -> Self {
        Self {
            call: held.call.to_string(),
            agent: held.agent.to_string(),
            user: held.user,
            server: held.server.to_string(),
            name: held.item,
            method: held.method,
            tool_version: held.tool_version,
            arguments: held.arguments,
            arguments_bytes: held.arguments_bytes,
            arguments_hash: held.arguments_hash,
            grant: held.grant,
            since: rfc3339(held.since_ms),
            expires: rfc3339(held.until_ms),
            expires_ms: held.until_ms,
        }
    }
}

/// A decision.
#[derive(Deserialize, ToSchema, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct ApprovalBody {
    /// Why; the agent receives it if the call is refused.
    #[serde(default)]
    #[schema(max_length = 128)]
    reason: String,
    /// `arguments_hash` of what was looked at; another one is refused.
    #[serde(default)]
    #[schema(nullable = false)]
    arguments_hash: Option<String>,
}

/// Lists the calls that wait for an approver, the oldest first.
#[utoipa::path(get, path = "/api/v1/approvals", tag = "approvals", params(Paging), responses(
    (status = 200, description = "The calls.", body = Page<ApprovalView>),
))]
pub(super) async fn list(
    In(project): In,
    Asked(asked): Asked<Paging>,
) -> Result<Response, Problem> {
    let page = Page::of(project.held_calls(), &asked, |held| held.call.to_string())?;
    Ok(page.respond(ApprovalView::of))
}

/// Shows one call that waits.
#[utoipa::path(get, path = "/api/v1/approvals/{call}", tag = "approvals",
    params(("call" = String, Path, description = "The call's id.")), responses(
    (status = 200, description = "The call.", body = ApprovalView),
    (status = 404, description = "`approval.unknown`: no such call waits."),
    (status = 409, description = "`approval.elsewhere`: another gateway of the store makes the call, and decides on it."),
))]
pub(super) async fn one(In(project): In, Named(id): Named) -> Result<Response, Problem> {
    let held = project.held_call(&id).await?;
    Ok(json(StatusCode::OK, &ApprovalView::of(held)))
}

/// Allows a call, once: it is made now.
#[utoipa::path(post, path = "/api/v1/approvals/{call}/allow", tag = "approvals", request_body(content = Option<ApprovalBody>, description = "May be left out."),
    params(("call" = String, Path, description = "The call's id.")), responses(
    (status = 200, description = "It is made.", body = ApprovalView),
    (status = 404, description = "`approval.unknown`: no such call waits."),
    (status = 409, description = "`approval.changed`: its arguments are not those that were reviewed; \
        `approval.elsewhere`: another gateway of the store makes the call, and decides on it."),
))]
pub(super) async fn allow(
    project: In,
    by: By,
    id: Named,
    body: OptionalBody,
) -> Result<Response, Problem> {
    decide(project, by, id, body, true).await
}

/// Refuses a call; its agent receives an error.
#[utoipa::path(post, path = "/api/v1/approvals/{call}/refuse", tag = "approvals", request_body(content = Option<ApprovalBody>, description = "May be left out."),
    params(("call" = String, Path, description = "The call's id.")), responses(
    (status = 200, description = "It is refused.", body = ApprovalView),
    (status = 404, description = "`approval.unknown`: no such call waits."),
    (status = 409, description = "`approval.changed`: its arguments are not those that were reviewed; \
        `approval.elsewhere`: another gateway of the store makes the call, and decides on it."),
))]
pub(super) async fn refuse(
    project: In,
    by: By,
    id: Named,
    body: OptionalBody,
) -> Result<Response, Problem> {
    decide(project, by, id, body, false).await
}

async fn decide(
    In(project): In,
    By(actor): By,
    Named(id): Named,
    body: OptionalBody,
    allowed: bool,
) -> Result<Response, Problem> {
    let asked: ApprovalBody = body.read()?;
    let reason = label(&asked.reason)?;
    let hash = asked.arguments_hash.as_deref();
    let held = project
        .decide_on_call(&actor, &id, allowed, &reason, hash)
        .await?;
    Ok(json(StatusCode::OK, &ApprovalView::of(held)))
}
