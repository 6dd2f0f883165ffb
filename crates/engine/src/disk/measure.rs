//! The last measure of folders that the kernel does not bound.

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

/// The last measure of some folders.
#[derive(Debug, Default)]
pub(super) struct Measured(Mutex<Option<Found>>);

impl Measured {
    /// Measures the folders together.
    pub(super) fn measure(&self, roots: &[PathBuf]) -> Found {
        let mut all = Found::default();
        for root in roots {
            let found = tree::measure(root);
            all.bytes += found.bytes;
            all.files += found.files;
            all.hides = all.hides.or(found.hides);
        }
        *self.0.lock() = Some(all);
        all
    }

    pub(super) fn last(&self) -> Option<Found> {
        *self.0.lock()
    }
}
