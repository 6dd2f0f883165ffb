//! The image store: layers and records under one folder.
//!
//! Entry point: [`ImageStore::open`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::error::ImageError;
use crate::layers::LayerStore;
use crate::record::{ImageRecord, Records};
use crate::reference::ImageReference;

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
    /// Bytes that stay free on the store's disk, whatever is pulled.
    pub reserve_bytes: u64,
    /// The same in percent of the disk, where that is more, up to 2 GiB.
    pub reserve_percent: u64,
    /// Entries of one layer, extension headers counted.
    pub entries: u64,
    /// How long one layer may take to be unpacked, without the time that its download is waited for.
    pub layer_time: Duration,
    /// How long a whole pull may take.
    pub pull_deadline: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            manifest_bytes: 4 << 20,
            layers: 120,
            layer_bytes: 8 << 30,
            image_bytes: 16 << 30,
            reserve_bytes: 1 << 30,
            reserve_percent: 5,
            entries: 1_000_000,
            layer_time: Duration::from_secs(15 * 60),
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
    pub(crate) records: Records,
}

impl ImageStore {
    /// Opens the store, and sweeps what an earlier gateway left half done.
    pub fn open(options: StoreOptions) -> Result<Self, ImageError> {
        let layers = LayerStore::open(&options.root, options.owners, &options.limits)?;
        let records = Records::open(&options.root)?;
        Ok(Self {
            shared: Arc::new(Shared {
                options,
                layers,
                records,
            }),
        })
    }
    /// Returns what a name was resolved to when it was pulled or imported, if it was. Blocks.
    pub fn find(&self, image: &ImageReference) -> Result<Option<ImageRecord>, ImageError> {
        self.shared.records.find(image)
    }

    /// Returns all images, by name. Blocks.
    pub fn list(&self) -> Result<Vec<ImageRecord>, ImageError> {
        self.shared.records.list()
    }
}
