//! The init program, held once in a sealed memory file and executed from there.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

/// The program itself.
pub(crate) static INIT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/gantry-init"));

/// The init, ready to execute.
pub(crate) struct Image(OwnedFd);

impl Image {
    /// Loads the init into a sealed memory file, which cannot be changed afterwards.
    pub(crate) fn new() -> io::Result<Self> {
        sealed("gantry-init", INIT, MemfdFlags::EXEC).map(Self)
    }

    /// Returns the path of the init, valid in this process and its direct children.
    pub(crate) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

/// Returns a sealed, non-executable memory file with this content.
pub(crate) fn sealed_data(name: &str, content: &[u8]) -> io::Result<OwnedFd> {
    sealed(name, content, MemfdFlags::NOEXEC_SEAL)
}

fn sealed(name: &str, content: &[u8], executable: MemfdFlags) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match memfd_create(name, flags | executable) {
        // Kernels before 6.3 do not know the flag and need none.
        Err(Errno::INVAL) => memfd_create(name, flags)?,
        outcome => outcome?,
    };
    let mut rest = content;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = &rest[written..];
    }
    fcntl_add_seals(
        &file,
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL,
    )?;
    Ok(file)
}
