//! The content hooks of a project, `/api/v1/hooks`, for administrators: what looks at requests and results.
//! They are the project's setting `hooks`; this shows and changes one of them at a time.

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use gantry_engine::{Actor, AdminError, EngineError, Project};
use gantry_model::hook::Hook;
use gantry_model::spec::period;
use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json as value};
use utoipa::ToSchema;

use super::body::{JsonBody, json};
use super::query::Page;
use super::registrations::{RegistrationView, Wanted, hold};
use super::{Api, By, In, Named};
use crate::http::error::Problem;

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/hooks", get(list))
        .route("/api/v1/hooks/{hook}", put(set).delete(remove))
}

/// A hook.
#[derive(Serialize, ToSchema)]
pub(super) struct HookView {
    /// Its name.
    #[schema(example = "mask-mail")]
    name: String,
    /// Whether it sees requests or results: `request` or `result`.
    #[schema(example = "result")]
    on: &'static str,
    /// The program that is run for each call.
    command: Option<String>,
    /// Its arguments, without credentials.
    args: Vec<String>,
    /// The URL that is posted to for each call, without credentials.
    url: Option<String>,
    /// Which tools it is asked for, as `server:tool` with `*`; all if there are none.
    tools: Vec<String>,
    /// How long it may take.
    #[schema(example = "2s")]
    timeout: String,
    /// What happens if it fails: `refuse` or `pass`.
    #[schema(example = "refuse")]
    on_failure: Value,
}

impl HookView {
    fn of(name: &str, hook: &Hook) -> Self {
        let hook = hook.shown();
        Self {
            name: name.to_owned(),
            on: hook.on.as_str(),
            command: hook.command,
            args: hook.args,
            url: hook.url,
            tools: hook.tools.into(),
            timeout: period::show(hook.timeout),
            on_failure: serde_json::to_value(hook.on_failure).unwrap_or_default(),
        }
    }
}

/// What a hook is set to.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the body, which the model reads")]
pub(super) struct HookBody {
    /// `request` or `result`.
    on: String,
    /// The program that is run for each call; or a URL.
    command: Option<String>,
    /// Its arguments.
    args: Option<Vec<String>>,
    /// The URL that is posted to for each call; or a command.
    url: Option<String>,
    /// Which tools it is asked for, as `server:tool` with `*`; all if there are none.
    tools: Option<Vec<String>>,
    /// How long it may take, at most `30s`; `2s` if nothing is said.
    timeout: Option<String>,
    /// `refuse`, if nothing is said, or `pass`.
    on_failure: Option<String>,
}

/// Lists the hooks of the project, in the order in which they are asked.
#[utoipa::path(get, path = "/api/v1/hooks", tag = "hooks", responses(
    (status = 200, description = "The hooks.", body = Page<HookView>),
))]
pub(super) async fn list(In(project): In) -> Response {
    let hooks = project.hooks();
    let items: Vec<HookView> = hooks
        .iter()
        .map(|(name, hook)| HookView::of(name, hook))
        .collect();
    let next_cursor = None;
    json(StatusCode::OK, &Page { items, next_cursor })
}

/// Sets a hook: a new one, or another definition of a known one.
#[utoipa::path(put, path = "/api/v1/hooks/{hook}", tag = "hooks", request_body = HookBody,
    params(("hook" = String, Path, description = "Its name.")), responses(
    (status = 200, description = "The hook is in effect.", body = HookView),
    (status = 202, description = "It waits for a second person's approval.", body = RegistrationView),
    (status = 403, description = "`registration.refused`: the project does not allow its command or URL."),
    (status = 422, description = "`request.body`, `setting.value`: the hook is not valid."),
))]
pub(super) async fn set(
    In(project): In,
    By(actor): By,
    Named(name): Named,
    body: JsonBody,
) -> Result<Response, Problem> {
    let hook: Hook = body.read()?;
    let shown = HookView::of(&name, &hook);
    match project.set_hook(&actor, &name, Some(hook.clone())).await {
        Ok(()) => Ok(json(StatusCode::OK, &shown)),
        Err(refused) => {
            let wanted = Wanted {
                act: "hook.set",
                target: &name,
                request: value!({ "hook": hook }),
                shown: serde_json::to_value(&shown).unwrap_or_default(),
            };
            hold(&project, &actor, refused, wanted).await
        }
    }
}

/// Sets a hook that a second person has approved.
pub(super) async fn set_from(
    project: &Arc<Project>,
    by: &Actor,
    name: &str,
    hook: &Value,
) -> Result<(), Problem> {
    let hook: Result<Hook, _> = serde_json::from_value(hook.clone());
    let hook = hook.map_err(|_| {
        let id = name.to_owned();
        EngineError::from(AdminError::RegistrationLost { id })
    })?;
    Ok(project.set_hook(by, name, Some(hook)).await?)
}

/// Removes a hook.
#[utoipa::path(delete, path = "/api/v1/hooks/{hook}", tag = "hooks",
    params(("hook" = String, Path, description = "Its name.")), responses(
    (status = 204, description = "It is asked no more."),
    (status = 404, description = "`hook.unknown`: no such hook."),
))]
pub(super) async fn remove(
    In(project): In,
    By(actor): By,
    Named(name): Named,
) -> Result<Response, Problem> {
    project
        .set_hook(&actor, &name, None)
        .await
        .map_err(|error: EngineError| Problem::from(error))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
