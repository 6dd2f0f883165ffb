//! `/api/v1/tools/why`, for administrators: whether an agent may use a tool, and which grant,
//! filter or server decides it. The rules are in `model::grant::why`; this collects their input.

use axum::extract;
use axum::response::Response;
use gantry_engine::{EngineError, ListedTool, Scope, ServerView};
use gantry_model::caller::Caller;
use gantry_model::grant::GrantSet;
use gantry_model::grant::why::{Offer, Question};
use gantry_model::id::{AgentName, ServerName};
use gantry_model::status::ServerState;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::super::agents::known_agent;
use super::super::body::json;
use super::super::query::Asked;
use super::super::servers::unknown;
use super::super::{Api, In, Who};
use crate::http::error::Problem;
use crate::http::shown;

/// Who wants to use what.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::api) struct WhyAsked {
    /// The agent's name.
    #[param(example = "reviewer")]
    agent: String,
    /// The tool: `server:tool`, or an exposed name such as `server__tool`.
    #[param(example = "files:read_file")]
    tool: String,
}

/// Whether an agent may use a tool, and why.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct WhyView {
    /// The agent's name.
    #[schema(example = "reviewer")]
    agent: String,
    /// The tool, as `server:tool`.
    #[schema(example = "files:read_file")]
    tool: String,
    /// Whether a call would be allowed now.
    allowed: bool,
    /// The reasons, in the order in which they are checked.
    #[schema(example = json!(["granted by `files:*`", "server `files` is ready and offers it"]))]
    reasons: Vec<String>,
}

/// Explains whether an agent may use a tool now, and which grant, filter or server decides it.
#[utoipa::path(get, path = "/api/v1/tools/why", tag = "tools", params(WhyAsked), responses(
    (status = 200, description = "The answer, whichever it is.", body = WhyView),
    (status = 404, description = "`agent.unknown`, `server.unknown` or `tool.unknown`."),
))]
pub(in crate::api) async fn why(
    extract::State(api): extract::State<Api>,
    In(project): In,
    Who(caller): Who,
    Asked(asked): Asked<WhyAsked>,
) -> Result<Response, Problem> {
    let name: AgentName = asked.agent.parse().map_err(EngineError::Name)?;
    let agent = known_agent(&project, &name).await?;
    let set = GrantSet::filtered(agent.grants.clone(), agent.filter.clone());
    let eyes = project.caller(name.clone(), set);
    let (server, tool) = match seen(&api, &[&eyes, &caller], &asked.tool) {
        Some(known) => (known.server, known.tool),
        None => split(&asked.tool)?,
    };
    let is_listed = is_listed(&api, &caller, &server, &tool);
    let view = project.server(server.as_str());
    if view.is_none() && !is_listed {
        return Err(unknown(&project, server.as_str()));
    }
    let question = Question {
        agent: &name,
        grants: &agent.grants,
        filter: &agent.filter,
        server: &server,
        tool: &tool,
        offer: offer(view.as_ref(), &tool, is_listed),
    };
    let mut judged = question.judge();
    let suspended = project.suspensions();
    let stops = [suspended.of_agent(&name), suspended.of_call(&server, &tool)];
    for what in stops.into_iter().flatten() {
        judged.allowed = false;
        judged.reasons.insert(0, format!("{what} is suspended"));
    }
    let answer = WhyView {
        agent: name.to_string(),
        tool: format!("{server}:{tool}"),
        allowed: judged.allowed,
        reasons: judged.reasons,
    };
    Ok(json(StatusCode::OK, &answer))
}

/// Finds a tool by the exposed name of the first caller who sees it: agents and administrators may
/// have different names for it.
fn seen(api: &Api, eyes: &[&Caller], name: &str) -> Option<ListedTool> {
    eyes.iter().find_map(|caller| {
        let mut tools = api.engine().tools(caller, &Scope::All).into_iter();
        tools.find(|tool| tool.name == name)
    })
}

/// Returns whether a server offers a tool, even if another server has its bare name.
fn is_listed(api: &Api, caller: &Caller, server: &ServerName, tool: &str) -> bool {
    let tools = api.engine().tools(caller, &Scope::Server(server.clone()));
    tools.iter().any(|listed| listed.tool == tool)
}

/// Splits a name that no one sees now.
fn split(name: &str) -> Result<(ServerName, String), Problem> {
    let parts = name.split_once(':').or_else(|| name.split_once("__"));
    let parts = parts.filter(|(_, tool)| !tool.is_empty());
    let parts = parts.and_then(|(server, tool)| Some((server.parse().ok()?, tool.to_owned())));
    parts.ok_or_else(|| {
        Problem::new("tool.unknown")
            .with_detail(format!("`{}` names no tool", shown(name)))
            .with_hint("write `server__tool` or `server:tool`")
    })
}

/// Returns how a server offers a tool; native tools have no server.
fn offer<'a>(server: Option<&'a ServerView>, tool: &str, is_listed: bool) -> Offer<'a> {
    let Some(server) = server else {
        return Offer::Offered(ServerState::Ready);
    };
    let (state, mut excluded) = (server.status.state, server.status.excluded.iter());
    if let Some((_, reason)) = excluded.find(|(name, _)| name == tool) {
        return Offer::LeftOut(reason);
    }
    if is_listed {
        return Offer::Offered(state);
    }
    match state {
        ServerState::Ready => server
            .status
            .reason
            .as_deref()
            .map_or(Offer::Missing, Offer::Unlisted),
        ServerState::Idle | ServerState::Starting | ServerState::Restarting => Offer::Coming(state),
        ServerState::NeedsApproval
        | ServerState::Disabled
        | ServerState::Misconfigured
        | ServerState::Suspended
        | ServerState::NeedsSignIn
        | ServerState::Unresponsive
        | ServerState::BackingOff
        | ServerState::Disconnected
        | ServerState::Failed
        | ServerState::Stopping
        | ServerState::Stopped => Offer::Away {
            state,
            reason: server.status.reason.as_deref(),
        },
    }
}
