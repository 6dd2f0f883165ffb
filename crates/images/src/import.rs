//! Imports images from archives written by `docker save` and similar tools, or from folders in OCI
//! layout.
//!
//! `manifest.json` takes precedence: archives of Docker 25 to 28 contain both files, some with a
//! wrong `index.json`. Sends no requests to registries. Entry point: [`ImageStore::import`].

mod docker;
mod layout;
mod source;

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use tokio_util::sync::CancellationToken;

use self::source::Source;
use crate::compression::Compression;
use crate::digest::Digest;
use crate::document::{ImageDocument, Invalid};
use crate::error::{ImageError, printable};
use crate::layers::{Budget, HeldLayer, LayerError, Present};
use crate::platform::Platform;
use crate::record::{ImageRecord, Layer};
use crate::reference::ImageReference;
use crate::store::ImageStore;

/// How many images one archive may hold.
const MOST_IMAGES: usize = 100;

/// An image found in an archive, not unpacked yet.
struct Found {
    /// Its names in the archive; if there are none, it is named after the archive.
    names: Vec<String>,
    /// The digest of its manifest, or of its configuration if there is no manifest.
    digest: Digest,
    document: ImageDocument,
    /// The files of its layers, lowest first.
    layers: Vec<String>,
}

/// The progress of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportProgress {
    /// How many layers are in the store.
    pub layers_done: usize,
    /// How many layers all images of the archive have.
    pub layers: usize,
}

impl ImageStore {
    /// Imports every image for this machine's platform from an archive or a folder. Blocks; ends
    /// early when cancelled. Layers of an image that failed are removed.
    pub fn import(
        &self,
        path: &Path,
        progress: &(dyn Fn(ImportProgress) + Send + Sync),
        stop: &CancellationToken,
    ) -> Result<Vec<ImageRecord>, ImageError> {
        let importer = Importer {
            store: self,
            path,
            stop,
        };
        let imported = importer.import(progress);
        if imported.is_err() {
            self.sweep_failed();
        }
        imported
    }
}

struct Importer<'a> {
    store: &'a ImageStore,
    path: &'a Path,
    stop: &'a CancellationToken,
}

impl Importer<'_> {
    fn import(
        &self,
        progress: &(dyn Fn(ImportProgress) + Send + Sync),
    ) -> Result<Vec<ImageRecord>, ImageError> {
        let shared = &self.store.shared;
        let limits = &shared.options.limits;
        let source = Source::open(self.path, &shared.layers, self.stop)
            .map_err(|problem| self.refused(problem))?;
        let platform = Platform::host();
        let found = match docker::images(&source, limits) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => layout::images(&source, &platform, limits),
            Err(problem) => Err(problem),
        };
        let found = found.map_err(|problem| self.refused(problem))?;
        if found.is_empty() || found.len() > MOST_IMAGES {
            let why = format!("it has {} images; 1 to {MOST_IMAGES} are read", found.len());
            return Err(self.refused(Problem::Invalid(why)));
        }
        let layers = found.iter().map(|image| image.layers.len()).sum();
        let mut layers_done = 0;
        let mut records = Vec::new();
        for image in &found {
            if !platform.accepts(&image.document.platform) {
                let offered = printable(&image.document.platform.to_string());
                let why = format!("its image is for {offered}, this machine is {platform}");
                return Err(self.refused(Problem::Invalid(why)));
            }
            let mut each = || {
                layers_done += 1;
                progress(ImportProgress {
                    layers_done,
                    layers,
                });
            };
            records.extend(self.take(&source, image, &mut each)?);
        }
        Ok(records)
    }

    /// Unpacks the layers of an image and writes one record for each name.
    fn take(
        &self,
        source: &Source,
        image: &Found,
        each_layer: &mut dyn FnMut(),
    ) -> Result<Vec<ImageRecord>, ImageError> {
        let shared = &self.store.shared;
        let limits = &shared.options.limits;
        let diff_ids = &image.document.diff_ids;
        let references = self.references(image)?;
        let name = references[0].to_string();
        if image.layers.len() != diff_ids.len() || diff_ids.len() > limits.layers {
            let why = format!(
                "image `{name}` has {} layers and {} digests of layers; at most {} are read",
                image.layers.len(),
                diff_ids.len(),
                limits.layers
            );
            return Err(self.refused(Problem::Invalid(why)));
        }
        // Held until the record is written, so that no sweep removes them in between.
        let mut held: Vec<HeldLayer> = Vec::new();
        let budget = Budget::new(limits.image_bytes);
        let again = self.store.only_of_others(diff_ids)?;
        for (diff_id, file) in diff_ids.iter().zip(&image.layers) {
            let present = match again.contains(diff_id) {
                true => Present::UnpackAgain,
                false => Present::Use,
            };
            let layer = self.layer(source, (diff_id, file), present, &name, &budget)?;
            held.push(layer);
            each_layer();
        }
        shared.layers.check_order(diff_ids, self.stop)?;
        let layers = held.iter().map(|layer| Layer {
            diff_id: layer.diff_id,
            bytes: layer.bytes,
        });
        let layers: Vec<Layer> = layers.collect();
        let mut records = Vec::new();
        for reference in references {
            let record = ImageRecord {
                reference,
                digest: image.digest,
                manifest: image.digest,
                platform: image.document.platform.clone(),
                config: image.document.config.clone(),
                layers: layers.clone(),
                pulled_at: SystemTime::now(),
                imported: true,
            };
            self.store.records.put(&record)?;
            records.push(record);
        }
        Ok(records)
    }

    fn layer(
        &self,
        source: &Source,
        (diff_id, file): (&Digest, &str),
        present: Present,
        image: &str,
        budget: &Arc<Budget>,
    ) -> Result<HeldLayer, ImageError> {
        let failed = |error: LayerError| {
            let image = image.to_owned();
            if matches!(error, LayerError::Cancelled) {
                return ImageError::Cancelled { image };
            }
            ImageError::Layer {
                image,
                layer: *diff_id,
                source: Box::new(error),
            }
        };
        let layers = &self.store.shared.layers;
        if present == Present::Use
            && let Some(layer) = layers.find(diff_id).map_err(failed)?
        {
            budget.charge(layer.bytes).map_err(failed)?;
            return Ok(layer);
        }
        let mut part = source.part(file).map_err(|problem| self.refused(problem))?;
        let start = part
            .peek()
            .map_err(|error| failed(LayerError::Read(error)))?;
        let compression = Compression::of_content(&start);
        layers
            .add_to(
                budget,
                (diff_id, present),
                &mut compression.reader(part, self.stop),
                self.stop,
            )
            .map_err(failed)
    }

    /// Returns the names under which an image is stored.
    fn references(&self, image: &Found) -> Result<Vec<ImageReference>, ImageError> {
        if !image.names.is_empty() {
            let named = image.names.iter().map(|name| {
                let reference: ImageReference = name.parse()?;
                match reference.digest() {
                    Some(digest) if *digest != image.digest => {
                        let is = image.digest;
                        let why = format!("image `{reference}` has the digest `{is}`");
                        Err(self.refused(Problem::Invalid(why)))
                    }
                    _ => Ok(reference),
                }
            });
            return named.collect();
        }
        let stem = self.path.file_stem().unwrap_or_default();
        let stem = stem.to_string_lossy().to_ascii_lowercase();
        let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let parts: Vec<&str> = stem
            .split(['-', '_', '.'])
            .filter(|part| !part.is_empty())
            .collect();
        let stem = if parts.is_empty() || !parts.iter().all(|part| plain(part)) {
            "image".to_owned()
        } else {
            parts.join("-")
        };
        Ok(vec![format!("localhost/{stem}@{}", image.digest).parse()?])
    }

    fn refused(&self, problem: Problem) -> ImageError {
        match problem {
            Problem::Invalid(why) => ImageError::Import {
                archive: self.path.to_owned(),
                why,
            },
            Problem::Layer(LayerError::Cancelled) => ImageError::Cancelled {
                image: self.path.display().to_string(),
            },
            Problem::Layer(error) => error.into(),
        }
    }
}

/// Why an archive cannot be read.
enum Problem {
    /// Its content is invalid.
    Invalid(String),
    Layer(LayerError),
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid.to_string())
    }
}

impl From<LayerError> for Problem {
    fn from(error: LayerError) -> Self {
        if matches!(error, LayerError::Refused { .. } | LayerError::Read(_)) {
            return Self::Invalid(gantry_model::diagnose::chain(&error));
        }
        Self::Layer(error)
    }
}
