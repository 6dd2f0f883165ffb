//! How far a pull is.

use crate::digest::Digest;

/// What happened in a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The name was resolved.
    Resolved {
        /// What to.
        digest: Digest,
        /// How many layers it has.
        layers: usize,
        /// The bytes of all of them as the registry has them.
        bytes: u64,
    },
    /// A layer came on. One that the image has twice is told once.
    Layer {
        /// Which one.
        diff_id: Digest,
        /// How far.
        state: LayerProgress,
    },
    /// The image is in the store.
    Done {
        /// What the name was resolved to.
        digest: Digest,
    },
}

/// How far a layer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerProgress {
    /// It was here already, or somebody else fetched it meanwhile.
    Present,
    /// So much came, of the compressed layer.
    Downloading {
        /// In bytes.
        received: u64,
        /// In bytes.
        total: u64,
    },
    /// It is unpacked and verified.
    Unpacked {
        /// What it takes on disk.
        bytes: u64,
    },
}
