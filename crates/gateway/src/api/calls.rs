//! The audit: `/api/v1/calls`. An administrator sees every call, an agent its own.

use axum::Router;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::get;
use gantry_engine::CallFilter;
use gantry_model::caller::{Caller, KeyKind};
use gantry_model::id::CallId;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::Deserialize;

use super::body::{document, json};
use super::jobs::{JobId, Outcome};
use super::views::{CallPage, CallView};
use super::{Api, Named, Who};
use crate::http::error::Problem;

const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Calls on one page at most.
const PAGE: u32 = 1000;

/// Returns the routes, for any key.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/calls", get(list))
        .route("/api/v1/calls/{call}", get(one))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    agent: Option<String>,
    server: Option<String>,
    tool: Option<String>,
    status: Option<String>,
    run: Option<String>,
    session: Option<String>,
    trace: Option<String>,
    since_ms: Option<u64>,
    until_ms: Option<u64>,
    before: Option<String>,
    limit: Option<u32>,
    #[serde(default)]
    count: bool,
}

impl Asked {
    fn filter(self, caller: &Caller) -> Result<CallFilter, Problem> {
        let status = self
            .status
            .map(|text| text.parse().map_err(|_| bad("status", &text)));
        let before = self
            .before
            .map(|text| text.parse().map_err(|_| bad("before", &text)));
        let agent = match caller.kind {
            KeyKind::Admin => self.agent,
            KeyKind::Agent => Some(caller.agent.to_string()),
        };
        Ok(CallFilter {
            project: Some(caller.project.to_string()),
            agent,
            server: self.server,
            tool: self.tool,
            status: status.transpose()?,
            run: self.run,
            session: self.session,
            trace: self.trace,
            since_ms: self.since_ms,
            until_ms: self.until_ms,
            before: before.transpose()?,
            limit: self.limit.unwrap_or(100).clamp(1, PAGE),
        })
    }
}

fn bad(field: &str, text: &str) -> Problem {
    let text: String = text.chars().take(48).flat_map(char::escape_debug).collect();
    Problem::new(StatusCode::BAD_REQUEST, "request.query")
        .with_detail(format!("`{text}` cannot be used as `{field}`"))
}

async fn list(
    State(api): State<Api>,
    Who(caller): Who,
    asked: Result<Query<Asked>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Problem> {
    let Query(asked) = asked.map_err(|error| {
        Problem::new(StatusCode::BAD_REQUEST, "request.query").with_detail(error.body_text())
    })?;
    let wants_count = asked.count;
    let filter = asked.filter(&caller)?;
    let rows = api.engine().calls(&filter).await?;
    let is_full = rows.len() >= filter.limit as usize;
    let next = rows
        .last()
        .filter(|_| is_full)
        .map(|row| row.id.to_string());
    let total = match wants_count {
        true => Some(api.engine().count_calls(&filter).await?),
        false => None,
    };
    let items = rows.into_iter().map(CallView::of).collect();
    Ok(json(StatusCode::OK, &CallPage { items, next, total }))
}

async fn one(
    State(api): State<Api>,
    Who(caller): Who,
    Named(call): Named,
) -> Result<Response, Problem> {
    let unknown =
        || Problem::new(StatusCode::NOT_FOUND, "call.unknown").with_detail("no such call");
    if let Ok(job) = call.parse::<JobId>() {
        return match api.jobs.get(&caller, job).ok_or_else(unknown)? {
            Outcome::Running => Ok(json(
                StatusCode::ACCEPTED,
                &serde_json::json!({ "id": call, "status": "running" }),
            )),
            Outcome::Done(status, body) => {
                let mut response = document(status, body);
                if status.is_client_error() || status.is_server_error() {
                    response.headers_mut().insert(CONTENT_TYPE, PROBLEM);
                }
                Ok(response)
            }
        };
    }
    let id: CallId = call.parse().map_err(|_| unknown())?;
    let row = api.engine().call(id).await?.ok_or_else(unknown)?;
    let is_own = row.project == caller.project.as_str() && row.agent == caller.agent.as_str();
    match caller.kind {
        KeyKind::Agent if !is_own => Err(unknown()), // fault T1
        KeyKind::Admin | KeyKind::Agent => Ok(json(StatusCode::OK, &CallView::of(row))),
    }
}
