//! Errors of the layer store, with the responsible party and a hint.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::digest::Digest;
use crate::error::Responsible;
use crate::tar::{Refusal, shown};

/// Why a layer could not be unpacked, found or removed.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// An entry that is malformed, malicious or not needed by any image.
    #[error("entry `{entry}` is refused: {why}")]
    Refused {
        /// Its path in printable form.
        entry: String,
        /// What is wrong with it.
        why: Refusal,
    },
    /// The layer has more bytes than allowed.
    #[error("it is larger than {limit_bytes} bytes unpacked")]
    TooLarge {
        /// The limit.
        limit_bytes: u64,
    },
    /// The layers of the image have more bytes than allowed.
    #[error("with it the image is larger than {limit_bytes} bytes unpacked")]
    ImageTooLarge {
        /// The limit.
        limit_bytes: u64,
    },
    /// The disk would have too little free space.
    #[error(
        "{free_bytes} bytes are free on the disk of the image store, and {kept_bytes} have to stay free"
    )]
    NoSpace {
        /// The free space.
        free_bytes: u64,
        /// The reserve.
        kept_bytes: u64,
    },
    /// The layer has more entries than allowed.
    #[error("it has more than {limit} entries")]
    TooManyEntries {
        /// The limit.
        limit: u64,
    },
    /// Unpacking took longer than allowed.
    #[error("it was not unpacked within {limit:?}")]
    TooSlow {
        /// The limit.
        limit: Duration,
    },
    /// The caller cancelled it.
    #[error("unpacking was cancelled")]
    Cancelled,
    /// The content does not match its digest.
    #[error("its content has the digest `{found}`, not `{wanted}`")]
    WrongDigest {
        /// The digest in the image's configuration.
        wanted: Digest,
        /// The digest of the content.
        found: Digest,
    },
    /// The stream of the layer could not be read: the download failed, or the compressed data is
    /// damaged.
    #[error("its content cannot be read")]
    Read(#[source] io::Error),
    /// A path that goes through a symbolic link of another layer.
    #[error(
        "path `{path}` of layer `{layer}` leads through a symbolic link of a lower layer, which overlay \
         file systems do not follow"
    )]
    ThroughLowerSymlink {
        /// The layer that has the path.
        layer: Digest,
        /// The path that is a symbolic link in a lower layer.
        path: String,
    },
    /// The layer is not in the store.
    #[error("layer `{diff_id}` is not in the store")]
    Missing {
        /// The layer.
        diff_id: Digest,
    },
    /// A file of the store is damaged.
    #[error("`{}` in the image store is damaged: {why}", path.display())]
    Damaged {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The store was created for another kind of file owners.
    #[error("the image store was made by a gateway that {}", if *.keeps { "runs as root" } else { "does not run as root" })]
    OtherOwners {
        /// Whether files keep the owners given in the layer.
        keeps: bool,
    },
    /// Another process has locked the store.
    #[error("the image store was locked by another process for {waited:?}")]
    Busy {
        /// How long this one waited.
        waited: Duration,
    },
    /// The file system does not support layers.
    #[error("the file system of the image store lacks {feature}")]
    FileSystem {
        /// The missing feature.
        feature: &'static str,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The store's own files cannot be read or written.
    #[error("cannot {action} `{path}` in the image store")]
    Store {
        /// The failed operation, such as `write`.
        action: &'static str,
        /// The path in printable form.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl LayerError {
    /// Returns the error that refuses the entry with this path.
    pub(crate) fn refused(path: &[u8], why: Refusal) -> Self {
        Self::Refused {
            entry: shown(path),
            why,
        }
    }

    /// Returns a function that converts an error of the operating system.
    pub(crate) fn store<E: Into<io::Error>>(
        action: &'static str,
        path: impl AsRef<[u8]>,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::Store {
            action,
            path: shown(path.as_ref()),
            source: source.into(),
        }
    }

    pub(crate) fn responsible(&self) -> Responsible {
        match self {
            Self::Refused { .. }
            | Self::TooLarge { .. }
            | Self::ImageTooLarge { .. }
            | Self::TooManyEntries { .. }
            | Self::WrongDigest { .. }
            | Self::Read(_)
            | Self::ThroughLowerSymlink { .. } => Responsible::Image,
            Self::Cancelled => Responsible::User,
            Self::TooSlow { .. }
            | Self::NoSpace { .. }
            | Self::Missing { .. }
            | Self::Damaged { .. }
            | Self::OtherOwners { .. }
            | Self::Busy { .. }
            | Self::FileSystem { .. }
            | Self::Store { .. } => Responsible::Host,
        }
    }

    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Refused { .. } | Self::ThroughLowerSymlink { .. } => "image.layer_refused",
            Self::TooLarge { .. } | Self::ImageTooLarge { .. } | Self::TooManyEntries { .. } => {
                "image.too_large"
            }
            Self::NoSpace { .. } => "image.no_space",
            Self::TooSlow { .. } => "image.unpack_deadline",
            Self::Cancelled => "image.cancelled",
            Self::WrongDigest { .. } => "image.digest",
            Self::Read(_) => "image.invalid",
            Self::Missing { .. }
            | Self::Damaged { .. }
            | Self::OtherOwners { .. }
            | Self::Busy { .. }
            | Self::FileSystem { .. }
            | Self::Store { .. } => "image.store",
        }
    }

    pub(crate) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Refused { .. } | Self::ThroughLowerSymlink { .. } => {
                "build the image with another tool, or as one layer"
            }
            Self::NoSpace { .. } => {
                "free some space: `gantry images prune` removes what no image needs"
            }
            Self::TooLarge { .. } | Self::ImageTooLarge { .. } | Self::TooManyEntries { .. } => {
                "raise the limit for images, or use a smaller image"
            }
            Self::TooSlow { .. } => "is the disk busy? Try again, or raise the deadline for images",
            Self::WrongDigest { .. } | Self::Read(_) => "pull it again; the image may be damaged",
            Self::Missing { .. } | Self::Damaged { .. } => "remove the image and pull it again",
            Self::OtherOwners { .. } => "use another data folder for each user who runs a gateway",
            Self::Busy { .. } => "does another gateway or `gantry images` use this store?",
            Self::FileSystem { .. } => "put the data folder on a local disk, such as ext4 or XFS",
            Self::Store { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "the disk is full: `gantry images prune` removes what no image needs"
            }
            Self::Store { .. } => "does the folder belong to another user?",
            Self::Cancelled => return None,
        };
        Some(hint.to_owned())
    }
}
