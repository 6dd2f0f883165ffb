//! Grants, `/api/v1/grants`, for administrators: what agents, single keys or all agents of the project may
//! use, may not use, or may use only with an approval. Changes apply from the next call on.

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use gantry_engine::{Actor, AdminError, EngineError, GrantView as Known, Project};
use gantry_model::grant::{Condition, Effect, Grant, Principal};
use gantry_model::id::{AgentName, GrantId, KeyId};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::body::{JsonBody, created, json};
use super::query::{Asked, Page, Paging};
use super::registrations::{Wanted, hold};
use super::views::{now_ms, rfc3339};
use super::{Api, By, In, Named};
use crate::http::error::{FieldIssue, Problem};
use crate::http::shown;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/grants", get(list).post(add))
        .route("/api/v1/grants/{grant}", get(one).delete(remove))
}

/// A new grant, for exactly one of `agent`, `key` and `all_agents`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GrantBody {
    /// The agent it is for.
    #[schema(example = "reviewer")]
    agent: Option<String>,
    /// The one key of an agent that it is for, by its id.
    #[schema(example = "key_0123456789abcdef0123456789abcdef")]
    key: Option<String>,
    /// Whether it is for every agent of the project.
    #[serde(default)]
    all_agents: bool,
    #[serde(default)]
    effect: EffectBody,
    /// The server: a name, a pattern such as `team-*`, or a group behind `@`.
    #[schema(example = "files")]
    server: String,
    /// The tool or a pattern such as `read_*`; `*` for everything there. Other classes stand behind
    /// `resource:`, `prompt:`, `completion:`, `logging:`, `subscription:`, `task:`; `read_only:` names
    /// tools by their annotation.
    #[serde(default = "everything")]
    #[schema(example = "read_*", default = "*")]
    item: String,
    /// Another name for the one tool that it allows.
    alias: Option<String>,
    /// What must hold of the arguments, all of it. Each is an object with `at`, a JSON pointer, and one
    /// test of what is there: `equals` (a value), `one_of` (a list of values), `prefix` (a text), `pattern`
    /// (a regular expression for the whole text), `range` (with `min`, `max` or both) or `absent` (`true`).
    #[serde(default)]
    #[schema(value_type = Vec<Object>, example = json!([{"at": "/path", "prefix": "/srv/"}]))]
    when: Vec<Value>,
}

fn everything() -> String {
    "*".to_owned()
}

/// What a grant does. A deny wins over an ask, an ask over an allow.
#[derive(Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum EffectBody {
    /// It may be used.
    #[default]
    Allow,
    /// Each call waits for an approver.
    Ask,
    /// It may not be used.
    Deny,
}

impl From<EffectBody> for Effect {
    fn from(effect: EffectBody) -> Self {
        match effect {
            EffectBody::Allow => Self::Allow,
            EffectBody::Ask => Self::Ask,
            EffectBody::Deny => Self::Deny,
        }
    }
}

/// A grant.
#[derive(Serialize, ToSchema)]
pub(super) struct GrantView {
    /// Its identity, by which the record of a call names it.
    #[schema(example = "grant_0123456789abcdef0123456789abcdef")]
    id: String,
    /// The agent it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    agent: Option<String>,
    /// The key it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    key: Option<String>,
    /// Whether it is for every agent.
    all_agents: bool,
    /// `allow`, `ask` or `deny`.
    #[schema(example = "allow")]
    effect: Option<&'static str>,
    /// The server: a name, a pattern, or a group behind `@`.
    server: Option<String>,
    /// The item or a pattern.
    item: Option<String>,
    /// The other name of the one tool that it allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    alias: Option<String>,
    /// What must hold of the arguments.
    #[schema(value_type = Vec<Object>, example = json!([{"at": "/path", "prefix": "/srv/"}]))]
    when: Vec<Value>,
    /// The whole grant in one line.
    #[schema(example = "deny files:delete_*")]
    text: String,
    /// When it was made.
    created: String,
    /// The same, in milliseconds since 1970.
    created_ms: u64,
    /// When it last decided a call; absent if it never did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_used: Option<String>,
    /// The same, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_used_ms: Option<u64>,
}

impl GrantView {
    fn of(known: Known) -> Self {
        let grant = known.grant.as_ref();
        let (agent, key) = match &known.principal {
            Principal::Agent(agent) => (Some(agent.to_string()), None),
            Principal::Key(key) => (None, Some(key.to_string())),
            Principal::Project => (None, None),
        };
        Self {
            id: known.id.to_string(),
            all_agents: known.principal == Principal::Project,
            agent,
            key,
            effect: grant.map(|grant| grant.effect().as_str()),
            server: grant.map(|grant| grant.server().to_owned()),
            item: grant.map(|grant| grant.item().to_owned()),
            alias: grant.and_then(Grant::alias).map(str::to_owned),
            when: grant.map_or_else(Vec::new, |grant| {
                grant.conditions().iter().map(Condition::to_json).collect()
            }),
            text: known.text,
            created: rfc3339(known.created_ms),
            created_ms: known.created_ms,
            last_used: known.last_used_ms.map(rfc3339),
            last_used_ms: known.last_used_ms,
        }
    }
}

/// Which grants are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct GrantsQuery {
    /// Only grants of this agent, not those of its keys or of all agents.
    agent: Option<String>,
    /// Only grants on this group, without the `@`.
    group: Option<String>,
    /// Only grants that decided no call for so many days, and are that old.
    #[param(minimum = 0, format = "uint32", example = 90)]
    unused_days: Option<u32>,
    /// How many items at most.
    #[param(minimum = 1, maximum = 1000, default = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Lists the grants of the project.
#[utoipa::path(get, path = "/api/v1/grants", tag = "grants", params(GrantsQuery), responses(
    (status = 200, description = "The grants, those of agents first.", body = Page<GrantView>),
))]
pub(super) async fn list(
    In(project): In,
    Asked(asked): Asked<GrantsQuery>,
) -> Result<Response, Problem> {
    let since = asked
        .unused_days
        .map(|days| now_ms().saturating_sub(u64::from(days) * DAY_MS));
    let group = asked.group.as_ref().map(|group| format!("@{group}"));
    let mut grants = project.grants().await?;
    grants.retain(|known| {
        let is_agents = |name: &String| {
            matches!(&known.principal, Principal::Agent(agent) if agent.as_str() == *name)
        };
        let is_groups = |group: &String| {
            let grant = known.grant.as_ref();
            grant.is_some_and(|grant| grant.server() == *group)
        };
        let is_unused = |since: u64| known.last_used_ms.unwrap_or(known.created_ms) <= since;
        asked.agent.as_ref().is_none_or(is_agents)
            && group.as_ref().is_none_or(is_groups)
            && since.is_none_or(is_unused)
    });
    let paging = Paging {
        limit: asked.limit,
        cursor: asked.cursor,
    };
    let page = Page::of(grants, &paging, |known| known.id.to_string())?;
    Ok(page.respond(GrantView::of))
}

/// Adds a grant. One that is there already stays, and only its alias changes.
#[utoipa::path(post, path = "/api/v1/grants", tag = "grants", request_body = GrantBody, responses(
    (status = 201, description = "The grant.", body = GrantView,
        headers(("Location" = String, description = "Where it is."))),
    (status = 202, description = "It waits for a second person's approval."),
    (status = 404, description = "`agent.unknown`, `key.unknown` or `group.unknown`."),
    (status = 422, description = "`grant.server`, `grant.item`, `grant.alias` or `grant.condition`."),
))]
pub(super) async fn add(
    In(project): In,
    By(actor): By,
    body: JsonBody,
) -> Result<Response, Problem> {
    let (principal, grant) = body.read::<GrantBody>()?.read()?;
    let target = principal.to_string();
    let added = match project.add_grant(&actor, principal, grant).await {
        Ok(added) => added,
        Err(refused) => {
            let shown: Value = body.read()?;
            let wanted = Wanted {
                act: "grant.add",
                target: &target,
                request: serde_json::json!({ "body": shown }),
                shown,
            };
            return hold(&project, &actor, refused, wanted).await;
        }
    };
    let place = format!("/api/v1/grants/{}", added.id);
    Ok(created(&place, &GrantView::of(added)))
}

/// Adds a grant that a second person has approved.
pub(super) async fn add_from(
    project: &Arc<Project>,
    by: &Actor,
    body: &Value,
) -> Result<(), Problem> {
    let body = GrantBody::deserialize(body).map_err(|_| Problem::new("request.body"))?;
    let (principal, grant) = body.read()?;
    project.add_grant(by, principal, grant).await?;
    Ok(())
}

impl GrantBody {
    pub(super) fn read(self) -> Result<(Principal, Grant), Problem> {
        let wrong = |path: &str, message: &str| {
            Problem::new("request.body")
                .with_detail(message)
                .with_issues(vec![FieldIssue {
                    path: path.to_owned(),
                    message: message.to_owned(),
                }])
        };
        let principal = match (self.agent, self.key, self.all_agents) {
            (Some(agent), None, false) => {
                let agent: AgentName = agent.parse().map_err(EngineError::Name)?;
                Principal::Agent(agent)
            }
            (None, Some(key), false) => {
                let unknown = |_| EngineError::from(AdminError::UnknownKey { id: shown(&key) });
                Principal::Key(key.parse::<KeyId>().map_err(unknown)?)
            }
            (None, None, true) => Principal::Project,
            _ => {
                let message = "exactly one of `agent`, `key` and `all_agents` is expected";
                return Err(wrong("/agent", message));
            }
        };
        let conditions = self.when.iter().map(Condition::from_json);
        let conditions = conditions.collect::<Result<Vec<_>, _>>();
        let conditions = conditions.map_err(EngineError::from)?;
        let grant = Grant::new(&self.server, &self.item, self.alias.as_deref())
            .and_then(|grant| grant.with_effect(self.effect.into()))
            .and_then(|grant| grant.when(conditions))
            .map_err(EngineError::from)?;
        Ok((principal, grant))
    }
}

/// Shows one grant.
#[utoipa::path(get, path = "/api/v1/grants/{grant}", tag = "grants",
    params(("grant" = String, Path, description = "Its id.")), responses(
    (status = 200, description = "The grant.", body = GrantView),
    (status = 404, description = "`grant.unknown`: no such grant."),
))]
pub(super) async fn one(In(project): In, Named(grant): Named) -> Result<Response, Problem> {
    let unknown = |_| EngineError::from(AdminError::UnknownGrant { id: shown(&grant) });
    let id: GrantId = grant.parse().map_err(unknown)?;
    Ok(json(
        StatusCode::OK,
        &GrantView::of(project.grant(id).await?),
    ))
}

/// Removes a grant; applies from the next call on. Succeeds for an unknown grant.
#[utoipa::path(delete, path = "/api/v1/grants/{grant}", tag = "grants",
    params(("grant" = String, Path, description = "Its id.")), responses(
    (status = 204, description = "The grant was removed."),
))]
pub(super) async fn remove(
    In(project): In,
    By(actor): By,
    Named(grant): Named,
) -> Result<Response, Problem> {
    if let Ok(id) = grant.parse::<GrantId>() {
        project.remove_grant(&actor, id).await?;
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
