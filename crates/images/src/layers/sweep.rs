//! Removes unused layers: mark and sweep, under the store lock.

use std::collections::HashSet;
use std::os::fd::AsFd;

use rustix::fs::FlockOperation;

use super::held::Description;
use super::lock::{StoreLock, try_lock};
use super::scratch::{Scratch, each_name};
use super::{LayerError, LayerStore, short_name};
use crate::digest::Digest;
use crate::unpack::open_folder;

/// How many layers are removed per batch. Other tasks can use the store between two batches.
const BATCH: usize = 64;

/// The result of a removal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// How many layers were removed.
    pub layers: u64,
    /// The total size of their files.
    pub bytes: u64,
}

impl LayerStore {
    /// Removes every layer that `marks` does not name and that is not in use. `marks` is called
    /// again after the locks are taken: a task that adds an image holds its layers until the record
    /// is written, so a layer that can be locked is either marked by then or not needed.
    pub(crate) fn sweep<E: From<LayerError>>(
        &self,
        mut marks: impl FnMut() -> Result<HashSet<Digest>, E>,
    ) -> Result<Pruned, E> {
        let mut pruned = Pruned::default();
        loop {
            let removed = self.take_batch(&mut marks, &mut pruned)?;
            // The store lock is released here; the removed folders are deleted without it.
            if removed.is_empty() {
                return Ok(pruned);
            }
        }
    }

    fn take_batch<E: From<LayerError>>(
        &self,
        marks: &mut impl FnMut() -> Result<HashSet<Digest>, E>,
        pruned: &mut Pruned,
    ) -> Result<Vec<Scratch>, E> {
        let _store = StoreLock::exclusive(self.root())?;
        let mut names = Vec::new();
        let marked: HashSet<String> = marks()?.iter().map(short_name).collect();
        each_name(self.layers(), |name, _| {
            let name = String::from_utf8_lossy(name).into_owned();
            if !marked.contains(&name) {
                names.push(name);
            }
            Ok(())
        })
        .map_err(LayerError::store("read", "layers"))?;

        let mut unused = Vec::new();
        for name in names {
            if unused.len() >= BATCH {
                break;
            }
            let failed = || LayerError::store("open", &name);
            let folder = open_folder(self.layers(), name.as_bytes()).map_err(failed())?;
            let exclusive = FlockOperation::NonBlockingLockExclusive;
            if try_lock(folder.as_fd(), exclusive).map_err(failed())? {
                unused.push((name, folder));
            }
        }
        if unused.is_empty() {
            return Ok(Vec::new());
        }
        let marked: HashSet<String> = marks()?.iter().map(short_name).collect();
        unused.retain(|(name, _)| !marked.contains(name));

        let mut removed = Vec::new();
        for (name, folder) in unused {
            let bytes = Description::read(folder.as_fd(), &name)
                .map_or(0, |description| description.content_bytes);
            removed.push(Scratch::take_over(
                self.tmp(),
                self.layers(),
                &name,
                folder,
            )?);
            pruned.layers += 1;
            pruned.bytes += bytes;
        }
        Ok(removed)
    }
}
