//! A project's credentials for image registries, `/api/v1/images/logins`. Secrets are accepted and
//! never returned. Entry point: [`routes`].

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use gantry_engine::RegistryLogin;
use gantry_engine::images::Credentials;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::body::{JsonBody, json};
use crate::api::query::Page;
use crate::api::views::rfc3339;
use crate::api::{Api, By, In, Named};
use crate::http::error::Problem;

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/images/logins", get(list))
        .route(
            "/api/v1/images/logins/{registry}",
            put(log_in).delete(log_out),
        )
}

/// A registry that the project has credentials for.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct LoginView {
    /// The registry, as images name it.
    registry: String,
    /// The user's name; nothing for an identity token.
    username: Option<String>,
    since: String,
    since_ms: u64,
}

impl LoginView {
    fn of(login: RegistryLogin) -> Self {
        Self {
            registry: login.registry,
            username: login.username,
            since: rfc3339(login.since_ms),
            since_ms: login.since_ms,
        }
    }
}

/// Credentials: `username` and `password`, or `token`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Login {
    username: Option<String>,
    /// The password, or an access token in its place.
    #[schema(write_only)]
    password: Option<String>,
    /// An identity token, which the registry's token server exchanges.
    #[schema(write_only)]
    token: Option<String>,
}

/// Lists the registries that the project has credentials for; the secrets are not shown.
#[utoipa::path(get, path = "/api/v1/images/logins", tag = "images", operation_id = "images_logins", responses(
    (status = 200, description = "The registries.", body = Page<LoginView>),
))]
pub(in crate::api) async fn list(In(project): In) -> Result<Response, Problem> {
    let logins = project.registry_logins().await?;
    let items: Vec<_> = logins.into_iter().map(LoginView::of).collect();
    let next_cursor = None;
    Ok(json(StatusCode::OK, &Page { items, next_cursor }))
}

/// Keeps credentials for a registry, sealed, in place of those it had. They are shown to that registry and
/// its token server only, when an image is pulled; they are not tried now.
#[utoipa::path(put, path = "/api/v1/images/logins/{registry}", tag = "images", request_body = Login,
    params(("registry" = String, Path, description = "The registry, such as `ghcr.io`.")), responses(
    (status = 200, description = "They are kept.", body = LoginView),
    (status = 422, description = "`image.login`: not the name of a registry, or credentials that cannot be sent."),
))]
pub(in crate::api) async fn log_in(
    In(project): In,
    By(actor): By,
    Named(registry): Named,
    body: JsonBody,
) -> Result<Response, Problem> {
    let given: Login = body.read()?;
    let credentials = match (given.username, given.password, given.token) {
        (Some(user), Some(password), None) => Credentials::Basic { user, password },
        (None, None, Some(token)) => Credentials::Token(token),
        _ => {
            let detail = "give `username` and `password`, or `token`";
            return Err(Problem::new("request.body").with_detail(detail));
        }
    };
    let login = project.log_in(actor, registry, credentials).await?;
    Ok(json(StatusCode::OK, &LoginView::of(login)))
}

/// Forgets the credentials of a registry.
#[utoipa::path(delete, path = "/api/v1/images/logins/{registry}", tag = "images",
    params(("registry" = String, Path, description = "The registry, such as `ghcr.io`.")), responses(
    (status = 204, description = "The credentials were removed."),
    (status = 404, description = "`image.login_unknown`: there are no credentials for this registry."),
))]
pub(in crate::api) async fn log_out(
    In(project): In,
    By(actor): By,
    Named(registry): Named,
) -> Result<Response, Problem> {
    project.log_out(actor, registry).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
