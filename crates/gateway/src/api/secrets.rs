//! Secrets, `/api/v1/secrets`, for administrators: set, bound, listed by name and removed. A value
//! is accepted and never returned. faults K5 and K8

use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use gantry_engine::{BindTo, EngineError, SecretChange, SecretView};
use gantry_model::id::ServerName;
use gantry_model::secret::SecretText;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::{JsonBody, OptionalBody, json};
use super::query::{Asked, Page, Paging};
use super::views::rfc3339;
use super::{Api, By, In, Named};
use crate::http::error::{Problem, no_route};

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/secrets", get(list))
        .route("/api/v1/secrets/{secret}", get(one).put(set).delete(remove))
        .route(
            "/api/v1/secrets/{secret}/bindings/{server}",
            put(bind).delete(unbind),
        )
}

/// A value to set.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SecretBody {
    /// The value; it is never returned.
    #[schema(min_length = 1, max_length = 65536)]
    value: String,
    /// The servers that may be given it, as they are now; those that it was bound to if this is absent.
    #[serde(default)]
    #[schema(nullable = false)]
    servers: Option<Vec<String>>,
    /// The only URL whose origin it is sent to, in headers and nowhere else.
    #[serde(default)]
    #[schema(nullable = false, example = "https://api.example.com")]
    origin: Option<String>,
}

/// How a secret is bound to a server.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BindingBody {
    /// The only URL whose origin it is sent to, in headers and nowhere else.
    #[serde(default)]
    #[schema(nullable = false, example = "https://api.example.com")]
    origin: Option<String>,
}

/// A server that may be given a secret.
#[derive(Serialize, ToSchema)]
pub(super) struct SecretBindingView {
    /// The server's name.
    server: String,
    /// The only origin that the secret is sent to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    origin: Option<String>,
    /// Whether the server is as it was when the secret was bound to it. If not, the secret is set again,
    /// or bound again by an approver, before the server starts.
    in_force: bool,
}

/// A secret, without its value.
#[derive(Serialize, ToSchema)]
pub(super) struct SecretItem {
    /// Its name, as in `${NAME}`.
    name: String,
    /// How often it was set.
    version: u32,
    /// What tells its value from another; keyed, so that it cannot be guessed.
    #[schema(example = "hmac-sha256:0123456789abcdef")]
    fingerprint: String,
    /// The servers that may be given it.
    bindings: Vec<SecretBindingView>,
    /// Whether it is redacted from what servers send; short and regular values are not, since they would
    /// be found by accident.
    redacted: bool,
    /// Why it cannot be decrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    problem: Option<String>,
    /// When it was first set.
    created: String,
    /// When it was last set or bound.
    updated: String,
    /// When a server was last given it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_used: Option<String>,
    /// Which server that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_used_by: Option<String>,
}

impl SecretItem {
    fn of(secret: &SecretView) -> Self {
        let bindings = secret.bindings.iter();
        let bindings = bindings.map(|(binding, in_force)| SecretBindingView {
            server: binding.server.to_string(),
            origin: binding.origin.clone(),
            in_force: *in_force,
        });
        let used = secret.used.as_ref();
        Self {
            name: secret.name.clone(),
            version: secret.version,
            fingerprint: format!("hmac-sha256:{}", secret.fingerprint),
            bindings: bindings.collect(),
            redacted: secret.is_redacted,
            problem: secret.problem.clone(),
            created: rfc3339(secret.created_ms),
            updated: rfc3339(secret.updated_ms),
            last_used: used.map(|(at_ms, _)| rfc3339(*at_ms)),
            last_used_by: used.map(|(_, server)| server.clone()),
        }
    }
}

/// A secret after a change.
#[derive(Serialize, ToSchema)]
pub(super) struct SecretChanged {
    #[serde(flatten)]
    secret: SecretItem,
    /// The servers that were restarted because they use it.
    restarted: Vec<String>,
}

impl SecretChanged {
    fn of(change: &SecretChange) -> Self {
        Self {
            secret: SecretItem::of(&change.secret),
            restarted: change.restarted.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Lists the secrets by name, never their values.
#[utoipa::path(get, path = "/api/v1/secrets", tag = "secrets", params(Paging), responses(
    (status = 200, description = "The secrets.", body = Page<SecretItem>),
))]
pub(super) async fn list(
    In(project): In,
    Asked(asked): Asked<Paging>,
) -> Result<Response, Problem> {
    let secrets = project.secrets().await?;
    let page = Page::of(secrets, &asked, |secret| secret.name.clone())?;
    Ok(page.respond(|secret| SecretItem::of(&secret)))
}

/// Shows a secret: its version, bindings and last use, never its value.
#[utoipa::path(get, path = "/api/v1/secrets/{secret}", tag = "secrets",
    params(("secret" = String, Path, description = "Its name.")), responses(
    (status = 200, description = "The secret.", body = SecretItem),
    (status = 404, description = "`secret.unknown`: no such secret."),
))]
pub(super) async fn one(In(project): In, Named(secret): Named) -> Result<Response, Problem> {
    let view = project.secret(&secret).await?;
    Ok(json(StatusCode::OK, &SecretItem::of(&view)))
}

/// Sets a secret, new or in place of its value, and binds it to what its servers are now. The servers that
/// use it are restarted.
#[utoipa::path(put, path = "/api/v1/secrets/{secret}", tag = "secrets",
    params(("secret" = String, Path, description = "Its name.")), request_body = SecretBody, responses(
    (status = 200, description = "The value was replaced.", body = SecretChanged),
    (status = 201, description = "It is new.", body = SecretChanged),
    (status = 503, description = "`secret.key_wrong`, `secret.key_missing`: the master key is not the one \
        that secrets are encrypted with."),
))]
pub(super) async fn set(
    In(project): In,
    By(actor): By,
    Named(secret): Named,
    body: JsonBody,
) -> Result<Response, Problem> {
    let asked: SecretBody = body.read()?;
    let value = SecretText::new(asked.value);
    let servers = match (asked.servers, asked.origin) {
        (None, None) => None,
        (None, Some(_)) => {
            let problem = Problem::new("request.body");
            return Err(problem.with_detail("`origin` needs `servers`".to_owned()));
        }
        (Some(servers), origin) => {
            let servers = servers.iter().map(|server| bind_to(server, origin.clone()));
            Some(servers.collect::<Result<Vec<_>, _>>()?)
        }
    };
    let change = project.set_secret(&actor, &secret, value, servers).await?;
    let status = match change.is_new {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    Ok(json(status, &SecretChanged::of(&change)))
}

/// Removes a secret. The servers that use it are restarted and wait until it is set again. Succeeds for an
/// unknown one.
#[utoipa::path(delete, path = "/api/v1/secrets/{secret}", tag = "secrets",
    params(("secret" = String, Path, description = "Its name.")), responses(
    (status = 204, description = "The secret was removed."),
))]
pub(super) async fn remove(
    In(project): In,
    By(actor): By,
    Named(secret): Named,
) -> Result<Response, Problem> {
    project.remove_secret(&actor, &secret).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Binds a secret to what a server is now, without its value: approves a server that was changed.
#[utoipa::path(put, path = "/api/v1/secrets/{secret}/bindings/{server}", tag = "secrets",
    params(("secret" = String, Path, description = "Its name."),
        ("server" = String, Path, description = "The server's name.")),
    request_body(content = Option<BindingBody>, description = "May be left out."), responses(
    (status = 200, description = "It is bound.", body = SecretChanged),
    (status = 403, description = "`secret.needs_approver`: binding without the value needs an approver."),
    (status = 404, description = "`secret.unknown`: no such secret."),
))]
pub(super) async fn bind(
    In(project): In,
    By(actor): By,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
    body: OptionalBody,
) -> Result<Response, Problem> {
    let Path((secret, server)) = path.map_err(|_| no_route())?;
    let asked: BindingBody = body.read()?;
    let to = bind_to(&server, asked.origin)?;
    let change = project.bind_secret(&actor, &secret, to).await?;
    Ok(json(StatusCode::OK, &SecretChanged::of(&change)))
}

/// Takes a secret away from a server.
#[utoipa::path(delete, path = "/api/v1/secrets/{secret}/bindings/{server}", tag = "secrets",
    params(("secret" = String, Path, description = "Its name."),
        ("server" = String, Path, description = "The server's name.")), responses(
    (status = 200, description = "The binding was removed.", body = SecretChanged),
    (status = 404, description = "`secret.unknown`: no such secret."),
))]
pub(super) async fn unbind(
    In(project): In,
    By(actor): By,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
) -> Result<Response, Problem> {
    let Path((secret, server)) = path.map_err(|_| no_route())?;
    let server = bind_to(&server, None)?.server;
    let change = project.unbind_secret(&actor, &secret, server).await?;
    Ok(json(StatusCode::OK, &SecretChanged::of(&change)))
}

fn bind_to(server: &str, origin: Option<String>) -> Result<BindTo, Problem> {
    let server: ServerName = server.parse().map_err(EngineError::from)?;
    Ok(BindTo { server, origin })
}
