//! Tools, `/api/v1/tools`, as the caller may use them, in the format of its model's API; and
//! `/api/v1/tools/call`, which accepts calls in any of these formats.
//!
//! The engine decides names and grants. Calls are in `call`, explanations of grants in `why`, tools that are
//! new or changed in `changes`.

pub(super) mod call;
pub(super) mod changes;
pub(super) mod why;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use gantry_engine::{EngineError, Project, Scope};
use gantry_model::caller::{Caller, KeyKind};
use gantry_model::grant::{GrantSet, MethodClass};
use gantry_model::id::{AgentName, ServerName};
use gantry_model::shape::Shape;
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::agents::known_agent;
use super::body::document;
use super::query::{Asked, Page, Paging};
use super::servers::{unknown, unknown_among};
use super::views::ToolView;
use super::{Api, In, Who};
use crate::http::error::Problem;

/// Returns the routes, for any key.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/tools", get(list))
        .route("/api/v1/tools/call", post(call::call))
}

/// Returns the routes for administrators only.
pub(super) fn admin_routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/tools/why", get(why::why))
        .route("/api/v1/tools/changes", get(changes::changes))
        .route("/api/v1/tools/versions", get(changes::versions))
        .route("/api/v1/tools/approve", post(changes::approve))
        .route("/api/v1/tools/refuse", post(changes::refuse))
}

/// The filter of tools.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ToolsAsked {
    /// Only tools of this server, by name or id.
    server: Option<String>,
    /// `mcp`, `anthropic`, `openai`, `openai-responses` or `gemini`: the response is then
    /// `{"shape", "tools"}` in the format of that API, without paging.
    shape: Option<String>,
    /// The view of this agent instead of the caller; for administrators.
    agent: Option<String>,
    /// How many items at most.
    #[param(minimum = 1, maximum = 1000, default = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

fn shape_of(asked: Option<&str>) -> Result<Option<Shape>, Problem> {
    Ok(asked.map(str::parse).transpose()?)
}

/// Returns a caller with an agent's grants, for an administrator's view of it. row 2.16
async fn seen_by(project: &Arc<Project>, caller: &Caller, agent: &str) -> Result<Caller, Problem> {
    if !caller.kind.is_admin() {
        return Err(Problem::new("auth.agent_key").with_detail("`agent` needs an admin key"));
    }
    let name: AgentName = agent.parse().map_err(EngineError::Name)?;
    known_agent(project, &name).await?;
    let grants = project.grants_of(&name)?;
    Ok(project.caller(name, GrantSet::clone(&grants)))
}

/// Resolves a server's name or id. An unknown one is an error, not an empty list; an agent learns
/// only of servers it may use.
fn known_server(
    (api, project): (&Api, &Arc<Project>),
    caller: &Caller,
    server: &str,
) -> Result<String, Problem> {
    let may_know = |name: &ServerName| {
        caller.kind.is_admin() || caller.grants.shows(MethodClass::Lifecycle, name, None)
    };
    let known = project.server(server);
    if let Some(known) = known.filter(|known| may_know(&known.spec.name)) {
        return Ok(known.spec.name.to_string());
    }
    let tools = api.engine().tools(caller, &Scope::All);
    let mut names: Vec<&str> = tools.iter().map(|tool| tool.server.as_str()).collect();
    names.dedup();
    if names.contains(&server) {
        return Ok(server.to_owned());
    }
    let problem = match caller.kind {
        KeyKind::Admin(_) => unknown(project, server),
        KeyKind::Agent => unknown_among(server, names),
    };
    Err(match problem.hint() {
        Some(_) => problem,
        None => problem.with_hint("`gantry ls` lists the servers"),
    })
}

// row 4.3
/// Lists the tools that the key's agent may use now, under their exposed names; all tools for an
/// administrator. With `server`, a lazy server that was never listed is started.
#[utoipa::path(get, path = "/api/v1/tools", tag = "tools", params(ToolsAsked), responses(
    (status = 200, description = "The tools.", body = Page<ToolView>),
    (status = 404, description = "`server.unknown`, `agent.unknown`: no such server or agent."),
))]
pub(super) async fn list(
    State(api): State<Api>,
    In(project): In,
    Who(caller): Who,
    Asked(asked): Asked<ToolsAsked>,
) -> Result<Response, Problem> {
    let server = match &asked.server {
        Some(server) => Some(known_server((&api, &project), &caller, server)?),
        None => None,
    };
    let caller = match &asked.agent {
        Some(agent) => seen_by(&project, &caller, agent).await?,
        None => caller,
    };
    let server = server.as_deref();
    if let Some(shape) = shape_of(asked.shape.as_deref())? {
        let tools = match server {
            Some(server) => api.engine().tools_of(&caller, server, shape).await,
            None => api.engine().tools_in(&caller, &Scope::All, shape).await,
        };
        let text = format!("{{\"shape\":\"{shape}\",\"tools\":{}}}", tools.text());
        return Ok(document(StatusCode::OK, text));
    }
    // Asking for one server starts it if it was never listed.
    if let Some(Ok(name)) = server.map(str::parse) {
        api.engine().wake(&caller, &Scope::Server(name)).await;
    }
    let mut tools = api.engine().tools(&caller, &Scope::All);
    if let Some(server) = server {
        tools.retain(|tool| tool.server.as_str() == server);
    }
    let paging = Paging {
        limit: asked.limit,
        cursor: asked.cursor,
    };
    let page = Page::of(tools, &paging, |tool| tool.identity())?;
    Ok(page.respond(ToolView::of))
}
