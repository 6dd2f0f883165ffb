//! Keys: `/api/v1/keys`, for administrators. A key's text is shown once, when it is created.

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};
use gantry_engine::{EngineError, NewKey};
use gantry_model::caller::{KeyKind, Role};
use gantry_model::id::{AgentName, KeyId};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::body::{JsonBody, json};
use super::form::Period;
use super::query::{Asked, Page, Paging};
use super::views::{now_ms, rfc3339};
use super::{Api, By, In, Named};
use crate::http::error::{FieldIssue, Problem};

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/keys", get(list).post(create))
        .route("/api/v1/keys/{key}", delete(revoke))
}

/// A key to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyBody {
    kind: Kind,
    /// What an administrator's key may do; by default `admin`. Nobody gives more than they have.
    #[schema(value_type = Option<String>, example = "auditor")]
    role: Option<String>,
    /// The agent it identifies; by default `default` for an agent's key, `admin` for an admin's. An
    /// unknown agent is created without grants.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", example = "reviewer")]
    agent: Option<String>,
    /// A label for people.
    #[serde(default)]
    #[schema(max_length = 128, example = "laptop")]
    label: String,
    /// How long it is valid, such as `12h`; by default until it is revoked.
    #[schema(example = "12h")]
    expires_in: Option<Period>,
}

/// What a key may do.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// Administers the gateway; refused on `/mcp`.
    Admin,
    /// Lists and calls what its agent may use.
    Agent,
}

impl From<KeyKind> for Kind {
    fn from(kind: KeyKind) -> Self {
        match kind {
            KeyKind::Admin(_) => Self::Admin,
            KeyKind::Agent => Self::Agent,
        }
    }
}

/// A key, without its text.
#[derive(Serialize, ToSchema)]
pub(super) struct KeyView {
    /// Its identity.
    #[schema(example = "key_0123456789abcdef0123456789abcdef")]
    id: String,
    kind: Kind,
    /// What an administrator's key may do: `installation`, `admin`, `operator`, `approver` or
    /// `auditor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    role: Option<&'static str>,
    /// The agent it identifies.
    agent: String,
    /// A label for people.
    label: String,
    /// When it was created.
    created: String,
    /// The same, in milliseconds since 1970.
    created_ms: u64,
    /// When it expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    expires: Option<String>,
    /// The same, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    expires_ms: Option<u64>,
}

impl KeyView {
    /// Shows a key.
    pub(super) fn of(key: &gantry_engine::KeyView) -> Self {
        Self {
            id: key.id.to_string(),
            kind: key.kind.into(),
            role: key.kind.role().map(Role::as_str),
            agent: key.agent.to_string(),
            label: key.label.clone(),
            created: rfc3339(key.created_ms),
            created_ms: key.created_ms,
            expires: key.expires_ms.map(rfc3339),
            expires_ms: key.expires_ms,
        }
    }
}

/// A new key; its text is returned only here.
#[derive(Serialize, ToSchema)]
pub(super) struct NewKeyView {
    /// Its identity.
    id: String,
    /// Its text.
    #[schema(example = "gantry_agent_…")]
    key: String,
    /// What an administrator's key may do.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    role: Option<&'static str>,
    /// The agent it identifies.
    agent: String,
    /// When it expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    expires: Option<String>,
}

/// Which keys are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct KeysQuery {
    /// Only keys of this agent.
    agent: Option<String>,
    /// How many items at most.
    #[param(minimum = 1, maximum = 1000, default = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Lists the valid keys, oldest first, never their text.
#[utoipa::path(get, path = "/api/v1/keys", tag = "keys", params(KeysQuery), responses(
    (status = 200, description = "The keys.", body = Page<KeyView>),
))]
pub(super) async fn list(
    In(project): In,
    Asked(asked): Asked<KeysQuery>,
) -> Result<Response, Problem> {
    let mut keys = project.keys().await?;
    if let Some(agent) = &asked.agent {
        keys.retain(|key| key.agent.as_str() == agent);
    }
    let paging = Paging {
        limit: asked.limit,
        cursor: asked.cursor,
    };
    let page = Page::of(keys, &paging, |key| key.id.to_string())?;
    Ok(page.respond(|key| KeyView::of(&key)))
}

/// Creates a key. Its text is in this response and nowhere else.
#[utoipa::path(post, path = "/api/v1/keys", tag = "keys", request_body = KeyBody, responses(
    (status = 201, description = "The key, with its text.", body = NewKeyView),
    (status = 403, description = "`auth.role`: the role is above that of whoever asks."),
))]
pub(super) async fn create(
    In(project): In,
    By(actor): By,
    body: JsonBody,
) -> Result<Response, Problem> {
    let asked: KeyBody = body.read()?;
    let (kind, default) = match asked.kind {
        Kind::Admin => {
            let role = role(asked.role.as_deref())?;
            (KeyKind::Admin(role), default_agent(role))
        }
        Kind::Agent if asked.role.is_some() => {
            return Err(unusable("/role", "only an administrator's key has a role"));
        }
        Kind::Agent => (KeyKind::Agent, "default"),
    };
    let agent = asked.agent.as_deref().unwrap_or(default);
    let agent: AgentName = agent.parse().map_err(EngineError::from)?;
    let new = NewKey {
        kind,
        agent: agent.clone(),
        label: label(&asked.label)?,
        expires_ms: asked
            .expires_in
            .map(|period| now_ms().saturating_add(period.milliseconds())),
    };
    let expires = new.expires_ms.map(rfc3339);
    let (id, key) = project.make_key(&actor, new).await?;
    let made = NewKeyView {
        id: id.to_string(),
        key,
        role: kind.role().map(Role::as_str),
        agent: agent.to_string(),
        expires,
    };
    Ok(json(StatusCode::CREATED, &made))
}

/// Revokes a key immediately; its streams and sessions end within a second. Succeeds for an unknown
/// key.
#[utoipa::path(delete, path = "/api/v1/keys/{key}", tag = "keys",
    params(("key" = String, Path, description = "Its id.")), responses(
    (status = 204, description = "The key is revoked."),
    (status = 403, description = "`auth.role`: its role is above that of whoever asks."),
    (status = 409, description = "`key.last_admin`: it is the last non-expiring admin key."),
))]
pub(super) async fn revoke(
    In(project): In,
    By(actor): By,
    Named(key): Named,
) -> Result<Response, Problem> {
    if let Ok(key) = key.parse::<KeyId>() {
        project.revoke_key(&actor, key).await?;
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Reads a role; `admin` if there is none.
fn role(text: Option<&str>) -> Result<Role, Problem> {
    let role = text.map(str::parse::<Role>).transpose();
    let role =
        role.map_err(|error| unusable("/role", &error.to_string()).with_hint(error.hint()))?;
    Ok(role.unwrap_or(Role::Admin))
}

/// Returns whom an administrator's key identifies by default. Approvers and auditors stand apart from
/// those whom they watch.
fn default_agent(role: Role) -> &'static str {
    match role {
        Role::Installation | Role::Admin | Role::Operator => "admin",
        Role::Approver | Role::Auditor => role.as_str(),
    }
}

fn unusable(path: &str, message: &str) -> Problem {
    let problem = Problem::new("request.body").with_detail(format!("`{path}` {message}"));
    problem.with_issues(vec![FieldIssue {
        path: path.to_owned(),
        message: message.to_owned(),
    }])
}

/// Returns a label without control characters; at most 128 characters are accepted.
pub(super) fn label(text: &str) -> Result<String, Problem> {
    if text.chars().count() > 128 {
        return Err(unusable("/label", "is longer than 128 characters"));
    }
    Ok(text.chars().filter(|c| !c.is_control()).collect())
}
