//! Storage of hosted servers: each server has a place of limited size with its scratch space, its
//! working folder and its volumes, visible to that server only.
//!
//! ```text
//! hosted/PROJECT/SERVER/disk.img   an ext4 file system of the server's size (root), mounted at
//! `mnt`
//! hosted/PROJECT/SERVER/files      the same folders without a hard limit, measured (other users)
//! scratch    emptied at every start
//! work       the working folder of a command
//! volumes/…  one folder per path, kept until it is removed explicitly
//! ```
//!
//! Blocks; call it from a blocking thread. Entry points: [`Disks::open`], [`Disks::prepare`].

mod command;
mod fill;
mod holes;
mod loop_image;
mod measure;
mod tree;
mod turns;
mod volumes;
mod watch;

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use gantry_model::id::{ProjectName, ServerName};
use gantry_model::spec::volume_name;
use parking_lot::Mutex;
use tokio::sync::watch as channel;

use self::measure::UnnamedFiles;
use self::turns::Turns;
pub use self::volumes::{PrunedVolumes, VolumeError, VolumeView};

/// The folder of a server's scratch space, in its place.
const SCRATCH: &str = "scratch";
/// The working folder of a command, in its place.
const WORK: &str = "work";
/// The parent of a server's volumes, in its place.
const VOLUMES: &str = "volumes";
/// The mode of a volume until it is filled.
const OPEN: u32 = 0o777;
/// The mount point of a file system, and the folder of files that are only measured.
const MOUNT: &str = "mnt";
const FILES: &str = "files";
const IMAGE: &str = "disk.img";
/// Bytes per inode, the default of `mkfs.ext4`.
const BYTES_PER_INODE: u64 = 16 << 10;
/// The minimum number of inodes.
const FEWEST_INODES: u64 = 256;
/// The smallest file system that can be created, in bytes.
const SMALLEST: u64 = 4 << 20;

/// Why a server's place cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskError {
    /// A file or folder cannot be created.
    #[error("cannot prepare `{}`", path.display())]
    Folder {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The existing place needs a feature that this host does not have now.
    #[error(
        "its volumes are on a file system of their own (`{}`), which cannot be mounted now: {why}",
        image.display()
    )]
    NotMounted { image: PathBuf, why: String },
    /// The server exceeds its limit, and starting it would not change that.
    #[error(
        "its files use {used} of {limit} bytes on disk, {files} of {inodes} files; remove a volume, or \
         raise `limits.disk`"
    )]
    Over {
        used: u64,
        limit: u64,
        files: u64,
        inodes: u64,
    },
    /// The disk of the gateway itself is nearly full.
    #[error(
        "the disk of the data folder is nearly full ({free} bytes free); hosted servers start when \
         {needed} bytes are free. Most is used by {most}"
    )]
    Full {
        free: u64,
        needed: u64,
        most: String,
    },
}

/// How places are limited on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Bound {
    /// By a separate file system for each.
    Loop,
    /// By measuring only, for this reason.
    Measured(String),
}

/// The server that owns a place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    pub(crate) project: ProjectName,
    pub(crate) server: ServerName,
}

/// The places of all hosted servers of a gateway. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Disks {
    inner: Arc<Inner>,
}

struct Inner {
    folder: PathBuf,
    /// Set once separate file systems work; until then every use tries again.
    loops: OnceLock<()>,
    /// Why they did not work at the last attempt.
    why_measured: Mutex<Option<String>>,
    /// Whether loop devices are never used.
    is_measured: bool,
    /// The places in use, one for each instance of a server; an unused one stays mounted until the
    /// gateway stops.
    used: Mutex<Vec<Weak<Place>>>,
    /// The currently mounted file systems.
    mounted: Mutex<HashMap<Owner, PathBuf>>,
    /// Places that are being backed up.
    reading: Mutex<HashMap<Owner, Arc<()>>>,
    /// Held while separate file systems are tried.
    trying: Mutex<()>,
    /// Taken while the place of a server is created, mounted or removed.
    turns: Turns,
}

/// The place of one server, while an instance of it uses it.
pub(crate) struct Place {
    owner: Owner,
    root: PathBuf,
    /// The scratch space of this instance.
    scratch: PathBuf,
    /// The image file of its separate file system, if it has one.
    image: Option<PathBuf>,
    limit: u64,
    detail: String,
    /// Folders that are only measured: all of them, or those outside its file system.
    loose: Vec<PathBuf>,
    measured: measure::Measured,
    /// Held by every instance and every backup.
    uses: Arc<()>,
    /// The reason, once the server has to stop.
    over: channel::Sender<Option<String>>,
}

impl Disks {
    /// Opens the folder, and unmounts the leftovers of an earlier process of this gateway.
    pub(crate) fn open(folder: PathBuf) -> Self {
        loop_image::unmount_below(&folder);
        loop_image::remove_trial(&folder);
        Self {
            inner: Arc::new(Inner {
                folder,
                loops: OnceLock::new(),
                why_measured: Mutex::default(),
                is_measured: false,
                used: Mutex::default(),
                mounted: Mutex::default(),
                reading: Mutex::default(),
                trying: Mutex::default(),
                turns: Turns::default(),
            }),
        }
    }

    /// Returns how disk limits are enforced here, or why they are only measured; `None` before the
    /// first start of a hosted server. Does not probe.
    pub(crate) fn how(&self) -> Option<Result<&'static str, String>> {
        if self.inner.loops.get().is_some() {
            return Some(Ok("a file system of its own per server"));
        }
        let why = self.inner.why_measured.lock().clone()?;
        Some(Err(format!("measured, not enforced: {why}")))
    }

    /// Returns how places are limited now; a feature that fails is tried again at the next use.
    fn bound(&self) -> Bound {
        if self.inner.is_measured {
            return Bound::Measured("asked for".to_owned());
        }
        if self.inner.loops.get().is_some() {
            return Bound::Loop;
        }
        let _one = self.inner.trying.lock();
        if self.inner.loops.get().is_some() {
            return Bound::Loop;
        }
        let tried = self.data_folder().map_err(|error| error.to_string());
        match tried.and_then(|()| loop_image::probe(&self.inner.folder)) {
            Ok(()) => {
                self.inner.loops.get_or_init(|| ());
                Bound::Loop
            }
            Err(why) => {
                *self.inner.why_measured.lock() = Some(why.clone());
                Bound::Measured(why)
            }
        }
    }

    /// Fails if the data folder was removed: it is not created again. fault F4
    fn data_folder(&self) -> Result<(), DiskError> {
        let data_folder = self.inner.folder.parent().unwrap_or(&self.inner.folder);
        let found = std::fs::metadata(data_folder);
        found
            .map(drop)
            .map_err(|source| folder_error(data_folder, source))
    }

    /// Returns how the place of a server is limited: the files on disk decide, so that a server
    /// never loses its volumes.
    fn bound_of(&self, home: &Path) -> Result<Bound, DiskError> {
        let image = home.join(IMAGE);
        let bound = self.bound();
        let has_files = std::fs::read_dir(home.join(FILES).join(VOLUMES))
            .is_ok_and(|mut volumes| volumes.next().is_some());
        match bound {
            Bound::Measured(why) if image.is_file() => Err(DiskError::NotMounted { image, why }),
            Bound::Loop if has_files && !image.is_file() => Ok(Bound::Measured(
                "its volumes were made where disks could not be bounded".to_owned(),
            )),
            bound @ (Bound::Loop | Bound::Measured(_)) => Ok(bound),
        }
    }

    /// Prepares the place of a server for a start: empty scratch space, volumes created.
    pub(crate) fn prepare(&self, request: &PlaceRequest<'_>) -> Result<Arc<Place>, DiskError> {
        let _turn = self.inner.turns.take(&request.owner);
        self.data_folder()?;
        self.admit()?;
        let home = self.home(&request.owner);
        make_private(&home)?;
        let mut limit = request.limit_bytes.max(SMALLEST);
        let mut loose = request.outside.to_vec();
        let (root, image, mut detail) = match self.bound_of(&home)? {
            Bound::Loop => {
                let image = home.join(IMAGE);
                let root = home.join(MOUNT);
                make_private(&root)?;
                let is_mounted = self.inner.mounted.lock().contains_key(&request.owner);
                let detail = loop_image::provide(&image, &root, limit, is_mounted);
                let made = detail.map_err(|source| folder_error(&image, source))?;
                let mut mounted = self.inner.mounted.lock();
                mounted.insert(request.owner.clone(), root.clone());
                limit = made.bytes;
                (root, Some(image), made.detail)
            }
            Bound::Measured(why) => {
                let root = home.join(FILES);
                make_private(&root)?;
                loose.push(root.clone());
                (root, None, format!("measured: {why}"))
            }
        };
        if let (Some(_), Some(path)) = (&image, loose.first()) {
            let path = path.display();
            detail =
                format!("{detail}; `{path}` lies on the gateway's own disk and is only measured");
        }
        let scratch = self.empty_scratch(&request.owner, &root.join(SCRATCH))?;
        open_to_all(&root.join(WORK), 0o777)?;
        make(&root.join(VOLUMES), 0o755)?;
        for volume in request.volumes {
            open_to_all(&volume_folder(&root, volume), OPEN)?;
        }
        let place = Arc::new(Place {
            owner: request.owner.clone(),
            root,
            scratch,
            image,
            limit,
            detail,
            loose,
            measured: measure::Measured::default(),
            uses: Arc::default(),
            over: channel::Sender::new(None),
        });
        if !place.loose.is_empty() {
            let found = place.measure();
            let (used, files, inodes) = (found.bytes, found.files, place.inodes());
            if used > limit || files > inodes {
                return Err(DiskError::Over {
                    used,
                    limit,
                    files,
                    inodes,
                });
            }
        }
        self.inner.used.lock().push(Arc::downgrade(&place));
        Ok(place)
    }

    /// Creates scratch space for an instance, and removes that of instances which have ended.
    fn empty_scratch(&self, owner: &Owner, folder: &Path) -> Result<PathBuf, DiskError> {
        let kept: Vec<PathBuf> = self.places_of(owner).map(|at| at.scratch.clone()).collect();
        let failed = |source| folder_error(folder, source);
        if kept.is_empty() {
            tree::remove(folder).map_err(failed)?;
        }
        make(folder, 0o755)?;
        for entry in std::fs::read_dir(folder).map_err(failed)? {
            let found = entry.map_err(failed)?.path();
            if !kept.contains(&found) {
                tree::remove(&found).map_err(failed)?;
            }
        }
        let mut names = (0..=kept.len()).map(|number| folder.join(number.to_string()));
        let scratch = names.find(|name| !kept.contains(name));
        let scratch = scratch.ok_or_else(|| failed(io::ErrorKind::AlreadyExists.into()))?;
        open_to_all(&scratch, 0o1777)?;
        Ok(scratch)
    }

    /// Unmounts everything; all servers have ended. Blocks.
    pub(crate) fn close(&self) {
        let _none = self.inner.turns.stop();
        self.inner.unmount_all();
    }

    /// Refuses further starts when the gateway's disk is nearly full.
    fn admit(&self) -> Result<(), DiskError> {
        let (free, needed) = self.free();
        if free >= needed {
            return Ok(());
        }
        Err(DiskError::Full {
            free,
            needed,
            most: self.most_used(),
        })
    }

    fn home(&self, owner: &Owner) -> PathBuf {
        let project = self.inner.folder.join(owner.project.as_str());
        project.join(owner.server.as_str())
    }

    fn places(&self) -> Vec<Arc<Place>> {
        let mut used = self.inner.used.lock();
        used.retain(|place| place.strong_count() > 0);
        used.iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the places of the instances of a server.
    fn places_of(&self, owner: &Owner) -> impl Iterator<Item = Arc<Place>> {
        let all = self.places().into_iter();
        all.filter(move |place| place.owner == *owner)
    }
}

impl Inner {
    fn unmount_all(&self) {
        let mounted = self.mounted.lock().drain().map(|(_, root)| root).collect();
        loop_image::unmount_each(mounted);
    }
}

impl Drop for Inner {
    /// All servers have ended by now.
    fn drop(&mut self) {
        self.unmount_all();
    }
}

/// The parameters of a place.
pub(crate) struct PlaceRequest<'a> {
    pub(crate) owner: Owner,
    pub(crate) limit_bytes: u64,
    pub(crate) volumes: &'a [PathBuf],
    /// Folders outside the place that the server may write to.
    pub(crate) outside: &'a [PathBuf],
}

impl Place {
    /// Returns the folder that is emptied at every start.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.scratch.clone()
    }

    /// Returns the persistent working folder of a command.
    pub(crate) fn work(&self) -> PathBuf {
        self.root.join(WORK)
    }

    /// Returns the folder of a volume, by its path inside the server.
    pub(crate) fn volume(&self, path: &Path) -> PathBuf {
        volume_folder(&self.root, path)
    }

    /// Returns the size limit in bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns whether the kernel enforces the limit for everything that the server may write to,
    /// and how or why not.
    pub(crate) fn enforced(&self) -> (bool, &str) {
        (self.loose.is_empty(), &self.detail)
    }

    /// Returns whether scratch space and volumes are on a separate file system.
    pub(crate) fn is_bounded(&self) -> bool {
        self.image.is_some()
    }

    /// Returns a guard that prevents the removal of the place, for an instance or a backup.
    pub(crate) fn hold(&self) -> Arc<()> {
        Arc::clone(&self.uses)
    }

    /// Returns the size of the server's files, as last measured. Never blocks.
    pub(crate) fn used_bytes(&self) -> Option<u64> {
        let own = match &self.image {
            Some(_) => loop_image::used(&self.root)?,
            None => 0,
        };
        let loose = self.measured.last().map_or(0, |found| found.bytes);
        Some(own + loose)
    }

    fn inodes(&self) -> u64 {
        (self.limit / BYTES_PER_INODE).max(FEWEST_INODES)
    }

    /// Returns a receiver of the reason why the server has to stop.
    pub(crate) fn over(&self) -> channel::Receiver<Option<String>> {
        self.over.subscribe()
    }

    /// Also counts deleted files that the server holds open, if its files are only measured.
    pub(crate) fn count_unnamed(&self, files: UnnamedFiles) {
        if !self.loose.is_empty() {
            self.measured.count(files);
        }
    }

    fn measure(&self) -> measure::Found {
        self.measured.measure(&self.loose)
    }
}

/// Returns the folder of a volume; unique for every path.
fn volume_folder(root: &Path, path: &Path) -> PathBuf {
    root.join(VOLUMES).join(volume_name(path))
}

fn folder_error(path: &Path, source: io::Error) -> DiskError {
    DiskError::Folder {
        path: path.to_owned(),
        source,
    }
}

/// Creates a folder, and its parents, that only the gateway can access.
fn make_private(path: &Path) -> Result<(), DiskError> {
    let mut builder = std::fs::DirBuilder::new();
    let made = builder.mode(0o700).recursive(true).create(path);
    made.map_err(|source| folder_error(path, source))
}

fn make(path: &Path, mode: u32) -> Result<(), DiskError> {
    let mut builder = std::fs::DirBuilder::new();
    let made = builder.mode(mode).recursive(true).create(path);
    made.map_err(|source| folder_error(path, source))
}

/// Creates a folder that any user inside may write to; its parents exclude all other users. An
/// existing folder keeps the mode that the server set.
fn open_to_all(path: &Path, mode: u32) -> Result<(), DiskError> {
    let is_there = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    if is_there {
        return Ok(());
    }
    make(path, 0o700)?;
    let opened = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
    opened.map_err(|source| folder_error(path, source))
}

#[cfg(test)]
mod tests;
