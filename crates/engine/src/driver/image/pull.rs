//! Gets the image for a start: from the store, or by a pull with progress reports. A tag keeps its
//! first digest unless the spec says otherwise. fault C6

use std::collections::HashMap;

use gantry_images::{Digest, ImageError, ImageRecord, ImageReference, LayerProgress, Progress};
use gantry_model::spec::{ImageLaunch, Pull};
use parking_lot::Mutex;
use tracing::warn;

use crate::driver::{DriverError, StartRequest};
use crate::image_store::Images;

/// The image of a start.
pub(super) struct Wanted<'a> {
    /// Whether the server belongs to the user's own project, which may use the credentials of the
    /// user's container client.
    pub(super) is_own: bool,
    /// The digest with which the server was last ready, if its image reference is unchanged.
    pub(super) pinned: Option<String>,
    pub(super) launch: &'a ImageLaunch,
}

/// Returns the record of the image that a start needs.
pub(super) async fn record(
    images: &Images,
    request: &StartRequest<'_>,
    wanted: Wanted<'_>,
) -> Result<ImageRecord, DriverError> {
    let launch = wanted.launch;
    let mut reference: ImageReference = launch.image.parse().map_err(DriverError::new)?;
    let asks = launch.pull == Pull::Always;
    // A server keeps its image even if the tag moves, until its spec asks for the newest.
    let pinned = wanted.pinned.and_then(|digest| digest.parse().ok());
    if let Some(digest) = pinned.filter(|_| !asks && reference.digest().is_none()) {
        reference = reference.pinned(digest);
    }
    // Only what the project itself has pulled or imported: knowing a digest gives no right to it.
    let known = images.find(&request.labels.project, &reference).await;
    let known = known.map_err(DriverError::new)?;
    let is_own = wanted.is_own;
    match (launch.pull, known) {
        (Pull::Missing | Pull::Never, Some(record)) => Ok(record),
        (Pull::Never, None) => {
            let image = launch.image.clone();
            Err(DriverError::new(ImageError::Absent { image }))
        }
        (Pull::Missing | Pull::Always, None) => pull(images, is_own, request, &reference).await,
        (Pull::Always, Some(record)) => match pull(images, is_own, request, &reference).await {
            Ok(record) => Ok(record),
            // If the registry is unreachable, a server of the user's own project runs the stored
            // image.
            Err(error) if is_own && !request.stop.is_cancelled() => {
                let why = gantry_model::diagnose::chain(&error);
                warn!(image = %reference, why, "the image that is there is used");
                Ok(record)
            }
            Err(error) => Err(error),
        },
    }
}

async fn pull(
    images: &Images,
    own: bool,
    request: &StartRequest<'_>,
    reference: &ImageReference,
) -> Result<ImageRecord, DriverError> {
    (request.progress)(format!("pulling `{reference}`"));
    let project = &request.labels.project;
    let credentials = images.credentials(project, own, reference).await;
    let credentials = credentials.map_err(DriverError::new)?;
    let pulling = Mutex::new(Pulling::default());
    let progress = |progress: Progress| {
        if let Some(far) = pulling.lock().note(&progress) {
            (request.progress)(format!("pulling `{reference}`: {far}"));
        }
    };
    let pulled = images.pull(project, reference, credentials, &progress, request.stop);
    let record = pulled.await.map_err(DriverError::new)?;
    images.note_tag(project, reference, &record.digest);
    Ok(record)
}

/// The progress of a pull, over all layers.
#[derive(Debug, Default)]
struct Pulling {
    layers: usize,
    bytes: u64,
    received: HashMap<Digest, u64>,
    done: usize,
}

impl Pulling {
    /// Handles an event; returns the progress as text if it changed.
    fn note(&mut self, progress: &Progress) -> Option<String> {
        match progress {
            Progress::Resolved { layers, bytes, .. } => {
                (self.layers, self.bytes) = (*layers, *bytes);
            }
            Progress::Layer { diff_id, state } => match state {
                LayerProgress::Downloading { received, .. } => {
                    self.received.insert(*diff_id, *received);
                }
                LayerProgress::Present | LayerProgress::Unpacked { .. } => self.done += 1,
            },
            Progress::Done { .. } => return None,
        }
        let received: u64 = self.received.values().sum();
        Some(format!(
            "{} of {} MiB, {} of {} layers unpacked",
            received.min(self.bytes) >> 20,
            self.bytes >> 20,
            self.done.min(self.layers),
            self.layers
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_over_all_layers() {
        let digest = |byte: char| -> Digest {
            let hex: String = std::iter::repeat_n(byte, 64).collect();
            format!("sha256:{hex}").parse().unwrap()
        };
        let mut pulling = Pulling::default();
        let told = pulling.note(&Progress::Resolved {
            digest: digest('a'),
            layers: 2,
            bytes: 4 << 20,
        });
        assert_eq!(told.unwrap(), "0 of 4 MiB, 0 of 2 layers unpacked");
        let mut layer = |byte, state| {
            let diff_id = digest(byte);
            pulling.note(&Progress::Layer { diff_id, state }).unwrap()
        };
        let (received, total) = (1 << 20, 3 << 20);
        layer('b', LayerProgress::Downloading { received, total });
        let told = layer('c', LayerProgress::Downloading { received, total });
        assert_eq!(told, "2 of 4 MiB, 0 of 2 layers unpacked");
        let told = layer('b', LayerProgress::Unpacked { bytes: 9 });
        assert_eq!(told, "2 of 4 MiB, 1 of 2 layers unpacked");
    }
}
