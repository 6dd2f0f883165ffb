//! Pulls an image from a registry into the layer store.
//!
//! A tag is resolved once; everything after that is requested by digest. A layer that is in the
//! store is not requested, unless only other owners have it: whoever knows its digest must not get
//! its content without the right to read it. A layer that another task is fetching is waited for. The record is
//! written last, while all layers are held. Entry point: [`ImageStore::pull`].

mod progress;

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::StreamExt;
use futures_util::stream;
use tokio_util::sync::CancellationToken;

pub use self::progress::{LayerProgress, Progress};
use crate::compression::Compression;
use crate::credentials::Credentials;
use crate::digest::Digest;
use crate::error::ImageError;
use crate::layers::{Budget, Claim, HeldLayer, LayerError, Present, Vacant};
use crate::platform::Platform;
use crate::record::{ImageRecord, Layer, whole_seconds};
use crate::reference::ImageReference;
use crate::registry::{BlobReader, LayerBlob, Registry, RegistryError, Resolved, Session, blob};
use crate::store::ImageStore;

/// How many layers of an image are fetched at once.
const AT_ONCE: usize = 3;
/// How many bytes are downloaded between two progress reports.
const REPORT_EVERY: u64 = 512 << 10;
/// How many bytes of a blob show its compression.
const MAGIC: usize = 4;

/// The parameters of a pull.
#[derive(Clone)]
pub struct PullRequest<'a> {
    /// The required platform.
    pub platform: Platform,
    /// The credentials for the registry.
    pub credentials: Option<Credentials>,
    /// Called with the progress; must not block.
    pub progress: &'a (dyn Fn(Progress) + Send + Sync),
    /// Cancels the pull. Unfinished layers are removed; complete layers stay for the next attempt.
    pub stop: &'a CancellationToken,
}

impl std::fmt::Debug for PullRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PullRequest")
            .field("platform", &self.platform)
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}

/// A running pull.
struct Pull<'a> {
    store: &'a ImageStore,
    image: &'a ImageReference,
    session: Session,
    progress: &'a (dyn Fn(Progress) + Send + Sync),
    stop: CancellationToken,
    /// The size limit of all layers together.
    budget: Arc<Budget>,
}

impl ImageStore {
    /// Pulls an image and records the digest its name was resolved to. Complete layers of an
    /// interrupted or cancelled pull stay for the next attempt; after any other failure they are
    /// removed, together with those of earlier interrupted pulls.
    pub async fn pull(
        &self,
        registry: &Registry,
        image: &ImageReference,
        request: PullRequest<'_>,
    ) -> Result<ImageRecord, ImageError> {
        let pulled = self.try_pull(registry, image, request).await;
        if pulled.as_ref().is_err_and(|error| !passes(error)) {
            let store = self.clone();
            let swept = tokio::task::spawn_blocking(move || store.sweep_failed()).await;
            swept.unwrap_or_else(|error| tracing::warn!(%error, "a sweep ended early"));
        }
        pulled
    }

    async fn try_pull(
        &self,
        registry: &Registry,
        image: &ImageReference,
        request: PullRequest<'_>,
    ) -> Result<ImageRecord, ImageError> {
        let limits = &self.shared.options.limits;
        let stop = request.stop.child_token();
        let failed = |error| pull_error(image, error);
        let session = registry.session(image, request.credentials, &stop);
        let pull = Pull {
            store: self,
            image,
            session: session.map_err(failed)?,
            progress: request.progress,
            stop: stop.clone(),
            budget: Budget::new(limits.image_bytes),
        };
        let mut work = Box::pin(pull.run(&request.platform));
        let late = tokio::time::sleep(limits.pull_deadline);
        tokio::select! {
            biased;
            done = &mut work => done,
            () = late => {
                // All tasks end before this returns.
                stop.cancel();
                match work.await {
                    Ok(record) => Ok(record),
                    Err(_) => Err(failed(RegistryError::Deadline {
                        limit: limits.pull_deadline,
                    })),
                }
            }
        }
    }

    /// Returns the current digest of a name, without pulling anything.
    pub async fn resolve(
        &self,
        registry: &Registry,
        image: &ImageReference,
        credentials: Option<Credentials>,
        stop: &CancellationToken,
    ) -> Result<Digest, ImageError> {
        let failed = |error| pull_error(image, error);
        let session = registry.session(image, credentials, stop).map_err(failed)?;
        let digest = session.digest(&self.shared.options.limits).await;
        digest.map_err(failed)
    }
}

/// Returns whether a failure is temporary, so that the same pull may succeed later.
fn passes(error: &ImageError) -> bool {
    match error {
        ImageError::Cancelled { .. } => true,
        ImageError::Pull { source, .. } => matches!(
            **source,
            RegistryError::Unreachable { .. }
                | RegistryError::Slow { .. }
                | RegistryError::Deadline { .. }
                | RegistryError::RateLimited { .. }
                | RegistryError::Status { .. }
        ),
        ImageError::Reference { .. }
        | ImageError::Layer { .. }
        | ImageError::Layers(_)
        | ImageError::Import { .. }
        | ImageError::Absent { .. }
        | ImageError::Store { .. } => false,
    }
}

fn pull_error(image: &ImageReference, source: RegistryError) -> ImageError {
    if matches!(source, RegistryError::Cancelled) {
        return ImageError::Cancelled {
            image: image.to_string(),
        };
    }
    ImageError::Pull {
        image: image.to_string(),
        registry: image.registry().to_owned(),
        source: Box::new(source),
    }
}

impl Pull<'_> {
    async fn run(&self, platform: &Platform) -> Result<ImageRecord, ImageError> {
        let limits = &self.store.shared.options.limits;
        let resolved = self.session.resolve(platform, limits).await;
        let resolved = resolved.map_err(|error| pull_error(self.image, error))?;
        (self.progress)(Progress::Resolved {
            digest: resolved.digest,
            layers: resolved.layers.len(),
            bytes: resolved.layers.iter().map(|layer| layer.size).sum(),
        });
        let held = self.layers(&resolved).await?;
        let record = self.record(resolved, &held);
        let kept = self.keep(record, held).await?;
        (self.progress)(Progress::Done {
            digest: kept.digest,
        });
        Ok(kept)
    }

    /// Fetches every layer once, a few at a time; the first failure cancels the others.
    async fn layers(&self, resolved: &Resolved) -> Result<HashMap<Digest, HeldLayer>, ImageError> {
        let mut wanted: Vec<LayerBlob> = Vec::new();
        for layer in &resolved.layers {
            if wanted.iter().all(|known| known.diff_id != layer.diff_id) {
                wanted.push(*layer);
            }
        }
        let again = self.only_of_others(&wanted).await?;
        let fetches = wanted.into_iter().map(|layer| {
            let present = match again.contains(&layer.diff_id) {
                true => Present::UnpackAgain,
                false => Present::Use,
            };
            self.layer(layer, present)
        });
        let mut fetches = stream::iter(fetches).buffer_unordered(AT_ONCE);
        let mut held = HashMap::new();
        let mut failure = None;
        while let Some(fetched) = fetches.next().await {
            match fetched {
                Ok(layer) => drop(held.insert(layer.diff_id, layer)),
                Err(error) => {
                    self.stop.cancel();
                    // Later failures are consequences of the first.
                    failure.get_or_insert(error);
                }
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(held),
        }
    }

    /// Returns the layers that are there, but perhaps for other owners only.
    async fn only_of_others(&self, wanted: &[LayerBlob]) -> Result<HashSet<Digest>, ImageError> {
        let store = self.store.clone();
        let layers: Vec<Digest> = wanted.iter().map(|layer| layer.diff_id).collect();
        let reading = tokio::task::spawn_blocking(move || store.only_of_others(&layers));
        reading.await.unwrap_or_else(|error| {
            Err(ImageError::Store {
                action: "read",
                path: self.store.shared.options.root.clone(),
                source: std::io::Error::other(error),
            })
        })
    }

    async fn layer(&self, layer: LayerBlob, present: Present) -> Result<HeldLayer, ImageError> {
        let report = |state: LayerProgress| {
            (self.progress)(Progress::Layer {
                diff_id: layer.diff_id,
                state,
            });
        };
        let failed = |error: LayerError| self.layer_error(layer.diff_id, error);
        if self.stop.is_cancelled() {
            return Err(pull_error(self.image, RegistryError::Cancelled));
        }
        let layers = &self.store.shared.layers;
        let claim = layers.claim(&layer.diff_id, present, &self.stop);
        let vacant = match claim.await.map_err(failed)? {
            Claim::Present(held) => {
                self.budget.charge(held.bytes).map_err(failed)?;
                report(LayerProgress::Present);
                return Ok(held);
            }
            Claim::Vacant(vacant) => vacant,
        };
        let (download, reader) = blob(layer);
        let mut vacant = vacant;
        vacant.budget = Some(Arc::clone(&self.budget));
        vacant.waited = reader.waited();
        let failure = reader.failure();
        let total = layer.size;
        let reported = std::sync::atomic::AtomicU64::new(0);
        let received = |received: u64| {
            let order = std::sync::atomic::Ordering::Relaxed;
            let before = reported.load(order);
            if received == total || received >= before + REPORT_EVERY {
                reported.store(received, order);
                report(LayerProgress::Downloading { received, total });
            }
        };
        let stop = self.stop.clone();
        let unpacked = tokio::task::spawn_blocking(move || unpack(vacant, reader, &stop));
        let ((), unpacked) = tokio::join!(self.session.blob(download, &received), unpacked);
        // An error of the download explains the error of the unpacker.
        if let Some(error) = failure.lock().take() {
            return Err(pull_error(self.image, error));
        }
        let unpacked =
            unpacked.unwrap_or_else(|error| Err(LayerError::Read(std::io::Error::other(error))));
        let held = unpacked.map_err(failed)?;
        report(LayerProgress::Unpacked { bytes: held.bytes });
        Ok(held)
    }

    fn layer_error(&self, layer: Digest, source: LayerError) -> ImageError {
        let image = self.image.to_string();
        if matches!(source, LayerError::Cancelled) {
            return ImageError::Cancelled { image };
        }
        ImageError::Layer {
            image,
            layer,
            source: Box::new(source),
        }
    }

    fn record(&self, resolved: Resolved, held: &HashMap<Digest, HeldLayer>) -> ImageRecord {
        let layers = resolved.layers.iter().map(|layer| Layer {
            diff_id: layer.diff_id,
            bytes: held.get(&layer.diff_id).map_or(0, |held| held.bytes),
        });
        ImageRecord {
            reference: self.image.clone(),
            digest: resolved.digest,
            manifest: resolved.manifest,
            platform: resolved.document.platform,
            layers: layers.collect(),
            config: resolved.document.config,
            pulled_at: whole_seconds(SystemTime::now()),
            imported: false,
        }
    }

    /// Writes the record while its layers are held.
    async fn keep(
        &self,
        record: ImageRecord,
        held: HashMap<Digest, HeldLayer>,
    ) -> Result<ImageRecord, ImageError> {
        let (shared, stop) = (Arc::clone(&self.store.shared), self.stop.clone());
        let records = Arc::clone(&self.store.records);
        let written = tokio::task::spawn_blocking(move || {
            let diff_ids: Vec<Digest> = record.layers.iter().map(|layer| layer.diff_id).collect();
            shared.layers.check_order(&diff_ids, &stop)?;
            records.put(&record)?;
            drop(held);
            Ok(record)
        });
        written.await.unwrap_or_else(|error| {
            Err(ImageError::Store {
                action: "write",
                path: self.store.shared.options.root.clone(),
                source: std::io::Error::other(error),
            })
        })
    }
}

/// Decompresses and unpacks a blob while it is downloaded. Blocks.
fn unpack(
    vacant: Vacant,
    mut reader: BlobReader,
    stop: &CancellationToken,
) -> Result<HeldLayer, LayerError> {
    // A layer's media type often names the wrong compression; its first bytes are reliable.
    let mut start = Vec::with_capacity(MAGIC);
    let read = (&mut reader).take(MAGIC as u64).read_to_end(&mut start);
    read.map_err(LayerError::Read)?;
    let compression = Compression::of_content(&start);
    let mut stream = std::io::Cursor::new(start).chain(reader);
    if compression != Compression::Zstd {
        return vacant.unpack(&mut compression.reader(stream, stop), stop);
    }
    // Few zstd streams run at once, so none of them may wait for a registry meanwhile.
    let (file, scratch) = vacant.spool(&mut stream, stop)?;
    let unpacked = vacant.unpack(&mut compression.reader(file, stop), stop);
    drop(scratch);
    unpacked
}
