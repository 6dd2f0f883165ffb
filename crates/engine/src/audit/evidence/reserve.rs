//! Space on the disk that is kept for what must be possible when the disk is full: revoking keys,
//! suspending, stopping and freeing space. It is a file, given up when the database has no space for
//! such an act, and taken again once there is space. Entry points: [`Reserve::give_up`] and [`Reserve::take`].

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};

/// Enough for hundreds of acts.
const BYTES: u64 = 1 << 20;
/// It is not taken from a disk with less than this: calls need the rest.
const LEAST_FREE: u64 = 4 * BYTES;

/// The file; a data folder that is removed is not made again.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    is_taken: bool,
}

impl Reserve {
    pub(super) fn new(data_folder: &Path) -> Self {
        Self {
            path: data_folder.join("marks").join("reserve"),
            is_taken: false,
        }
    }

    /// Takes the space, unless there is too little of it.
    pub(super) fn take(&mut self) {
        if !self.is_taken {
            self.is_taken = self.allocate().is_ok();
        }
    }

    /// Gives the space up; false if there is none.
    pub(super) fn give_up(&mut self) -> bool {
        self.is_taken = false;
        // What a former process took counts, too.
        fs::remove_file(&self.path).is_ok()
    }

    fn allocate(&self) -> io::Result<()> {
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false).mode(0o600);
        let file = file.open(&self.path)?;
        let taken = file.metadata()?.len();
        let disk = fstatvfs(&file)?;
        if taken < BYTES && disk.f_bavail.saturating_mul(disk.f_frsize) < LEAST_FREE {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(fallocate(&file, FallocateFlags::empty(), 0, BYTES)?)
    }
}
