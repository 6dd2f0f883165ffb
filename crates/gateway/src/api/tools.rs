//! Tools: `/api/v1/tools`, as the caller may see them.

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use gantry_engine::Scope;
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::body::json;
use super::query::{Asked, Page, Paging};
use super::views::ToolView;
use super::{Api, Who};
use crate::http::error::Problem;

/// Returns the routes, for any key.
pub(super) fn routes() -> Router<Api> {
    Router::new().route("/api/v1/tools", get(list))
}

/// Which tools are asked for.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ToolsAsked {
    /// Only tools of this server.
    server: Option<String>,
    /// How many items at most.
    #[param(minimum = 1, maximum = 1000, default = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Lists the tools that the key's agent may use now, under the names that it must call them by; all
/// of them for an administrator.
#[utoipa::path(get, path = "/api/v1/tools", tag = "tools", params(ToolsAsked), responses(
    (status = 200, description = "The tools.", body = Page<ToolView>),
))]
pub(super) async fn list(
    State(api): State<Api>,
    Who(caller): Who,
    Asked(asked): Asked<ToolsAsked>,
) -> Result<Response, Problem> {
    let mut tools = api.engine().tools(&caller, &Scope::All);
    if let Some(server) = &asked.server {
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
