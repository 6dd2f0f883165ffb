//! Logs and events of servers, for administrators. `Accept: text/event-stream` follows the stored
//! events (`stream`).

pub(super) mod stream;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::routing::get;
use gantry_engine::Project;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::body::json;
use super::query::{Asked, Page, bad, bad_cursor, limit};
use super::servers::{known, unknown};
use super::views::{EventView, LogLineView};
use super::{Api, In, Named, Who};
use crate::http::error::Problem;
use crate::http::session::Session;

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/mcp/servers/{server}/logs", get(logs))
        .route("/api/v1/mcp/servers/{server}/events", get(events))
        .route("/api/v1/events", get(all_events))
}

/// The maximum number of log lines kept.
const LONGEST_LOG: u32 = 10_000;

/// Which lines of a log are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LogsQuery {
    /// The number of lines; at most 10,000 are kept. The old name `lines` still works.
    #[param(minimum = 0, maximum = 10_000, default = 200, format = "uint32")]
    limit: Option<u32>,
    /// The old name of `limit`; values over 10,000 are capped.
    #[param(ignore)]
    lines: Option<u32>,
}

impl LogsQuery {
    fn count(&self) -> Result<usize, Problem> {
        let most = |count: u32| match count <= LONGEST_LOG {
            true => Ok(count),
            false => Err(bad("limit", &count.to_string())
                .with_hint(format!("write a whole number from 0 to {LONGEST_LOG}"))),
        };
        let count = match (self.limit, self.lines) {
            (Some(limit), None) => most(limit)?,
            (None, Some(lines)) => lines.min(LONGEST_LOG),
            (None, None) => 200,
            (Some(_), Some(lines)) => {
                return Err(bad("lines", &lines.to_string())
                    .with_hint("`lines` is the old name of `limit`; give one of them"));
            }
        };
        Ok(count as usize)
    }
}

/// Which events are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// How many items at most.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// `next_cursor` of the previous, newer page.
    cursor: Option<String>,
}

/// Returns the last lines that a server wrote to stderr or outside the protocol, oldest first, with
/// secrets redacted.
#[utoipa::path(get, path = "/api/v1/mcp/servers/{server}/logs", tag = "servers",
    params(("server" = String, Path, description = "Its name or id."), LogsQuery), responses(
    (status = 200, description = "The lines.", body = Page<LogLineView>),
    (status = 404, description = "`server.unknown`: no such server."),
))]
pub(super) async fn logs(
    In(project): In,
    Named(server): Named,
    Asked(asked): Asked<LogsQuery>,
) -> Result<Response, Problem> {
    let lines = project
        .logs(&server, asked.count()?)
        .ok_or_else(|| unknown(&project, &server))?;
    let items: Vec<_> = lines.iter().map(LogLineView::of).collect();
    let next_cursor = None;
    Ok(json(StatusCode::OK, &Page { items, next_cursor }))
}

/// Returns the last events of a server: oldest first within a page, newest page first. With
/// `Accept: text/event-stream` it is a stream that starts with the same page and follows stored
/// events; `Last-Event-ID` resumes it.
#[utoipa::path(get, path = "/api/v1/mcp/servers/{server}/events", tag = "servers",
    params(("server" = String, Path, description = "Its name or id."), EventsQuery), responses(
    (status = 200, description = "The events.", content(
        (Page<EventView> = "application/json"), (EventView = "text/event-stream"))),
    (status = 404, description = "`server.unknown`: no such server."),
))]
pub(super) async fn events(
    State(api): State<Api>,
    In(project): In,
    Who(caller): Who,
    session: Option<Extension<Arc<Session>>>,
    Named(server): Named,
    headers: HeaderMap,
    Asked(asked): Asked<EventsQuery>,
) -> Result<Response, Problem> {
    let known = known(&project, &server)?;
    if !stream::is_wanted(&headers) {
        return show_events(&project, Some(&server), &asked).await;
    }
    let name = known.spec.name.clone();
    let by = (&caller, session.map(|Extension(session)| session));
    stream::open((&api, &project), by, Some(name), &headers, &asked).await
}

/// Returns the last events of all servers: oldest first within a page, newest page first. With
/// `Accept: text/event-stream` it is a stream that starts with the same page and follows stored
/// events; `Last-Event-ID` resumes it.
#[utoipa::path(get, path = "/api/v1/events", tag = "servers", params(EventsQuery), responses(
    (status = 200, description = "The events.", content(
        (Page<EventView> = "application/json"), (EventView = "text/event-stream"))),
))]
pub(super) async fn all_events(
    State(api): State<Api>,
    In(project): In,
    Who(caller): Who,
    session: Option<Extension<Arc<Session>>>,
    headers: HeaderMap,
    Asked(asked): Asked<EventsQuery>,
) -> Result<Response, Problem> {
    let by = (&caller, session.map(|Extension(session)| session));
    match stream::is_wanted(&headers) {
        true => stream::open((&api, &project), by, None, &headers, &asked).await,
        false => show_events(&project, None, &asked).await,
    }
}

async fn show_events(
    project: &Arc<Project>,
    server: Option<&str>,
    asked: &EventsQuery,
) -> Result<Response, Problem> {
    let limit = limit(asked.limit, 100)?;
    let before = asked.cursor.as_deref();
    let before = before.map(|text| text.parse().map_err(|_| bad_cursor(text)));
    let events = project.events(server, before.transpose()?, limit).await?;
    let is_full = events.len() >= limit as usize;
    let oldest = events.first().filter(|_| is_full);
    let next_cursor = oldest.map(|(number, _)| number.to_string());
    let items: Vec<_> = events
        .iter()
        .map(|(_, event)| EventView::of(event))
        .collect();
    Ok(json(StatusCode::OK, &Page { items, next_cursor }))
}
