//! The layer store: unpacked layers, named by their `diff_id`.

use std::io::{self, Read};
use std::path::Path;

use tokio_util::sync::CancellationToken;

use crate::digest::Digest;
use crate::error::Responsible;
use crate::store::{Limits, Owners};

/// Why a layer is not in the store.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The stream of the layer could not be read: the download failed, or its compression is damaged.
    #[error("its content cannot be read")]
    Read(#[source] io::Error),
}

impl LayerError {
    pub(crate) fn responsible(&self) -> Responsible {
        Responsible::Image
    }

    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Read(_) => "image.invalid",
        }
    }

    pub(crate) fn hint(&self) -> Option<String> {
        None
    }
}

/// All layers of a store. Cheap to clone; its methods block.
#[derive(Debug, Clone)]
pub(crate) struct LayerStore;

/// A layer that is in the store and stays there while this lives.
#[derive(Debug)]
pub(crate) struct HeldLayer {
    /// What it takes on disk.
    pub(crate) bytes: u64,
}

impl LayerStore {
    pub(crate) fn open(_root: &Path, _owners: Owners, _limits: &Limits) -> io::Result<Self> {
        Ok(Self)
    }

    /// Returns a layer that is here, held against removal.
    pub(crate) fn find(&self, _diff_id: &Digest) -> Option<HeldLayer> {
        None
    }

    /// Unpacks the uncompressed tar of a layer: whole or not at all. Reads `tar` to its end, and checks
    /// what came against `diff_id`. An error of the reader comes back as [`LayerError::Read`]. If
    /// somebody else was quicker, theirs is held and returned.
    pub(crate) fn add(
        &self,
        _diff_id: &Digest,
        _tar: &mut dyn Read,
        _stop: &CancellationToken,
    ) -> Result<HeldLayer, LayerError> {
        Err(LayerError::Read(io::ErrorKind::Unsupported.into()))
    }
}
