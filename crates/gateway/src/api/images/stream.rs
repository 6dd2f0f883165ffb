//! The progress of a pull or an import, as server-sent events. Steps that the client does not read
//! in time are dropped: each step has the totals, so the next one replaces them.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream;
use gantry_engine::EngineError;
use gantry_engine::images::{self, ImportProgress, LayerProgress};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use crate::http::error::Problem;

/// The maximum number of queued steps.
const WAITING: usize = 16;

/// How far it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(in crate::api) struct Progress {
    /// What the name was resolved to, once it was.
    digest: Option<String>,
    /// Layers that are in the store.
    layers_done: usize,
    layers: usize,
    /// Bytes that were received, of those that must be.
    received: u64,
    total: u64,
}

/// Receives the steps.
pub(in crate::api) struct Tell(mpsc::Sender<Progress>);

impl Tell {
    pub(in crate::api) fn progress(&self, step: Progress) {
        if self.0.try_send(step).is_err() {
            // The queue is full, or the client disconnected; the next step has the same totals.
        }
    }
}

pub(in crate::api) fn channel() -> (Tell, mpsc::Receiver<Progress>) {
    let (tx, rx) = mpsc::channel(WAITING);
    (Tell(tx), rx)
}

/// Adds up the steps of a pull.
#[derive(Debug, Default)]
pub(in crate::api) struct Pulling {
    digest: Option<String>,
    layers: usize,
    total: u64,
    /// What was received of each layer, and whether it is done.
    of_layers: BTreeMap<String, (u64, bool)>,
}

impl Pulling {
    pub(in crate::api) fn take(&mut self, step: images::Progress) -> Progress {
        match step {
            images::Progress::Resolved {
                digest,
                layers,
                bytes,
            } => {
                self.digest = Some(digest.to_string());
                (self.layers, self.total) = (layers, bytes);
            }
            images::Progress::Layer { diff_id, state } => {
                let layer = self.of_layers.entry(diff_id.to_string()).or_default();
                match state {
                    LayerProgress::Downloading { received, .. } => layer.0 = received,
                    LayerProgress::Present | LayerProgress::Unpacked { .. } => layer.1 = true,
                }
            }
            images::Progress::Done { digest } => self.digest = Some(digest.to_string()),
        }
        Progress {
            digest: self.digest.clone(),
            layers_done: self.of_layers.values().filter(|layer| layer.1).count(),
            layers: self.layers,
            received: self.of_layers.values().map(|layer| layer.0).sum(),
            total: self.total,
        }
    }
}

/// Converts a step of an import.
pub(super) fn imported(step: ImportProgress) -> Progress {
    Progress {
        layers_done: step.layers_done,
        layers: step.layers,
        ..Progress::default()
    }
}

/// Responds with the steps as they come; the work is cancelled when the response is dropped.
pub(in crate::api) fn answer<T: Serialize + 'static>(
    working: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    told: mpsc::Receiver<Progress>,
    stop: CancellationToken,
) -> Response {
    let state = Telling {
        working: Some(Box::pin(working)),
        told,
        _ends_with_the_answer: stop.drop_guard(),
    };
    let events = stream::unfold(state, |mut state| async move {
        let event = state.next().await?;
        Some((Ok::<_, std::convert::Infallible>(event), state))
    });
    let mut response = (StatusCode::OK, Body::from_stream(events)).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

struct Telling<T> {
    /// Absent after its end.
    working: Option<BoxFuture<'static, Result<T, EngineError>>>,
    told: mpsc::Receiver<Progress>,
    _ends_with_the_answer: tokio_util::sync::DropGuard,
}

impl<T: Serialize> Telling<T> {
    async fn next(&mut self) -> Option<Bytes> {
        let working = self.working.as_mut()?;
        tokio::select! {
            biased;
            Some(step) = self.told.recv() => Some(event("progress", &step)),
            done = working => {
                self.working = None;
                Some(match done {
                    Ok(done) => event("done", &done),
                    Err(error) => {
                        let problem = Problem::from(error);
                        event("failed", &problem.document())
                    }
                })
            }
        }
    }
}

fn event(kind: &str, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_else(|_| "{}".to_owned());
    Bytes::from(format!("event: {kind}\ndata: {data}\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_add_up() {
        let digest: images::Digest = format!("sha256:{}", "0".repeat(64)).parse().unwrap();
        let other: images::Digest = format!("sha256:{}", "1".repeat(64)).parse().unwrap();
        let mut pulling = Pulling::default();
        pulling.take(images::Progress::Resolved {
            digest,
            layers: 2,
            bytes: 30,
        });
        let layer = |diff_id, state| images::Progress::Layer { diff_id, state };
        let came = |received| LayerProgress::Downloading {
            received,
            total: 20,
        };
        pulling.take(layer(digest, came(5)));
        pulling.take(layer(digest, came(20)));
        let step = pulling.take(layer(other, LayerProgress::Present));
        assert_eq!((step.received, step.total), (20, 30));
        assert_eq!((step.layers_done, step.layers), (1, 2));
        let step = pulling.take(layer(digest, LayerProgress::Unpacked { bytes: 99 }));
        assert_eq!(step.layers_done, 2);
    }
}
