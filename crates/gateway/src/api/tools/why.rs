//! `/api/v1/tools/why`, for administrators: whether an agent may use a tool, and which grant, filter
//! or server says so. The rules are `model::grant::why`'s; here is only what they are asked about.

use axum::extract;
use axum::response::Response;
use gantry_engine::{EngineError, ListedTool, Scope, ServerView};
use gantry_model::caller::Caller;
use gantry_model::grant::GrantSet;
use gantry_model::grant::why::{Offer, Question};
use gantry_model::id::{AgentName, ServerName};
use gantry_model::status::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::super::agents::known_agent;
use super::super::body::json;
use super::super::query::Asked;
use super::super::servers::unknown;
use super::super::{Api, In, Who};
use crate::http::error::{Problem, ProblemDocument};

/// Who wants to use what.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::api) struct WhyAsked {
    /// The agent's name.
    #[param(example = "reviewer")]
    agent: String,
    /// The tool: `server:tool`, or the name under which somebody sees it, as `server__tool`.
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
    /// Whether a call would be let through now.
    allowed: bool,
    /// What speaks for it and against it, in the order in which a call meets it.
    #[schema(example = json!(["granted by `files:*`", "server `files` is ready and offers it"]))]
    reasons: Vec<String>,
}

/// Tells whether an agent may use a tool now, and which grant, filter or server says so.
#[utoipa::path(get, path = "/api/v1/tools/why", tag = "tools", params(WhyAsked), responses(
    (status = 200, description = "The answer, whichever it is.", body = WhyView),
    (status = 404, description = "`agent.unknown`, `server.unknown` or `tool.unknown`.",
        body = ProblemDocument<'static>, content_type = "application/problem+json"),
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
    let judged = question.judge();
    let answer = WhyView {
        agent: name.to_string(),
        tool: format!("{server}:{tool}"),
        allowed: judged.allowed,
        reasons: judged.reasons,
    };
    Ok(json(StatusCode::OK, &answer))
}

/// Finds a tool by the name under which the first of these sees it: an agent may have another name
/// for one than an administrator, who sees all there are.
fn seen(api: &Api, eyes: &[&Caller], name: &str) -> Option<ListedTool> {
    eyes.iter().find_map(|caller| {
        let mut tools = api.engine().tools(caller, &Scope::All).into_iter();
        tools.find(|tool| tool.name == name)
    })
}

/// Tells whether a server offers a tool, also one whose bare name another server has.
fn is_listed(api: &Api, caller: &Caller, server: &ServerName, tool: &str) -> bool {
    let tools = api.engine().tools(caller, &Scope::Server(server.clone()));
    tools.iter().any(|listed| listed.tool == tool)
}

/// Takes a name apart that nobody sees now.
fn split(name: &str) -> Result<(ServerName, String), Problem> {
    let parts = name.split_once(':').or_else(|| name.split_once("__"));
    let parts = parts.filter(|(_, tool)| !tool.is_empty());
    let parts = parts.and_then(|(server, tool)| Some((server.parse().ok()?, tool.to_owned())));
    parts.ok_or_else(|| {
        let shown: String = name.chars().take(64).flat_map(char::escape_debug).collect();
        Problem::new("tool.unknown")
            .with_detail(format!("`{shown}` names no tool"))
            .with_hint("write `server__tool` or `server:tool`")
    })
}

/// Returns what a server makes of a tool; what is listed without a server runs inside the gateway.
fn offer<'a>(server: Option<&'a ServerView>, tool: &str, is_listed: bool) -> Offer<'a> {
    let Some(server) = server else {
        return Offer::Offered(State::Ready);
    };
    let (state, mut excluded) = (server.status.state, server.status.excluded.iter());
    if let Some((_, reason)) = excluded.find(|(name, _)| name == tool) {
        return Offer::LeftOut(reason);
    }
    if is_listed {
        return Offer::Offered(state);
    }
    match state {
        State::Ready => server
            .status
            .reason
            .as_deref()
            .map_or(Offer::Missing, Offer::Unlisted),
        State::Idle | State::Starting | State::Restarting => Offer::Coming(state),
        State::NeedsApproval
        | State::Disabled
        | State::Misconfigured
        | State::NeedsSignIn
        | State::Unresponsive
        | State::BackingOff
        | State::Disconnected
        | State::Failed
        | State::Stopping
        | State::Stopped => Offer::Away {
            state,
            reason: server.status.reason.as_deref(),
        },
    }
}
