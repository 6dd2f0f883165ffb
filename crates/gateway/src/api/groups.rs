//! Groups of servers, `/api/v1/groups`, for administrators: names that grants use for several servers at
//! once. The group `files` is what the gateway's configuration files define, and cannot be changed here.

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use gantry_engine::{EngineError, GroupView as Known};
use gantry_model::grant::{GroupName, ServerGroup};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::{JsonBody, created, json};
use super::query::{Asked, Page, Paging};
use super::views::rfc3339;
use super::{Api, By, In, Named};
use crate::http::error::Problem;

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/groups", get(list).post(create))
        .route(
            "/api/v1/groups/{group}",
            get(one).patch(change).delete(remove),
        )
}

/// A new group of servers.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupBody {
    /// Its name, by the rules of a server's name; grants write it behind `@`.
    #[schema(example = "databases")]
    name: String,
    /// Its members: names of servers, and patterns such as `db-*`.
    #[schema(example = json!(["postgres", "db-*"]))]
    servers: Vec<String>,
}

/// Other members for a group.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupPatch {
    /// Its members, replacing the current ones.
    servers: Vec<String>,
}

/// A group of servers.
#[derive(Serialize, ToSchema)]
pub(super) struct GroupView {
    /// Its name.
    #[schema(example = "databases")]
    name: String,
    /// Its members: names of servers, and patterns.
    servers: Vec<String>,
    /// When it was made; absent for the group `files`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    created: Option<String>,
}

impl GroupView {
    fn of(known: Known) -> Self {
        Self {
            name: known.name,
            servers: known.servers,
            created: known.created_ms.map(rfc3339),
        }
    }
}

fn group(name: &str, servers: &[String]) -> Result<ServerGroup, Problem> {
    let name: GroupName = name.parse().map_err(EngineError::from)?;
    Ok(ServerGroup::new(name, servers).map_err(EngineError::from)?)
}

/// Lists the groups of servers.
#[utoipa::path(get, path = "/api/v1/groups", tag = "groups", params(Paging), responses(
    (status = 200, description = "The groups, first `files`: what configuration files define.", body = Page<GroupView>),
))]
pub(super) async fn list(
    In(project): In,
    Asked(asked): Asked<Paging>,
) -> Result<Response, Problem> {
    let groups = project.groups().await?;
    let page = Page::of(groups, &asked, |group| group.name.clone())?;
    Ok(page.respond(GroupView::of))
}

/// Creates a group.
#[utoipa::path(post, path = "/api/v1/groups", tag = "groups", request_body = GroupBody, responses(
    (status = 201, description = "The new group.", body = GroupView,
        headers(("Location" = String, description = "Where it is."))),
    (status = 409, description = "`group.exists`: the name is taken; `group.of_files`: the name `files` is reserved."),
    (status = 422, description = "`group.members` or `grant.server`: a member cannot be the name of a server."),
))]
pub(super) async fn create(
    In(project): In,
    By(actor): By,
    body: JsonBody,
) -> Result<Response, Problem> {
    let body: GroupBody = body.read()?;
    let group = group(&body.name, &body.servers)?;
    let made = project.create_group(&actor, group).await?;
    let place = format!("/api/v1/groups/{}", made.name);
    Ok(created(&place, &GroupView::of(made)))
}

/// Shows one group.
#[utoipa::path(get, path = "/api/v1/groups/{group}", tag = "groups",
    params(("group" = String, Path, description = "Its name.")), responses(
    (status = 200, description = "The group.", body = GroupView),
    (status = 404, description = "`group.unknown`: no such group."),
))]
pub(super) async fn one(In(project): In, Named(name): Named) -> Result<Response, Problem> {
    let found = project.group(&name).await?;
    Ok(json(StatusCode::OK, &GroupView::of(found)))
}

/// Gives a group other members. Applies from the next call on.
#[utoipa::path(patch, path = "/api/v1/groups/{group}", tag = "groups",
    params(("group" = String, Path, description = "Its name.")), request_body = GroupPatch, responses(
    (status = 200, description = "The group after the change.", body = GroupView),
    (status = 404, description = "`group.unknown`: no such group."),
    (status = 409, description = "`group.of_files`: it is what configuration files define."),
))]
pub(super) async fn change(
    In(project): In,
    By(actor): By,
    Named(name): Named,
    body: JsonBody,
) -> Result<Response, Problem> {
    let body: GroupPatch = body.read()?;
    let known = project.group(&name).await?;
    let group = group(&known.name, &body.servers)?;
    let changed = project.change_group(&actor, group).await?;
    Ok(json(StatusCode::OK, &GroupView::of(changed)))
}

/// Removes a group that no grant names. Succeeds for an unknown group.
#[utoipa::path(delete, path = "/api/v1/groups/{group}", tag = "groups",
    params(("group" = String, Path, description = "Its name.")), responses(
    (status = 204, description = "The group was removed."),
    (status = 409, description = "`group.in_use`: grants name it; `group.of_files`: it is what configuration files define."),
))]
pub(super) async fn remove(
    In(project): In,
    By(actor): By,
    Named(name): Named,
) -> Result<Response, Problem> {
    if let Ok(name) = name.parse::<GroupName>() {
        project.remove_group(&actor, &name).await?;
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
