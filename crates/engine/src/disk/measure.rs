//! Measures what a folder takes on disk, where the kernel cannot bound it. The walk follows no link,
//! stays in the folder, and stops at a bound of its own.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// More files than this are not counted; a folder that has them is over every limit of inodes.
const MOST_FILES: u64 = 1_000_000;

/// What a folder takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) bytes: u64,
    pub(super) files: u64,
}

/// The last measure of a folder.
#[derive(Debug, Default)]
pub(super) struct Measured(Mutex<Option<Found>>);

impl Measured {
    pub(super) fn measure(&self, root: &Path) -> Found {
        let found = measure(root);
        *self.0.lock() = Some(found);
        found
    }

    pub(super) fn last(&self) -> Option<Found> {
        *self.0.lock()
    }
}

/// Returns what a folder takes, with everything below it. What cannot be read counts nothing.
pub(super) fn measure(root: &Path) -> Found {
    let mut found = Found::default();
    each_below(root, &mut |metadata, _| {
        found.bytes += metadata.blocks() * 512;
        found.files += 1;
        found.files < MOST_FILES
    });
    found
}

/// Lets the gateway into folders that a server of the same user has closed to itself.
pub(super) fn make_readable(root: &Path) {
    let open = |path: &Path, mode: u32| {
        drop(std::fs::set_permissions(
            path,
            std::fs::Permissions::from_mode(mode | 0o700),
        ));
    };
    open(root, 0o700);
    each_below(root, &mut |metadata, path| {
        if metadata.is_dir() {
            open(path, metadata.mode());
        }
        true
    });
}

/// Visits everything below a folder until the visitor has enough; a folder before its content.
fn each_below(root: &Path, visit: &mut dyn FnMut(&std::fs::Metadata, &Path) -> bool) {
    let mut folders: Vec<PathBuf> = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            // Of the entry itself, never of what a link points to.
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            let path = entry.path();
            if !visit(&metadata, &path) {
                return;
            }
            if metadata.is_dir() {
                folders.push(path);
            }
        }
    }
}
