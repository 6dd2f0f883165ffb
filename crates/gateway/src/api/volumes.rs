//! Volumes: `/api/v1/volumes`, for administrators of their project. A volume is named by its server and
//! its path inside. Entry point: [`routes`].

mod backup;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use gantry_model::id::ServerName;
use http::StatusCode;
use serde::Deserialize;
use std::path::PathBuf;
use utoipa::IntoParams;

use super::body::json;
use super::query::{Asked, Page, bad};
use super::views::{PrunedView, VolumeView};
use super::{Api, By, In};
use crate::http::error::Problem;

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/volumes", get(list).delete(remove))
        .route("/api/v1/volumes/backup", get(back_up))
        .route("/api/v1/volumes/prune", post(prune))
}

/// Which volume is meant.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Volume {
    /// The server that it belongs to, by name.
    server: String,
    /// Its path inside the server, such as `/data`.
    #[param(value_type = String)]
    path: PathBuf,
}

impl Volume {
    fn server(&self) -> Result<ServerName, Problem> {
        let name = self.server.parse();
        name.map_err(|_| bad("server", &self.server))
    }
}

// row 1.19
/// Lists the volumes, those of servers that are gone included, with what they take.
#[utoipa::path(get, path = "/api/v1/volumes", tag = "volumes", responses(
    (status = 200, description = "The volumes.", body = Page<VolumeView>),
))]
pub(super) async fn list(In(project): In) -> Result<Response, Problem> {
    let volumes = project.volumes().await?;
    let items = volumes.iter().map(|volume| {
        let has_server = project.server(volume.server.as_str()).is_some();
        VolumeView::of(volume, has_server)
    });
    let items: Vec<_> = items.collect();
    let next_cursor = None;
    Ok(json(StatusCode::OK, &Page { items, next_cursor }))
}

/// Returns the files of a volume as a tar archive. What a running server writes meanwhile may be there in
/// either state.
#[utoipa::path(get, path = "/api/v1/volumes/backup", tag = "volumes", params(Volume), responses(
    (status = 200, description = "The archive.", body = String, content_type = "application/x-tar"),
    (status = 404, description = "`volume.unknown`: no such volume."),
))]
pub(super) async fn back_up(
    In(project): In,
    By(actor): By,
    Asked(asked): Asked<Volume>,
) -> Result<Response, Problem> {
    backup::answer(project, actor, asked.server()?, asked.path).await
}

/// Removes a volume that no instance uses, with everything in it.
#[utoipa::path(delete, path = "/api/v1/volumes", tag = "volumes", params(Volume), responses(
    (status = 204, description = "It was removed."),
    (status = 404, description = "`volume.unknown`: no such volume."),
    (status = 409, description = "`volume.in_use`: its server runs."),
))]
pub(super) async fn remove(
    In(project): In,
    By(actor): By,
    Asked(asked): Asked<Volume>,
) -> Result<Response, Problem> {
    let server = asked.server()?;
    project.remove_volume(actor, server, &asked.path).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Removes the volumes of servers that are not registered any more.
#[utoipa::path(post, path = "/api/v1/volumes/prune", tag = "volumes", responses(
    (status = 200, description = "What was freed.", body = PrunedView),
))]
pub(super) async fn prune(In(project): In, By(actor): By) -> Result<Response, Problem> {
    let pruned = project.prune_volumes(actor).await?;
    Ok(json(StatusCode::OK, &PrunedView::of_volumes(pruned)))
}
