//! A layer of the store that is protected from removal while in use, and its description.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, openat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::lock::{StoreLock, try_lock};
use super::{DESCRIPTION, FILES, LayerError, short_name};
use crate::digest::Digest;
use crate::unpack::{Unpacked, open_folder};

/// The longest description that is read, in bytes.
const LONGEST_DESCRIPTION: u64 = 4096;
/// The version of the description's format.
const VERSION: u32 = 1;

/// A layer of the store that cannot be removed until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldLayer {
    /// Its folder, with a shared lock.
    folder: OwnedFd,
    pub(crate) diff_id: Digest,
    /// The total size of its files.
    pub(crate) bytes: u64,
    /// Whether it hides every layer below it.
    opaque_root: bool,
}

impl HeldLayer {
    /// Returns the layer if it exists. The store lock keeps sweepers away until the layer is
    /// locked.
    pub(super) fn find(
        layers: BorrowedFd<'_>,
        diff_id: &Digest,
        store: &StoreLock,
    ) -> Result<Option<Self>, LayerError> {
        let name = short_name(diff_id);
        match open_folder(layers, name.as_bytes()) {
            Ok(folder) => Self::hold(folder, diff_id, store).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(LayerError::store("open", name)(error)),
        }
    }

    /// Takes a shared lock on the folder of a layer, replacing any lock it has.
    pub(super) fn hold(
        folder: OwnedFd,
        diff_id: &Digest,
        _store: &StoreLock,
    ) -> Result<Self, LayerError> {
        let name = short_name(diff_id);
        let shared = FlockOperation::NonBlockingLockShared;
        let locked = try_lock(folder.as_fd(), shared);
        if !locked.map_err(LayerError::store("lock", &name))? {
            // Only sweepers lock a layer exclusively, and they hold the store lock.
            return Err(LayerError::Damaged {
                path: name.into(),
                why: "another process has locked it".to_owned(),
            });
        }
        let description = Description::read(folder.as_fd(), &name)?;
        if description.diff_id != *diff_id {
            return Err(LayerError::Damaged {
                path: name.into(),
                why: format!("it is layer `{}`", description.diff_id),
            });
        }
        Ok(Self {
            folder,
            diff_id: *diff_id,
            bytes: description.content_bytes,
            opaque_root: description.opaque_root,
        })
    }

    /// Returns whether it hides every layer below it.
    pub(crate) fn hides_all(&self) -> bool {
        self.opaque_root
    }

    /// Returns the path of its files, relative to the folder of all layers.
    pub(crate) fn lower(&self) -> String {
        format!("{}/{FILES}", short_name(&self.diff_id))
    }

    /// Opens the root of its files.
    pub(crate) fn files(&self) -> Result<OwnedFd, LayerError> {
        open_folder(self.folder.as_fd(), FILES.as_bytes())
            .map_err(LayerError::store("open", self.lower()))
    }

    /// Opens the list of folders that the layer uses without an entry.
    pub(super) fn implied(&self) -> Result<File, LayerError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.folder, super::IMPLIED, flags, Mode::empty())
            .map(File::from)
            .map_err(LayerError::store("open", super::IMPLIED))
    }
}

/// The content of `layer.json`. Its presence means that the layer is complete.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Description {
    version: u32,
    pub(super) diff_id: Digest,
    stream_bytes: u64,
    pub(super) content_bytes: u64,
    entries: u64,
    opaque_root: bool,
    devices_skipped: u64,
    attributes_skipped: u64,
}

impl Description {
    pub(super) fn new(unpacked: &Unpacked) -> Self {
        Self {
            version: VERSION,
            diff_id: unpacked.diff_id,
            stream_bytes: unpacked.stream_bytes,
            content_bytes: unpacked.content_bytes,
            entries: unpacked.entries,
            opaque_root: unpacked.opaque_root,
            devices_skipped: unpacked.devices_skipped,
            attributes_skipped: unpacked.attributes_skipped,
        }
    }

    pub(super) fn write(&self, folder: BorrowedFd<'_>) -> Result<(), LayerError> {
        let text = serde_json::to_vec(self).expect("a description has only numbers and strings");
        let mut file = super::create_file(folder, DESCRIPTION)?;
        file.write_all(&text)
            .map_err(LayerError::store("write", DESCRIPTION))
    }

    pub(super) fn read(folder: BorrowedFd<'_>, layer: &str) -> Result<Self, LayerError> {
        let damaged = |why: String| LayerError::Damaged {
            path: Path::new(layer).join(DESCRIPTION),
            why,
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(folder, DESCRIPTION, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Err(damaged("it is missing".to_owned())),
            Err(error) => return Err(LayerError::store("open", DESCRIPTION)(error)),
        };
        let mut text = Vec::new();
        file.take(LONGEST_DESCRIPTION)
            .read_to_end(&mut text)
            .map_err(LayerError::store("read", DESCRIPTION))?;
        let description: Self =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if description.version != VERSION {
            let version = description.version;
            return Err(damaged(format!(
                "it is of version {version}, which is not known here"
            )));
        }
        Ok(description)
    }
}
