//! Image records: the digest and configuration that a name was resolved to, in one small file each.
//!
//! A record is written atomically, and only while its layers are held. An unreadable record counts
//! as absent: the image is pulled again. Entry point: [`Records`].

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tracing::warn;

use crate::config::ImageConfig;
use crate::digest::Digest;
use crate::error::ImageError;
use crate::platform::Platform;
use crate::reference::ImageReference;

/// The version of the file format.
const VERSION: u32 = 1;
/// The largest record that is read; a configuration is at most as large as a manifest.
const LONGEST: u64 = 64 << 20;

/// An image that is in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// The name under which it was pulled or imported.
    pub reference: ImageReference,
    /// The digest of the index or manifest that the name resolved to, as registries show it.
    pub digest: Digest,
    /// The digest of the manifest for the platform; equal to `digest` without an index.
    pub manifest: Digest,
    /// Its platform.
    pub platform: Platform,
    /// How it is to be run.
    pub config: ImageConfig,
    /// Its layers, lowest first. A layer may occur twice.
    pub layers: Vec<Layer>,
    /// When it was pulled or imported, to the second.
    #[serde(with = "seconds")]
    pub pulled_at: SystemTime,
    /// Whether it came from an archive or a folder; its registry may not have it.
    #[serde(default)]
    pub imported: bool,
}

/// A layer of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// The digest of its uncompressed tar, by which it is stored.
    pub diff_id: Digest,
    /// Its size on disk.
    pub bytes: u64,
}

/// A record as stored on disk.
#[derive(Serialize, Deserialize)]
struct Stored<T> {
    version: u32,
    image: T,
}

/// The folder of the main owner's records.
const MAIN: &str = "images";
/// The parent folder of those of other owners.
const OTHERS: &str = "owners";

/// The records of one owner in a store. Its methods block.
#[derive(Debug)]
pub(crate) struct Records {
    folder: PathBuf,
}

impl Records {
    /// Opens or creates the folder of the main owner's records.
    pub(crate) fn open(root: &Path) -> Result<Self, ImageError> {
        Self::create(root.join(MAIN))
    }

    /// Opens or creates the folder of another owner's records.
    pub(crate) fn open_of(root: &Path, owner: &str) -> Result<Self, ImageError> {
        Self::create(folder_of(root, owner))
    }

    /// Removes all records of another owner.
    pub(crate) fn remove_of(root: &Path, owner: &str) -> Result<(), ImageError> {
        let folder = folder_of(root, owner);
        match fs::remove_dir_all(&folder) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed("remove", &folder)(error)),
        }
    }

    /// Returns the records of all owners.
    pub(crate) fn all(root: &Path) -> Result<Vec<Self>, ImageError> {
        let mut all = vec![Self {
            folder: root.join(MAIN),
        }];
        let others = root.join(OTHERS);
        match fs::read_dir(&others) {
            Ok(entries) => {
                for entry in entries {
                    let folder = entry.map_err(failed("read", &others))?.path();
                    all.push(Self { folder });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("read", &others)(error)),
        }
        Ok(all)
    }

    fn create(folder: PathBuf) -> Result<Self, ImageError> {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder);
        made.map_err(failed("create", &folder))?;
        Ok(Self { folder })
    }

    /// Writes a record, replacing an earlier one with the same name. What a tag named before keeps
    /// its name with the digest: servers may keep to it.
    pub(crate) fn put(&self, record: &ImageRecord) -> Result<(), ImageError> {
        let _lock = self.lock()?;
        let path = self.path(&record.reference);
        let before = read(&path).map_err(failed("read", &path))?;
        if let Some(mut before) = before.filter(|before| before.digest != record.digest) {
            before.reference = before.reference.pinned(before.digest);
            self.write(&before)?;
        }
        self.write(record)
    }

    fn write(&self, record: &ImageRecord) -> Result<(), ImageError> {
        let path = self.path(&record.reference);
        let stored = Stored {
            version: VERSION,
            image: record,
        };
        let text = serde_json::to_vec(&stored).map_err(io::Error::other);
        let text = text.map_err(failed("write", &path))?;
        let write = || {
            // There is one writer at a time, so a leftover of a killed one can be overwritten.
            let new = path.with_extension("new");
            let mut options = OpenOptions::new();
            let mut file = options
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            self.sync()
        };
        write().map_err(failed("write", &path))
    }

    /// Returns the record of a name. A name with a digest is also found under another tag of the
    /// same repository with that digest.
    pub(crate) fn find(
        &self,
        reference: &ImageReference,
    ) -> Result<Option<ImageRecord>, ImageError> {
        let path = self.path(reference);
        let named = read(&path).map_err(failed("read", &path))?;
        let Some(digest) = reference.digest() else {
            return Ok(named);
        };
        // The record must have the digest that its name contains.
        let is_pinned = |record: &ImageRecord| [record.digest, record.manifest].contains(digest);
        if named.as_ref().is_some_and(is_pinned) {
            return Ok(named);
        }
        let is_same = |record: &ImageRecord| {
            record.reference.registry() == reference.registry()
                && record.reference.repository() == reference.repository()
                && is_pinned(record)
        };
        Ok(self.list()?.into_iter().find(is_same))
    }

    /// Returns all records, by name.
    pub(crate) fn list(&self) -> Result<Vec<ImageRecord>, ImageError> {
        let mut records = Vec::new();
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            // The owner was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(records),
            Err(error) => return Err(failed("read", &self.folder)(error)),
        };
        for entry in entries {
            let path = entry.map_err(failed("read", &self.folder))?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                records.extend(read(&path).map_err(failed("read", &path))?);
            }
        }
        records.sort_by(|one, other| one.reference.cmp(&other.reference));
        Ok(records)
    }

    /// Removes a name; returns whether it existed.
    pub(crate) fn remove(&self, reference: &ImageReference) -> Result<bool, ImageError> {
        let path = self.path(reference);
        let _lock = self.lock()?;
        match fs::remove_file(&path) {
            Ok(()) => {
                self.sync().map_err(failed("remove", &path))?;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed("remove", &path)(error)),
        }
    }

    /// Returns the path of a record. A name may contain characters that a file name must not, so
    /// its hash is used.
    fn path(&self, reference: &ImageReference) -> PathBuf {
        let name = Digest::of(reference.to_string().as_bytes()).hex();
        self.folder.join(format!("{name}.json"))
    }

    fn lock(&self) -> Result<File, ImageError> {
        let path = self.folder.join("lock");
        let open = || {
            let mut options = OpenOptions::new();
            let options = options.write(true).create(true).truncate(false).mode(0o600);
            let file = options.open(&path)?;
            flock(&file, FlockOperation::LockExclusive)?;
            Ok(file)
        };
        open().map_err(failed("lock", &path))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }
}

/// Returns the folder of an owner; its name may have any characters, so its hash is used.
fn folder_of(root: &Path, owner: &str) -> PathBuf {
    root.join(OTHERS).join(Digest::of(owner.as_bytes()).hex())
}

/// Reads a record; `None` if it is missing or unreadable.
fn read(path: &Path) -> io::Result<Option<ImageRecord>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text)?;
    match serde_json::from_slice::<Stored<ImageRecord>>(&text) {
        Ok(stored) if stored.version == VERSION => Ok(Some(stored.image)),
        Ok(stored) => {
            warn!(path = %path.display(), version = stored.version, "image record of another version is skipped");
            Ok(None)
        }
        Err(error) => {
            warn!(path = %path.display(), %error, "damaged image record is skipped");
            Ok(None)
        }
    }
}

fn failed(action: &'static str, path: &Path) -> impl Fn(io::Error) -> ImageError {
    let path = path.to_owned();
    move |source| ImageError::Store {
        action,
        path: path.clone(),
        source,
    }
}

/// Truncates a time to the precision of records.
pub(crate) fn whole_seconds(time: SystemTime) -> SystemTime {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    UNIX_EPOCH + Duration::from_secs(since.as_secs())
}

mod seconds {
    use super::{
        Deserialize, Deserializer, Duration, Serialize, Serializer, SystemTime, UNIX_EPOCH,
    };

    pub(super) fn serialize<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        since.as_secs().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SystemTime, D::Error> {
        let seconds = u64::deserialize(from)?;
        let time = UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        time.ok_or_else(|| serde::de::Error::custom("a time that is out of range"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(reference: &str, digest: Digest) -> ImageRecord {
        ImageRecord {
            reference: reference.parse().unwrap(),
            digest,
            manifest: Digest::of(b"manifest"),
            platform: Platform::host(),
            config: ImageConfig::default(),
            layers: vec![Layer {
                diff_id: Digest::of(b"layer"),
                bytes: 7,
            }],
            pulled_at: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
            imported: false,
        }
    }

    #[test]
    fn a_record_is_found_by_name_and_by_digest() {
        let temp = tempfile::tempdir().unwrap();
        let records = Records::open(temp.path()).unwrap();
        let digest = Digest::of(b"index");
        let kept = record("ghcr.io/a/b:1", digest);
        records.put(&kept).unwrap();
        let find = |text: String| records.find(&text.parse().unwrap()).unwrap();
        assert_eq!(find("ghcr.io/a/b:1".to_owned()).as_ref(), Some(&kept));
        assert_eq!(find(format!("ghcr.io/a/b@{digest}")).as_ref(), Some(&kept));
        assert_eq!(
            find(format!("ghcr.io/a/b:2@{}", kept.manifest)).as_ref(),
            Some(&kept)
        );
        // Read access to one repository does not include another.
        assert_eq!(find(format!("ghcr.io/a/c@{digest}")), None);
        assert_eq!(find("ghcr.io/a/b:2".to_owned()), None);

        // A record whose digest differs from its pinned name is not returned.
        let lies = record(
            &format!("ghcr.io/a/d@{}", Digest::of(b"wanted")),
            Digest::of(b"another"),
        );
        records.put(&lies).unwrap();
        assert_eq!(find(lies.reference.to_string()), None);
        assert!(records.remove(&lies.reference).unwrap());

        let newer = record("ghcr.io/a/b:1", Digest::of(b"newer"));
        records.put(&newer).unwrap();
        // The tag names the new one; what it named before is still there by its digest.
        assert_eq!(find("ghcr.io/a/b:1".to_owned()), Some(newer));
        let before = find(format!("ghcr.io/a/b@{digest}")).unwrap();
        assert_eq!(before.digest, digest);
        assert!(records.remove(&kept.reference).unwrap());
        assert!(!records.remove(&kept.reference).unwrap());
        assert_eq!(records.list().unwrap(), std::slice::from_ref(&before));
        assert!(records.remove(&before.reference).unwrap());
        assert!(records.list().unwrap().is_empty());
    }

    #[test]
    fn a_damaged_or_half_written_record_is_not_there() {
        let temp = tempfile::tempdir().unwrap();
        let records = Records::open(temp.path()).unwrap();
        let kept = record("a:1", Digest::of(b""));
        records.put(&kept).unwrap();
        let path = records.path(&kept.reference);
        // The leftover of a killed writer.
        fs::write(path.with_extension("new"), b"{\"vers").unwrap();
        assert_eq!(records.list().unwrap(), std::slice::from_ref(&kept));
        let whole = fs::read(&path).unwrap();
        for damage in [
            &whole[..whole.len() / 2],
            b"",
            b"{\"version\":2,\"image\":{}}",
        ] {
            fs::write(&path, damage).unwrap();
            assert_eq!(records.find(&kept.reference).unwrap(), None);
            assert!(records.list().unwrap().is_empty());
        }
        records.put(&kept).unwrap();
        assert_eq!(records.list().unwrap(), [kept]);
    }
}
