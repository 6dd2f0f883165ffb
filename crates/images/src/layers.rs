//! The layer store: unpacked layers, named by their `diff_id`, shared by all images.
//!
//! ```text
//! store.json            the format of the store and the kind of file owners
//! lock                  see `lock`
//! locks/NAME            the lock of a layer that is being unpacked
//! tmp/…                 unfinished and half-removed folders
//! layers/NAME/fs        the files, in the form that overlay file systems take with `userxattr`
//! layers/NAME/layer.json, implied
//! ```
//!
//! A layer is made in `tmp/`, synced to the disk and renamed to its place: it is complete or
//! absent, even after a crash. Several processes may use one store. Entry points:
//! [`LayerStore::claim`], [`LayerStore::add_to`], [`LayerStore::hold`], [`LayerStore::sweep`].

mod cost;
mod error;
mod held;
mod lock;
mod order;
mod scratch;
mod sweep;

use std::fs::{DirBuilder, File};
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, XattrFlags, fchmod, fsetxattr,
    fsync, makedev, mkdirat, mknodat, openat, renameat, renameat_with, syncfs, unlinkat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::error::LayerError;
pub use self::sweep::Pruned;

pub(crate) use self::cost::{Budget, Waited};
pub(crate) use self::held::HeldLayer;
pub use self::scratch::remove_tree_by;
pub(crate) use self::scratch::{Scratch, each_name, remove_tree};

use self::held::Description;
use self::lock::{NameLock, StoreLock, try_lock};
use crate::digest::Digest;
use crate::store::{Limits, Owners};
use crate::tar::{Bounds, Cost};
use crate::unpack::{self, ATTRIBUTE_OPAQUE, Target, WhiteoutForm, open_folder};

/// The files of a layer.
const FILES: &str = "fs";
/// The description of a layer.
const DESCRIPTION: &str = "layer.json";
/// The list of folders that a layer uses without an entry for them.
const IMPLIED: &str = "implied";
/// The format of the store and the kind of file owners.
const FORMAT: &str = "store.json";
/// The temporary name of `store.json` while it is written.
const NEW_FORMAT: &str = "store.json.new";
/// How often to check whether another task has unpacked a layer.
const RETRY: Duration = Duration::from_millis(25);
/// How many hexadecimal digits of the digest name a layer's folder; the whole digest is compared
/// besides. Short names let an overlay of more than a hundred layers fit into the one page of mount
/// options.
const NAME_DIGITS: usize = 16;

/// All layers of a store. Cheap to clone; its methods block, except `claim`.
#[derive(Debug, Clone)]
pub(crate) struct LayerStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    root: OwnedFd,
    layers: OwnedFd,
    tmp: OwnedFd,
    locks: OwnedFd,
    owners: Owners,
    whiteouts: WhiteoutForm,
    limits: Limits,
}

/// The result of claiming a layer.
#[derive(Debug)]
pub(crate) enum Claim {
    /// The layer is in the store.
    Present(HeldLayer),
    /// The caller must unpack it.
    Vacant(Vacant),
}

/// What to do with a layer that is in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Present {
    Use,
    /// Its content must be given again, and is compared with the digest.
    UnpackAgain,
}

/// The exclusive right to unpack a layer, until dropped.
#[derive(Debug)]
pub(crate) struct Vacant {
    store: LayerStore,
    diff_id: Digest,
    /// The budget that its bytes are charged to, shared by all layers of the image.
    pub(crate) budget: Option<Arc<Budget>>,
    /// How long the reader of its tar has waited for the network.
    pub(crate) waited: Waited,
    _name: NameLock,
}

impl LayerStore {
    /// Opens or creates the store, and removes unfinished work of processes that have exited.
    pub(crate) fn open(path: &Path, owners: Owners, limits: &Limits) -> Result<Self, LayerError> {
        let shown = path.as_os_str().as_encoded_bytes();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(LayerError::store("create", shown))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(rustix::fs::CWD, path, flags, Mode::empty())
            .map_err(LayerError::store("open", shown))?;
        let store = StoreLock::exclusive(root.as_fd())?;
        check_format(root.as_fd(), owners)?;
        // Mounting processes run as the users that the layers are mapped to, and need to traverse
        // this folder.
        let layers = make_folder(root.as_fd(), "layers", 0o755)?;
        let tmp = make_folder(root.as_fd(), "tmp", 0o700)?;
        let locks = make_folder(root.as_fd(), "locks", 0o700)?;
        let whiteouts = probe(&Scratch::new(tmp.as_fd(), &store)?)?;
        let abandoned = Scratch::abandoned(tmp.as_fd(), &store)?;
        drop(store);
        drop(abandoned);
        Ok(Self {
            shared: Arc::new(Shared {
                path: path.to_owned(),
                root,
                layers,
                tmp,
                locks,
                owners,
                whiteouts,
                limits: limits.clone(),
            }),
        })
    }

    /// Returns a layer in the store and protects it from removal.
    pub(crate) fn find(&self, diff_id: &Digest) -> Result<Option<HeldLayer>, LayerError> {
        let store = StoreLock::shared(self.root())?;
        HeldLayer::find(self.layers(), diff_id, &store)
    }

    /// Returns the layer, or the right to unpack it as soon as no other task does.
    pub(crate) async fn claim(
        &self,
        diff_id: &Digest,
        present: Present,
        stop: &CancellationToken,
    ) -> Result<Claim, LayerError> {
        loop {
            let (store, wanted) = (self.clone(), *diff_id);
            let tried =
                tokio::task::spawn_blocking(move || store.try_claim(&wanted, present)).await;
            let tried = tried.map_err(std::io::Error::other);
            if let Some(claim) = tried.map_err(LayerError::store("claim", "layers"))?? {
                return Ok(claim);
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return Err(LayerError::Cancelled),
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    /// Unpacks the uncompressed tar of a layer, completely or not at all. Reads `tar` to its end
    /// and verifies the content against `diff_id`. An error of the reader is returned as
    /// [`LayerError::Read`]. If another task unpacks the same layer, this waits and returns that
    /// task's layer. Its bytes are charged to the image's budget either way.
    pub(crate) fn add_to(
        &self,
        budget: &Arc<Budget>,
        (diff_id, present): (&Digest, Present),
        tar: &mut dyn Read,
        stop: &CancellationToken,
    ) -> Result<HeldLayer, LayerError> {
        let limit = self.shared.limits.layer_time;
        let deadline = Instant::now() + limit;
        loop {
            match self.try_claim(diff_id, present)? {
                Some(Claim::Present(layer)) => {
                    budget.charge(layer.bytes)?;
                    return Ok(layer);
                }
                Some(Claim::Vacant(mut vacant)) => {
                    vacant.budget = Some(Arc::clone(budget));
                    return vacant.unpack(tar, stop);
                }
                None if stop.is_cancelled() => return Err(LayerError::Cancelled),
                None if Instant::now() >= deadline => return Err(LayerError::TooSlow { limit }),
                None => std::thread::sleep(RETRY),
            }
        }
    }

    /// Returns all of these layers and protects them from removal.
    pub(crate) fn hold_each(&self, diff_ids: &[Digest]) -> Result<Vec<HeldLayer>, LayerError> {
        let store = StoreLock::shared(self.root())?;
        let each = diff_ids.iter().map(|diff_id| {
            let found = HeldLayer::find(self.layers(), diff_id, &store)?;
            found.ok_or(LayerError::Missing { diff_id: *diff_id })
        });
        each.collect()
    }

    /// Creates a private folder, which is removed with its content when dropped.
    pub(crate) fn scratch(&self) -> Result<Scratch, LayerError> {
        let store = StoreLock::shared(self.root())?;
        Scratch::new(self.tmp(), &store)
    }

    /// Returns the folder that the names of layers are relative to.
    pub(crate) fn base(&self) -> PathBuf {
        self.shared.path.join("layers")
    }

    pub(crate) fn owners(&self) -> Owners {
        self.shared.owners
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    fn root(&self) -> BorrowedFd<'_> {
        self.shared.root.as_fd()
    }

    fn layers(&self) -> BorrowedFd<'_> {
        self.shared.layers.as_fd()
    }

    fn tmp(&self) -> BorrowedFd<'_> {
        self.shared.tmp.as_fd()
    }

    /// Returns the layer or the right to unpack it; `None` while another task unpacks it.
    fn try_claim(&self, diff_id: &Digest, present: Present) -> Result<Option<Claim>, LayerError> {
        let find = || match present {
            Present::Use => self.find(diff_id),
            Present::UnpackAgain => Ok(None),
        };
        if let Some(layer) = find()? {
            return Ok(Some(Claim::Present(layer)));
        }
        let locks = self.shared.locks.as_fd();
        let Some(name) = NameLock::take(locks, &short_name(diff_id))? else {
            return Ok(None);
        };
        // The previous holder of the lock may have unpacked it.
        Ok(Some(match find()? {
            Some(layer) => Claim::Present(layer),
            None => Claim::Vacant(Vacant {
                store: self.clone(),
                diff_id: *diff_id,
                budget: None,
                waited: Waited::default(),
                _name: name,
            }),
        }))
    }
}

impl Vacant {
    /// Writes a compressed blob to a file, as long as enough disk space stays free; returns the
    /// file, positioned at its start. It is removed together with its scratch folder.
    pub(crate) fn spool(
        &self,
        blob: &mut dyn Read,
        stop: &CancellationToken,
    ) -> Result<(File, Scratch), LayerError> {
        let scratch = self.store.scratch()?;
        let mut file = create_file(scratch.folder(), "blob")?;
        let mut buffer = vec![0; 256 * 1024];
        let mut piece = 0_usize;
        loop {
            if stop.is_cancelled() {
                return Err(LayerError::Cancelled);
            }
            if piece.is_multiple_of(4) {
                self.store.check_space()?;
            }
            piece += 1;
            let count = blob.read(&mut buffer).map_err(LayerError::Read)?;
            if count == 0 {
                break;
            }
            let written = file.write_all(&buffer[..count]);
            written.map_err(LayerError::store("write", "blob"))?;
        }
        file.rewind().map_err(LayerError::store("read", "blob"))?;
        Ok((file, scratch))
    }

    /// Unpacks the uncompressed tar of the layer, like [`LayerStore::add_to`].
    pub(crate) fn unpack(
        self,
        tar: &mut dyn Read,
        stop: &CancellationToken,
    ) -> Result<HeldLayer, LayerError> {
        let shared = &self.store.shared;
        let scratch = self.store.scratch()?;
        let folder = scratch.folder();
        let root = make_folder(folder, FILES, 0o755)?;
        let times = create_file(folder, "times")?;
        unlinkat(folder, "times", AtFlags::empty())
            .map_err(LayerError::store("remove", "times"))?;
        let target = Target {
            root,
            implied: create_file(folder, IMPLIED)?,
            times,
            owners: shared.owners,
            whiteouts: shared.whiteouts,
        };
        let bounds = Bounds {
            bytes: shared.limits.layer_bytes,
            entries: shared.limits.entries,
            time: shared.limits.layer_time,
            stop,
            cost: Some(Cost {
                store: &self.store,
                budget: self.budget.as_deref(),
                waited: &self.waited,
            }),
        };
        let unpacked = unpack::unpack(tar, target, bounds)?;
        if unpacked.diff_id != self.diff_id {
            return Err(LayerError::WrongDigest {
                wanted: self.diff_id,
                found: unpacked.diff_id,
            });
        }
        Description::new(&unpacked).write(folder)?;
        syncfs(folder).map_err(LayerError::store("write to the disk", FILES))?;
        self.publish(scratch)
    }

    /// Moves a complete layer to its final place.
    fn publish(self, scratch: Scratch) -> Result<HeldLayer, LayerError> {
        let store = StoreLock::shared(self.store.root())?;
        let layers = self.store.layers();
        let name = short_name(&self.diff_id);
        // From now on other users of the layer share the lock. Sweepers of `tmp/` need the store
        // lock.
        try_lock(scratch.folder(), FlockOperation::NonBlockingLockShared)
            .map_err(LayerError::store("lock", &name))?;
        match scratch.publish(layers, &name) {
            Ok(folder) => {
                fsync(layers).map_err(LayerError::store("write to the disk", "layers"))?;
                HeldLayer::hold(folder, &self.diff_id, &store)
            }
            // It was unpacked again, or a process that does not use these locks was faster.
            Err((_, Errno::EXIST)) => {
                let there = HeldLayer::find(layers, &self.diff_id, &store)?;
                there.ok_or(LayerError::Missing {
                    diff_id: self.diff_id,
                })
            }
            Err((_, error)) => Err(LayerError::store("create", name)(error)),
        }
    }
}

/// Returns the name of a layer's folder.
fn short_name(diff_id: &Digest) -> String {
    let mut name = diff_id.hex();
    name.truncate(NAME_DIGITS);
    name
}

/// The content of `store.json`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Format {
    version: u32,
    /// Whether files keep the owners given in the layer.
    owners_kept: bool,
}

/// Refuses a store of another format or for other owners; writes `store.json` for a new store.
fn check_format(root: BorrowedFd<'_>, owners: Owners) -> Result<(), LayerError> {
    let wanted = Format {
        version: 1,
        owners_kept: owners == Owners::Keep,
    };
    let damaged = |why: String| LayerError::Damaged {
        path: FORMAT.into(),
        why,
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(root, FORMAT, flags, Mode::empty()) {
        Ok(file) => {
            let mut text = Vec::new();
            let read = File::from(file).take(1024).read_to_end(&mut text);
            read.map_err(LayerError::store("read", FORMAT))?;
            let found: Format =
                serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
            if found.version != wanted.version {
                return Err(damaged(format!("version {} is not known", found.version)));
            }
            if found != wanted {
                return Err(LayerError::OtherOwners {
                    keeps: found.owners_kept,
                });
            }
            Ok(())
        }
        Err(Errno::NOENT) => {
            let text = serde_json::to_vec(&wanted).expect("numbers and flags are JSON");
            match unlinkat(root, NEW_FORMAT, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(LayerError::store("remove", NEW_FORMAT)(error)),
            }
            let mut file = create_file(root, NEW_FORMAT)?;
            file.write_all(&text)
                .and_then(|()| file.sync_all())
                .map_err(LayerError::store("write", FORMAT))?;
            renameat(root, NEW_FORMAT, root, FORMAT).map_err(LayerError::store("write", FORMAT))
        }
        Err(error) => Err(LayerError::store("open", FORMAT)(error)),
    }
}

/// Checks that the kernel and the file system support layers, and determines the form of whiteouts.
fn probe(scratch: &Scratch) -> Result<WhiteoutForm, LayerError> {
    let lacks = |feature| {
        move |source: Errno| LayerError::FileSystem {
            feature,
            source: source.into(),
        }
    };
    let folder = scratch.folder();
    mkdirat(folder, "probe", Mode::RWXU).map_err(LayerError::store("create", "probe"))?;
    let probe = open_folder(folder, b"probe").map_err(lacks("`openat2`, of Linux 5.6"))?;
    fsetxattr(&probe, ATTRIBUTE_OPAQUE, b"y", XattrFlags::empty())
        .map_err(lacks("extended attributes of users"))?;
    mkdirat(folder, "from", Mode::RWXU).map_err(LayerError::store("create", "from"))?;
    renameat_with(folder, "from", folder, "to", RenameFlags::NOREPLACE)
        .map_err(lacks("`renameat2` with `RENAME_NOREPLACE`"))?;
    let kind = FileType::CharacterDevice;
    Ok(
        match mknodat(&probe, "whiteout", kind, Mode::empty(), makedev(0, 0)) {
            Ok(()) => WhiteoutForm::Device,
            Err(_) => WhiteoutForm::Attribute,
        },
    )
}

/// Creates a folder if it does not exist, with this mode regardless of the umask, and opens it.
fn make_folder(parent: BorrowedFd<'_>, name: &str, mode: u32) -> Result<OwnedFd, LayerError> {
    let failed = || LayerError::store("create", name);
    match mkdirat(parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(failed()(error)),
    }
    let folder = open_folder(parent, name.as_bytes()).map_err(failed())?;
    fchmod(&folder, Mode::from_raw_mode(mode)).map_err(failed())?;
    Ok(folder)
}

/// Creates a new file that only its owner can read and write.
fn create_file(folder: BorrowedFd<'_>, name: &str) -> Result<File, LayerError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(folder, name, flags, Mode::RUSR | Mode::WUSR)
        .map(File::from)
        .map_err(LayerError::store("create", name))
}

#[cfg(test)]
mod tests;
