//! `/api/v1/tools/why`, for administrators: whether an agent may use a tool, step by step: which grant,
//! filter, suspension, server or schema decides it. The rules are in `model::grant::why`; this collects
//! their input.

use axum::extract;
use axum::response::Response;
use gantry_engine::{EngineError, ListedTool, Scope, ServerView, ToolFacts};
use gantry_model::caller::Caller;
use gantry_model::grant::why::{Check, Offer, Question, Step, StepResult};
use gantry_model::grant::{GrantSet, has_class_prefix};
use gantry_model::id::{AgentName, KeyId, ServerName};
use gantry_model::jsonrpc::Raw;
use gantry_model::status::ServerState;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::super::agents::known_agent;
use super::super::body::json;
use super::super::query::{Asked, bad};
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
    /// The arguments of a call, as a JSON object: conditions of grants and the schema are then judged.
    #[param(example = r#"{"path":"/srv/a"}"#)]
    arguments: Option<String>,
    /// The id of the agent's key that the call comes with; its own grants then count, too.
    // Not `key`: what is so named in a URL is refused as a credential.
    key_id: Option<String>,
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
    /// Whether a call would be allowed now, or held until an approver has allowed it.
    allowed: bool,
    /// The same in a word: `allow`, `ask` or `deny`.
    #[schema(example = "allow")]
    decision: &'static str,
    /// The revision of the policy that was asked.
    policy_revision: u64,
    /// The reasons, in the order in which they are checked.
    #[schema(example = json!(["granted by `files:*`", "server `files` is ready and offers it"]))]
    reasons: Vec<String>,
    /// The same as steps.
    steps: Vec<StepView>,
}

/// One step of the explanation.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct StepView {
    /// What is looked at: `suspension`, `grant`, `filter`, `server`, `collision`, `version` or `schema`.
    #[schema(example = "grant")]
    check: &'static str,
    /// What it leads to: `passes`, `asks`, `stops` or `notes`.
    #[schema(example = "passes")]
    result: &'static str,
    /// The reason.
    #[schema(example = "granted by `files:*`")]
    text: String,
    /// The id of the grant that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    grant: Option<String>,
}

/// Explains whether an agent may use a tool now, and which grant, filter or server decides it.
#[utoipa::path(get, path = "/api/v1/tools/why", tag = "tools", params(WhyAsked), responses(
    (status = 200, description = "Whether the call would be allowed, and why.", body = WhyView),
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
    let set = match &asked.key_id {
        Some(text) => {
            let wrong =
                || bad("key_id", text).with_hint("`gantry key ls` lists the keys of agents");
            let key: KeyId = text.parse().map_err(|_| wrong())?;
            if !agent.keys.iter().any(|known| known.id == key) {
                return Err(wrong());
            }
            project.grants_of_key(key)?
        }
        None => project.grants_of(&name)?,
    };
    let arguments = asked.arguments.as_deref().map(read).transpose()?;
    let arguments = arguments.as_deref().map(Raw::known);
    let eyes = project.caller(name.clone(), GrantSet::clone(&set));
    let (server, tool) = match seen(&api, &[&eyes, &caller], &asked.tool) {
        Some(known) => (known.server, known.tool),
        None => split(&asked.tool)?,
    };
    let is_listed = is_listed(&api, &caller, &server, &tool);
    let view = project.server(server.as_str());
    if view.is_none() && !is_listed {
        return Err(unknown(&project, server.as_str()));
    }
    if !is_listed && has_class_prefix(&tool) {
        return Err(no_tool(&asked.tool));
    }
    let facts = project.tool_facts(&server, &tool, arguments).await;
    let question = Question {
        agent: &name,
        set: &set,
        server: &server,
        tool: &tool,
        hint: facts.hint,
        arguments,
        offer: offer(view.as_ref(), &tool, is_listed || facts.is_offered),
    };
    let mut judged = question.judge();
    let suspended = project.suspensions();
    let stops = [suspended.of_agent(&name), suspended.of_call(&server, &tool)];
    for what in stops.into_iter().flatten() {
        let text = format!("{what} is suspended");
        let step = Step::new(Check::Suspension, StepResult::Stops, text);
        judged.steps.insert(0, step);
    }
    if is_listed && judged.is_allowed() {
        judged.steps.extend(nameless(&api, &eyes, &server, &tool));
    }
    judged.steps.extend(schema(&facts));
    let answer = WhyView {
        agent: name.to_string(),
        tool: format!("{server}:{tool}"),
        allowed: judged.is_allowed(),
        decision: judged.as_str(),
        policy_revision: set.revision(),
        reasons: judged.steps.iter().map(|step| step.text.clone()).collect(),
        steps: judged.steps.into_iter().map(StepView::of).collect(),
    };
    Ok(json(StatusCode::OK, &answer))
}

impl StepView {
    fn of(step: Step) -> Self {
        Self {
            check: step.check.as_str(),
            result: step.result.as_str(),
            text: step.text,
            grant: step.grant.map(|grant| grant.to_string()),
        }
    }
}

/// The error for an item of a grant, such as `files:prompt:x`, that is not a tool's name.
fn no_tool(name: &str) -> Problem {
    let detail = format!(
        "`{}` names no tool, and only those are explained",
        shown(name)
    );
    Problem::new("tool.unknown").with_detail(detail).with_hint(
        "write `server:tool`; for the rest `gantry grant ls --agent NAME` lists the grants: a deny wins \
         over an ask, an ask over an allow",
    )
}

/// Reads the arguments of a call.
fn read(text: &str) -> Result<String, Problem> {
    match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text) {
        Ok(members) => Ok(serde_json::Value::Object(members).to_string()),
        Err(_) => Err(bad("arguments", text).with_hint("write a JSON object")),
    }
}

/// Reports that the agent does not see the tool, since another one has its name.
fn nameless(api: &Api, agent: &Caller, server: &ServerName, tool: &str) -> Option<Step> {
    let is_seen = api
        .engine()
        .tools(agent, &Scope::All)
        .iter()
        .any(|listed| listed.server == *server && listed.tool == tool);
    let text =
        format!("another tool has its name: it is not listed, and called as `{server}:{tool}`");
    (!is_seen).then(|| Step::new(Check::Collision, StepResult::Notes, text))
}

/// Reports whether the arguments match the tool's schema.
fn schema(facts: &ToolFacts) -> Vec<Step> {
    let Some(issues) = &facts.issues else {
        return Vec::new();
    };
    if issues.is_empty() {
        let text = "the arguments fit the tool's schema";
        return vec![Step::new(Check::Schema, StepResult::Passes, text)];
    }
    let steps = issues.iter().map(|issue| {
        let text = format!("the arguments do not fit: {} {}", issue.path, issue.message);
        Step::new(Check::Schema, StepResult::Stops, text)
    });
    steps.collect()
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
fn offer<'a>(server: Option<&'a ServerView>, tool: &str, is_offered: bool) -> Offer<'a> {
    let Some(server) = server else {
        return Offer::Offered(ServerState::Ready);
    };
    let (state, mut excluded) = (server.status.state, server.status.excluded.iter());
    if let Some((_, reason)) = excluded.find(|(name, _)| name == tool) {
        return Offer::LeftOut(reason);
    }
    if is_offered {
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
