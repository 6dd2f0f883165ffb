//! Checks that layers can be stacked: no path of a layer goes through a symbolic link of a lower
//! layer.
//!
//! A layer may use folders without having entries for them; it then means the folders of lower
//! layers. If one of those is a symbolic link, an overlay would hide the link behind a new folder,
//! and the files would be missing at the link's target. Docker's overlay store breaks such images
//! as well; here they are refused.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, statat};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

use super::held::HeldLayer;
use super::{LayerError, LayerStore};
use crate::digest::Digest;
use crate::tar::shown;
use crate::unpack::{ImpliedFolders, Opacity, opacity, open_folder};

impl LayerStore {
    /// Refuses layers, given lowest first, if one has a path through a symbolic link of a lower
    /// one.
    pub(crate) fn check_order(
        &self,
        diff_ids: &[Digest],
        stop: &CancellationToken,
    ) -> Result<(), LayerError> {
        let held = self.hold_each(diff_ids)?;
        let roots: Vec<OwnedFd> = held
            .iter()
            .map(HeldLayer::files)
            .collect::<Result<_, _>>()?;
        for (at, layer) in held.iter().enumerate() {
            let found = ImpliedFolders::visit::<Stopped>(&mut layer.implied()?, |path| {
                if stop.is_cancelled() {
                    return Err(Stopped(LayerError::Cancelled));
                }
                is_symlink(&roots[..at], path)
                    .map_err(|error| Stopped(LayerError::store("read", path)(error)))
            });
            if let Some(path) = found.map_err(|stopped| stopped.0)? {
                return Err(LayerError::ThroughLowerSymlink {
                    layer: layer.diff_id,
                    path: shown(&path),
                });
            }
        }
        Ok(())
    }
}

/// An error while reading the list.
struct Stopped(LayerError);

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self(LayerError::store("read", "implied")(error))
    }
}

/// Returns whether this path is a symbolic link in an overlay of these layers, given lowest first.
fn is_symlink(layers: &[OwnedFd], path: &[u8]) -> Result<bool, Errno> {
    for root in layers.iter().rev() {
        match look(root, path)? {
            Seen::Nothing => {}
            Seen::Hidden => return Ok(false),
            Seen::There(kind) => return Ok(kind == FileType::Symlink),
        }
    }
    Ok(false)
}

/// What one layer contains at a path.
enum Seen {
    /// Nothing: a lower layer decides.
    Nothing,
    /// Something that hides all lower layers.
    Hidden,
    There(FileType),
}

fn look(root: &OwnedFd, path: &[u8]) -> Result<Seen, Errno> {
    let mut folder = root.try_clone().map_err(|_| Errno::MFILE)?;
    let mut parts = path.split(|&byte| byte == b'/').peekable();
    while let Some(part) = parts.next() {
        let kind = match statat(&folder, part, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(Errno::NOENT) if opacity(folder.as_fd())? == Opacity::Opaque => {
                return Ok(Seen::Hidden);
            }
            Err(Errno::NOENT) => return Ok(Seen::Nothing),
            Err(error) => return Err(error),
        };
        if parts.peek().is_none() {
            return Ok(Seen::There(kind));
        }
        if kind != FileType::Directory {
            return Ok(Seen::Hidden);
        }
        folder = open_folder(folder.as_fd(), part)?;
    }
    Ok(Seen::Nothing)
}
