//! Tools: `/api/v1/tools`, as the caller may see them, in the shape its model wants; and
//! `/api/v1/tools/call`, which takes a call in any of these shapes.
//!
//! Names and grants are the engine's business. `call` has the calls.

mod call;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use gantry_engine::Scope;
use gantry_model::shape::Shape;
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::body::{document, json};
use super::query::{Asked, Page, Paging};
use super::views::ToolView;
use super::{Api, Who};
use crate::http::error::Problem;

pub(super) use self::call::__path_call;

/// Returns the routes, for any key.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/tools", get(list))
        .route("/api/v1/tools/call", post(call::call))
}

/// Which tools are asked for.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ToolsAsked {
    /// Only tools of this server.
    server: Option<String>,
    /// `mcp`, `anthropic`, `openai`, `openai-responses` or `gemini`: the answer is then
    /// `{"shape", "tools"}` as that API takes it, whole and not in pages.
    shape: Option<String>,
    /// How many items at most.
    #[param(minimum = 1, maximum = 1000, default = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

fn shape_of(asked: Option<&str>) -> Result<Option<Shape>, Problem> {
    Ok(asked.map(str::parse).transpose()?)
}

/// Lists the tools that the key's agent may use now, under the names that it must call them by; all
/// of them for an administrator. row 4.3
#[utoipa::path(get, path = "/api/v1/tools", tag = "tools", params(ToolsAsked), responses(
    (status = 200, description = "The tools.", body = Page<ToolView>),
))]
pub(super) async fn list(
    State(api): State<Api>,
    Who(caller): Who,
    Asked(asked): Asked<ToolsAsked>,
) -> Result<Response, Problem> {
    let server = asked.server.as_deref();
    if let Some(shape) = shape_of(asked.shape.as_deref())? {
        let tools = match server {
            Some(server) => api.engine().tools_of(&caller, server, shape).await,
            None => api.engine().tools_in(&caller, &Scope::All, shape).await,
        };
        let text = format!("{{\"shape\":\"{shape}\",\"tools\":{}}}", tools.text());
        return Ok(document(StatusCode::OK, text));
    }
    let mut tools = api.engine().tools(&caller, &Scope::All);
    if let Some(server) = server {
        tools.retain(|tool| tool.server.as_str() == server);
    }
    let paging = Paging {
        limit: asked.limit,
        cursor: asked.cursor,
    };
    let page = Page::of(tools, &paging, |tool| tool.identity())?;
    let items = page.items.into_iter().map(ToolView::of).collect();
    let next_cursor = page.next_cursor;
    Ok(json(StatusCode::OK, &Page { items, next_cursor }))
}
