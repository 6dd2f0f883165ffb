//! Health and figures: `/healthz` for anyone, `/api/v1/health` and `/metrics` for administrators.

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};

use super::Api;
use super::body::json;
use super::views::HealthView;

/// Returns the route that needs no key and tells no detail.
pub(super) fn public_routes() -> Router<Api> {
    Router::new().route("/healthz", get(alive))
}

/// Returns the routes for administrators.
pub(super) fn admin_routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/health", get(health))
        .route("/metrics", get(metrics))
}

/// Tells whether calls are taken. Needs no key and tells no detail.
#[utoipa::path(get, path = "/healthz", tag = "health", responses(
    (status = 200, description = "`ok`", body = String, content_type = "text/plain"),
    (status = 503, description = "`stopping` or `failing`", body = String, content_type = "text/plain"),
))]
pub(super) async fn alive(State(api): State<Api>) -> Response {
    // Anyone may ask, so that the answer must cost nothing.
    let (draining, writable) = (api.engine().is_draining(), api.engine().is_writable());
    let (status, text) = match (draining, writable) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n"),
        (false, true) => (StatusCode::OK, "ok\n"),
        (false, false) => (StatusCode::SERVICE_UNAVAILABLE, "failing\n"),
    };
    (
        status,
        [(
            CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        )],
        text,
    )
        .into_response()
}

/// Shows how the gateway is: servers by state, the audit, warnings, and what its host can enforce.
#[utoipa::path(get, path = "/api/v1/health", tag = "health", responses(
    (status = 200, description = "How the gateway is.", body = HealthView),
))]
pub(super) async fn health(State(api): State<Api>) -> Response {
    let view = HealthView::of(&api.engine().health(), api.engine().host(), api.version);
    json(StatusCode::OK, &view)
}

/// Returns figures in the text format of OpenMetrics.
#[utoipa::path(get, path = "/metrics", tag = "health", responses(
    (status = 200, description = "The figures.", body = String, content_type = "application/openmetrics-text"),
))]
pub(super) async fn metrics(State(api): State<Api>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    (
        [(CONTENT_TYPE, HeaderValue::from_static(kind))],
        api.engine().metrics(),
    )
        .into_response()
}
