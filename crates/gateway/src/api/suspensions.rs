//! Suspensions, `/api/v1/suspensions`: stop an agent, a server, a tool or the project at once, and
//! keep its grants. Operators may suspend servers and tools; only administrators may suspend agents
//! and the project.

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use gantry_model::caller::{Caller, Permission};
use gantry_model::suspension::{Suspendable, Suspension};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::body::{JsonBody, json};
use super::keys::label;
use super::query::{Asked, Page};
use super::views::rfc3339;
use super::{Api, By, In, Who};
use crate::http::auth::permit;
use crate::http::error::Problem;

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new().route(
        "/api/v1/suspensions",
        get(list).post(suspend).delete(resume),
    )
}

/// Something that is suspended.
#[derive(Serialize, ToSchema)]
pub(super) struct SuspensionView {
    /// `project`, `agent`, `server` or `tool`.
    #[schema(example = "server")]
    kind: &'static str,
    /// Its name; `server:tool` for a tool, empty for the project.
    name: String,
    /// Why.
    reason: String,
    /// Who suspended it.
    by: String,
    /// Since when.
    since: String,
    /// The same, in milliseconds since 1970.
    since_ms: u64,
}

impl SuspensionView {
    fn of(what: &Suspendable, suspension: &Suspension) -> Self {
        Self {
            kind: what.kind(),
            name: what.name(),
            reason: suspension.reason.clone(),
            by: suspension.by.clone(),
            since: rfc3339(suspension.at_ms),
            since_ms: suspension.at_ms,
        }
    }
}

/// What is to be suspended.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SuspendBody {
    /// `project`, `agent`, `server` or `tool`.
    #[schema(example = "tool")]
    kind: String,
    /// Its name; `server:tool` for a tool, nothing for the project.
    #[serde(default)]
    #[schema(example = "files:delete")]
    name: String,
    /// Why.
    #[serde(default)]
    #[schema(max_length = 128)]
    reason: String,
}

/// What is to be resumed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Resumed {
    /// `project`, `agent`, `server` or `tool`.
    kind: String,
    /// Its name; `server:tool` for a tool, nothing for the project.
    #[serde(default)]
    name: String,
}

fn read(caller: &Caller, kind: &str, name: &str) -> Result<Suspendable, Problem> {
    let what = Suspendable::new(kind, name).map_err(|error| {
        let problem = Problem::new("request.body");
        problem.with_detail(format!("this cannot be suspended: {error}"))
    })?;
    let needed = match &what {
        Suspendable::Server(_) | Suspendable::Tool(..) => Permission::Operate,
        Suspendable::Project | Suspendable::Agent(_) => Permission::Manage,
    };
    permit(caller, needed)?;
    Ok(what)
}

/// Lists what is suspended.
#[utoipa::path(get, path = "/api/v1/suspensions", tag = "suspensions", responses(
    (status = 200, description = "What is suspended, by kind and name.", body = Page<SuspensionView>),
))]
pub(super) async fn list(In(project): In) -> Response {
    let now = project.suspensions();
    let items = now
        .iter()
        .map(|(what, suspension)| SuspensionView::of(what, suspension))
        .collect::<Vec<_>>();
    let next_cursor = None;
    json(StatusCode::OK, &Page { items, next_cursor })
}

/// Suspends an agent, a server, a tool or the project. Within a second its calls end, its streams
/// close and it leaves the lists; a suspended server's process stops. Grants are kept. Succeeds for
/// what is suspended already.
#[utoipa::path(post, path = "/api/v1/suspensions", tag = "suspensions", request_body = SuspendBody,
    responses(
    (status = 200, description = "It is suspended.", body = SuspensionView),
    (status = 404, description = "`agent.unknown`, `server.unknown`: no such agent or server."),
))]
pub(super) async fn suspend(
    In(project): In,
    Who(caller): Who,
    By(actor): By,
    body: JsonBody,
) -> Result<Response, Problem> {
    let asked: SuspendBody = body.read()?;
    let what = read(&caller, &asked.kind, &asked.name)?;
    let reason = label(&asked.reason)?;
    project.suspend(&actor, what.clone(), &reason).await?;
    let now = project.suspensions();
    match now.of(&what) {
        Some(suspension) => Ok(json(StatusCode::OK, &SuspensionView::of(&what, suspension))),
        // It was resumed meanwhile.
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

/// Resumes what was suspended, with the grants it had. Succeeds for what is not suspended.
#[utoipa::path(delete, path = "/api/v1/suspensions", tag = "suspensions", params(Resumed), responses(
    (status = 204, description = "The suspension was lifted."),
))]
pub(super) async fn resume(
    In(project): In,
    Who(caller): Who,
    By(actor): By,
    Asked(asked): Asked<Resumed>,
) -> Result<Response, Problem> {
    let what = read(&caller, &asked.kind, &asked.name)?;
    project.resume(&actor, what).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
