//! Health and metrics: `/healthz` for anyone, `/api/v1/health` and `/metrics` for administrators, who
//! acknowledge damage of the journal at `/api/v1/health/acknowledge`.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use gantry_engine::HealthStatus;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};

use super::body::json;
use super::views::{AcknowledgedView, HealthView};
use super::{Api, By, In};
use crate::http::error::Problem;

/// How long the database may take to report its size.
const MEASURE: Duration = Duration::from_millis(500);

/// Returns the public route, without details.
pub(super) fn public_routes() -> Router<Api> {
    Router::new().route("/healthz", get(alive))
}

/// Returns the routes for administrators.
pub(super) fn admin_routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/health", get(health))
        .route("/api/v1/health/acknowledge", post(acknowledge))
        .route("/metrics", get(metrics))
}

/// Reports whether calls are accepted. Needs no key and gives no details.
#[utoipa::path(get, path = "/healthz", tag = "health", responses(
    (status = 200, description = "`ok`, or `degraded`: calls are accepted, but an administrator should \
        look at `/api/v1/health`.", body = String, content_type = "text/plain"),
    (status = 503, description = "`stopping` or `failing`", body = String, content_type = "text/plain"),
))]
pub(super) async fn alive(State(api): State<Api>) -> Response {
    // Anyone may ask, so the response must be cheap.
    let (status, text) = match api.engine().health_status() {
        HealthStatus::Ok => (StatusCode::OK, "ok\n"),
        HealthStatus::Degraded => (StatusCode::OK, "degraded\n"),
        HealthStatus::Failing => (StatusCode::SERVICE_UNAVAILABLE, "failing\n"),
        HealthStatus::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n"),
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

/// Shows the gateway's health: servers by state, the audit, warnings, and what its host can enforce.
#[utoipa::path(get, path = "/api/v1/health", tag = "health", responses(
    (status = 200, description = "The health.", body = HealthView),
))]
pub(super) async fn health(State(api): State<Api>, In(project): In) -> Response {
    let engine = api.engine();
    // The rest of the health check does not need the database.
    let usage = match api.gateway_only(&project) {
        Ok(()) => tokio::time::timeout(MEASURE, engine.call_usage())
            .await
            .ok(),
        // Other projects' records are not shown.
        Err(_) => None,
    };
    let usage = usage.and_then(Result::ok);
    let view = HealthView::of(&project.health(), usage, &engine.host(), api.version);
    json(StatusCode::OK, &view)
}

/// Acknowledges all damage of the journal listed in `audit.damage`, so that the health is no longer
/// degraded. The kept files stay.
#[utoipa::path(post, path = "/api/v1/health/acknowledge", tag = "health", responses(
    (status = 200, description = "How many were acknowledged.", body = AcknowledgedView),
))]
pub(super) async fn acknowledge(
    State(api): State<Api>,
    By(actor): By,
) -> Result<Response, Problem> {
    let acknowledged = api.engine().acknowledge_damage(&actor).await?;
    Ok(json(StatusCode::OK, &AcknowledgedView { acknowledged }))
}

/// Returns metrics in the OpenMetrics text format.
#[utoipa::path(get, path = "/metrics", tag = "health", responses(
    (status = 200, description = "The metrics.", body = String, content_type = "application/openmetrics-text"),
))]
pub(super) async fn metrics(In(project): In) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    (
        [(CONTENT_TYPE, HeaderValue::from_static(kind))],
        project.metrics(),
    )
        .into_response()
}
