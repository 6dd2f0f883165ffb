//! Projects, `/api/v1/projects`: created, loaded, unloaded and deleted by administrators of the
//! installation. Other administrators see only their own. The contents of a project are under
//! `/api/v1/projects/NAME/…` (`scope`).

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use gantry_engine::ProjectView as Known;
use gantry_model::caller::{Caller, Permission};
use gantry_model::id::ProjectName;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::{JsonBody, created, json};
use super::keys::label;
use super::query::{Asked, Page, Paging};
use super::scope::unknown;
use super::views::rfc3339;
use super::{Api, By, Named, Who};
use crate::http::error::Problem;

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/projects", get(list).post(create))
        .route(
            "/api/v1/projects/{project}",
            get(one).patch(change).delete(remove),
        )
}

/// A project.
#[derive(Serialize, ToSchema)]
pub(super) struct ProjectView {
    /// Its name.
    #[schema(example = "acme")]
    name: String,
    /// A description.
    description: String,
    /// When it was made.
    created: String,
    /// The same, in milliseconds since 1970.
    created_ms: u64,
    /// Whether it is the project of the data folder itself, which is always loaded.
    is_default: bool,
    /// Whether its servers run.
    loaded: bool,
    /// Whether its agents are kept from everything.
    suspended: bool,
    /// How many servers it has; absent while it is not loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    servers: Option<usize>,
}

impl ProjectView {
    fn of(known: &Known) -> Self {
        Self {
            name: known.name.to_string(),
            description: known.description.clone(),
            created: rfc3339(known.created_ms),
            created_ms: known.created_ms,
            is_default: known.is_default,
            loaded: known.loaded,
            suspended: known.suspended,
            servers: known.servers,
        }
    }
}

/// A new project.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProjectBody {
    /// Its name: letters, digits, `.`, `_` and `-`, at most 64.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", example = "acme")]
    name: String,
    /// A description.
    #[serde(default)]
    #[schema(max_length = 128)]
    description: String,
}

/// Changes to a project; omitted members stay as they are.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProjectPatch {
    /// A description.
    #[schema(max_length = 128)]
    description: Option<String>,
    /// Whether its servers run. `false` ends its calls and stops its servers (SIGTERM, then SIGKILL).
    loaded: Option<bool>,
}

fn may_see(caller: &Caller, project: &ProjectName) -> bool {
    caller.kind.may(Permission::Install) || caller.project == *project
}

/// Returns a project that the caller may see.
async fn known(api: &Api, caller: &Caller, project: &str) -> Result<Known, Problem> {
    let name: ProjectName = project.parse().map_err(|_| unknown(project))?;
    match may_see(caller, &name) {
        true => match api.engine().project_view_of(&name).await {
            Ok(known) => Ok(known),
            Err(_) => Err(unknown(project)),
        },
        false => Err(unknown(project)),
    }
}

/// Lists the projects: all for an administrator of the installation, otherwise the own project.
#[utoipa::path(get, path = "/api/v1/projects", tag = "projects", params(Paging), responses(
    (status = 200, description = "The projects, by name.", body = Page<ProjectView>),
))]
pub(super) async fn list(
    State(api): State<Api>,
    Who(caller): Who,
    Asked(asked): Asked<Paging>,
) -> Result<Response, Problem> {
    let mut projects = api.engine().project_views().await?;
    projects.retain(|known| may_see(&caller, &known.name));
    let page = Page::of(projects, &asked, |known| known.name.to_string())?;
    Ok(page.respond(|known| ProjectView::of(&known)))
}

/// Makes a project. It has no keys yet: make one with `POST /api/v1/projects/NAME/keys`.
#[utoipa::path(post, path = "/api/v1/projects", tag = "projects", request_body = ProjectBody, responses(
    (status = 201, description = "The new project.", body = ProjectView,
        headers(("Location" = String, description = "Where it is."))),
    (status = 409, description = "`project.exists`: the name is taken; `project.name_used`: it \
        belonged to a deleted project whose records are kept."),
))]
pub(super) async fn create(
    State(api): State<Api>,
    By(actor): By,
    body: JsonBody,
) -> Result<Response, Problem> {
    let asked: ProjectBody = body.read()?;
    let name = asked.name.parse::<ProjectName>();
    let name = name.map_err(gantry_engine::EngineError::from)?;
    let description = label(&asked.description)?;
    let engine = api.engine();
    engine
        .create_project(&actor, name.clone(), &description)
        .await?;
    let known = engine.project_view_of(&name).await?;
    Ok(created(
        &format!("/api/v1/projects/{name}"),
        &ProjectView::of(&known),
    ))
}

/// Shows a project.
#[utoipa::path(get, path = "/api/v1/projects/{project}", tag = "projects",
    params(("project" = String, Path, description = "Its name.")), responses(
    (status = 200, description = "The project.", body = ProjectView),
    (status = 404, description = "`project.unknown`: no such project, or the key may not see it."),
))]
pub(super) async fn one(
    State(api): State<Api>,
    Who(caller): Who,
    Named(project): Named,
) -> Result<Response, Problem> {
    let known = known(&api, &caller, &project).await?;
    Ok(json(StatusCode::OK, &ProjectView::of(&known)))
}

// row 0.5
/// Describes, unloads or loads a project. Unloading ends its calls and stops its servers, also over
/// restarts of the gateway; its keys are answered 403 until it is loaded again.
#[utoipa::path(patch, path = "/api/v1/projects/{project}", tag = "projects",
    params(("project" = String, Path, description = "Its name.")), request_body = ProjectPatch, responses(
    (status = 200, description = "The project after the change.", body = ProjectView),
    (status = 404, description = "`project.unknown`: no such project."),
    (status = 409, description = "`project.of_folder`: the data folder's own project stays loaded."),
))]
pub(super) async fn change(
    State(api): State<Api>,
    Who(caller): Who,
    By(actor): By,
    Named(project): Named,
    body: JsonBody,
) -> Result<Response, Problem> {
    let asked: ProjectPatch = body.read()?;
    let project = known(&api, &caller, &project).await?.name;
    let engine = api.engine();
    if let Some(description) = &asked.description {
        let description = label(description)?;
        engine
            .describe_project(&actor, &project, &description)
            .await?;
    }
    match asked.loaded {
        Some(true) => engine.load_project(&actor, &project).await?,
        Some(false) => engine.unload_project(&actor, &project).await?,
        None => {}
    }
    let known = engine.project_view_of(&project).await?;
    Ok(json(StatusCode::OK, &ProjectView::of(&known)))
}

/// Deletes a project: its calls end, its servers stop, its volumes, servers, agents, keys, grants,
/// secrets and settings are removed. The record of its calls and acts is kept.
#[utoipa::path(delete, path = "/api/v1/projects/{project}", tag = "projects",
    params(("project" = String, Path, description = "Its name.")), responses(
    (status = 204, description = "The project was removed."),
    (status = 404, description = "`project.unknown`: no such project."),
    (status = 409, description = "`project.of_folder`: the data folder's own project stays."),
))]
pub(super) async fn remove(
    State(api): State<Api>,
    Who(caller): Who,
    By(actor): By,
    Named(project): Named,
) -> Result<Response, Problem> {
    let project = known(&api, &caller, &project).await?.name;
    api.engine().delete_project(&actor, &project).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
