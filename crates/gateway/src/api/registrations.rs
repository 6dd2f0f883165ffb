//! Changes that need a second person, `/api/v1/registrations`: shown in full, and approved or
//! refused by an administrator other than the one who requested them. The project's setting
//! `registration.approve` defines which changes need it.
//!
//! The route that receives such a change responds with 202 ([`hold`]). After the approval the same
//! code makes the change, in the approver's name.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use gantry_engine::{
    Actor, AdminError, EngineError, HeldChange, Project, RegistrationRow, TakenRegistration,
};
use gantry_model::secret::{REDACTED, is_given_secret};
use gantry_model::spec::{Launch, ServerSpec};
use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json as value};
use utoipa::ToSchema;

use super::body::json;
use super::query::{Asked, Page, Paging};
use super::views::rfc3339;
use super::{Api, By, In, Named, agents, grants, hooks, products};
use crate::http::error::Problem;

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/registrations", get(list))
        .route("/api/v1/registrations/{registration}", get(one))
        .route(
            "/api/v1/registrations/{registration}/approve",
            post(approve),
        )
        .route("/api/v1/registrations/{registration}/refuse", post(refuse))
}

/// A change that waits, or waited, for a second person.
#[derive(Serialize, ToSchema)]
pub(super) struct RegistrationView {
    /// Its id.
    #[schema(example = "reg_0123456789abcdef0123456789abcdef")]
    id: String,
    /// What is to be done, such as `server.register`.
    act: String,
    /// To what.
    target: String,
    /// The request, without secrets.
    asked: Value,
    /// Why a second person is asked: `local`, `allow_shell`, `allow_env`, `all_grants`.
    reasons: Vec<String>,
    /// Who asked.
    asked_by: String,
    /// When.
    asked_at: String,
    /// `pending`, `approved` or `refused`.
    #[schema(example = "pending")]
    state: &'static str,
    /// Who decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    decided_by: Option<String>,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    decided_at: Option<String>,
}

impl RegistrationView {
    fn of(row: RegistrationRow) -> Self {
        Self {
            id: row.id,
            act: row.act,
            target: row.target,
            asked: row.shown,
            reasons: row.reasons,
            asked_by: row.asked_by,
            asked_at: rfc3339(row.asked_ms),
            state: row.state.as_str(),
            decided_by: row.decided_by,
            decided_at: row.decided_ms.map(rfc3339),
        }
    }
}

/// A requested change: with its secrets, and as it is shown.
pub(super) struct Wanted<'a> {
    pub(super) act: &'static str,
    pub(super) target: &'a str,
    pub(super) request: Value,
    pub(super) shown: Value,
}

/// Stores a change that was refused because it needs a second person (202); returns any other error
/// unchanged.
pub(super) async fn hold(
    project: &Arc<Project>,
    actor: &Actor,
    refused: EngineError,
    wanted: Wanted<'_>,
) -> Result<Response, Problem> {
    let EngineError::Admin(AdminError::NeedsSecondPerson { reasons }) = refused else {
        return Err(refused.into());
    };
    let held = HeldChange {
        act: wanted.act,
        target: wanted.target.to_owned(),
        request: wanted.request,
        shown: wanted.shown,
        reasons,
    };
    let row = project.hold_registration(actor, held).await?;
    Ok(json(StatusCode::ACCEPTED, &RegistrationView::of(row)))
}

/// Returns what is stored of a server.
pub(super) fn server_wanted<'a>(
    act: &'static str,
    spec: &'a ServerSpec,
    shown: &impl Serialize,
) -> Wanted<'a> {
    let mut shown = serde_json::to_value(shown).unwrap_or_default();
    // Variables that make programs load other code are shown to the approver with their values,
    // others by name only.
    let env = match &spec.launch {
        Launch::Process(process) => Some(&process.env),
        Launch::Image(image) => Some(&image.env),
        Launch::Remote(_) => None,
    };
    let allowed = env.into_iter().flatten();
    let allowed = allowed.filter(|(name, _)| spec.allow.env.contains(*name));
    let allowed: serde_json::Map<String, Value> = allowed
        .map(|(name, value)| match is_given_secret(name, value) {
            true => (name.clone(), REDACTED.into()),
            false => (name.clone(), value.as_str().into()),
        })
        .collect();
    if !allowed.is_empty() {
        shown["allowed_env_values"] = allowed.into();
    }
    Wanted {
        act,
        target: spec.name.as_str(),
        request: value!({ "spec": spec }),
        shown,
    }
}

/// Lists what waits or waited for a second person, the newest first.
#[utoipa::path(get, path = "/api/v1/registrations", tag = "registrations", params(Paging), responses(
    (status = 200, description = "The registrations.", body = Page<RegistrationView>),
))]
pub(super) async fn list(
    In(project): In,
    Asked(asked): Asked<Paging>,
) -> Result<Response, Problem> {
    let rows = project.registrations().await?;
    let page = Page::of(rows, &asked, |row| row.id.clone())?;
    Ok(page.respond(RegistrationView::of))
}

/// Shows one registration in full.
#[utoipa::path(get, path = "/api/v1/registrations/{registration}", tag = "registrations",
    params(("registration" = String, Path, description = "Its id.")), responses(
    (status = 200, description = "The registration.", body = RegistrationView),
    (status = 404, description = "`registration.unknown`: no such registration."),
))]
pub(super) async fn one(In(project): In, Named(id): Named) -> Result<Response, Problem> {
    let row = project.registration(&id).await?;
    Ok(json(StatusCode::OK, &RegistrationView::of(row)))
}

/// Approves somebody else's registration, and carries it out.
#[utoipa::path(post, path = "/api/v1/registrations/{registration}/approve", tag = "registrations",
    params(("registration" = String, Path, description = "Its id.")), responses(
    (status = 200, description = "It is approved and done.", body = RegistrationView),
    (status = 403, description = "`registration.own`: the requester cannot approve it."),
    (status = 404, description = "`registration.unknown`: no such registration."),
    (status = 409, description = "`registration.decided`: it was already approved or refused."),
))]
pub(super) async fn approve(
    State(api): State<Api>,
    In(project): In,
    By(actor): By,
    Named(id): Named,
) -> Result<Response, Problem> {
    let taken = project.take_registration(&actor, &id).await?;
    if let Err(problem) = Box::pin(carry_out(&api, &project, &taken)).await {
        project.reopen_registration(&taken).await;
        return Err(problem);
    }
    let row = project.registration(&id).await?;
    Ok(json(StatusCode::OK, &RegistrationView::of(row)))
}

/// Makes the approved change, with the same code as without an approval.
async fn carry_out(
    api: &Api,
    project: &Arc<Project>,
    taken: &TakenRegistration,
) -> Result<(), Problem> {
    let lost = || {
        EngineError::from(AdminError::RegistrationLost {
            id: taken.target.clone(),
        })
    };
    let request = &taken.request;
    let spec = || serde_json::from_value::<ServerSpec>(request["spec"].clone()).map_err(|_| lost());
    match taken.act.as_str() {
        "server.register" => {
            let spec = spec()?;
            api.guard(&spec)?;
            project.register(&taken.by, spec).await?;
        }
        "server.replace" => {
            let spec = spec()?;
            api.guard(&spec)?;
            Box::pin(project.replace(&taken.by, spec)).await?;
        }
        "agent.create" => agents::create_from(project, &taken.by, &request["body"]).await?,
        "agent.change" => {
            agents::change_from(project, &taken.by, &taken.target, &request["body"]).await?;
        }
        "hook.set" => {
            hooks::set_from(project, &taken.by, &taken.target, &request["hook"]).await?;
        }
        "grant.add" => grants::add_from(project, &taken.by, &request["body"]).await?,
        "product.install" => {
            products::install_from(api, project, &taken.by, request).await?;
        }
        _ => return Err(lost().into()),
    }
    Ok(())
}

/// Refuses a registration, or withdraws one's own. The stored request is deleted.
#[utoipa::path(post, path = "/api/v1/registrations/{registration}/refuse", tag = "registrations",
    params(("registration" = String, Path, description = "Its id.")), responses(
    (status = 200, description = "It is refused.", body = RegistrationView),
    (status = 404, description = "`registration.unknown`: no such registration."),
    (status = 409, description = "`registration.decided`: it was already approved or refused."),
))]
pub(super) async fn refuse(
    In(project): In,
    By(actor): By,
    Named(id): Named,
) -> Result<Response, Problem> {
    project.refuse_registration(&actor, &id).await?;
    let row = project.registration(&id).await?;
    Ok(json(StatusCode::OK, &RegistrationView::of(row)))
}
