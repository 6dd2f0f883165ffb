//! The settings of a project, `/api/v1/settings`, for administrators. Each is defined once, in the
//! model; this file only shows and changes values.

use std::collections::BTreeMap;

use axum::Router;
use axum::response::Response;
use axum::routing::get;
use gantry_model::settings::{ProjectSettings, SETTINGS};
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::body::{JsonBody, json};
use super::query::Page;
use super::{Api, By, In};
use crate::http::error::Problem;

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new().route("/api/v1/settings", get(list).patch(change))
}

/// A setting of the project.
#[derive(Serialize, ToSchema)]
pub(super) struct SettingView {
    /// Its name.
    #[schema(example = "registration.commands")]
    name: &'static str,
    /// Its value.
    value: Value,
    /// The value that holds if none is set.
    default: Value,
    /// What may be written.
    values: &'static str,
    /// What it means.
    doc: &'static str,
}

fn shown(settings: &ProjectSettings) -> Response {
    let settings = settings.shown();
    let items = SETTINGS.iter().map(|setting| SettingView {
        name: setting.name,
        value: settings.get(setting),
        default: setting.default(),
        values: setting.values,
        doc: setting.doc,
    });
    let items = items.collect::<Vec<_>>();
    let next_cursor = None;
    json(StatusCode::OK, &Page { items, next_cursor })
}

/// Lists the settings of the project with their values and defaults.
#[utoipa::path(get, path = "/api/v1/settings", tag = "settings", responses(
    (status = 200, description = "The settings.", body = Page<SettingView>),
))]
pub(super) async fn list(In(project): In) -> Response {
    shown(&project.settings())
}

/// Changes settings, all that the body names or none; `null` brings a default back.
#[utoipa::path(patch, path = "/api/v1/settings", tag = "settings",
    request_body(content = Object, description = "Values by the names of settings.",
        example = json!({"registration.commands": ["npx", "uvx"]})), responses(
    (status = 200, description = "All settings, as they are now.", body = Page<SettingView>),
    (status = 422, description = "`setting.unknown`: there is no such setting; `setting.value`: it does \
        not take that value."),
))]
pub(super) async fn change(
    In(project): In,
    By(actor): By,
    body: JsonBody,
) -> Result<Response, Problem> {
    let changes: BTreeMap<String, Value> = body.read()?;
    let settings = project.change_settings(&actor, changes).await?;
    Ok(shown(&settings))
}
