//! The image store: layers and records under one folder.
//!
//! Entry point: [`ImageStore::open`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::error::ImageError;
use crate::layers::LayerStore;

/// Who owns the files of unpacked layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// As the layer says; only root can.
    Keep,
    /// Whoever runs the gateway.
    Single,
}

/// What an image may cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one manifest, index or configuration.
    pub manifest_bytes: u64,
    /// Layers of an image; overlay carries no more than 127 with room for those we add.
    pub layers: usize,
    /// Bytes of one layer, compressed and again unpacked.
    pub layer_bytes: u64,
    /// Bytes of all layers of an image, compressed and again unpacked.
    pub image_bytes: u64,
    /// Entries of one layer, extension headers counted.
    pub entries: u64,
    /// How long one layer may take to be unpacked.
    pub unpack_deadline: Duration,
    /// How long a whole pull may take.
    pub pull_deadline: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            manifest_bytes: 4 << 20,
            layers: 120,
            layer_bytes: 16 << 30,
            image_bytes: 32 << 30,
            entries: 1_000_000,
            unpack_deadline: Duration::from_secs(15 * 60),
            pull_deadline: Duration::from_secs(60 * 60),
        }
    }
}

/// Where and how images are kept.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The folder, private to the gateway.
    pub root: PathBuf,
    /// Who owns the files of layers.
    pub owners: Owners,
    /// What an image may cost.
    pub limits: Limits,
}

/// All images of a gateway. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ImageStore {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: StoreOptions,
    pub(crate) layers: LayerStore,
}

impl ImageStore {
    /// Opens the store, and sweeps what an earlier gateway left half done.
    pub fn open(options: StoreOptions) -> Result<Self, ImageError> {
        let layers = LayerStore::open(&options.root, options.owners, &options.limits);
        let layers = layers.map_err(|source| ImageError::Store {
            action: "open",
            path: options.root.clone(),
            source,
        })?;
        Ok(Self {
            shared: Arc::new(Shared { options, layers }),
        })
    }
}
