//! What servers wrote and what happened to them: logs and events, for administrators.

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::body::json;
use super::query::{Asked, Page, bad, limit};
use super::servers::unknown;
use super::views::{EventView, LogLineView};
use super::{Api, Named};
use crate::http::error::{Problem, ProblemDocument};

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/mcp/servers/{server}/logs", get(logs))
        .route("/api/v1/mcp/servers/{server}/events", get(events))
        .route("/api/v1/events", get(all_events))
}

/// How much of a log is asked for.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LogsAsked {
    /// How many of the last lines; at most 10,000 are kept.
    #[param(minimum = 0, default = 200, format = "uint32")]
    lines: Option<u32>,
}

/// Which events are asked for.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsAsked {
    /// How many items at most.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// `next_cursor` of the page before, which is the newer one.
    cursor: Option<String>,
}

/// Returns the last lines that a server wrote beside the protocol, oldest first, its secrets
/// redacted.
#[utoipa::path(get, path = "/api/v1/mcp/servers/{server}/logs", tag = "servers",
    params(("server" = String, Path, description = "Its name or id."), LogsAsked), responses(
    (status = 200, description = "The lines.", body = Page<LogLineView>),
    (status = 404, description = "`server.unknown`: there is none.", body = ProblemDocument<'static>,
        content_type = "application/problem+json"),
))]
pub(super) async fn logs(
    State(api): State<Api>,
    Named(server): Named,
    Asked(asked): Asked<LogsAsked>,
) -> Result<Response, Problem> {
    let lines = asked.lines.unwrap_or(200).min(10_000) as usize;
    let lines = api
        .engine()
        .logs(&server, lines)
        .ok_or_else(|| unknown(&server))?;
    let items: Vec<_> = lines.iter().map(LogLineView::of).collect();
    let next_cursor = None;
    Ok(json(StatusCode::OK, &Page { items, next_cursor }))
}

/// Returns what happened to a server last: oldest first within a page, newer pages first.
#[utoipa::path(get, path = "/api/v1/mcp/servers/{server}/events", tag = "servers",
    params(("server" = String, Path, description = "Its name or id."), EventsAsked), responses(
    (status = 200, description = "The events.", body = Page<EventView>),
    (status = 404, description = "`server.unknown`: there is none.", body = ProblemDocument<'static>,
        content_type = "application/problem+json"),
))]
pub(super) async fn events(
    State(api): State<Api>,
    Named(server): Named,
    Asked(asked): Asked<EventsAsked>,
) -> Result<Response, Problem> {
    show_events(&api, Some(&server), &asked).await
}

/// Returns what happened to all servers last: oldest first within a page, newer pages first.
#[utoipa::path(get, path = "/api/v1/events", tag = "servers", params(EventsAsked), responses(
    (status = 200, description = "The events.", body = Page<EventView>),
))]
pub(super) async fn all_events(
    State(api): State<Api>,
    Asked(asked): Asked<EventsAsked>,
) -> Result<Response, Problem> {
    show_events(&api, None, &asked).await
}

async fn show_events(
    api: &Api,
    server: Option<&str>,
    asked: &EventsAsked,
) -> Result<Response, Problem> {
    let limit = limit(asked.limit, 100)?;
    let before = asked.cursor.as_deref();
    let before = before.map(|text| text.parse().map_err(|_| bad("cursor", text)));
    let events = api
        .engine()
        .events(server, before.transpose()?, limit)
        .await?;
    let is_full = events.len() >= limit as usize;
    let oldest = events.first().filter(|_| is_full);
    let next_cursor = oldest.map(|(number, _)| number.to_string());
    let items: Vec<_> = events
        .iter()
        .map(|(_, event)| EventView::of(event))
        .collect();
    Ok(json(StatusCode::OK, &Page { items, next_cursor }))
}
