//! Images whose tag points to another image now: `POST /api/v1/images/check` queries the
//! registries. Nothing is pulled. fault C6. Entry point: [`routes`].

use axum::Router;
use axum::response::Response;
use axum::routing::post;
use gantry_engine::TagCheck;
use http::StatusCode;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use crate::api::body::json;
use crate::api::query::Page;
use crate::api::{Api, In};
use crate::http::error::Problem;

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new().route("/api/v1/images/check", post(check))
}

/// What the registry says of the tag of one server's image.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct TagView {
    server: String,
    /// The image, as registered.
    image: String,
    /// The digest that the server runs.
    digest: String,
    /// What the tag is now.
    tag_digest: Option<String>,
    /// Whether that is another image.
    changed: bool,
    /// Why it is not known.
    error: Option<String>,
}

impl TagView {
    fn of(check: TagCheck) -> Self {
        let changed = check.is_changed();
        let (tag_digest, error) = match check.tag {
            Ok(digest) => (Some(digest), None),
            Err(why) => (None, Some(why)),
        };
        Self {
            server: check.server.to_string(),
            image: check.image,
            digest: check.digest,
            tag_digest,
            changed,
            error,
        }
    }
}

/// Asks the registries whether the images of the project's servers changed under their tags. Nothing is
/// pulled or restarted; images named by their digest, and imported ones, are not asked for.
#[utoipa::path(post, path = "/api/v1/images/check", tag = "images", responses(
    (status = 200, description = "What the registries say, by server.", body = Page<TagView>),
))]
pub(in crate::api) async fn check(In(project): In) -> Result<Response, Problem> {
    let stop = CancellationToken::new();
    let _ends_with_its_caller = stop.clone().drop_guard();
    let checks = project.check_tags(&stop).await;
    let items: Vec<_> = checks.into_iter().map(TagView::of).collect();
    let next_cursor = None;
    Ok(json(StatusCode::OK, &Page { items, next_cursor }))
}
