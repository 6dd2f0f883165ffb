//! Users of a gateway that was started on demand.
//!
//! Each `gantry stdio` holds a shared lock on `users.lock` in the data folder for its lifetime. A
//! gateway started by one of them stops when it gets the exclusive lock, and keeps it until it has
//! ended, so that no new user attaches to a stopping gateway. Entry points: [`enter`] and
//! [`none_left`].

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;

/// Poll interval: releasing a lock notifies no one.
const LOOK: Duration = Duration::from_millis(500);

/// Registers a user; `None` while the gateway is stopping. Dropping the file unregisters.
pub fn enter(folder: &Path) -> io::Result<Option<File>> {
    let file = open(folder)?;
    taken(file.try_lock_shared(), file)
}

/// Waits until there is no user, and admits none while the file is held.
pub async fn none_left(folder: &Path) -> io::Result<File> {
    loop {
        sleep(LOOK).await;
        let file = open(folder)?;
        if let Some(file) = taken(file.try_lock(), file)? {
            return Ok(file);
        }
    }
}

fn open(folder: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(folder.join("users.lock"))
}

fn taken(locked: Result<(), TryLockError>, file: File) -> io::Result<Option<File>> {
    match locked {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_last_one_out_closes_the_door() {
        let folder = tempfile::tempdir().unwrap();
        let first = enter(folder.path()).unwrap().unwrap();
        let second = enter(folder.path()).unwrap().unwrap();
        drop(first);
        let waited = timeout(Duration::from_secs(10), none_left(folder.path())).await;
        assert!(waited.is_err(), "one is still there");
        drop(second);
        let closed = none_left(folder.path()).await.unwrap();
        assert!(enter(folder.path()).unwrap().is_none());
        drop(closed);
        assert!(enter(folder.path()).unwrap().is_some());
    }
}
