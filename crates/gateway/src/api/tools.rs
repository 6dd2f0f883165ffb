//! Tools: `/api/v1/tools`, as the caller may see them.

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::get;
use gantry_engine::Scope;
use http::StatusCode;
use serde::Deserialize;

use super::body::json;
use super::views::{Page, ToolView};
use super::{Api, Who};
use crate::http::error::Problem;

/// Returns the routes, for any key.
pub(super) fn routes() -> Router<Api> {
    Router::new().route("/api/v1/tools", get(list))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    server: Option<String>,
}

async fn list(
    State(api): State<Api>,
    Who(caller): Who,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(asked) = asked.map_err(|error| {
        Problem::new(StatusCode::BAD_REQUEST, "request.query").with_detail(error.body_text())
    })?;
    let tools = api.engine().tools(&caller, &Scope::All);
    let wanted = |server: &str| asked.server.as_deref().is_none_or(|asked| asked == server);
    let items: Vec<_> = tools
        .into_iter()
        .filter(|tool| wanted(tool.server.as_str()))
        .map(ToolView::of)
        .collect();
    Ok(json(StatusCode::OK, &Page { items }))
}
