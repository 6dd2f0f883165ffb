//! Agents, `/api/v1/agents`, for administrators: their grants, tool filters and keys.
//!
//! A new agent has no grants of its own unless `grant` gives it some. Grants for all agents of the
//! project apply to it, too. A filter narrows grants and never widens them. Changes apply from the
//! next call on.

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use gantry_engine::{Actor, AgentChange, AgentView as Known, EngineError, NewAgent, Project};
use gantry_model::caller::UserTrust;
use gantry_model::grant::{Grant, GrantError, ToolFilter};
use gantry_model::id::AgentName;
use gantry_model::limits::RateLimits;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::{JsonBody, created, json, object, optional_object};
use super::keys::{KeyView, label};
use super::limits::LimitsBody;
use super::query::{Asked, Page, Paging};
use super::registrations::{Wanted, hold};
use super::views::rfc3339;
use super::{Api, By, In, Named};
use crate::config::diagnostic::meant;
use crate::http::error::{FieldIssue, Problem};
use crate::http::shown;

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/agents", get(list).post(create))
        .route(
            "/api/v1/agents/{agent}",
            get(one).patch(change).delete(remove),
        )
}

/// A new agent.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentBody {
    /// Its name: letters, digits, `.`, `_` and `-`, at most 64.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", example = "reviewer")]
    name: String,
    /// A description.
    #[serde(default)]
    #[schema(max_length = 128, example = "reads pull requests")]
    label: String,
    /// Its own grants; by default none. Grants for all agents of the project apply to it, too.
    grant: Option<AgentGrants>,
    /// The filter over its granted tools.
    tools: Option<ToolsBody>,
    /// Whether its user ids are trusted; otherwise they are recorded and forwarded as asserted.
    #[serde(default)]
    trusted_user_ids: bool,
    /// How much all its keys together may use; by default as much as the project.
    #[serde(default, deserialize_with = "object")]
    limits: LimitsBody,
}

/// Changes to an agent; omitted members stay as they are.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentPatch {
    /// A description.
    #[schema(max_length = 128)]
    label: Option<String>,
    /// Its own grants, replacing the current ones. Grants for its keys and for all agents stay.
    grant: Option<AgentGrants>,
    /// Its tool filter, replacing the current one.
    tools: Option<ToolsBody>,
    /// Whether its user ids are trusted.
    trusted_user_ids: Option<bool>,
    /// How much all its keys together may use, replacing the current limits.
    #[serde(default, deserialize_with = "optional_object")]
    limits: Option<LimitsBody>,
}

/// Grants: `"all"`, or a list of patterns such as `files:read_*`, `mail:*` or
/// `docs:resource:file:///*`, each `server:item` with `*` as a wildcard on either side. Behind `deny` or
/// `ask` one forbids, or has an approver asked; `when` begins its conditions on arguments.
#[derive(Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "`\"all\"` or a list of patterns such as `files:read_*` is expected"
)]
#[schema(example = json!(["files:read_*", "mail:*"]))]
pub(super) enum AgentGrants {
    /// Everything, now and in the future.
    Word(Everything),
    /// What the patterns name.
    Patterns(Vec<String>),
}

/// The keyword for everything.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Everything {
    /// Everything.
    All,
}

/// A filter over the granted tools: patterns over `server:tool` with `*` as a wildcard on either
/// side.
#[derive(Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"include": ["files:*"], "exclude": ["files:delete_*"]}))]
pub(super) struct ToolsBody {
    /// What is visible; everything granted, if empty.
    include: Vec<String>,
    /// What is hidden, even if included.
    exclude: Vec<String>,
}

/// An agent.
#[derive(Serialize, ToSchema)]
pub(super) struct AgentView {
    /// Its name.
    #[schema(example = "reviewer")]
    name: String,
    /// A description.
    label: String,
    /// When it was first known.
    created: String,
    /// The same, in milliseconds since 1970.
    created_ms: u64,
    /// Its own grants, as patterns over `server:item`; `*` is everything. Grants for its keys and for all
    /// agents are in `/api/v1/grants`.
    #[schema(example = json!(["files:read_*"]))]
    grants: Vec<String>,
    /// The filter over its granted tools.
    tools: ToolsBody,
    /// Whether its user ids are trusted.
    trusted_user_ids: bool,
    /// How much all its keys together may use.
    limits: LimitsBody,
    /// Its valid keys.
    keys: Vec<KeyView>,
}

impl AgentView {
    fn of(agent: &Known) -> Self {
        let texts =
            |patterns: &mut dyn Iterator<Item = &str>| patterns.map(str::to_owned).collect();
        Self {
            name: agent.name.to_string(),
            label: agent.label.clone(),
            created: rfc3339(agent.created_ms),
            created_ms: agent.created_ms,
            grants: agent.grants.iter().map(Grant::pattern).collect(),
            tools: ToolsBody {
                include: texts(&mut agent.filter.include()),
                exclude: texts(&mut agent.filter.exclude()),
            },
            trusted_user_ids: agent.users.is_trusted(),
            limits: agent.limits.into(),
            keys: agent.keys.iter().map(KeyView::of).collect(),
        }
    }
}

impl AgentGrants {
    fn read(self) -> Result<Vec<Grant>, Problem> {
        match self {
            Self::Word(Everything::All) => Ok(vec![parse(0, "*")?]),
            Self::Patterns(patterns) => {
                let numbered = patterns.iter().enumerate();
                numbered.map(|(index, text)| parse(index, text)).collect()
            }
        }
    }
}

impl ToolsBody {
    fn read(&self) -> Result<ToolFilter, Problem> {
        Ok(ToolFilter::new(&self.include, &self.exclude).map_err(EngineError::from)?)
    }
}

/// Parses a grant in its text form, `server:item` at least; `*` alone is everything.
fn parse(index: usize, text: &str) -> Result<Grant, Problem> {
    match Grant::parse(text) {
        Err(GrantError::Text { .. }) => {
            let shown = shown(text);
            let message = format!("`{shown}` is not a pattern `server:item`");
            Err(Problem::new("request.body")
                .with_detail(message.clone())
                .with_hint(format!("write `{shown}:*` for everything on that server"))
                .with_issues(vec![FieldIssue {
                    path: format!("/grant/{index}"),
                    message,
                }]))
        }
        parsed => Ok(parsed.map_err(EngineError::from)?),
    }
}

fn name(text: &str) -> Result<AgentName, Problem> {
    text.parse::<AgentName>()
        .map_err(|error| EngineError::from(error).into())
}

/// Lists the agents by name, each with its grants, filter and keys.
#[utoipa::path(get, path = "/api/v1/agents", tag = "agents", params(Paging), responses(
    (status = 200, description = "The agents, by name.", body = Page<AgentView>),
))]
pub(super) async fn list(
    In(project): In,
    Asked(asked): Asked<Paging>,
) -> Result<Response, Problem> {
    let agents = project.agents().await?;
    let page = Page::of(agents, &asked, |agent| agent.name.to_string())?;
    Ok(page.respond(|agent| AgentView::of(&agent)))
}

/// Creates an agent with the grants in `grant`, by default none.
#[utoipa::path(post, path = "/api/v1/agents", tag = "agents", request_body = AgentBody, responses(
    (status = 201, description = "The new agent.", body = AgentView,
        headers(("Location" = String, description = "Where it is."))),
    (status = 409, description = "`agent.exists`: the name is taken."),
))]
pub(super) async fn create(
    In(project): In,
    By(actor): By,
    body: JsonBody,
) -> Result<Response, Problem> {
    let new = body.read::<AgentBody>()?.read()?;
    let name = new.name.clone();
    let agent = match project.create_agent(&actor, new).await {
        Ok(agent) => agent,
        Err(refused) => {
            let wanted = wanted("agent.create", &name, &body)?;
            return hold(&project, &actor, refused, wanted).await;
        }
    };
    let place = format!("/api/v1/agents/{}", agent.name);
    Ok(created(&place, &AgentView::of(&agent)))
}

/// Returns what is stored of a change that needs a second person.
fn wanted<'a>(
    act: &'static str,
    name: &'a AgentName,
    body: &JsonBody,
) -> Result<Wanted<'a>, Problem> {
    let shown: serde_json::Value = body.read()?;
    Ok(Wanted {
        act,
        target: name.as_str(),
        request: serde_json::json!({ "body": shown }),
        shown,
    })
}

/// Creates an agent that a second person has approved.
pub(super) async fn create_from(
    project: &Arc<Project>,
    by: &Actor,
    body: &serde_json::Value,
) -> Result<(), Problem> {
    let body = AgentBody::deserialize(body).map_err(|_| Problem::new("request.body"))?;
    project.create_agent(by, body.read()?).await?;
    Ok(())
}

/// Changes an agent as a second person has approved.
pub(super) async fn change_from(
    project: &Arc<Project>,
    by: &Actor,
    agent: &str,
    body: &serde_json::Value,
) -> Result<(), Problem> {
    let patch = AgentPatch::deserialize(body).map_err(|_| Problem::new("request.body"))?;
    let name = known(agent)?;
    project.change_agent(by, &name, patch.read()?).await?;
    Ok(())
}

impl AgentBody {
    fn read(self) -> Result<NewAgent, Problem> {
        Ok(NewAgent {
            name: name(&self.name)?,
            label: label(&self.label)?,
            grants: self
                .grant
                .map(AgentGrants::read)
                .transpose()?
                .unwrap_or_default(),
            filter: self.tools.unwrap_or_default().read()?,
            users: self.trusted_user_ids.into(),
            limits: self.limits.into(),
        })
    }
}

impl AgentPatch {
    fn read(self) -> Result<AgentChange, Problem> {
        Ok(AgentChange {
            label: self.label.as_deref().map(label).transpose()?,
            grants: self.grant.map(AgentGrants::read).transpose()?,
            filter: self.tools.map(|tools| tools.read()).transpose()?,
            users: self.trusted_user_ids.map(UserTrust::from),
            limits: self.limits.map(RateLimits::from),
        })
    }
}

/// Shows one agent.
#[utoipa::path(get, path = "/api/v1/agents/{agent}", tag = "agents",
    params(("agent" = String, Path, description = "Its name.")), responses(
    (status = 200, description = "The agent.", body = AgentView),
    (status = 404, description = "`agent.unknown`: no such agent."),
))]
pub(super) async fn one(In(project): In, Named(agent): Named) -> Result<Response, Problem> {
    let agent = known_agent(&project, &known(&agent)?).await?;
    Ok(json(StatusCode::OK, &AgentView::of(&agent)))
}

/// Changes an agent's label, grants, filter or trust in its user ids. Applies from the next call
/// on.
#[utoipa::path(patch, path = "/api/v1/agents/{agent}", tag = "agents",
    params(("agent" = String, Path, description = "Its name.")), request_body = AgentPatch, responses(
    (status = 200, description = "The agent after the change.", body = AgentView),
    (status = 404, description = "`agent.unknown`: no such agent."),
))]
pub(super) async fn change(
    In(project): In,
    By(actor): By,
    Named(agent): Named,
    body: JsonBody,
) -> Result<Response, Problem> {
    let change = body.read::<AgentPatch>()?.read()?;
    let name = known(&agent)?;
    let changed = project.change_agent(&actor, &name, change).await;
    if let Err(refused @ EngineError::Admin(_)) = changed {
        let wanted = wanted("agent.change", &name, &body)?;
        return hold(&project, &actor, refused, wanted).await;
    }
    let agent = of_known(&project, &name, changed).await?;
    Ok(json(StatusCode::OK, &AgentView::of(&agent)))
}

/// Removes an agent with its grants and keys; its streams end within a second. Succeeds for an
/// unknown agent.
#[utoipa::path(delete, path = "/api/v1/agents/{agent}", tag = "agents",
    params(("agent" = String, Path, description = "Its name.")), responses(
    (status = 204, description = "The agent was removed."),
    (status = 409, description = "`key.last_admin`: it owns the last admin key."),
))]
pub(super) async fn remove(
    In(project): In,
    By(actor): By,
    Named(agent): Named,
) -> Result<Response, Problem> {
    if let Ok(agent) = agent.parse::<AgentName>() {
        project.remove_agent(&actor, &agent).await?;
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Returns an agent; the error for an unknown one suggests a similar name.
pub(super) async fn known_agent(
    project: &Arc<Project>,
    name: &AgentName,
) -> Result<Known, Problem> {
    let found = project.agent(name).await;
    of_known(project, name, found).await
}

/// Adds a suggestion to the error for an unknown agent.
async fn of_known<T>(
    project: &Arc<Project>,
    name: &AgentName,
    done: Result<T, EngineError>,
) -> Result<T, Problem> {
    let Err(error @ EngineError::UnknownAgent { .. }) = done else {
        return Ok(done?);
    };
    let agents = project.agents().await?;
    let near = meant(
        name.as_str(),
        agents.iter().map(|agent| agent.name.as_str()),
    );
    let problem = Problem::from(error);
    Err(match near {
        Some(near) => problem.with_hint(format!("did you mean `{near}`?")),
        None => problem,
    })
}

/// Parses the name in a path; an invalid name is an unknown agent.
fn known(agent: &str) -> Result<AgentName, Problem> {
    agent.parse().map_err(|_| {
        Problem::new("agent.unknown").with_detail(format!("no agent `{}`", shown(agent)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_shown_as_they_are_read() {
        for text in [
            "*",
            "files:*",
            "files:read_*",
            "*:read",
            "docs:resource:file:///*",
            "deny files:delete_*",
            r#"ask mail:send when /to pattern ".*@example\\.com""#,
        ] {
            assert_eq!(parse(0, text).ok().unwrap().pattern(), text);
        }
        for bad in ["", "files", "files:", ":x", "no server:x"] {
            assert_eq!(parse(0, bad).err().unwrap().status(), 422, "{bad}");
        }
    }
}
