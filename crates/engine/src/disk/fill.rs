//! The first content of a volume, as a whole or not at all. Entry point: [`Place::fill`].

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use super::{OPEN, Place, VOLUMES, tree};

/// Where the first content of a volume is put together, in its place.
const FILLING: &str = "filling";

impl Place {
    /// Gives an empty volume its first content, owner and mode: those of the folder that `copy` is
    /// given; one of `root` is open to all. Blocks.
    pub(crate) fn fill<E: From<io::Error>>(
        &self,
        volume: &Path,
        root: Option<u32>,
        copy: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        let (folder, volume) = (self.root.join(FILLING), self.volume(volume));
        // Clients may have instances of their own, which start at once: one fills, the others wait.
        let turn = File::open(self.root.join(VOLUMES))?;
        turn.lock()?;
        tree::remove(&folder)?;
        if !is_empty(&volume)? {
            return Ok(());
        }
        fs::create_dir(&folder)?;
        let filled = copy(&folder).and_then(|()| Ok(finish(&folder, &volume, root)?));
        if filled.is_err() {
            // Otherwise it counts as used; the next start tries again.
            tree::remove(&folder).ok();
        }
        filled
    }
}

fn is_empty(folder: &Path) -> io::Result<bool> {
    Ok(fs::read_dir(folder)?.next().is_none())
}

fn finish(folder: &Path, volume: &Path, root: Option<u32>) -> io::Result<()> {
    // Whoever the server runs as is to write to its volume.
    if Some(fs::metadata(folder)?.uid()) == root {
        fs::set_permissions(folder, fs::Permissions::from_mode(OPEN))?;
    }
    if !is_empty(folder)? {
        return fs::rename(folder, volume);
    }
    // Not replaced: an instance may use it. The mode that a server set stays.
    if fs::metadata(volume)?.mode() & 0o7777 == OPEN {
        let found = fs::metadata(folder)?;
        chown(volume, Some(found.uid()), Some(found.gid()))?;
        fs::set_permissions(volume, found.permissions())?;
    }
    fs::remove_dir(folder)
}
