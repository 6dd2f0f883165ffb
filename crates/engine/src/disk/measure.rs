//! The last measure of folders that the kernel does not bound.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use parking_lot::Mutex;

use super::tree;

/// What folders take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) bytes: u64,
    pub(super) files: u64,
    /// Why not everything could be looked at.
    pub(super) hides: Option<&'static str>,
}

/// Returns the bytes and the number of the files that a server has open on these devices without a name.
pub(crate) type UnnamedFiles = Box<dyn Fn(&[u64]) -> (u64, u64) + Send + Sync>;

/// The last measure of some folders.
#[derive(Default)]
pub(super) struct Measured {
    last: Mutex<Option<Found>>,
    /// What no walk over folders finds.
    unnamed: Mutex<Option<UnnamedFiles>>,
}

impl Measured {
    /// Counts what a running server has open, as well.
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
