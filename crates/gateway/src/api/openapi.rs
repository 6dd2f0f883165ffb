//! The OpenAPI 3.1 document of the REST API, `docs/openapi.json`.
//!
//! The committed document is served. `description` generates it from the handlers, in tests only,
//! which compare document, generated text and routes. Public: it says nothing about this gateway.
//! Entry points: [`routes`], [`text`].

use axum::Router;
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;

use super::body::document;
use super::{Api, html, reference};

#[cfg(test)]
mod description;

/// Returns the routes, which need no key.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/openapi.json", get(openapi))
        .route("/api/v1/docs", get(docs))
        .route("/api/v1/docs/style.css", get(html::style))
}

/// Returns the document.
pub(super) fn text() -> &'static str {
    include_str!("../../../../docs/openapi.json")
}

/// Returns this description.
#[utoipa::path(get, path = "/api/v1/openapi.json", tag = "about", responses(
    (status = 200, description = "OpenAPI 3.1.", body = Object),
))]
async fn openapi() -> Response {
    document(StatusCode::OK, text())
}

/// Shows the API reference as an HTML page, without external resources.
#[utoipa::path(get, path = "/api/v1/docs", tag = "about", responses(
    (status = 200, description = "The page.", body = String, content_type = "text/html"),
))]
async fn docs() -> Response {
    reference::page()
}

#[cfg(test)]
mod tests;
