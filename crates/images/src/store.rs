//! The image store: layers and records under one folder. Each owner has records of its own.
//!
//! Entry points: [`ImageStore::open`] and [`ImageStore::of`].

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::digest::Digest;
use crate::error::ImageError;
use crate::layers::{LayerStore, Pruned};
use crate::record::{ImageRecord, Records};
use crate::reference::ImageReference;

/// The owners of unpacked files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// The owners given in the layer; requires root.
    Keep,
    /// The user that runs the gateway.
    Single,
}

/// Limits of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one manifest, index or configuration.
    pub manifest_bytes: u64,
    /// Layers of an image; an overlay takes at most 127, including those that Gantry adds.
    pub layers: usize,
    /// Bytes of one layer; applies to the compressed and to the unpacked size.
    pub layer_bytes: u64,
    /// Bytes of all layers of an image; applies to the compressed and to the unpacked size.
    pub image_bytes: u64,
    /// Bytes that must stay free on the store's disk.
    pub reserve_bytes: u64,
    /// The same in percent of the disk, up to 2 GiB; the larger of both applies.
    pub reserve_percent: u64,
    /// Entries of one layer, including extension headers.
    pub entries: u64,
    /// How long unpacking one layer may take, without the time spent waiting for its download.
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

/// Where and how images are stored.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The folder, private to the gateway.
    pub root: PathBuf,
    /// Who owns the files of layers.
    pub owners: Owners,
    /// The limits of an image.
    pub limits: Limits,
}

/// The images of one owner in a store. Cheap to clone.
///
/// Owners share layers and nothing else: each has records of its own, so an image is there for who
/// pulled or imported it. A layer that only others have is fetched again, as proof of its content.
#[derive(Debug, Clone)]
pub struct ImageStore {
    pub(crate) shared: Arc<Shared>,
    pub(crate) records: Arc<Records>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: StoreOptions,
    pub(crate) layers: LayerStore,
}

impl ImageStore {
    /// Opens the store for its main owner, and removes unfinished work of an earlier gateway.
    pub fn open(options: StoreOptions) -> Result<Self, ImageError> {
        let layers = LayerStore::open(&options.root, options.owners, &options.limits)?;
        let records = Arc::new(Records::open(&options.root)?);
        let shared = Arc::new(Shared { options, layers });
        Ok(Self { shared, records })
    }

    /// Returns the store for another owner. Blocks.
    pub fn of(&self, owner: &str) -> Result<Self, ImageError> {
        let records = Records::open_of(&self.shared.options.root, owner)?;
        Ok(Self {
            shared: Arc::clone(&self.shared),
            records: Arc::new(records),
        })
    }

    /// Removes all images of another owner, and the layers that only they used. Blocks.
    pub fn forget(&self, owner: &str) -> Result<Pruned, ImageError> {
        Records::remove_of(&self.shared.options.root, owner)?;
        self.prune()
    }

    /// Returns which of these layers are there, but perhaps for other owners only. Blocks.
    ///
    /// Where there are other owners, that includes layers that no image has: what a removed image
    /// leaves behind while it runs, and what a cut pull keeps.
    pub(crate) fn only_of_others(&self, layers: &[Digest]) -> Result<HashSet<Digest>, ImageError> {
        let mut found = HashSet::new();
        if Records::all(&self.shared.options.root)?.len() == 1 {
            return Ok(found);
        }
        let images = self.records.list()?.into_iter();
        let own = images.flat_map(|image| image.layers);
        let own: HashSet<Digest> = own.map(|layer| layer.diff_id).collect();
        for layer in layers.iter().filter(|layer| !own.contains(*layer)) {
            if self.shared.layers.find(layer)?.is_some() {
                found.insert(*layer);
            }
        }
        Ok(found)
    }

    /// Returns the record of a name, if it was pulled or imported. Blocks.
    pub fn find(&self, image: &ImageReference) -> Result<Option<ImageRecord>, ImageError> {
        self.records.find(image)
    }

    /// Returns the owner's images, by name. Blocks.
    pub fn list(&self) -> Result<Vec<ImageRecord>, ImageError> {
        self.records.list()
    }
}
