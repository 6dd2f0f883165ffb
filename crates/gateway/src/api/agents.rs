//! Agents: `/api/v1/agents`, for administrators. Who keys speak for, what was granted to them, and
//! what they see of it.
//!
//! A new agent may use nothing unless `grant` says otherwise. A filter narrows what was granted and
//! never widens it. Every change holds from the next call on.

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use gantry_engine::{AgentChange, AgentView as Known, EngineError, NewAgent, Project};
use gantry_model::caller::UserTrust;
use gantry_model::grant::{Grant, ToolFilter};
use gantry_model::id::AgentName;
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::{JsonBody, json};
use super::keys::{KeyView, label};
use super::query::{Asked, Page, Paging};
use super::views::rfc3339;
use super::{Api, By, In, Named};
use crate::config::diagnostic::meant;
use crate::http::error::{FieldIssue, Problem, ProblemDocument};

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/agents", get(list).post(create))
        .route(
            "/api/v1/agents/{agent}",
            get(one).patch(change).delete(remove),
        )
}

/// An agent that is to be made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentBody {
    /// Its name: letters, digits, `.`, `_` and `-`, at most 64.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", example = "reviewer")]
    name: String,
    /// What a person says of it.
    #[serde(default)]
    #[schema(max_length = 128, example = "reads pull requests")]
    label: String,
    /// What it may use; nothing, if this is left out.
    grant: Option<GrantBody>,
    /// Which of the granted tools it sees.
    tools: Option<ToolsBody>,
    /// Whether the user ids it gives are taken for true; else they are recorded and passed on as
    /// what the agent asserts.
    #[serde(default)]
    trusted_user_ids: bool,
}

/// What is to be another about an agent; what is left out stays as it is.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentPatch {
    /// What a person says of it.
    #[schema(max_length = 128)]
    label: Option<String>,
    /// What it may use, instead of all it may use now.
    grant: Option<GrantBody>,
    /// Which of the granted tools it sees, instead of the filter it has now.
    tools: Option<ToolsBody>,
    /// Whether the user ids it gives are taken for true.
    trusted_user_ids: Option<bool>,
}

/// What an agent may use: `"all"`, or a list of patterns such as `files:read_*`, `mail:*` or
/// `docs:resource:file:///*`, each `server:item` with `*` for any text on either side.
#[derive(Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "`\"all\"` or a list of patterns such as `files:read_*` is expected"
)]
#[schema(example = json!(["files:read_*", "mail:*"]))]
pub(super) enum GrantBody {
    /// Everything there is and will be.
    Word(Everything),
    /// What the patterns name.
    Patterns(Vec<String>),
}

/// The word for everything.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Everything {
    /// Everything.
    All,
}

/// A filter over the granted tools: patterns over `server:tool`, `*` for any text on either side.
#[derive(Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"include": ["files:*"], "exclude": ["files:delete_*"]}))]
pub(super) struct ToolsBody {
    /// What is seen; everything granted, if it is empty.
    include: Vec<String>,
    /// What is not seen, even if it is included.
    exclude: Vec<String>,
}

/// An agent.
#[derive(Serialize, ToSchema)]
pub(super) struct AgentView {
    /// Its name.
    #[schema(example = "reviewer")]
    name: String,
    /// What a person says of it.
    label: String,
    /// When it was first known.
    created: String,
    /// The same, in milliseconds since 1970.
    created_ms: u64,
    /// What it may use, as patterns over `server:item`; `*` is everything.
    #[schema(example = json!(["files:read_*"]))]
    grants: Vec<String>,
    /// Which of the granted tools it sees.
    tools: ToolsBody,
    /// Whether the user ids it gives are taken for true.
    trusted_user_ids: bool,
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
            keys: agent.keys.iter().map(KeyView::of).collect(),
        }
    }
}

impl GrantBody {
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

/// Reads `server:item`, of which there may be several; `*` alone is everything.
fn parse(index: usize, text: &str) -> Result<Grant, Problem> {
    let parts = match text {
        "*" => Some(("*", "*")),
        text => text.split_once(':'),
    };
    let Some((server, item)) = parts else {
        let shown: String = text.chars().take(64).flat_map(char::escape_debug).collect();
        let message = format!("`{shown}` is no pattern `server:item`");
        return Err(Problem::new("request.body")
            .with_detail(message.clone())
            .with_hint(format!("write `{shown}:*` for everything on that server"))
            .with_issues(vec![FieldIssue {
                path: format!("/grant/{index}"),
                message,
            }]));
    };
    Ok(Grant::new(server, item, None).map_err(EngineError::from)?)
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
    let items = page.items.iter().map(AgentView::of).collect();
    let next_cursor = page.next_cursor;
    Ok(json(StatusCode::OK, &Page { items, next_cursor }))
}

/// Makes an agent. It may use what `grant` names, and nothing without it.
#[utoipa::path(post, path = "/api/v1/agents", tag = "agents", request_body = AgentBody, responses(
    (status = 201, description = "The agent was made.", body = AgentView,
        headers(("Location" = String, description = "Where it is."))),
    (status = 409, description = "`agent.exists`: there is one of that name.", body = ProblemDocument<'static>,
        content_type = "application/problem+json"),
))]
pub(super) async fn create(
    In(project): In,
    By(actor): By,
    body: JsonBody,
) -> Result<Response, Problem> {
    let asked: AgentBody = body.read()?;
    let new = NewAgent {
        name: name(&asked.name)?,
        label: label(&asked.label)?,
        grants: asked
            .grant
            .map(GrantBody::read)
            .transpose()?
            .unwrap_or_default(),
        filter: asked.tools.unwrap_or_default().read()?,
        users: asked.trusted_user_ids.into(),
    };
    let agent = project.create_agent(&actor, new).await?;
    let mut response = json(StatusCode::CREATED, &AgentView::of(&agent));
    let place = HeaderValue::try_from(format!("/api/v1/agents/{}", agent.name));
    let place = place.expect("a name is safe in a header");
    response.headers_mut().insert(LOCATION, place);
    Ok(response)
}

/// Shows one agent.
#[utoipa::path(get, path = "/api/v1/agents/{agent}", tag = "agents",
    params(("agent" = String, Path, description = "Its name.")), responses(
    (status = 200, description = "The agent.", body = AgentView),
    (status = 404, description = "`agent.unknown`: there is none of that name.", body = ProblemDocument<'static>,
        content_type = "application/problem+json"),
))]
pub(super) async fn one(In(project): In, Named(agent): Named) -> Result<Response, Problem> {
    let agent = known_agent(&project, &known(&agent)?).await?;
    Ok(json(StatusCode::OK, &AgentView::of(&agent)))
}

/// Changes an agent: its label, its grants, its filter or whether its user ids are trusted. The next
/// call is judged by them.
#[utoipa::path(patch, path = "/api/v1/agents/{agent}", tag = "agents",
    params(("agent" = String, Path, description = "Its name.")), request_body = AgentPatch, responses(
    (status = 200, description = "The agent as it is now.", body = AgentView),
    (status = 404, description = "`agent.unknown`: there is none of that name.", body = ProblemDocument<'static>,
        content_type = "application/problem+json"),
))]
pub(super) async fn change(
    In(project): In,
    By(actor): By,
    Named(agent): Named,
    body: JsonBody,
) -> Result<Response, Problem> {
    let asked: AgentPatch = body.read()?;
    let change = AgentChange {
        label: asked.label.as_deref().map(label).transpose()?,
        grants: asked.grant.map(GrantBody::read).transpose()?,
        filter: asked.tools.map(|tools| tools.read()).transpose()?,
        users: asked.trusted_user_ids.map(UserTrust::from),
    };
    let name = known(&agent)?;
    let changed = project.change_agent(&actor, &name, change).await;
    let agent = of_known(&project, &name, changed).await?;
    Ok(json(StatusCode::OK, &AgentView::of(&agent)))
}

/// Removes an agent with its grants and keys. Its keys open nothing from now on, and its streams
/// end within a second. One that is not there is as good as removed.
#[utoipa::path(delete, path = "/api/v1/agents/{agent}", tag = "agents",
    params(("agent" = String, Path, description = "Its name.")), responses(
    (status = 204, description = "There is no such agent now."),
    (status = 409, description = "`key.last_admin`: it holds the last admin key.", body = ProblemDocument<'static>,
        content_type = "application/problem+json"),
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

/// Finds an agent; of one that is not there it is said which one may be meant.
pub(super) async fn known_agent(
    project: &Arc<Project>,
    name: &AgentName,
) -> Result<Known, Problem> {
    let found = project.agent(name).await;
    of_known(project, name, found).await
}

/// Takes what came of something that was done to an agent.
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

/// Parses the name of a path; what can be no name is nobody's.
fn known(agent: &str) -> Result<AgentName, Problem> {
    agent.parse().map_err(|_| {
        let shown: String = agent
            .chars()
            .take(64)
            .flat_map(char::escape_debug)
            .collect();
        Problem::new("agent.unknown").with_detail(format!("no agent `{shown}`"))
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
        ] {
            assert_eq!(parse(0, text).ok().unwrap().pattern(), text);
        }
        for bad in ["", "files", "files:", ":x", "no server:x"] {
            assert_eq!(parse(0, bad).err().unwrap().status(), 422, "{bad}");
        }
    }
}
