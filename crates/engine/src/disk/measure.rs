//! Measures folders whose size the kernel does not limit.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use parking_lot::Mutex;

use super::tree;

/// The measured size of folders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) bytes: u64,
    pub(super) files: u64,
    /// Why not everything could be measured.
    pub(super) hides: Option<&'static str>,
}

/// Returns the bytes and the number of deleted files that a server holds open on these devices.
pub(crate) type UnnamedFiles = Box<dyn Fn(&[u64]) -> (u64, u64) + Send + Sync>;

/// The last measurement of some folders.
#[derive(Default)]
pub(super) struct Measured {
    last: Mutex<Option<Found>>,
    /// Counts deleted files, which a walk over folders does not find.
    unnamed: Mutex<Option<UnnamedFiles>>,
}

impl Measured {
    /// Also counts the deleted files that a running server holds open.
    pub(super) fn count(&self, unnamed: UnnamedFiles) {
        *self.unnamed.lock() = Some(unnamed);
    }

    /// Measures the folders together.
    pub(super) fn measure(&self, roots: &[PathBuf]) -> Found {
        let mut all = Found::default();
        let mut devices = BTreeSet::new();
        for root in roots {
            let found = tree::measure(root);
            all.bytes += found.bytes;
            all.files += found.files;
            all.hides = all.hides.or(found.hides);
            devices.extend(std::fs::metadata(root).map(|root| root.dev()));
        }
        if let Some(unnamed) = &*self.unnamed.lock() {
            let devices: Vec<u64> = devices.into_iter().collect();
            let (bytes, files) = unnamed(&devices);
            all.bytes += bytes;
            all.files += files;
        }
        *self.last.lock() = Some(all);
        all
    }

    pub(super) fn last(&self) -> Option<Found> {
        *self.last.lock()
    }
}
