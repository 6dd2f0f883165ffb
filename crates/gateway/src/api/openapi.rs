//! The description of the REST API, OpenAPI 3.1, as it stands in `docs/openapi.json`.
//!
//! The committed document is what is served; `description` joins it anew from what stands beside each
//! handler, in tests alone, which compare the two and the routes with both: a gateway carries the text,
//! not the means to write it. Public, since it tells nothing about this gateway. Entry points:
//! [`routes`], [`text`].

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

/// Shows this description as a page for people, without anything from elsewhere.
#[utoipa::path(get, path = "/api/v1/docs", tag = "about", responses(
    (status = 200, description = "The page.", body = String, content_type = "text/html"),
))]
async fn docs() -> Response {
    reference::page()
}

#[cfg(test)]
mod tests;
