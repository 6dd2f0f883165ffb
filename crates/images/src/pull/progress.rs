//! The progress of a pull.

use crate::digest::Digest;

/// An event of a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The name was resolved.
    Resolved {
        /// The digest it resolved to.
        digest: Digest,
        /// The number of layers.
        layers: usize,
        /// The total size of the compressed layers.
        bytes: u64,
    },
    /// A layer has progressed. A layer that occurs twice in the image is reported once.
    Layer {
        /// The layer.
        diff_id: Digest,
        /// Its progress.
        state: LayerProgress,
    },
    /// The image is in the store.
    Done {
        /// The digest that the name resolved to.
        digest: Digest,
    },
}

/// The progress of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerProgress {
    /// It is in the store; possibly another task fetched it meanwhile.
    Present,
    /// It is being downloaded.
    Downloading {
        /// The compressed bytes received.
        received: u64,
        /// The compressed size.
        total: u64,
    },
    /// It is unpacked and verified.
    Unpacked {
        /// Its size on disk.
        bytes: u64,
    },
}
