//! The live event stream, `GET /api/v1/events/stream`: server-sent events for administrators.
//! `topics` parses the requested topics, `listener` renders the events. Entry point: [`routes`].

mod listener;
mod topics;

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::routing::get;
use futures_util::stream;
use http::HeaderMap;
use serde::Deserialize;
use utoipa::IntoParams;

use self::listener::EventStream;
use self::topics::Topics;
use super::history::stream::{StreamEnd, event_stream};
use super::query::Asked;
use super::{Api, In, Who};
use crate::http::auth::permit;
use crate::http::error::Problem;
use crate::http::limits::stream_permit;
use crate::http::session::Session;

/// Returns the routes, for administrators only.
pub(super) fn routes() -> Router<Api> {
    Router::new().route("/api/v1/events/stream", get(stream))
}

/// The requested topics.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct StreamQuery {
    /// Topics, separated by commas: `overview`, `servers`, `server:NAME`, `log:NAME`, `calls`,
    /// `calls:FIELD=TEXT;…`, `catalog`, `access`; by default `overview,servers`.
    #[param(example = "servers,log:files,calls:status=error")]
    topics: Option<String>,
}

/// Streams events of the project: `hello` (first), `server` (at most four per second and server),
/// `lifecycle`, `call` (at most 50 per second, the rest as `skipped`), `tick` and `usage` (every
/// second), `log`, `catalog`, `access`, and `gap` if events were missed. An idle stream sends a `:`
/// comment every two seconds. `Last-Event-ID` resumes a stream with the same topics.
#[utoipa::path(get, path = "/api/v1/events/stream", tag = "servers", operation_id = "event_stream",
    params(StreamQuery), responses(
    (status = 200, description = "The events.", body = String, content_type = "text/event-stream"),
    (status = 403, description = "`auth.role`: following a log needs the permission `operate`, following calls `audit`."),
    (status = 404, description = "`server.unknown`: a topic names an unknown server."),
))]
pub(super) async fn stream(
    State(api): State<Api>,
    In(project): In,
    Who(caller): Who,
    session: Option<Extension<Arc<Session>>>,
    headers: HeaderMap,
    Asked(asked): Asked<StreamQuery>,
) -> Result<Response, Problem> {
    let topics = Topics::parse(asked.topics.as_deref(), &project)?;
    topics
        .needed()
        .try_for_each(|needed| permit(&caller, needed))?;
    let feed = project.listen();
    let slot = stream_permit(&api.streams, &caller)?;
    let session = session.map(|Extension(session)| session);
    let end = StreamEnd::new(&project, &caller, session);
    let mut stream = EventStream::open(&project, topics, feed, end, slot);
    stream.greet(api.version);
    let last = headers.get("last-event-id");
    if let Some(last) = last.and_then(|last| last.to_str().ok()) {
        stream.resume(last);
    }
    let events = stream::unfold(stream, |mut stream| async move {
        let next = stream.next().await?;
        Some((Ok::<_, Infallible>(next), stream))
    });
    Ok(event_stream(events))
}
