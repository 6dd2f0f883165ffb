//! The file system view inside the mount namespace: private directories, hidden ones and an own
//! `/proc`.
//!
//! If `/proc` cannot be mounted or a directory cannot be hidden, this is reported; a private
//! directory is mandatory.

use core::ffi::CStr;

use crate::job::{Cursor, Job};
use crate::protocol::{
    FLAG_MOUNT_PROC, FLAG_PROBE, STAGE_HIDE, STAGE_PRIVATE_DIR, STAGE_PROC, STAGE_PROPAGATION,
};
use crate::report::{CONTROL, fail, note};
use crate::sys;
use crate::text::Text;

/// The most paths that stay visible below one private directory.
const MAX_KEPT: usize = 32;

/// Sets up the mounts of a job.
pub(crate) fn prepare(job: &Job<'_>) {
    // Mounts made here must not reach the host; later mounts of the host may propagate here.
    if let Err(errno) = sys::mount(c"none", c"/", c"", sys::MS_SLAVE | sys::MS_REC, c"") {
        fail(CONTROL, STAGE_PROPAGATION, errno, 0);
    }
    let mut directories = job.private_dirs;
    for index in 0..directories.count as usize {
        let hidden = directories.u32() == Some(1);
        match private_directory(&mut directories, hidden) {
            Ok(()) => {}
            // A missing directory needs no hiding: a private `/tmp` may already cover it.
            Err(sys::ENOENT) if hidden => {}
            Err(errno) if hidden => note(CONTROL, STAGE_HIDE, errno, index),
            Err(errno) if job.flags & FLAG_PROBE != 0 => {
                note(CONTROL, STAGE_PRIVATE_DIR, errno, index);
            }
            // The Landlock rules allow writing there: to continue would expose the host's own
            // directory.
            Err(errno) => fail(CONTROL, STAGE_PRIVATE_DIR, errno, index),
        }
    }
    if job.flags & FLAG_MOUNT_PROC != 0 {
        let flags = sys::MS_NOSUID | sys::MS_NODEV | sys::MS_NOEXEC;
        if let Err(errno) = sys::mount(c"proc", c"/proc", c"proc", flags, c"") {
            note(CONTROL, STAGE_PROC, errno, 0);
        }
    }
}

/// Covers a directory with an empty one in memory that shows only the kept paths.
fn private_directory(item: &mut Cursor<'_>, hidden: bool) -> sys::Result<()> {
    let (Some(target), Some(options), Some(kept)) = (item.text(), item.text(), item.kept()) else {
        return Err(sys::EINVAL);
    };
    if hidden && !sys::exists(target) {
        return Err(sys::ENOENT);
    }
    if kept.count as usize > MAX_KEPT {
        return Err(sys::EINVAL);
    }
    let mut opened = [-1; MAX_KEPT];
    let mut paths = kept;
    for slot in opened.iter_mut().take(kept.count as usize) {
        let (_, path) = paths.kept_path().ok_or(sys::EINVAL)?;
        *slot = sys::open(path, sys::O_PATH | sys::O_CLOEXEC, 0)?;
    }
    sys::mount(
        c"tmpfs",
        target,
        c"tmpfs",
        sys::MS_NOSUID | sys::MS_NODEV,
        options,
    )?;
    let mut paths = kept;
    for fd in opened.into_iter().filter(|fd| *fd >= 0) {
        let (writable, path) = paths.kept_path().ok_or(sys::EINVAL)?;
        show(fd, path, target.to_bytes().len())?;
        if !writable {
            // A Landlock rule on a parent could otherwise allow writing.
            sys::make_read_only(path)?;
        }
        sys::close(fd);
    }
    if hidden {
        // Best effort: files written there are lost when the tree ends.
        let _ = sys::make_mount_read_only(target);
    }
    Ok(())
}

/// Binds an open path back to its place, below a directory whose path has `covered` bytes.
fn show(fd: i32, path: &CStr, covered: usize) -> sys::Result<()> {
    let bytes = path.to_bytes();
    for (end, byte) in bytes.iter().enumerate().skip(covered + 1) {
        if *byte == b'/' {
            let _ = sys::make_directory(Text::new(&bytes[..end]).as_c_str(), 0o755);
        }
    }
    if sys::is_directory(fd) {
        let _ = sys::make_directory(path, 0o755);
    } else {
        let file = sys::open(path, sys::O_WRONLY | sys::O_CREAT | sys::O_CLOEXEC, 0o644)?;
        sys::close(file);
    }
    let mut source = Text::new(b"/proc/self/fd/");
    source.push_number(fd as u32);
    sys::mount(
        source.as_c_str(),
        path,
        c"",
        sys::MS_BIND | sys::MS_REC,
        c"",
    )
    .map(drop)
}
