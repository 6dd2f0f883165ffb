//! Keys: `/api/v1/keys`, for administrators. A key's text is shown once, when it is created.

use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use gantry_engine::{Actor, EngineError, KeyChange, MadeKey, NewKey};
use gantry_model::address_range::AddressRange;
use gantry_model::caller::{KeyKind, Role};
use gantry_model::hidden;
use gantry_model::id::{AgentName, KeyId};
use gantry_model::limits::RateLimits;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::body::{JsonBody, OptionalBody, json, object, optional_object};
use super::form::Period;
use super::limits::LimitsBody;
use super::query::{Asked, Page, Paging};
use super::views::{now_ms, rfc3339};
use super::{Api, By, In, Named};
use crate::http::error::{FieldIssue, Problem};
use crate::http::shown;

/// How many ranges of addresses a key may have.
const MOST_SOURCES: usize = 64;
/// How long a rotated key stays valid by default.
const OVERLAP: Duration = Duration::from_secs(24 * 3600);

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/keys", get(list).post(create))
        .route("/api/v1/keys/{key}", get(one).patch(change).delete(revoke))
        .route("/api/v1/keys/{key}/rotate", post(rotate))
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
    /// How long it is valid, such as `12h`; by default until it is revoked, or as long as the setting
    /// `keys.max_lifetime` allows.
    #[schema(example = "12h")]
    expires_in: Option<Period>,
    /// The addresses that it may be used from, as ranges; by default all. It is the address of the
    /// connection that counts, never a header.
    #[serde(default)]
    #[schema(max_items = 64, example = json!(["10.0.0.0/8", "2001:db8::/32"]))]
    sources: Vec<String>,
    /// How much it may use; by default as much as its agent.
    #[serde(default, deserialize_with = "object")]
    limits: LimitsBody,
}

/// Changes to a key; omitted members stay as they are.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyPatch {
    /// A label for people.
    #[schema(max_length = 128)]
    label: Option<String>,
    /// The addresses that it may be used from, as ranges, replacing the current ones; none for all. What
    /// the key has running ends.
    #[schema(max_items = 64, example = json!(["10.0.0.0/8"]))]
    sources: Option<Vec<String>>,
    /// How much it may use, replacing the current limits.
    #[serde(default, deserialize_with = "optional_object")]
    limits: Option<LimitsBody>,
}

/// How a key is rotated.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RotateBody {
    /// How long the old key stays valid; by default a day.
    #[schema(example = "24h")]
    overlap: Option<Period>,
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
    /// The addresses that it may be used from, as ranges; all if there is none.
    sources: Vec<String>,
    /// How much it may use.
    limits: LimitsBody,
    /// The key that it was made to replace.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    replaces: Option<String>,
    /// The key that was made to replace it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    replaced_by: Option<String>,
    /// When it was last used, to the minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_used: Option<String>,
    /// The same, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_used_ms: Option<u64>,
    /// The address that it was last used from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_used_from: Option<String>,
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
            sources: key.sources.iter().map(ToString::to_string).collect(),
            limits: key.limits.into(),
            replaces: key.replaces.map(|id| id.to_string()),
            replaced_by: key.replaced_by.map(|id| id.to_string()),
            last_used: key.last_use.map(|used| rfc3339(used.at_ms)),
            last_used_ms: key.last_use.map(|used| used.at_ms),
            last_used_from: key.last_use.and_then(|used| Some(used.from?.to_string())),
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
    /// The key that it replaces, which ends at its `expires`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    replaces: Option<KeyView>,
}

impl NewKeyView {
    fn of(made: MadeKey, kind: KeyKind, agent: &AgentName) -> Self {
        Self {
            id: made.id.to_string(),
            key: made.key,
            role: kind.role().map(Role::as_str),
            agent: agent.to_string(),
            expires: made.expires_ms.map(rfc3339),
            replaces: None,
        }
    }
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
    (status = 403, description = "`auth.role`: the role is above that of the caller."),
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
        sources: sources(&asked.sources)?,
        limits: asked.limits.into(),
    };
    let made = project.make_key(&actor, new).await?;
    Ok(json(
        StatusCode::CREATED,
        &NewKeyView::of(made, kind, &agent),
    ))
}

/// Shows one key, never its text.
#[utoipa::path(get, path = "/api/v1/keys/{key}", tag = "keys",
    params(("key" = String, Path, description = "Its id.")), responses(
    (status = 200, description = "The key.", body = KeyView),
    (status = 404, description = "`key.unknown`: there is no valid key of that id."),
))]
pub(super) async fn one(In(project): In, Named(key): Named) -> Result<Response, Problem> {
    let key = project.key(known(&key)?).await?;
    Ok(json(StatusCode::OK, &KeyView::of(&key)))
}

/// Changes the label, the sources or the limits of a key. Applies from the next request on.
#[utoipa::path(patch, path = "/api/v1/keys/{key}", tag = "keys",
    params(("key" = String, Path, description = "Its id.")), request_body = KeyPatch, responses(
    (status = 200, description = "The key after the change.", body = KeyView),
    (status = 403, description = "`auth.role`: its role is above that of the caller."),
    (status = 404, description = "`key.unknown`: there is no valid key of that id."),
))]
pub(super) async fn change(
    In(project): In,
    By(actor): By,
    Named(key): Named,
    body: JsonBody,
) -> Result<Response, Problem> {
    let asked: KeyPatch = body.read()?;
    let id = known(&key)?;
    let change = KeyChange {
        label: asked.label.as_deref().map(label).transpose()?,
        sources: asked.sources.as_deref().map(sources).transpose()?,
        limits: asked.limits.map(RateLimits::from),
    };
    if let Some(ranges) = &change.sources {
        keeps_own_way_in(&actor, id, ranges)?;
    }
    let key = project.change_key(&actor, id, change).await?;
    Ok(json(StatusCode::OK, &KeyView::of(&key)))
}

/// Makes a key in the place of another: for the same agent, with the same grants, sources, limits and
/// lifetime. The old key stays valid for a while, so that its users can change to the new one. The text
/// of the new key is in this response and nowhere else.
#[utoipa::path(post, path = "/api/v1/keys/{key}/rotate", tag = "keys",
    params(("key" = String, Path, description = "Its id.")), request_body(content = Option<RotateBody>, description = "May be left out."), responses(
    (status = 201, description = "The new key, with its text, and the old one.", body = NewKeyView),
    (status = 403, description = "`auth.role`: its role is above that of the caller."),
    (status = 404, description = "`key.unknown`: there is no valid key of that id."),
    (status = 409, description = "`key.rotated`: it was rotated already; `key.last_admin`: the new key would \
        end, and it is the last admin key that does not."),
))]
pub(super) async fn rotate(
    In(project): In,
    By(actor): By,
    Named(key): Named,
    body: OptionalBody,
) -> Result<Response, Problem> {
    let asked: RotateBody = body.read()?;
    let id = known(&key)?;
    let overlap = asked.overlap.map_or(OVERLAP, |period| period.0);
    let (made, old) = project.rotate_key(&actor, id, overlap).await?;
    let view = NewKeyView {
        replaces: Some(KeyView::of(&old)),
        ..NewKeyView::of(made, old.kind, &old.agent)
    };
    Ok(json(StatusCode::CREATED, &view))
}

/// Revokes a key immediately; its streams and sessions end within a second. Succeeds for an unknown
/// key.
#[utoipa::path(delete, path = "/api/v1/keys/{key}", tag = "keys",
    params(("key" = String, Path, description = "Its id.")), responses(
    (status = 204, description = "The key is revoked."),
    (status = 403, description = "`auth.role`: its role is above that of the caller."),
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

/// Reads the id in a path; what is no id is an unknown key.
fn known(key: &str) -> Result<KeyId, Problem> {
    key.parse()
        .map_err(|_| Problem::new("key.unknown").with_detail(format!("no key `{}`", shown(key))))
}

/// Reads ranges of addresses.
fn sources(texts: &[String]) -> Result<Vec<AddressRange>, Problem> {
    if texts.len() > MOST_SOURCES {
        return Err(unusable("/sources", "has more than 64 ranges"));
    }
    let ranges = texts.iter().enumerate().map(|(index, text)| {
        let path = format!("/sources/{index}");
        text.parse::<AddressRange>()
            .map_err(|error| unusable(&path, &error.to_string()))
    });
    ranges.collect()
}

/// Refuses ranges that would lock out the caller's own key: the caller could not undo it.
fn keeps_own_way_in(actor: &Actor, id: KeyId, ranges: &[AddressRange]) -> Result<(), Problem> {
    let Some(address) = actor.address().filter(|_| actor.acts_with(id)) else {
        return Ok(());
    };
    match ranges.is_empty() || ranges.iter().any(|range| range.contains(address)) {
        true => Ok(()),
        false => Err(unusable(
            "/sources",
            &format!("leaves out your own address, {address}: this key could not undo it"),
        )),
    }
}

/// Reads a role; `admin` if there is none.
fn role(text: Option<&str>) -> Result<Role, Problem> {
    let role = text.map(str::parse::<Role>).transpose();
    let role =
        role.map_err(|error| unusable("/role", &error.to_string()).with_hint(error.hint()))?;
    Ok(role.unwrap_or(Role::Admin))
}

/// Returns whom an administrator's key identifies by default. Approvers and auditors get identities
/// other than those whom they control.
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

/// Returns a label without control characters and what else nobody sees; at most 128 characters are accepted.
pub(super) fn label(text: &str) -> Result<String, Problem> {
    if text.chars().count() > 128 {
        return Err(unusable("/label", "is longer than 128 characters"));
    }
    let clean = hidden::clean(text);
    let text = clean.as_ref().map_or(text, |(clean, _)| clean);
    Ok(text.chars().filter(|c| !c.is_control()).collect())
}
