//! Errors of image operations, with the responsible party and a hint.
//!
//! Every error names the image. Errors of a registry have the cause as their source, which
//! [`gantry_model::diagnose::chain`] prints on one line.

use std::io;
use std::path::PathBuf;

use gantry_model::diagnose::{Diagnose, Fault};

use crate::digest::Digest;
use crate::layers::LayerError;
use crate::registry::RegistryError;

/// The party that can fix an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Responsible {
    /// The user: the reference, the credentials or the setting is wrong.
    User,
    /// The registry: it is unreachable, slow or faulty.
    Registry,
    /// The author of the image.
    Image,
    /// The host of the gateway.
    Host,
}

/// A failed operation on images.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The text is not an image reference.
    #[error("`{text}` is not an image reference: {why}")]
    Reference {
        /// The given text.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// The registry did not return the image, or returned different content.
    #[error("cannot pull image `{image}` from registry `{registry}`")]
    Pull {
        /// The image.
        image: String,
        /// Its registry.
        registry: String,
        /// The cause.
        #[source]
        source: Box<RegistryError>,
    },
    /// A layer cannot be unpacked.
    #[error("cannot unpack layer `{layer}` of image `{image}`")]
    Layer {
        /// The image.
        image: String,
        /// The layer's `diff_id`.
        layer: Digest,
        /// The cause.
        #[source]
        source: Box<LayerError>,
    },
    /// The layer store cannot be used.
    #[error("cannot use the layers of the image store")]
    Layers(#[source] Box<LayerError>),
    /// An archive is not an image, or is damaged.
    #[error("cannot import images from `{}`: {why}", archive.display())]
    Import {
        /// The file or folder.
        archive: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The image is not in the store.
    #[error("image `{image}` is not in the store")]
    Absent {
        /// The image.
        image: String,
    },
    /// The store's own files cannot be read or written.
    #[error("cannot use the image store: {action} `{}` failed", path.display())]
    Store {
        /// The failed operation, such as `write`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The caller cancelled the operation.
    #[error("the work on image `{image}` was cancelled")]
    Cancelled {
        /// The image.
        image: String,
    },
}

impl From<LayerError> for ImageError {
    fn from(error: LayerError) -> Self {
        Self::Layers(Box::new(error))
    }
}

impl ImageError {
    /// Returns the party that can fix it.
    pub fn responsible(&self) -> Responsible {
        match self {
            Self::Reference { .. } | Self::Absent { .. } | Self::Cancelled { .. } => {
                Responsible::User
            }
            Self::Pull { source, .. } => source.responsible(),
            Self::Layer { source, .. } => source.responsible(),
            Self::Layers(source) => source.responsible(),
            Self::Import { .. } => Responsible::Image,
            Self::Store { .. } => Responsible::Host,
        }
    }
}

impl Diagnose for ImageError {
    fn code(&self) -> &'static str {
        match self {
            Self::Reference { .. } => "image.reference",
            Self::Pull { source, .. } => source.code(),
            Self::Layer { source, .. } => source.code(),
            Self::Layers(source) => source.code(),
            Self::Import { .. } => "image.invalid",
            Self::Absent { .. } => "image.absent",
            Self::Store { .. } => "image.store",
            Self::Cancelled { .. } => "image.cancelled",
        }
    }

    fn fault(&self) -> Fault {
        match self.responsible() {
            Responsible::User => Fault::Client,
            Responsible::Registry | Responsible::Image => Fault::Server,
            Responsible::Host => Fault::Gateway,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Reference { .. } => {
                Some("write `registry/repository:tag` or `registry/repository@sha256:…`".to_owned())
            }
            Self::Pull {
                source, registry, ..
            } => source.hint(registry),
            Self::Layer { source, .. } => source.hint(),
            Self::Layers(source) => source.hint(),
            Self::Import { .. } => Some(
                "make the archive again with `docker save` or as an OCI image layout".to_owned(),
            ),
            Self::Absent { image } => Some(format!("pull it first: `gantry images pull {image}`")),
            Self::Store { .. } => {
                Some("is the disk full, or does the folder belong to another user?".to_owned())
            }
            Self::Cancelled { .. } => None,
        }
    }
}

/// The most characters of external text in a message.
const LONGEST_QUOTE: usize = 300;

/// Returns external text in printable form: short, and without control characters.
pub(crate) fn printable(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(LONGEST_QUOTE)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(LONGEST_QUOTE).is_some() {
        shown.push('…');
    }
    shown
}
