//! Unpacks one layer, in the form of overlay file systems, into a private folder.
//!
//! Every entry is created by `*at` calls on its opened parent folder, which is found below the root
//! without following a symbolic link; no path is checked first and used later. Existing files are
//! never written to. After a failure the caller removes the partial result. Entry point:
//! [`unpack`].

mod deferred;
mod tree;
mod whiteout;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

pub(crate) use self::deferred::{DirectoryTimes, ImpliedFolders};
pub(crate) use self::tree::open_folder;
pub(crate) use self::whiteout::{ATTRIBUTE_OPAQUE, Opacity, WhiteoutForm, is_whiteout, opacity};

use self::tree::Tree;
use crate::digest::Digest;
use crate::layers::LayerError;
use crate::store::Owners;
use crate::tar::{Archive, Bounds, Entry, Kind, Refusal};

/// The name of the whiteout that hides the whole content of a folder in lower layers.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// The prefix of a whiteout's name; the hidden name follows.
const WHITEOUT: &[u8] = b".wh.";
/// The attributes reserved for the overlay file system.
const OVERLAY_ATTRIBUTES: &[u8] = b"user.overlay.";

/// The target of unpacking.
#[derive(Debug)]
pub(crate) struct Target {
    /// The empty folder that becomes the layer's root.
    pub(crate) root: OwnedFd,
    /// An empty file for the list of folders that the layer uses without an entry.
    pub(crate) implied: File,
    /// An empty file for folder times, which are set at the end.
    pub(crate) times: File,
    pub(crate) owners: Owners,
    pub(crate) whiteouts: WhiteoutForm,
}

/// The result of unpacking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unpacked {
    /// The digest of the uncompressed stream, read to its end.
    pub(crate) diff_id: Digest,
    /// The length of that stream.
    pub(crate) stream_bytes: u64,
    /// The bytes of all files.
    pub(crate) content_bytes: u64,
    /// Entries, including extension headers and implied folders.
    pub(crate) entries: u64,
    /// Whether the layer hides everything below it.
    pub(crate) opaque_root: bool,
    /// Device nodes that were skipped.
    pub(crate) devices_skipped: u64,
    /// Extended attributes that were skipped.
    pub(crate) attributes_skipped: u64,
}

/// Unpacks the uncompressed tar stream of a layer. After an error the target has partial content.
pub(crate) fn unpack(
    stream: impl Read,
    target: Target,
    bounds: Bounds<'_>,
) -> Result<Unpacked, LayerError> {
    let mut work = Work {
        tree: Tree::new(target.root, target.implied, target.owners, target.whiteouts),
        times: DirectoryTimes::new(target.times),
        content_bytes: 0,
        devices_skipped: 0,
        attributes_skipped: 0,
    };
    let mut archive = Archive::new(stream, bounds);
    while let Some(entry) = archive.next()? {
        work.apply(&entry, &mut archive)?;
        let implied = work.tree.take_implied_count();
        if implied > 0 {
            archive.count(implied)?;
        }
    }
    let entries = archive.entries();
    let (diff_id, stream_bytes) = archive.finish()?;
    let opaque_root = work.tree.finish()?;
    work.times.apply(work.tree.root())?;
    Ok(Unpacked {
        diff_id,
        stream_bytes,
        content_bytes: work.content_bytes,
        entries,
        opaque_root,
        devices_skipped: work.devices_skipped,
        attributes_skipped: work.attributes_skipped,
    })
}

struct Work {
    tree: Tree,
    times: DirectoryTimes,
    content_bytes: u64,
    devices_skipped: u64,
    attributes_skipped: u64,
}

impl Work {
    fn apply<R: Read>(
        &mut self,
        entry: &Entry,
        archive: &mut Archive<'_, R>,
    ) -> Result<(), LayerError> {
        let path = &entry.path;
        let mut parents = path.parent().split(|&byte| byte == b'/');
        if parents.any(|part| part.starts_with(WHITEOUT)) {
            return Err(archive.refused(Refusal::WhiteoutParent));
        }
        if path.is_root() && entry.kind != Kind::Directory {
            return Err(archive.refused(Refusal::Root));
        }
        if let Some(hidden) = path.name().strip_prefix(WHITEOUT) {
            if !matches!(entry.kind, Kind::File | Kind::HardLink) {
                return Err(archive.refused(Refusal::WhiteoutKind));
            }
            return match hidden {
                _ if path.name() == OPAQUE => self.tree.hide_all(path),
                b"" | b"." | b".." => Err(archive.refused(Refusal::WhiteoutName)),
                // Metadata names of AUFS, which old image builders used.
                _ if hidden.starts_with(WHITEOUT) => Err(archive.refused(Refusal::WhiteoutName)),
                _ => self.tree.hide(path, hidden),
            };
        }
        match entry.kind {
            Kind::File => {
                let file = self.tree.create_file(path)?;
                let mut file = File::from(file);
                let budget = archive.budget();
                loop {
                    let piece = archive.content()?;
                    if piece.is_empty() {
                        break;
                    }
                    let count = piece.len();
                    budget.map_or(Ok(()), |budget| budget.charge(count as u64))?;
                    file.write_all(piece)
                        .map_err(LayerError::store("write", path.as_bytes()))?;
                    archive.consume(count);
                    self.content_bytes += count as u64;
                }
                self.describe(&OwnedFd::from(file), entry, archive)
            }
            Kind::Directory => {
                let folder = self.tree.create_folder(path)?;
                self.times.put_off(path.as_bytes(), entry.mtime)?;
                self.describe(&folder, entry, archive)
            }
            Kind::Fifo => {
                let fifo = self.tree.create_fifo(path)?;
                self.describe(&fifo, entry, archive)
            }
            Kind::Symlink => {
                self.attributes_skipped += entry.attributes.len() as u64;
                self.tree.create_symlink(entry)
            }
            Kind::HardLink => {
                self.attributes_skipped += entry.attributes.len() as u64;
                self.tree.create_hard_link(entry)
            }
            Kind::Device => {
                self.devices_skipped += 1;
                Ok(())
            }
        }
    }

    /// Sets owner, attributes, mode and time. The order matters: a change of the owner clears mode
    /// bits, and a read-only mode forbids attributes.
    fn describe<R: Read>(
        &mut self,
        file: &OwnedFd,
        entry: &Entry,
        archive: &Archive<'_, R>,
    ) -> Result<(), LayerError> {
        self.tree.set_owner(file, entry)?;
        for (name, value) in &entry.attributes {
            let wanted = name.starts_with(b"user.") && !name.starts_with(OVERLAY_ATTRIBUTES);
            if !wanted {
                self.attributes_skipped += 1;
                continue;
            }
            if !self.tree.set_attribute(file, name, value, entry)? {
                let name = crate::tar::shown(name);
                return Err(archive.refused(Refusal::Attribute { name }));
            }
        }
        self.tree.set_mode_and_time(file, entry)
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
