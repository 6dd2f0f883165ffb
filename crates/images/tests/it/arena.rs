//! A store with a canary tree beside it: what a hostile layer would like to reach, watched.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;

use gantry_images::{
    Digest, ImageError, ImageRecord, ImageStore, Limits, Owners, RootLayers, StoreOptions,
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Nobody's number.
pub(crate) const NOBODY: u32 = 65_534;

/// A folder with a store, a canary tree, and room for archives and flat roots.
pub(crate) struct Arena {
    folder: TempDir,
    pub(crate) store: ImageStore,
    owners: Owners,
}

/// Everything about a tree that an escape would change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Snapshot(BTreeMap<PathBuf, String>);

impl Arena {
    /// Makes an arena for whoever runs the thread.
    pub(crate) fn new(limits: Limits) -> Self {
        let owners = if rustix::process::geteuid().is_root() {
            Owners::Keep
        } else {
            Owners::Single
        };
        let folder = tempfile::tempdir().unwrap();
        let canary = folder.path().join("canary");
        fs::create_dir_all(canary.join("folder/inner")).unwrap();
        fs::create_dir(canary.join("empty")).unwrap();
        fs::write(canary.join("secret"), "do not touch").unwrap();
        fs::write(canary.join("folder/inner/file"), "deep").unwrap();
        fs::set_permissions(canary.join("secret"), PermissionsExt::from_mode(0o640)).unwrap();
        symlink("secret", canary.join("link")).unwrap();
        let store = open(&folder.path().join("store"), owners, limits).unwrap();
        Self {
            folder,
            store,
            owners,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn owners(&self) -> Owners {
        self.owners
    }

    /// Returns everything in the arena but the store and what tests put there under `work-`.
    pub(crate) fn canary(&self) -> Snapshot {
        let mut snapshot = BTreeMap::new();
        for entry in fs::read_dir(self.folder.path()).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if name != "store" && !name.starts_with("work-") {
                look(&entry.path(), &mut snapshot);
            }
        }
        Snapshot(snapshot)
    }

    /// Imports an archive.
    pub(crate) fn import(&self, archive: &[u8]) -> Result<Vec<ImageRecord>, ImageError> {
        let path = self.path("work-archive");
        fs::write(&path, archive).unwrap();
        let stop = CancellationToken::new();
        self.store.import(&path, &|_| (), &stop)
    }

    /// Makes the flat root of an image at a new place.
    pub(crate) fn flat(&self, root: &RootLayers, name: &str) -> PathBuf {
        let folder = self.path(&format!("work-{name}"));
        root.flat(&folder, &CancellationToken::new()).unwrap();
        folder
    }

    /// Fails unless nothing is half done in the store and every layer in it is whole.
    pub(crate) fn assert_whole(&self) {
        assert_whole(&self.path("store"));
    }
}

pub(crate) fn open(root: &Path, owners: Owners, limits: Limits) -> Result<ImageStore, ImageError> {
    ImageStore::open(StoreOptions {
        root: root.to_owned(),
        owners,
        limits,
    })
}

/// Fails unless nothing is half done in a store and every layer in it is whole.
pub(crate) fn assert_whole(store: &Path) {
    let names = |folder: &str| -> Vec<String> {
        let entries = fs::read_dir(store.join(folder)).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    assert_eq!(names("tmp"), [""; 0], "left in tmp");
    assert_eq!(names("locks"), [""; 0], "left in locks");
    for layer in names("layers") {
        let folder = store.join("layers").join(&layer);
        let text = fs::read(folder.join("layer.json")).unwrap();
        let description: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let diff_id: Digest = description["diff_id"].as_str().unwrap().parse().unwrap();
        assert!(diff_id.hex().starts_with(&layer), "{layer} is {diff_id}");
        assert!(
            folder.join("fs").is_dir() && folder.join("implied").is_file(),
            "{layer}"
        );
        let mut files = BTreeMap::new();
        look(&folder.join("fs"), &mut files);
        let bytes = description["content_bytes"].as_u64().unwrap();
        assert!(bytes >= content_bytes(&folder.join("fs")), "{layer}");
    }
}

/// The bytes of all files, each counted once.
fn content_bytes(folder: &Path) -> u64 {
    let mut seen = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_dir() {
                folders.push(path);
            } else if metadata.is_file() {
                seen.insert(metadata.ino(), metadata.len());
            }
        }
    }
    seen.values().sum()
}

/// Notes names, kinds, modes, owners, times and contents, links not followed.
fn look(path: &Path, into: &mut BTreeMap<PathBuf, String>) {
    let metadata = fs::symlink_metadata(path).unwrap();
    let mut text = format!(
        "{:o} {}:{} {}.{} links {} ",
        metadata.mode(),
        metadata.uid(),
        metadata.gid(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.nlink(),
    );
    if metadata.is_symlink() {
        text.push_str(&fs::read_link(path).unwrap().to_string_lossy());
    } else if metadata.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            look(&entry.unwrap().path(), into);
        }
    } else if metadata.is_file() {
        text.push_str(&Digest::of(&fs::read(path).unwrap()).to_string());
    }
    into.insert(path.to_owned(), text);
}

/// Runs something as root, and again in a thread of nobody's.
pub(crate) fn as_root_and_nobody(run: impl Fn() + Sync) {
    assert!(
        rustix::process::geteuid().is_root(),
        "the suite runs as root"
    );
    run();
    as_nobody(run);
}

/// Runs something in a thread without any right: user, groups and capabilities belong to threads.
pub(crate) fn as_nobody(run: impl Fn() + Sync) {
    let ran = thread::scope(|scope| {
        let nobody = scope.spawn(|| {
            use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
            let (uid, gid) = (
                rustix::fs::Uid::from_raw(NOBODY),
                rustix::fs::Gid::from_raw(NOBODY),
            );
            set_thread_groups(&[]).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            run();
        });
        nobody.join()
    });
    if let Err(panic) = ran {
        std::panic::resume_unwind(panic);
    }
}

/// Returns the error of an import with its causes, in one line.
pub(crate) fn told(error: &ImageError) -> String {
    gantry_model::diagnose::chain(error)
}
