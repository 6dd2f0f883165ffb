//! Merges several layers into one folder, for hosts that refuse overlay file systems.
//!
//! Applies layers as an overlay would: whiteouts and opaque folders remove files of lower layers.
//! Reads only files that the store unpacked, but these came from images: symbolic links are copied,
//! never followed. Entry points: [`build`] for all of an image, [`copy_folder`] for a part, and
//! [`at_path`] for what it has there.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags, chownat,
    fchmod, fchown, fgetxattr, flistxattr, flistxattr_query, fsetxattr, futimens, linkat, mkdirat,
    mkfifoat, openat, readlinkat, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::layers::{HeldLayer, LayerError, LayerStore, Scratch, each_name, remove_tree};
use crate::store::Owners;
use crate::unpack::{Opacity, is_whiteout, opacity, open_folder};

/// What an image has at a path. A symbolic link counts as nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AtPath {
    /// Nothing.
    Nothing,
    /// A folder.
    Folder,
    /// A file, there or at one of its parents: its path.
    File(PathBuf),
}

/// The name of the merged folder inside the scratch folder.
pub(crate) const FILES: &str = "flat";
/// How many ids a server has.
const IDS: u32 = 1 << 16;
/// How many bytes of a file are copied between two checks for cancellation.
const PIECE_BYTES: u64 = 64 * 1024 * 1024;
/// How many files with several hard links are remembered per layer; beyond that, each name gets a
/// copy.
const MOST_LINKED_FILES: usize = 50_000;
/// The longest attribute list and attribute value on Linux.
const LONGEST_ATTRIBUTE: usize = 64 * 1024;

/// Merges layers, given highest first, into the folder [`FILES`].
pub(crate) fn build(
    layers: &[HeldLayer],
    scratch: &Scratch,
    store: &LayerStore,
    stop: &CancellationToken,
) -> Result<(), LayerError> {
    let failed = || LayerError::store("create", FILES);
    mkdirat(scratch.folder(), FILES, Mode::RWXU).map_err(failed())?;
    let root = open_folder(scratch.folder(), FILES.as_bytes()).map_err(failed())?;
    let first_id = (store.owners() == Owners::Keep).then_some(0);
    let most = store.limits().image_bytes;
    let mut work = Work::new(&root, first_id, most, store, stop).map_err(failed())?;
    for layer in layers.iter().rev() {
        let files = layer.files()?;
        work.linked.clear();
        work.merge(&files, &root)?;
        let stat = rustix::fs::fstat(&files).map_err(failed())?;
        work.describe(&files, &root, &stat)
            .map_err(LayerError::store("describe", FILES))?;
    }
    Ok(())
}

/// Copies what layers, given highest first, have in a folder of the image into an empty folder.
/// Owners are counted from `first_id`; without it everything belongs to the gateway's user.
pub(crate) fn copy_folder(
    layers: &[HeldLayer],
    path: &Path,
    into: &OwnedFd,
    first_id: Option<u32>,
    limit_bytes: u64,
    store: &LayerStore,
    stop: &CancellationToken,
) -> Result<(), LayerError> {
    let failed = || LayerError::store("copy", path.as_os_str().as_encoded_bytes());
    let most = limit_bytes.min(store.limits().image_bytes);
    let mut work = Work::new(into, first_id, most, store, stop).map_err(failed())?;
    for layer in layers.iter().rev() {
        let reached = reach(layer.files()?, path).map_err(failed())?;
        work.linked.clear();
        if reached.hides {
            each_name(into.as_fd(), |name, _| remove(into.as_fd(), name)).map_err(failed())?;
        }
        if let Some(folder) = reached.folder {
            work.merge(&folder, into)?;
            let stat = rustix::fs::fstat(&folder).map_err(failed())?;
            work.describe(&folder, into, &stat).map_err(failed())?;
        }
    }
    Ok(())
}

/// Returns what layers, given highest first, have at a path of the image.
pub(crate) fn at_path(layers: &[HeldLayer], path: &Path) -> Result<AtPath, LayerError> {
    let failed = || LayerError::store("find", path.as_os_str().as_encoded_bytes());
    let mut at = AtPath::Nothing;
    for layer in layers.iter().rev() {
        let reached = reach(layer.files()?, path).map_err(failed())?;
        // A folder hides a file of a lower layer without a mark.
        let replaces = matches!(&at, AtPath::File(file) if reached.path.starts_with(file));
        at = match (reached.folder, reached.file) {
            (Some(_), _) => AtPath::Folder,
            (None, true) => AtPath::File(reached.path),
            (None, false) if reached.hides || replaces => AtPath::Nothing,
            (None, false) => at,
        };
    }
    Ok(at)
}

/// What one layer has on the way to a path.
struct Reached {
    /// The folder at the path, if the layer has it.
    folder: Option<OwnedFd>,
    /// Whether the layer hides what lower layers have there.
    hides: bool,
    /// How far the layer leads.
    path: PathBuf,
    /// Whether it ends there in a file.
    file: bool,
}

/// Opens a folder of a layer, if the layer has it.
fn reach(root: OwnedFd, path: &Path) -> Result<Reached, Errno> {
    let mut folder = root;
    let mut reached = Reached {
        folder: None,
        hides: false,
        path: PathBuf::from("/"),
        file: false,
    };
    for part in path.components() {
        let Component::Normal(name) = part else {
            continue;
        };
        reached.hides |= opacity(folder.as_fd())? == Opacity::Opaque;
        let stat = match statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(reached),
            found => found?,
        };
        reached.path.push(name);
        let name = name.as_encoded_bytes();
        let kind = FileType::from_raw_mode(stat.st_mode);
        // A whiteout, or another file in its place.
        if kind != FileType::Directory {
            reached.hides = true;
            reached.file = kind != FileType::Symlink && !is_whiteout(folder.as_fd(), name, &stat)?;
            return Ok(reached);
        }
        folder = open_folder(folder.as_fd(), name)?;
    }
    reached.folder = Some(folder);
    Ok(reached)
}

struct Work<'a> {
    root: OwnedFd,
    /// What is added to the ids of owners; without it they are not kept.
    first_id: Option<u32>,
    stop: &'a CancellationToken,
    deadline: Instant,
    store: &'a LayerStore,
    /// Bytes copied so far, and how many may be.
    bytes: u64,
    limit_bytes: u64,
    /// The first path of each file with several hard links, by inode.
    linked: HashMap<u64, Vec<u8>>,
    /// The current path, relative to the root.
    path: Vec<u8>,
}

impl<'a> Work<'a> {
    fn new(
        root: &OwnedFd,
        first_id: Option<u32>,
        limit_bytes: u64,
        store: &'a LayerStore,
        stop: &'a CancellationToken,
    ) -> Result<Self, Errno> {
        Ok(Self {
            root: fcntl_dupfd_cloexec(root, 0)?,
            first_id,
            stop,
            deadline: Instant::now() + store.limits().layer_time,
            store,
            bytes: 0,
            limit_bytes,
            linked: HashMap::new(),
            path: Vec::new(),
        })
    }

    /// Merges the folder of a layer into the result of the lower layers.
    fn merge(&mut self, from: &OwnedFd, into: &OwnedFd) -> Result<(), LayerError> {
        let here = self.path.clone();
        let failed = || LayerError::store("copy", &here);
        if opacity(from.as_fd()).map_err(failed())? == Opacity::Opaque {
            each_name(into.as_fd(), |name, _| remove(into.as_fd(), name)).map_err(failed())?;
        }
        for entry in rustix::fs::Dir::read_from(from).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            self.check_time()?;
            let length = self.path.len();
            if length > 0 {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name);
            self.place(from, into, name)?;
            self.path.truncate(length);
        }
        Ok(())
    }

    fn place(&mut self, from: &OwnedFd, into: &OwnedFd, name: &[u8]) -> Result<(), LayerError> {
        let here = self.path.clone();
        let failed = || LayerError::store("copy", &here);
        let stat = statat(from, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed())?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            let from = open_folder(from.as_fd(), name).map_err(failed())?;
            let into = folder_for(into.as_fd(), name).map_err(failed())?;
            self.merge(&from, &into)?;
            return self.describe(&from, &into, &stat).map_err(failed());
        }
        remove(into.as_fd(), name).map_err(failed())?;
        if is_whiteout(from.as_fd(), name, &stat).map_err(failed())? {
            return Ok(());
        }
        if stat.st_nlink > 1 && self.link(into, name, &stat).map_err(failed())? {
            return Ok(());
        }
        match kind {
            FileType::RegularFile => self.copy(from, into, name, &stat)?,
            FileType::Symlink => self
                .copy_symlink(from, into, name, &stat)
                .map_err(failed())?,
            FileType::Fifo => self.copy_fifo(into, name, &stat).map_err(failed())?,
            // The unpacker creates no other file types.
            FileType::Directory
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => {}
        }
        Ok(())
    }

    /// Creates a hard link to a file that was already copied; returns whether it was.
    fn link(&mut self, into: &OwnedFd, name: &[u8], stat: &Stat) -> Result<bool, Errno> {
        let Some(first) = self.linked.get(&stat.st_ino) else {
            if self.linked.len() < MOST_LINKED_FILES {
                self.linked.insert(stat.st_ino, self.path.clone());
            }
            return Ok(false);
        };
        let slash = first.iter().rposition(|&byte| byte == b'/');
        let (folder, first) = match slash {
            Some(slash) => (&first[..slash], &first[slash + 1..]),
            None => (&b""[..], &first[..]),
        };
        let folder = open_folder(self.root.as_fd(), folder)?;
        match linkat(&folder, first, into, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::MLINK) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn copy(
        &mut self,
        from: &OwnedFd,
        into: &OwnedFd,
        name: &[u8],
        stat: &Stat,
    ) -> Result<(), LayerError> {
        let here = self.path.clone();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let source =
            openat(from, name, flags, Mode::empty()).map_err(LayerError::store("open", &here))?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let copy = openat(into, name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(LayerError::store("create", &here))?;
        let (source, mut copy) = (File::from(source), File::from(copy));
        loop {
            self.check_time()?;
            let count = io::copy(&mut (&source).take(PIECE_BYTES), &mut copy)
                .map_err(LayerError::store("write", &here))?;
            if count == 0 {
                break;
            }
            self.bytes += count;
            if self.bytes > self.limit_bytes {
                let limit_bytes = self.limit_bytes;
                return Err(LayerError::TooLarge { limit_bytes });
            }
        }
        self.describe(&source.into(), &copy.into(), stat)
            .map_err(LayerError::store("describe", &here))
    }

    fn copy_symlink(
        &self,
        from: &OwnedFd,
        into: &OwnedFd,
        name: &[u8],
        stat: &Stat,
    ) -> Result<(), Errno> {
        let target = readlinkat(from, name, Vec::new())?;
        symlinkat(&target, into, name)?;
        if let Some(first_id) = self.first_id {
            let (uid, gid) = owner(stat, first_id);
            chownat(into, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        utimensat(into, name, &times(stat), AtFlags::SYMLINK_NOFOLLOW)
    }

    fn copy_fifo(&self, into: &OwnedFd, name: &[u8], stat: &Stat) -> Result<(), Errno> {
        mkfifoat(into, name, Mode::RUSR | Mode::WUSR)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fifo = openat(into, name, flags, Mode::empty())?;
        self.describe_plainly(&fifo, stat)
    }

    /// Copies extended attributes, owner, mode and time.
    fn describe(&self, from: &OwnedFd, into: &OwnedFd, stat: &Stat) -> Result<(), Errno> {
        let mut names = vec![0; flistxattr_query(from)?.min(LONGEST_ATTRIBUTE)];
        let length = flistxattr(from, &mut names[..])?;
        let names = names[..length].split(|&byte| byte == 0);
        for name in names.filter(|name| name.starts_with(b"user.")) {
            if name.starts_with(b"user.overlay.") {
                continue;
            }
            let mut value = vec![0; LONGEST_ATTRIBUTE];
            let length = fgetxattr(from, name, &mut value[..])?;
            fsetxattr(into, name, &value[..length], XattrFlags::empty())?;
        }
        self.describe_plainly(into, stat)
    }

    fn describe_plainly(&self, into: &OwnedFd, stat: &Stat) -> Result<(), Errno> {
        if let Some(first_id) = self.first_id {
            let (uid, gid) = owner(stat, first_id);
            fchown(into, uid, gid)?;
        }
        fchmod(into, Mode::from_raw_mode(stat.st_mode & 0o1777))?;
        futimens(into, &times(stat))
    }

    fn check_time(&self) -> Result<(), LayerError> {
        if self.stop.is_cancelled() {
            return Err(LayerError::Cancelled);
        }
        if Instant::now() >= self.deadline {
            let limit = self.store.limits().layer_time;
            return Err(LayerError::TooSlow { limit });
        }
        self.store.check_space()
    }
}

/// Opens or creates a folder, replacing anything else with that name.
fn folder_for(into: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    match open_folder(into, name) {
        Err(Errno::NOENT) => {}
        Err(Errno::NOTDIR | Errno::LOOP) => unlinkat(into, name, AtFlags::empty())?,
        opened => return opened,
    }
    mkdirat(into, name, Mode::RWXU)?;
    open_folder(into, name)
}

/// Removes the entry with this name, if there is one.
fn remove(folder: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR) => remove_tree(folder, name),
        Err(error) => Err(error),
    }
}

/// Returns the owner of a copy; an id that a range of ids does not have becomes its first.
fn owner(stat: &Stat, first_id: u32) -> (Option<Uid>, Option<Gid>) {
    let of = |id: u32| match first_id {
        0 => id,
        first_id if id < IDS => first_id + id,
        first_id => first_id,
    };
    (
        Some(Uid::from_raw(of(stat.st_uid))),
        Some(Gid::from_raw(of(stat.st_gid))),
    )
}

fn times(stat: &Stat) -> Timestamps {
    let time = Timespec {
        tv_sec: stat.st_mtime,
        tv_nsec: stat.st_mtime_nsec as _,
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}
