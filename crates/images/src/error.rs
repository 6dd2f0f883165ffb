//! What can go wrong with an image, whose matter it is, and what to do.
//!
//! Every error names the image; what came from a registry has the cause as its source, which
//! [`gantry_model::diagnose::chain`] tells in one line.

use std::io;
use std::path::PathBuf;

use gantry_model::diagnose::{Diagnose, Fault};

use crate::digest::Digest;
use crate::layers::LayerError;
use crate::registry::RegistryError;

/// Who can solve it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Responsible {
    /// Whoever asked: the reference, the credentials or the setting is wrong.
    User,
    /// The registry is away, slow or wrong.
    Registry,
    /// Whoever made the image.
    Image,
    /// The machine we run on.
    Host,
}

/// A failed operation on images.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The text is not the name of an image.
    #[error("`{text}` is not an image reference: {why}")]
    Reference {
        /// What was given.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// The registry did not give the image, or something else than was named.
    #[error("cannot pull image `{image}` from registry `{registry}`")]
    Pull {
        /// The image.
        image: String,
        /// Its registry.
        registry: String,
        /// What happened.
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
        /// What happened.
        #[source]
        source: Box<LayerError>,
    },
    /// The layers of the store cannot be used.
    #[error("cannot use the layers of the image store")]
    Layers(#[source] Box<LayerError>),
    /// An archive is not an image, or a damaged one.
    #[error("cannot import images from `{}`: {why}", archive.display())]
    Import {
        /// The file or folder.
        archive: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// There is no such image here.
    #[error("image `{image}` is not in the store")]
    Absent {
        /// The image.
        image: String,
    },
    /// The store's own files cannot be read or written.
    #[error("cannot use the image store: {action} `{}` failed", path.display())]
    Store {
        /// What was tried, such as `write`.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Whoever asked has cancelled.
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
    /// Returns who can solve it.
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
                Some("is the disk full, or the folder owned by somebody else?".to_owned())
            }
            Self::Cancelled { .. } => None,
        }
    }
}

/// The most characters of somebody else's text in a message.
const LONGEST_QUOTE: usize = 300;

/// Returns somebody else's text as it may be shown: short, and without control characters.
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
