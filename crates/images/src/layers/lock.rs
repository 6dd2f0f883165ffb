//! Locks that end with the process that holds them: `flock` on files and folders of the store.
//!
//! There are three kinds. The *store lock* is shared while a layer is looked up or added, for a
//! moment; sweepers take it exclusively. The lock of a *layer* or of a folder in `tmp/` is held on
//! the folder itself: shared by users, exclusive while it is made or removed. The lock of a *name*
//! in `locks/` is exclusive for the task that unpacks that layer, so that no work is done twice.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, openat, statat, unlinkat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use tokio::time::Instant;

use super::LayerError;

/// How long to wait for the store lock. It is never held longer than it takes to handle a few
/// files.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How often a lock is tried.
const RETRY: Duration = Duration::from_millis(5);

/// The store lock, held.
#[derive(Debug)]
pub(super) struct StoreLock {
    _file: OwnedFd,
}

impl StoreLock {
    /// Waits for the lock; others may share it.
    pub(super) fn shared(root: BorrowedFd<'_>) -> Result<Self, LayerError> {
        Self::wait(root, FlockOperation::NonBlockingLockShared)
    }

    /// Waits for the exclusive lock.
    pub(super) fn exclusive(root: BorrowedFd<'_>) -> Result<Self, LayerError> {
        Self::wait(root, FlockOperation::NonBlockingLockExclusive)
    }

    fn wait(root: BorrowedFd<'_>, operation: FlockOperation) -> Result<Self, LayerError> {
        let file = open_lock(root, "lock").map_err(LayerError::store("open", "lock"))?;
        let deadline = Instant::now() + LONGEST_WAIT;
        while !try_lock(file.as_fd(), operation).map_err(LayerError::store("lock", "lock"))? {
            if Instant::now() >= deadline {
                return Err(LayerError::Busy {
                    waited: LONGEST_WAIT,
                });
            }
            std::thread::sleep(RETRY);
        }
        Ok(Self { _file: file })
    }
}

/// The lock of a name, held. Its file is removed when it is dropped.
#[derive(Debug)]
pub(super) struct NameLock {
    _file: OwnedFd,
    folder: OwnedFd,
    name: String,
}

impl NameLock {
    /// Takes the lock; `None` if another task holds it.
    pub(super) fn take(folder: BorrowedFd<'_>, name: &str) -> Result<Option<Self>, LayerError> {
        let failed = || LayerError::store("lock", name);
        loop {
            let file = open_lock(folder, name).map_err(failed())?;
            let exclusive = FlockOperation::NonBlockingLockExclusive;
            if !try_lock(file.as_fd(), exclusive).map_err(failed())? {
                return Ok(None);
            }
            // The previous holder removes the file; then this lock is on a deleted file and does
            // not count.
            let own = fstat(&file).map_err(failed())?;
            match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(there) if (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino) => {
                    let folder = fcntl_dupfd_cloexec(folder, 0);
                    return Ok(Some(Self {
                        _file: file,
                        folder: folder.map_err(failed())?,
                        name: name.to_owned(),
                    }));
                }
                Ok(_) | Err(Errno::NOENT) => {}
                Err(error) => return Err(failed()(error)),
            }
        }
    }
}

impl Drop for NameLock {
    fn drop(&mut self) {
        // Removed while it is locked, so that no other task can have taken it in between.
        if let Err(error) = unlinkat(&self.folder, &self.name, AtFlags::empty()) {
            tracing::debug!(name = self.name, %error, "the lock of a layer was not removed");
        }
    }
}

/// Tries to take a lock; returns whether it succeeded.
pub(super) fn try_lock(file: BorrowedFd<'_>, operation: FlockOperation) -> Result<bool, Errno> {
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

fn open_lock(folder: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(folder, name, flags, Mode::RUSR | Mode::WUSR)
}
