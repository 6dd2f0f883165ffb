//! Tools: `/api/v1/tools`, as the caller may see them, in the shape its model wants; and
//! `/api/v1/tools/call`, which takes a call in any of these shapes.
//!
//! Names and grants are the engine's business. `call` has the calls.

mod call;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::{get, post};
use gantry_engine::Scope;
use gantry_model::shape::Shape;
use http::StatusCode;
use serde::Deserialize;

use super::body::{document, json};
use super::views::{Page, ToolView};
use super::{Api, Who};
use crate::http::error::Problem;

/// Returns the routes, for any key.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/tools", get(list))
        .route("/api/v1/tools/call", post(call::call))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    server: Option<String>,
    shape: Option<String>,
}

fn understood<T>(asked: Result<Query<T>, QueryRejection>) -> Result<T, Problem> {
    let asked = asked.map_err(|error| {
        Problem::new(StatusCode::BAD_REQUEST, "request.query").with_detail(error.body_text())
    });
    asked.map(|Query(asked)| asked)
}

fn shape_of(asked: Option<&str>) -> Result<Option<Shape>, Problem> {
    Ok(asked.map(str::parse).transpose()?)
}

// row 4.3
async fn list(
    State(api): State<Api>,
    Who(caller): Who,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Problem> {
    let asked = understood(asked)?;
    let server = asked.server.as_deref();
    if let Some(shape) = shape_of(asked.shape.as_deref())? {
        let tools = match server {
            Some(server) => api.engine().tools_of(&caller, server, shape).await,
            None => api.engine().tools_in(&caller, &Scope::All, shape).await,
        };
        let text = format!("{{\"shape\":\"{shape}\",\"tools\":{}}}", tools.text());
        return Ok(document(StatusCode::OK, text));
    }
    let tools = api.engine().tools(&caller, &Scope::All);
    let wanted = |own: &str| server.is_none_or(|asked| asked == own);
    let items: Vec<_> = tools
        .into_iter()
        .filter(|tool| wanted(tool.server.as_str()))
        .map(ToolView::of)
        .collect();
    Ok(json(StatusCode::OK, &Page { items }))
}
