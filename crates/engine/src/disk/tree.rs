//! Handles folders that untrusted servers write to: by descriptors, without following links, and
//! with a stack and a number of open files that do not grow with the depth. The server may change
//! them meanwhile.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gantry_images::remove_tree_by;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, chmodat, fstat, openat, openat2,
    readlinkat, statat,
};
use rustix::io::Errno;

use super::holes;
use super::measure::Found;

/// The deepest folder that is visited.
const DEEPEST: usize = 128;
/// The most files that are counted; a folder with more exceeds every limit.
const MOST_FILES: u64 = 1_000_000;
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Removes a folder with its content, if it exists. The folder must not be in use.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let parent = match openat(CWD, parent, FOLDER, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    // Opened here, so that a folder that vanishes later is an error.
    match own_folder(parent.as_fd(), name.as_bytes()) {
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(remove_tree_by(parent.as_fd(), name.as_bytes(), own_folder)?),
    }
}

/// Opens a folder, even one whose permissions a server of the same user has removed.
fn own_folder(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let is_closed = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| {
        FileType::from_raw_mode(found.st_mode) == FileType::Directory
            && found.st_mode & 0o700 != 0o700
    });
    if is_closed {
        chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
    }
    openat(parent, name, FOLDER, Mode::empty())
}

fn is_own(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// Returns the disk usage of a folder and everything below it; reports folders that cannot be read.
pub(super) fn measure(root: &Path) -> Found {
    let mut found = Found::default();
    let opened = openat(CWD, root, FOLDER, Mode::empty()).and_then(Dir::new);
    let mut folders = match opened {
        Ok(folder) => vec![folder],
        Err(_) => return found,
    };
    while let Some(folder) = folders.last_mut() {
        let entry = match folder.next() {
            None => {
                folders.pop();
                continue;
            }
            Some(Err(_)) => {
                found.hides = Some("it has a folder that cannot be read");
                folders.pop();
                continue;
            }
            Some(Ok(entry)) => entry,
        };
        let name = entry.file_name();
        if is_own(name) {
            continue;
        }
        let Ok(fd) = folder.fd() else { continue };
        // A file that was removed meanwhile does not count.
        let Ok(stat) = statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        found.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        found.files += 1;
        if found.files >= MOST_FILES {
            return found;
        }
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            continue;
        }
        match openat(fd, name, FOLDER, Mode::empty()).and_then(Dir::new) {
            Ok(inner) if folders.len() < DEEPEST => folders.push(inner),
            Ok(_) => found.hides = Some("its folders are nested too deep"),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(_) => found.hides = Some("it has a folder that cannot be read"),
        }
    }
    found
}

/// Writes a folder as a tar archive: folders, regular files and links; other types are skipped.
/// Never reads anything outside the folder, even if the server replaces files meanwhile.
pub(super) fn archive(root: &Path, to: impl Write) -> io::Result<()> {
    let mut archive = tar::Builder::new(to);
    let opened = openat(CWD, root, FOLDER, Mode::empty()).and_then(Dir::new)?;
    let mut folders = vec![(opened, PathBuf::from("."))];
    while let Some((folder, path)) = folders.last_mut() {
        let Some(entry) = folder.next() else {
            folders.pop();
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if is_own(name) {
            continue;
        }
        let inner = path.join(OsStr::from_bytes(name.to_bytes()));
        let fd = folder.fd()?;
        let Ok(stat) = statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        let mut header = tar::Header::new_gnu();
        header.set_mode(stat.st_mode & 0o7777);
        header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let Some(opened) = beneath(fd, name, FOLDER, &inner)? else {
                    continue;
                };
                header.set_entry_type(tar::EntryType::Directory);
                header.set_size(0);
                archive.append_data(&mut header, &inner, io::empty())?;
                if folders.len() >= DEEPEST {
                    return Err(io::Error::other("its folders are nested too deep"));
                }
                folders.push((Dir::new(opened)?, inner));
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let Some(opened) = beneath(fd, name, flags, &inner)? else {
                    continue;
                };
                // The metadata of the opened file: its name may already refer to another one.
                let stat = fstat(&opened)?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                    continue;
                }
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                let on_disk = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
                let file = File::from(opened);
                holes::append(&mut archive, &mut header, &inner, file, (size, on_disk))?;
            }
            FileType::Symlink => {
                let Ok(target) = readlinkat(fd, name, Vec::new()) else {
                    continue;
                };
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_size(0);
                let target = OsStr::from_bytes(target.to_bytes());
                archive.append_link(&mut header, &inner, target)?;
            }
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => {}
        }
    }
    archive.into_inner()?.flush()
}

/// Opens an entry of a folder if it is still there, is not a link and is on the same file system. What
/// cannot be read is an error: an archive is not silently incomplete.
fn beneath(
    folder: BorrowedFd<'_>,
    name: &CStr,
    flags: OFlags,
    path: &Path,
) -> io::Result<Option<OwnedFd>> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    match openat2(folder, name, flags, Mode::empty(), resolve) {
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NXIO) => Ok(None),
        Err(error) => {
            let why = io::Error::from(error);
            let text = format!("its file {path:?} cannot be read: {why}");
            Err(io::Error::new(why.kind(), text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // fault P9
    #[test]
    fn however_deep_a_folder_is_it_is_measured_and_removed() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("root");
        std::fs::create_dir(&root).unwrap();
        let mut folder = openat(CWD, &root, FOLDER, Mode::empty()).unwrap();
        for _ in 0..4_000 {
            rustix::fs::mkdirat(&folder, "d", Mode::RWXU).unwrap();
            folder = openat(&folder, "d", FOLDER, Mode::empty()).unwrap();
        }
        drop(folder);
        let found = measure(&root);
        assert!(found.files >= DEEPEST as u64 - 1);
        assert_eq!(found.hides, Some("its folders are nested too deep"));
        assert!(archive(&root, io::sink()).is_err());
        remove(&root).unwrap();
        assert!(!root.exists());
        remove(&root).unwrap();
    }

    // fault F5
    #[test]
    fn an_archive_holds_nothing_from_outside_while_files_are_swapped_for_links() {
        let temp = tempfile::tempdir().unwrap();
        let (root, secret) = (temp.path().join("root"), temp.path().join("secret"));
        std::fs::create_dir(&root).unwrap();
        std::fs::write(&secret, "the canary").unwrap();
        for n in 0..200 {
            std::fs::write(root.join(n.to_string()), "plain").unwrap();
        }
        std::os::unix::fs::symlink(&secret, root.join("link")).unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (file, link) = (root.join("100"), temp.path().join("new"));
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    std::os::unix::fs::symlink(&secret, &link).unwrap();
                    std::fs::rename(&link, &file).unwrap();
                    std::fs::write(&link, "plain").unwrap();
                    std::fs::rename(&link, &file).unwrap();
                }
            });
            for _ in 0..50 {
                let mut archived = Vec::new();
                archive(&root, &mut archived).unwrap();
                let text = String::from_utf8_lossy(&archived);
                assert!(text.contains("plain") && !text.contains("the canary"));
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
