//! The images of a project: `/api/v1/images`, for administrators of the gateway, whose disk they use.
//!
//! A pull or an import reports its progress (`progress`) if the client accepts `text/event-stream`;
//! it is cancelled when the client disconnects. Entry point: [`routes`].

pub(super) mod logins;
pub(super) mod stream;
pub(super) mod tags;

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use gantry_engine::images::{Credentials, ImageRecord, ImageReference};
use gantry_engine::{Actor, EngineError, Project, ServerView};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use utoipa::{IntoParams, ToSchema};

use super::body::{JsonBody, json};
use super::history::stream::is_wanted;
use super::query::{Asked, Page};
use super::views::{ImageView, PrunedImagesView, PrunedView};
use super::{Api, By, In};
use crate::http::error::Problem;

use self::stream::Progress;

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/api/v1/images", get(list).post(pull).delete(remove))
        .route("/api/v1/images/prune", post(prune))
        .merge(logins::routes())
        .merge(tags::routes())
}

/// What an administrator sends to pull an image, or to import some: `image` or `archive`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// The image to pull: `registry/repository[:tag][@sha256:…]`.
    image: Option<String>,
    /// Who pulls; without it as whom the project logged in to the registry, or the gateway's own person, as
    /// their client's file has it.
    username: Option<String>,
    /// The password or token; used for this pull and not kept.
    password: Option<String>,
    /// An archive of `docker save` or of an OCI layout, or its folder, on the gateway's machine.
    #[schema(value_type = Option<String>)]
    archive: Option<PathBuf>,
}

/// Which image is removed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Removed {
    /// Its reference.
    image: String,
}

/// The images that were pulled or imported.
#[derive(Serialize, ToSchema)]
pub(super) struct Pulled {
    /// The images.
    items: Vec<ImageView>,
}

/// Lists the images that the project has pulled or imported, and which servers are registered with them.
#[utoipa::path(get, path = "/api/v1/images", tag = "images", responses(
    (status = 200, description = "The images.", body = Page<ImageView>),
))]
pub(super) async fn list(In(project): In) -> Result<Response, Problem> {
    let records = project.images().await?;
    let items = shown(&project, &records);
    let next_cursor = None;
    Ok(json(StatusCode::OK, &Page { items, next_cursor }))
}

/// Pulls an image from its registry, or imports the images of an archive. With `Accept:
/// text/event-stream` events named `progress` tell how far it is, and the last is `done` or `failed`.
#[utoipa::path(post, path = "/api/v1/images", tag = "images", request_body = Wanted, responses(
    (status = 200, description = "The images are in the store.", content(
        (Pulled = "application/json"), (Progress = "text/event-stream"))),
    (status = 422, description = "`image.reference`: not a valid image reference."),
    (status = 502, description = "`image.…`: the registry did not give it, or it is not an image that can be \
        used."),
))]
pub(super) async fn pull(
    In(project): In,
    By(actor): By,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, Problem> {
    let wanted: Wanted = body.read()?;
    let work = Work::of(wanted)?;
    let stop = CancellationToken::new();
    let (tell, told) = stream::channel();
    let working = run(Arc::clone(&project), actor, work, tell, stop.clone());
    if is_wanted(&headers) {
        let done = async { working.await.map(|items| Pulled { items }) };
        return Ok(stream::answer(done, told, stop));
    }
    let _ends_with_its_caller = stop.drop_guard();
    let items = working.await?;
    Ok(json(StatusCode::OK, &Pulled { items }))
}

/// The requested work.
enum Work {
    Pull(ImageReference, Option<Credentials>),
    Import(PathBuf),
}

impl Work {
    fn of(wanted: Wanted) -> Result<Self, Problem> {
        let wrong = |detail: &str| Problem::new("request.body").with_detail(detail);
        match (wanted.image, wanted.archive) {
            (Some(image), None) => {
                let image = image.parse().map_err(EngineError::from)?;
                let credentials = match (wanted.username, wanted.password) {
                    (Some(user), Some(password)) => Some(Credentials::Basic { user, password }),
                    (None, None) => None,
                    _ => return Err(wrong("`username` and `password` belong together")),
                };
                Ok(Self::Pull(image, credentials))
            }
            (None, Some(archive)) if archive.is_absolute() => Ok(Self::Import(archive)),
            (None, Some(_)) => Err(wrong("`archive` must be an absolute path")),
            _ => Err(wrong("give either `image` or `archive`")),
        }
    }
}

async fn run(
    project: Arc<Project>,
    actor: Actor,
    work: Work,
    tell: stream::Tell,
    stop: CancellationToken,
) -> Result<Vec<ImageView>, EngineError> {
    let records = match work {
        Work::Pull(image, credentials) => {
            let pulling = parking_lot::Mutex::new(stream::Pulling::default());
            let progress = move |step| tell.progress(pulling.lock().take(step));
            let pulled = project.pull_image(actor, image, credentials, progress, stop);
            vec![pulled.await?]
        }
        Work::Import(archive) => {
            let progress = move |step| tell.progress(stream::imported(step));
            let imported = project.import_images(actor, archive, progress, stop);
            imported.await?
        }
    };
    Ok(shown(&project, &records))
}

/// Removes the name of an image of the project, and the layers that nothing else uses. Servers that run
/// keep theirs.
#[utoipa::path(delete, path = "/api/v1/images", tag = "images", params(Removed), responses(
    (status = 200, description = "What was freed.", body = PrunedView),
    (status = 404, description = "`image.absent`: it is not in the store."),
))]
pub(super) async fn remove(
    In(project): In,
    By(actor): By,
    Asked(asked): Asked<Removed>,
) -> Result<Response, Problem> {
    let image = asked.image.parse().map_err(EngineError::from)?;
    let freed = project.remove_image(actor, image).await?;
    Ok(json(StatusCode::OK, &PrunedView::of(freed)))
}

/// Removes the project's images that none of its servers is registered with, and the layers that no
/// project uses.
#[utoipa::path(post, path = "/api/v1/images/prune", tag = "images", responses(
    (status = 200, description = "What was removed.", body = PrunedImagesView),
))]
pub(super) async fn prune(In(project): In, By(actor): By) -> Result<Response, Problem> {
    let servers = project.servers().into_iter();
    let kept = servers.filter_map(|server| server.spec.launch.image()?.image.parse().ok());
    let mut kept: Vec<ImageReference> = kept.collect();
    kept.extend(project.pinned_images().await?);
    let pruned = project.prune_images(actor, kept).await?;
    Ok(json(StatusCode::OK, &PrunedImagesView::of(&pruned)))
}

fn shown(project: &Arc<Project>, records: &[ImageRecord]) -> Vec<ImageView> {
    let servers = project.servers();
    let users = |record: &ImageRecord| {
        let users = servers.iter().filter(|server| {
            let image = server.spec.launch.image();
            let named = image.and_then(|image| image.image.parse::<ImageReference>().ok());
            named.is_some_and(|named| runs(server, &named, record))
        });
        users.cloned().collect::<Vec<_>>()
    };
    let views = records.iter();
    views
        .map(|record| ImageView::of(record, &users(record)))
        .collect()
}

/// Returns whether a server runs an image; while it is not running, its reference decides.
fn runs(server: &ServerView, named: &ImageReference, record: &ImageRecord) -> bool {
    let hosting = server.status.hosting.as_deref();
    let running = hosting.and_then(|hosting| hosting.image.as_ref());
    let known = &record.reference;
    match running {
        Some(running) if running.digest != record.digest.to_string() => false,
        Some(_) => (named.registry(), named.repository()) == (known.registry(), known.repository()),
        None => named == known,
    }
}
