//! Servers: `/api/v1/mcp/servers` and below, for administrators.
//!
//! A server is named by its id or its name. Registering starts a program on this machine, so no
//! other kind of key ever comes here.

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use serde::Deserialize;

use super::body::{JsonBody, json};
use super::register::Register;
use super::views::{EventView, LogLineView, Page, ServerStatusView, ServerSummary, now_ms};
use super::{Api, Named, Who};
use crate::http::error::Problem;

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/mcp/servers", get(list).post(register))
        .route("/api/v1/mcp/servers/{server}", get(status).delete(remove))
        .route("/api/v1/mcp/servers/{server}/restart", post(restart))
        .route("/api/v1/mcp/servers/{server}/logs", get(logs))
        .route("/api/v1/mcp/servers/{server}/events", get(events))
        .route("/api/v1/events", get(all_events))
}

fn unknown(server: &str) -> Problem {
    let server: String = server
        .chars()
        .take(64)
        .flat_map(char::escape_debug)
        .collect();
    Problem::new(StatusCode::NOT_FOUND, "server.unknown")
        .with_detail(format!("no server `{server}`"))
}

async fn list(State(api): State<Api>) -> Response {
    let now = now_ms();
    let items: Vec<_> = api
        .engine()
        .servers()
        .iter()
        .map(|server| ServerSummary::of(server, now))
        .collect();
    json(StatusCode::OK, &Page { items })
}

// row 1.1
async fn register(
    State(api): State<Api>,
    Who(caller): Who,
    body: JsonBody,
) -> Result<Response, Problem> {
    let spec = body.read::<Register>()?.into_spec();
    let server = api.engine().register(&caller, spec).await?;
    let mut response = json(
        StatusCode::CREATED,
        &ServerStatusView::of(&server, now_ms()),
    );
    let place = format!("/api/v1/mcp/servers/{}", server.id);
    let place = HeaderValue::try_from(place).expect("an id is safe in a header");
    response.headers_mut().insert(LOCATION, place);
    Ok(response)
}

// row 1.13
async fn status(State(api): State<Api>, Named(server): Named) -> Result<Response, Problem> {
    let view = api
        .engine()
        .server(&server)
        .ok_or_else(|| unknown(&server))?;
    Ok(json(StatusCode::OK, &ServerStatusView::of(&view, now_ms())))
}

async fn remove(
    State(api): State<Api>,
    Who(caller): Who,
    Named(server): Named,
) -> Result<Response, Problem> {
    api.engine().remove(&caller, &server).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

// row 1.12
async fn restart(
    State(api): State<Api>,
    Who(caller): Who,
    Named(server): Named,
) -> Result<Response, Problem> {
    let view = api.engine().restart(&caller, &server).await?;
    Ok(json(StatusCode::OK, &ServerStatusView::of(&view, now_ms())))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lines {
    lines: Option<usize>,
}

async fn logs(
    State(api): State<Api>,
    Named(server): Named,
    lines: Result<Query<Lines>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(asked) = lines.map_err(bad_query)?;
    let lines = asked.lines.unwrap_or(200).min(10_000);
    let lines = api
        .engine()
        .logs(&server, lines)
        .ok_or_else(|| unknown(&server))?;
    let items: Vec<_> = lines.iter().map(LogLineView::of).collect();
    Ok(json(StatusCode::OK, &Page { items }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    limit: Option<u32>,
}

async fn events(
    State(api): State<Api>,
    Named(server): Named,
    limit: Result<Query<Limit>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(asked) = limit.map_err(bad_query)?;
    show_events(&api, Some(&server), asked.limit).await
}

async fn all_events(
    State(api): State<Api>,
    limit: Result<Query<Limit>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(asked) = limit.map_err(bad_query)?;
    show_events(&api, None, asked.limit).await
}

async fn show_events(
    api: &Api,
    server: Option<&str>,
    limit: Option<u32>,
) -> Result<Response, Problem> {
    let limit = limit.unwrap_or(100).clamp(1, 1000);
    let events = api.engine().events(server, limit).await?;
    let items: Vec<_> = events.iter().map(EventView::of).collect();
    Ok(json(StatusCode::OK, &Page { items }))
}

fn bad_query(error: QueryRejection) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "request.query").with_detail(error.body_text())
}
