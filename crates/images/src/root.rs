//! The root file system of an image: the layers to mount, or one merged folder if overlay is
//! refused.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with, syncfs};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

use crate::digest::Digest;
use crate::error::ImageError;
use crate::flat::{self, AtPath};
use crate::layers::{HeldLayer, LayerError, LayerStore};
use crate::record::ImageRecord;
use crate::store::ImageStore;
use crate::unpack::open_folder;

/// The layers of an image, which stay in the store until this is dropped.
#[derive(Debug)]
pub struct RootLayers {
    /// The folder that the names in `lower` are relative to: the working directory of the mount.
    pub base: PathBuf,
    /// The value of `lowerdir`, highest layer first, for a mount with `userxattr`.
    pub lower: Vec<String>,
    store: LayerStore,
    /// Holds the same layers.
    held: Vec<HeldLayer>,
}

impl ImageStore {
    /// Returns the layers of an image. Blocks for a moment.
    pub fn root(&self, image: &ImageRecord) -> Result<RootLayers, ImageError> {
        let diff_ids: Vec<Digest> = image.layers.iter().map(|layer| layer.diff_id).collect();
        Ok(self.shared.layers.hold(&diff_ids)?)
    }
}

impl RootLayers {
    /// Merges all layers into a new folder on the file system of the store, completely or not at
    /// all. Does nothing if the folder exists. Blocks; ends early when cancelled.
    pub fn flat(&self, folder: &Path, stop: &CancellationToken) -> Result<(), ImageError> {
        Ok(self.flatten(folder, stop)?)
    }

    /// Copies what the image has in a folder into an empty folder of this machine. Owners are counted
    /// from `first_id`; without it everything belongs to the gateway's user. Fails once more than
    /// `limit_bytes` are copied. Blocks.
    pub fn copy_folder(
        &self,
        path: &Path,
        into: &Path,
        first_id: Option<u32>,
        limit_bytes: u64,
        stop: &CancellationToken,
    ) -> Result<(), ImageError> {
        let failed = LayerError::store("open", into.as_os_str().as_encoded_bytes());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(CWD, into, flags, Mode::empty()).map_err(failed)?;
        let (layers, store) = (&self.held, &self.store);
        let copied = flat::copy_folder(layers, path, &folder, first_id, limit_bytes, store, stop);
        Ok(copied?)
    }

    /// Returns what the image has at a path. Blocks for a moment.
    pub fn at_path(&self, path: &Path) -> Result<AtPath, ImageError> {
        Ok(flat::at_path(&self.held, path)?)
    }

    fn flatten(&self, folder: &Path, stop: &CancellationToken) -> Result<(), LayerError> {
        let shown = folder.as_os_str().as_encoded_bytes();
        let failed = || LayerError::store("create", shown);
        let invalid = || failed()(Errno::INVAL);
        let name: &OsStr = folder.file_name().ok_or_else(invalid)?;
        let parent = folder.parent().ok_or_else(invalid)?;
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = openat(CWD, parent, flags, Mode::empty()).map_err(failed())?;
        if open_folder(std::os::fd::AsFd::as_fd(&parent), name.as_encoded_bytes()).is_ok() {
            return Ok(());
        }
        let scratch = self.store.scratch()?;
        flat::build(&self.held, &scratch, &self.store, stop)?;
        syncfs(scratch.folder()).map_err(failed())?;
        match renameat_with(
            scratch.folder(),
            flat::FILES,
            &parent,
            name,
            RenameFlags::NOREPLACE,
        ) {
            // Another task was faster.
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(failed()(error)),
        }
    }
}

impl LayerStore {
    /// Holds the layers of an image, given lowest first, and names the visible ones.
    pub(crate) fn hold(&self, diff_ids: &[Digest]) -> Result<RootLayers, LayerError> {
        // If a layer occurs twice, the higher one hides the lower one; overlay accepts it only
        // once.
        let mut seen = HashSet::new();
        let mut highest_first: Vec<Digest> = diff_ids.iter().rev().copied().collect();
        highest_first.retain(|diff_id| seen.insert(*diff_id));
        let mut held = self.hold_each(&highest_first)?;
        // Overlay ignores an opaque mark on the root itself.
        if let Some(last) = held.iter().position(HeldLayer::hides_all) {
            held.truncate(last + 1);
        }
        Ok(RootLayers {
            base: self.base(),
            lower: held.iter().map(HeldLayer::lower).collect(),
            store: self.clone(),
            held,
        })
    }
}
