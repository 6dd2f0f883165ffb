//! Answers OAuth discovery: which authorization servers issue tokens for this gateway, or that
//! there is none and a key is needed.
//!
//! Without configured issuers, a client without a key may look for an authorization server and try
//! to register with it. All of these requests get an OAuth error whose description says how to get
//! and send a key, since clients show that text to users. Entry point: `routes`.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::any;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, StatusCode};
use serde_json::json;

use super::Endpoint;
use crate::http::auth::SEND_A_KEY;

/// Returns the routes; clients look for metadata with and without a path suffix.
pub(super) fn routes() -> Router<Arc<Endpoint>> {
    Router::new()
        .route("/.well-known/oauth-protected-resource", any(resource))
        .route(
            "/.well-known/oauth-protected-resource/{*path}",
            any(resource),
        )
        .route("/.well-known/oauth-authorization-server", any(metadata))
        .route(
            "/.well-known/oauth-authorization-server/{*path}",
            any(metadata),
        )
        .route("/.well-known/openid-configuration", any(metadata))
        .route("/.well-known/openid-configuration/{*path}", any(metadata))
        .route("/mcp/.well-known/openid-configuration", any(metadata))
        .route("/register", any(register))
        .route("/authorize", any(authorize))
        .route("/token", any(token))
}

/// Returns the metadata of the authorization servers that issue tokens for this gateway, if any.
async fn resource(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response {
    let Some(metadata) = endpoint.gate.resource.as_ref().as_ref() else {
        return refused(&endpoint, request, (StatusCode::NOT_FOUND, "not_found")).await;
    };
    let body = metadata.metadata().to_string();
    let answer = |_request| async move { Ok(json_response(StatusCode::OK, body)) };
    endpoint.guarded(request, &OnceLock::new(), answer).await
}

fn json_response(status: StatusCode, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Answers that there is no authorization server.
async fn metadata(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response {
    refused(&endpoint, request, (StatusCode::NOT_FOUND, "not_found")).await
}

/// Refuses client registration.
async fn register(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response {
    // Not an error after which clients discard their state and retry.
    refused(
        &endpoint,
        request,
        (StatusCode::BAD_REQUEST, "access_denied"),
    )
    .await
}

/// Answers a user who was sent here by mistake.
async fn authorize(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response {
    let is_page = request.method() == Method::GET;
    let mut response = refused(&endpoint, request, (StatusCode::NOT_FOUND, "access_denied")).await;
    if is_page && response.status() == StatusCode::NOT_FOUND {
        *response.body_mut() = Body::from(format!("{SEND_A_KEY}\n"));
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, text);
    }
    response
}

/// Refuses a token request.
async fn token(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response {
    refused(
        &endpoint,
        request,
        (StatusCode::BAD_REQUEST, "invalid_request"),
    )
    .await
}

/// Refuses in the format of RFC 6749 and 7591.
async fn refused(
    endpoint: &Endpoint,
    request: Request,
    (status, error): (StatusCode, &'static str),
) -> Response {
    let refuse = |_request| async move {
        let body = json!({"error": error, "error_description": SEND_A_KEY});
        Ok(json_response(status, body.to_string()))
    };
    endpoint.guarded(request, &OnceLock::new(), refuse).await
}
