//! Signing in to remote servers: `/api/v1/mcp/servers/{server}/auth` for administrators, and
//! `/oauth/callback`, the redirect target of authorization servers.
//!
//! The callback is public: it is authenticated by its `state`, which only the requester of the link
//! knows and which works once, within ten minutes. No token is ever shown.

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use gantry_engine::{Actor, EngineError, SignInAnswer, SignInError, SignInTrust};
use http::header::HOST;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::body::json;
use super::query::Asked;
use super::servers::done;
use super::views::{Link, SignInStatus};
use super::{Api, By, In, Named, html};
use crate::http::auth::Admission;
use crate::http::error::Problem;

/// The redirect path of authorization servers.
pub(crate) const CALLBACK: &str = "/oauth/callback";

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new().route(
        "/api/v1/mcp/servers/{server}/auth",
        get(show).post(begin).delete(end),
    )
}

/// Returns the redirect route, which needs no key.
pub(super) fn public_routes() -> Router<Api> {
    Router::new().route("/oauth/callback", get(callback))
}

/// How a sign-in begins.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct SignInQuery {
    /// Accepts whichever authorization server the server names now, even if the configured client
    /// was used with another one before.
    #[serde(default)]
    again: bool,
}

/// Creates a link at which a user signs in to a remote server. The authorization server redirects to
/// `/oauth/callback` on the host that this request was sent to.
#[utoipa::path(post, path = "/api/v1/mcp/servers/{server}/auth", tag = "servers", operation_id = "sign_in",
    params(("server" = String, Path, description = "Its name or id."), SignInQuery), responses(
    (status = 201, description = "The link.", body = Link),
    (status = 404, description = "`server.unknown`: no such server."),
    (status = 409, description = "`sign_in.not_taken`: the server does not support sign-in."),
    (status = 502, description = "`sign_in.unavailable`: its authorization server cannot be used; \
        `sign_in.moved`: it names another one than the configured client was used with."),
))]
pub(super) async fn begin(
    In(project): In,
    By(actor): By,
    Named(server): Named,
    Asked(beginning): Asked<SignInQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let redirect_uri = redirect_uri(&headers);
    let trust = match beginning.again {
        true => SignInTrust::Anew,
        false => SignInTrust::Remembered,
    };
    let begun = project
        .begin_sign_in(&actor, &server, &redirect_uri, trust)
        .await;
    let begun = done(&project, &server, begun)?;
    Ok(json(StatusCode::CREATED, &Link::of(begun)))
}

/// Shows a server's sign-in status.
#[utoipa::path(get, path = "/api/v1/mcp/servers/{server}/auth", tag = "servers", operation_id = "sign_in_status",
    params(("server" = String, Path, description = "Its name or id.")), responses(
    (status = 200, description = "The status.", body = SignInStatus),
    (status = 404, description = "`server.unknown`: no such server."),
))]
pub(super) async fn show(In(project): In, Named(server): Named) -> Result<Response, Problem> {
    let view = done(&project, &server, project.sign_in(&server))?;
    Ok(json(StatusCode::OK, &SignInStatus::of(view)))
}

/// Deletes a server's tokens, and revokes them if its authorization server supports that.
#[utoipa::path(delete, path = "/api/v1/mcp/servers/{server}/auth", tag = "servers", operation_id = "sign_out",
    params(("server" = String, Path, description = "Its name or id.")), responses(
    (status = 204, description = "No tokens are left."),
    (status = 404, description = "`server.unknown`: no such server."),
    (status = 409, description = "`sign_in.not_taken`: the server does not support sign-in."),
))]
pub(super) async fn end(
    In(project): In,
    By(actor): By,
    Named(server): Named,
) -> Result<Response, Problem> {
    let ended = project.sign_out(&actor, &server).await;
    done(&project, &server, ended)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The parameters of the redirect from an authorization server (RFC 6749, 9207).
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct CallbackQuery {
    /// Which sign-in it belongs to.
    #[serde(default)]
    state: String,
    /// The code to exchange.
    code: Option<String>,
    /// Who answers.
    iss: Option<String>,
    /// What went wrong.
    error: Option<String>,
    /// The same in words.
    error_description: Option<String>,
}

/// Handles the redirect from an authorization server, once, and shows the result. Needs no key:
/// the `state` is known only to who requested the link.
#[utoipa::path(get, path = "/oauth/callback", tag = "about", operation_id = "sign_in_callback", params(CallbackQuery),
    responses(
    (status = 200, description = "A page: the sign-in succeeded.", body = String, content_type = "text/html"),
    (status = 400, description = "A page: the sign-in failed, and why.", body = String, content_type = "text/html"),
))]
pub(super) async fn callback(
    State(api): State<Api>,
    peer: Option<Extension<Admission>>,
    brought: Result<Query<CallbackQuery>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let finished = match brought {
        Ok(Query(brought)) => {
            let answer = SignInAnswer {
                state: brought.state,
                code: brought.code,
                issuer: brought.iss,
                error: brought.error,
                error_description: brought.error_description,
            };
            let address = peer.map(|Extension(admission)| admission.peer());
            let browser = Actor::browser(address);
            api.engine().finish_sign_in(browser, answer).await
        }
        Err(_unreadable) => Err(EngineError::from(SignInError::Unknown)),
    };
    match finished {
        Ok(server) => {
            let body = format!(
                "<h1>Signed in</h1>\n<p>Gantry is signed in to {}. This page can be closed.</p>",
                html::prose(&format!("`{server}`"))
            );
            html::page(StatusCode::OK, "Gantry: signed in", &body)
        }
        Err(error) => {
            let problem = Problem::from(error);
            let hint = problem.hint().map(html::prose).unwrap_or_default();
            let body = format!(
                "<h1>Not signed in</h1>\n<p>{}</p>\n<p class=\"note\">{hint}</p>\n\
                 <p class=\"note\"><a href=\"/errors/{code}\"><code>{code}</code></a></p>",
                html::prose(problem.detail()),
                code = problem.code(),
            );
            html::page(problem.status(), "Gantry: not signed in", &body)
        }
    }
}

/// Returns the redirect URL under the host that the request addressed. Hosts other than loopback
/// are assumed to be behind TLS.
fn redirect_uri(headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.unwrap_or("127.0.0.1");
    let name = host.rsplit_once(':').map_or(host, |(name, port)| {
        if port.bytes().all(|byte| byte.is_ascii_digit()) {
            name
        } else {
            host
        }
    });
    let local = matches!(name, "localhost" | "127.0.0.1" | "[::1]");
    let scheme = if local { "http" } else { "https" };
    format!("{scheme}://{host}{CALLBACK}")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn an_answer_comes_to_where_the_request_went() {
        let to = |host: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static(host));
            redirect_uri(&headers)
        };
        assert_eq!(to("127.0.0.1:4180"), "http://127.0.0.1:4180/oauth/callback");
        assert_eq!(to("[::1]:4180"), "http://[::1]:4180/oauth/callback");
        assert_eq!(to("localhost"), "http://localhost/oauth/callback");
        let public = "https://gantry.example.com/oauth/callback";
        assert_eq!(to("gantry.example.com"), public);
    }
}
