//! Why a layer is not in the store, whose matter it is, and what to do.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::digest::Digest;
use crate::error::Responsible;
use crate::tar::{Refusal, shown};

/// What kept a layer from being unpacked, found or removed.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// An entry that no image needs, or that means harm.
    #[error("entry `{entry}` is refused: {why}")]
    Refused {
        /// Its path, as far as it can be shown.
        entry: String,
        /// What is wrong with it.
        why: Refusal,
    },
    /// More bytes than are allowed.
    #[error("it is larger than {limit_bytes} bytes unpacked")]
    TooLarge {
        /// The limit.
        limit_bytes: u64,
    },
    /// More bytes than all layers of an image may have.
    #[error("with it the image is larger than {limit_bytes} bytes unpacked")]
    ImageTooLarge {
        /// The limit.
        limit_bytes: u64,
    },
    /// Too little would stay free on the disk.
    #[error(
        "{free_bytes} bytes are free on the disk of the image store, and {kept_bytes} have to stay free"
    )]
    NoSpace {
        /// What is free.
        free_bytes: u64,
        /// What has to stay free.
        kept_bytes: u64,
    },
    /// More entries than are allowed.
    #[error("it has more than {limit} entries")]
    TooManyEntries {
        /// The limit.
        limit: u64,
    },
    /// More time than is allowed.
    #[error("it was not unpacked within {limit:?}")]
    TooSlow {
        /// The limit.
        limit: Duration,
    },
    /// Whoever asked has cancelled.
    #[error("unpacking was cancelled")]
    Cancelled,
    /// The content is another one.
    #[error("its content has the digest `{found}`, not `{wanted}`")]
    WrongDigest {
        /// What the image's configuration says.
        wanted: Digest,
        /// What came.
        found: Digest,
    },
    /// The stream of the layer could not be read: the download failed, or its compression is damaged.
    #[error("its content cannot be read")]
    Read(#[source] io::Error),
    /// A path that leads through a symbolic link of another layer.
    #[error(
        "path `{path}` of layer `{layer}` leads through a symbolic link of a lower layer, which overlay \
         file systems do not follow"
    )]
    ThroughLowerSymlink {
        /// The layer that has the path.
        layer: Digest,
        /// The path that is a symbolic link below.
        path: String,
    },
    /// The layer is not here.
    #[error("layer `{diff_id}` is not in the store")]
    Missing {
        /// Which one.
        diff_id: Digest,
    },
    /// What the store itself wrote is not what it reads.
    #[error("`{}` in the image store is damaged: {why}", path.display())]
    Damaged {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The store was made for another kind of owner.
    #[error("the image store was made by a gateway that {}", if *.keeps { "runs as root" } else { "does not run as root" })]
    OtherOwners {
        /// Whether its layers keep their owners.
        keeps: bool,
    },
    /// Somebody else keeps the store locked.
    #[error("the image store was locked by another process for {waited:?}")]
    Busy {
        /// How long was waited.
        waited: Duration,
    },
    /// The file system cannot hold layers.
    #[error("the file system of the image store lacks {feature}")]
    FileSystem {
        /// What it lacks.
        feature: &'static str,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// The store's own files cannot be read or written.
    #[error("cannot {action} `{path}` in the image store")]
    Store {
        /// What was tried, such as `write`.
        action: &'static str,
        /// What, as far as it can be shown.
        path: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

impl LayerError {
    /// Refuses the entry with this path.
    pub(crate) fn refused(path: &[u8], why: Refusal) -> Self {
        Self::Refused {
            entry: shown(path),
            why,
        }
    }

    /// Returns what makes an error of the operating system one of the store.
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
            Self::NoSpace { .. } => "make room: `gantry images prune` removes what no image needs",
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
            Self::Store { .. } => "is the folder owned by somebody else?",
            Self::Cancelled => return None,
        };
        Some(hint.to_owned())
    }
}
