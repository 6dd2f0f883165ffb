//! The folder into which a layer is unpacked: finds and creates entries in it, and never leaves it.
//!
//! An entry replaces an earlier entry of the same layer, except a folder that has content.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid,
    XattrFlags, chownat, fchmod, fchown, fsetxattr, futimens, linkat, mkdirat, mkfifoat, openat,
    openat2, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::deferred::ImpliedFolders;
use super::whiteout::{self, WhiteoutForm, is_whiteout};
use crate::layers::LayerError;
use crate::store::Owners;
use crate::tar::{Entry, EntryPath, Kind, Refusal, shown};

/// The longest target of a symbolic link, below the kernel's 4,096.
const LONGEST_TARGET: usize = 4_000;
/// The mode of a folder that has no entry.
const IMPLIED_MODE: u32 = 0o755;

/// What existed before an entry was created.
#[derive(PartialEq, Eq)]
enum Before {
    Nothing,
    /// A whiteout, which was removed.
    Whiteout,
    /// A folder, which stays.
    Folder,
}

#[derive(Debug)]
pub(super) struct Tree {
    root: Rc<OwnedFd>,
    owners: Owners,
    whiteouts: WhiteoutForm,
    implied: ImpliedFolders,
    /// Folders made without an entry, not yet counted.
    implied_count: u64,
    opaque_root: bool,
    /// The folder of the last entry: most entries are in the same one.
    last: Option<(Vec<u8>, Rc<OwnedFd>)>,
}

impl Tree {
    pub(super) fn new(
        root: OwnedFd,
        implied: File,
        owners: Owners,
        whiteouts: WhiteoutForm,
    ) -> Self {
        Self {
            root: Rc::new(root),
            owners,
            whiteouts,
            implied: ImpliedFolders::new(implied),
            implied_count: 0,
            opaque_root: false,
            last: None,
        }
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Returns how many folders were created without an entry since the last call.
    pub(super) fn take_implied_count(&mut self) -> u64 {
        std::mem::take(&mut self.implied_count)
    }

    /// Finishes the layer; returns whether it hides all lower layers.
    pub(super) fn finish(&mut self) -> Result<bool, LayerError> {
        self.implied.flush()?;
        Ok(self.opaque_root)
    }

    /// Creates an empty file; private to its owner until its mode is set.
    pub(super) fn create_file(&mut self, path: &EntryPath) -> Result<OwnedFd, LayerError> {
        let folder = self.folder(path)?;
        self.make_room(&folder, path, false)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&folder, path.name(), flags, Mode::RUSR | Mode::WUSR)
            .map_err(LayerError::store("create", path.as_bytes()))
    }

    /// Creates a folder, or returns the existing one.
    pub(super) fn create_folder(&mut self, path: &EntryPath) -> Result<Rc<OwnedFd>, LayerError> {
        if path.is_root() {
            return Ok(Rc::clone(&self.root));
        }
        let folder = self.folder(path)?;
        let before = self.make_room(&folder, path, true)?;
        if before == Before::Folder {
            self.implied.declare(path.as_bytes())?;
        } else {
            mkdirat(&folder, path.name(), Mode::RWXU)
                .map_err(LayerError::store("create", path.as_bytes()))?;
        }
        let made = open_folder(folder.as_fd(), path.name())
            .map_err(LayerError::store("open", path.as_bytes()))?;
        if before == Before::Whiteout {
            whiteout::hide_all(made.as_fd()).map_err(LayerError::store("mark", path.as_bytes()))?;
        }
        Ok(Rc::new(made))
    }

    pub(super) fn create_fifo(&mut self, path: &EntryPath) -> Result<OwnedFd, LayerError> {
        let folder = self.folder(path)?;
        self.make_room(&folder, path, false)?;
        mkfifoat(&folder, path.name(), Mode::RUSR | Mode::WUSR)
            .map_err(LayerError::store("create", path.as_bytes()))?;
        // Opening it for reading must not block until there is a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&folder, path.name(), flags, Mode::empty())
            .map_err(LayerError::store("open", path.as_bytes()))
    }

    /// Creates a symbolic link. Its target may be anything: it is never followed here.
    pub(super) fn create_symlink(&mut self, entry: &Entry) -> Result<(), LayerError> {
        let path = &entry.path;
        let what = "link target";
        let refused = match &entry.link[..] {
            b"" => Some(Refusal::Empty { what }),
            target if target.len() > LONGEST_TARGET => Some(Refusal::TooLong {
                what,
                bytes: target.len(),
                limit: LONGEST_TARGET,
            }),
            target if target.contains(&0) => Some(Refusal::Nul { what }),
            _ => None,
        };
        if let Some(why) = refused {
            return Err(LayerError::refused(path.as_bytes(), why));
        }
        let folder = self.folder(path)?;
        self.make_room(&folder, path, false)?;
        let failed = || LayerError::store("create", path.as_bytes());
        symlinkat(&entry.link[..], &folder, path.name()).map_err(failed())?;
        if self.owners == Owners::Keep {
            let (uid, gid) = owner(entry);
            chownat(&folder, path.name(), uid, gid, AtFlags::SYMLINK_NOFOLLOW).map_err(failed())?;
        }
        let time = timestamps(entry.mtime);
        utimensat(&folder, path.name(), &time, AtFlags::SYMLINK_NOFOLLOW).map_err(failed())
    }

    /// Creates a hard link to a file of this layer.
    pub(super) fn create_hard_link(&mut self, entry: &Entry) -> Result<(), LayerError> {
        let path = &entry.path;
        let what = "link target";
        let refused = |why| LayerError::refused(path.as_bytes(), why);
        let shown_target = shown(&entry.link);
        let target = EntryPath::parse(&entry.link, what).map_err(refused)?;
        let missing = || {
            let target = shown_target.clone();
            refused(Refusal::LinkMissing { target })
        };
        let directory = || {
            let target = shown_target.clone();
            refused(Refusal::LinkToDirectory { target })
        };
        if target.is_root() {
            return Err(directory());
        }
        let from = match open_folder(self.root(), target.parent()) {
            Ok(from) => from,
            Err(Errno::NOENT) => return Err(missing()),
            Err(Errno::LOOP) => return Err(refused(Refusal::ThroughSymlink { what })),
            Err(Errno::NOTDIR) => return Err(refused(Refusal::NotADirectory { what })),
            Err(error) => return Err(LayerError::store("open", target.as_bytes())(error)),
        };
        let stat = match stat(&from, target.name()) {
            Ok(Some(stat)) => stat,
            Ok(None) => return Err(missing()),
            Err(error) => return Err(LayerError::store("read", target.as_bytes())(error)),
        };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return Err(directory());
        }
        if is_whiteout(from.as_fd(), target.name(), &stat)
            .map_err(LayerError::store("read", target.as_bytes()))?
        {
            return Err(missing());
        }
        let folder = self.folder(path)?;
        if let Ok(Some(there)) = self::stat(&folder, path.name())
            && (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino)
        {
            return Ok(());
        }
        self.make_room(&folder, path, false)?;
        match linkat(&from, target.name(), &folder, path.name(), AtFlags::empty()) {
            Ok(()) => Ok(()),
            Err(Errno::MLINK) => Err(refused(Refusal::TooManyLinks {
                target: shown_target,
            })),
            Err(error) => Err(LayerError::store("create", path.as_bytes())(error)),
        }
    }

    /// Hides a name of lower layers. An entry of this layer with that name stays.
    pub(super) fn hide(&mut self, path: &EntryPath, hidden: &[u8]) -> Result<(), LayerError> {
        let folder = self.folder(path)?;
        let failed = || LayerError::store("mark", path.as_bytes());
        match stat(&folder, hidden).map_err(failed())? {
            None => whiteout::hide(folder.as_fd(), hidden, self.whiteouts).map_err(failed()),
            Some(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                let own = open_folder(folder.as_fd(), hidden).map_err(failed())?;
                whiteout::hide_all(own.as_fd()).map_err(failed())
            }
            Some(_) => Ok(()),
        }
    }

    /// Hides the whole content of the entry's parent folder in lower layers.
    pub(super) fn hide_all(&mut self, path: &EntryPath) -> Result<(), LayerError> {
        let folder = self.folder(path)?;
        self.opaque_root |= path.parent().is_empty();
        whiteout::hide_all(folder.as_fd()).map_err(LayerError::store("mark", path.as_bytes()))
    }

    pub(super) fn set_owner(&self, file: &OwnedFd, entry: &Entry) -> Result<(), LayerError> {
        if self.owners == Owners::Single {
            return Ok(());
        }
        let (uid, gid) = owner(entry);
        fchown(file, uid, gid).map_err(LayerError::store("set the owner of", entry.path.as_bytes()))
    }

    /// Sets an extended attribute; returns whether the file system accepts it.
    pub(super) fn set_attribute(
        &self,
        file: &OwnedFd,
        name: &[u8],
        value: &[u8],
        entry: &Entry,
    ) -> Result<bool, LayerError> {
        match fsetxattr(file, name, value, XattrFlags::empty()) {
            Ok(()) => Ok(true),
            Err(
                Errno::TOOBIG
                | Errno::RANGE
                | Errno::NOSPC
                | Errno::INVAL
                | Errno::NOTSUP
                | Errno::PERM,
            ) => Ok(false),
            Err(error) => Err(LayerError::store("describe", entry.path.as_bytes())(error)),
        }
    }

    /// Sets the mode, without setuid and setgid, and the time unless it is a folder.
    pub(super) fn set_mode_and_time(
        &self,
        file: &OwnedFd,
        entry: &Entry,
    ) -> Result<(), LayerError> {
        let failed = || LayerError::store("describe", entry.path.as_bytes());
        let directory = entry.kind == Kind::Directory;
        // With a single owner, the owner must be able to read and remove everything.
        let mode = match (self.owners, directory) {
            (Owners::Keep, true) => entry.mode & 0o1777,
            (Owners::Keep, false) => entry.mode & 0o777,
            (Owners::Single, true) => entry.mode & 0o1777 | 0o700,
            (Owners::Single, false) => entry.mode & 0o777 | 0o400,
        };
        fchmod(file, Mode::from_raw_mode(mode)).map_err(failed())?;
        if directory {
            return Ok(());
        }
        futimens(file, &timestamps(entry.mtime)).map_err(failed())
    }

    /// Opens the parent folder of an entry, and creates it if the layer has none.
    fn folder(&mut self, path: &EntryPath) -> Result<Rc<OwnedFd>, LayerError> {
        let parent = path.parent();
        if let Some((last, folder)) = &self.last
            && last == parent
        {
            return Ok(Rc::clone(folder));
        }
        let folder = match open_folder(self.root(), parent) {
            Ok(folder) => Rc::new(folder),
            Err(Errno::NOENT | Errno::NOTDIR) => self.make_folders(path)?,
            Err(error) => return Err(unusable_folder(path, error)),
        };
        self.last = Some((parent.to_vec(), Rc::clone(&folder)));
        Ok(folder)
    }

    /// Creates the missing parent folders of an entry.
    fn make_folders(&mut self, path: &EntryPath) -> Result<Rc<OwnedFd>, LayerError> {
        let parent = path.parent();
        let mut folder = Rc::clone(&self.root);
        let mut end = 0;
        for part in parent.split(|&byte| byte == b'/') {
            end += part.len();
            let opened = match open_folder(folder.as_fd(), part) {
                Err(Errno::NOENT | Errno::NOTDIR) => {
                    self.make_folder(&folder, part, &parent[..end], path)?
                }
                opened => opened.map_err(|error| unusable_folder(path, error))?,
            };
            folder = Rc::new(opened);
            end += 1;
        }
        Ok(folder)
    }

    /// Creates a folder without an entry, replacing a whiteout.
    fn make_folder(
        &mut self,
        folder: &OwnedFd,
        name: &[u8],
        path: &[u8],
        entry: &EntryPath,
    ) -> Result<OwnedFd, LayerError> {
        let failed = || LayerError::store("create", path);
        let there = stat(folder, name).map_err(failed())?;
        if let Some(stat) = &there {
            if !is_whiteout(folder.as_fd(), name, stat).map_err(failed())? {
                return Err(unusable_folder(entry, Errno::NOTDIR));
            }
            unlinkat(folder, name, AtFlags::empty()).map_err(failed())?;
        }
        mkdirat(folder, name, Mode::RWXU).map_err(failed())?;
        let made = open_folder(folder.as_fd(), name).map_err(failed())?;
        fchmod(&made, Mode::from_raw_mode(IMPLIED_MODE)).map_err(failed())?;
        self.implied_count += 1;
        if there.is_some() {
            whiteout::hide_all(made.as_fd()).map_err(failed())?;
        } else {
            self.implied.imply(path)?;
        }
        Ok(made)
    }

    /// Removes an earlier entry of the layer with the same path.
    fn make_room(
        &mut self,
        folder: &OwnedFd,
        path: &EntryPath,
        for_folder: bool,
    ) -> Result<Before, LayerError> {
        let failed = || LayerError::store("replace", path.as_bytes());
        let Some(stat) = stat(folder, path.name()).map_err(failed())? else {
            return Ok(Before::Nothing);
        };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            if for_folder {
                return Ok(Before::Folder);
            }
            self.last = None;
            return match unlinkat(folder, path.name(), AtFlags::REMOVEDIR) {
                Ok(()) => Ok(Before::Nothing),
                Err(Errno::NOTEMPTY | Errno::EXIST) => Err(LayerError::refused(
                    path.as_bytes(),
                    Refusal::ReplacesDirectory,
                )),
                Err(error) => Err(failed()(error)),
            };
        }
        let whiteout = is_whiteout(folder.as_fd(), path.name(), &stat).map_err(failed())?;
        unlinkat(folder, path.name(), AtFlags::empty()).map_err(failed())?;
        Ok(if whiteout {
            Before::Whiteout
        } else {
            Before::Nothing
        })
    }
}

/// Opens a folder below another one, without following any link. An empty path is the folder
/// itself.
pub(crate) fn open_folder(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    // Without `NOFOLLOW`, which would report a link as "not a folder".
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    loop {
        match openat2(root, path, flags, Mode::empty(), resolve) {
            Err(Errno::INTR | Errno::AGAIN) => {}
            opened => return opened,
        }
    }
}

/// Returns the time of an entry as access and modification time.
pub(super) fn timestamps((seconds, nanoseconds): (i64, u32)) -> Timestamps {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds.into(),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

/// Returns the metadata of a name in a folder, without following links.
fn stat(folder: &OwnedFd, name: &[u8]) -> Result<Option<Stat>, Errno> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn owner(entry: &Entry) -> (Option<Uid>, Option<Gid>) {
    (
        Some(Uid::from_raw(entry.uid)),
        Some(Gid::from_raw(entry.gid)),
    )
}

/// Returns why the parent folder of an entry cannot be opened.
fn unusable_folder(entry: &EntryPath, error: Errno) -> LayerError {
    let what = "path";
    match error {
        Errno::LOOP => LayerError::refused(entry.as_bytes(), Refusal::ThroughSymlink { what }),
        Errno::NOTDIR => LayerError::refused(entry.as_bytes(), Refusal::NotADirectory { what }),
        error => LayerError::store("open", entry.parent())(error),
    }
}
