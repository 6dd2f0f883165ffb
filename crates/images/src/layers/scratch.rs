//! Folders in `tmp/`, in which everything is created and removed; cleaned up after a crash.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, RenameFlags, mkdirat, renameat_with, statat,
    unlinkat,
};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use super::LayerError;
use super::lock::{StoreLock, try_lock};
use crate::unpack::open_folder;

/// How many abandoned folders are removed at once; the rest is left to the next sweep.
const SWEPT_AT_ONCE: usize = 256;

/// Makes names unique within the process.
static COUNTER: AtomicU64 = AtomicU64::new(0);

/// A private, locked folder; removed with its content when dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    tmp: OwnedFd,
    name: String,
    folder: Option<OwnedFd>,
}

impl Scratch {
    /// Creates a folder in `tmp`. The store lock keeps sweepers away until it is locked.
    pub(super) fn new(tmp: BorrowedFd<'_>, _store: &StoreLock) -> Result<Self, LayerError> {
        let failed = || LayerError::store("create", "tmp");
        let tmp = fcntl_dupfd_cloexec(tmp, 0).map_err(failed())?;
        let name = loop {
            let name = next_name();
            match mkdirat(&tmp, &name, Mode::from_raw_mode(0o755)) {
                Ok(()) => break name,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(failed()(error)),
            }
        };
        let folder = open_folder(tmp.as_fd(), name.as_bytes()).map_err(failed())?;
        try_lock(folder.as_fd(), FlockOperation::NonBlockingLockExclusive).map_err(failed())?;
        Ok(Self {
            tmp,
            name,
            folder: Some(folder),
        })
    }

    pub(crate) fn folder(&self) -> BorrowedFd<'_> {
        let folder = self.folder.as_ref();
        folder.expect("it is taken when this is dropped").as_fd()
    }

    /// Renames the folder to a path that does not exist yet; returns it, still locked. If the path
    /// exists, the folder stays here.
    pub(super) fn publish(
        mut self,
        into: BorrowedFd<'_>,
        name: &str,
    ) -> Result<OwnedFd, (Self, Errno)> {
        match renameat_with(&self.tmp, &self.name, into, name, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(self.folder.take().expect("it is taken only once")),
            Err(error) => Err((self, error)),
        }
    }

    /// Moves a folder, whose lock is held by `folder`, into `tmp`, to be removed when this is
    /// dropped.
    pub(super) fn take_over(
        tmp: BorrowedFd<'_>,
        from: BorrowedFd<'_>,
        name: &str,
        folder: OwnedFd,
    ) -> Result<Self, LayerError> {
        let failed = || LayerError::store("remove", name);
        let tmp = fcntl_dupfd_cloexec(tmp, 0).map_err(failed())?;
        let here = loop {
            let here = next_name();
            match renameat_with(from, name, &tmp, &here, RenameFlags::NOREPLACE) {
                Ok(()) => break here,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(failed()(error)),
            }
        };
        Ok(Self {
            tmp,
            name: here,
            folder: Some(folder),
        })
    }

    /// Takes over folders of processes that have exited. The caller drops them after releasing the
    /// store lock.
    pub(super) fn abandoned(
        tmp: BorrowedFd<'_>,
        _store: &StoreLock,
    ) -> Result<Vec<Self>, LayerError> {
        let failed = || LayerError::store("sweep", "tmp");
        let mut abandoned = Vec::new();
        for entry in Dir::read_from(tmp).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") || abandoned.len() >= SWEPT_AT_ONCE {
                continue;
            }
            let Ok(folder) = open_folder(tmp, name.to_bytes()) else {
                unlinkat(tmp, name, AtFlags::empty()).map_err(failed())?;
                continue;
            };
            let exclusive = FlockOperation::NonBlockingLockExclusive;
            if try_lock(folder.as_fd(), exclusive).map_err(failed())? {
                abandoned.push(Self {
                    tmp: fcntl_dupfd_cloexec(tmp, 0).map_err(failed())?,
                    name: name.to_string_lossy().into_owned(),
                    folder: Some(folder),
                });
            }
        }
        Ok(abandoned)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.folder.is_some()
            && let Err(error) = remove_tree(self.tmp.as_fd(), self.name.as_bytes())
        {
            tracing::warn!(folder = self.name, %error, "a temporary folder was not removed");
        }
    }
}

fn next_name() -> String {
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("{:x}-{count:x}", std::process::id())
}

pub(crate) fn remove_tree(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    remove_tree_by(parent, name, open_folder)
}

/// Removes a folder with all its content, at any depth: nested folders are moved to the top before
/// they are emptied, so that neither the open folders nor the stack grow with the depth. `open` must
/// not follow links.
pub fn remove_tree_by(
    parent: BorrowedFd<'_>,
    name: &[u8],
    open: impl Fn(BorrowedFd<'_>, &[u8]) -> Result<OwnedFd, Errno>,
) -> Result<(), Errno> {
    let top = open(parent, name)?;
    let mut moved = 0_u64;
    loop {
        let mut folders = false;
        each_name(top.as_fd(), |name, kind| {
            if kind == FileType::Directory {
                folders = true;
                let inner = open(top.as_fd(), name)?;
                empty(top.as_fd(), name, &inner, &mut moved)
            } else {
                unlinkat(&top, name, AtFlags::empty())
            }
        })?;
        if !folders {
            break;
        }
    }
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Empties and removes a folder of `top`; its subfolders are moved to `top`.
fn empty(top: BorrowedFd<'_>, name: &[u8], folder: &OwnedFd, moved: &mut u64) -> Result<(), Errno> {
    each_name(folder.as_fd(), |inner, kind| {
        if kind != FileType::Directory {
            return unlinkat(folder, inner, AtFlags::empty());
        }
        loop {
            *moved += 1;
            let there = format!("moved-{moved}");
            match renameat_with(folder, inner, top, &there, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                done => return done,
            }
        }
    })?;
    unlinkat(top, name, AtFlags::REMOVEDIR)
}

/// Calls `each` with the name and type of every entry of a folder.
pub(crate) fn each_name(
    folder: BorrowedFd<'_>,
    mut each: impl FnMut(&[u8], FileType) -> Result<(), Errno>,
) -> Result<(), Errno> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        let mut kind = entry.file_type();
        if kind == FileType::Unknown {
            let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
            kind = FileType::from_raw_mode(stat.st_mode);
        }
        each(name, kind)?;
    }
    Ok(())
}
