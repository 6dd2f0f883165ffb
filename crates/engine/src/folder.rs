//! The data folder: made private, checked, and locked by one gateway at a time.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use gantry_model::id::GatewayId;
use gantry_store::Gateway;

use crate::error::EngineError;
use crate::random::random;

/// A data folder that is locked until this is dropped.
pub(crate) struct DataFolder {
    path: PathBuf,
    /// Holds the lock; the kernel releases it when the process ends.
    _lock: File,
}

impl DataFolder {
    /// Creates the folder if necessary and locks it, or names the process that holds it.
    pub(crate) fn take(path: &Path) -> Result<Self, EngineError> {
        let failed = |source| EngineError::Folder {
            folder: path.to_owned(),
            source,
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(failed)?;
        let mode = std::fs::metadata(path).map_err(failed)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(EngineError::Open {
                folder: path.to_owned(),
                mode,
            });
        }
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join("lock"))
            .map_err(failed)?;
        if let Some(holder) = lock_or_holder(&mut lock).map_err(failed)? {
            return Err(EngineError::Locked {
                folder: path.to_owned(),
                holder,
            });
        }
        // Overwritten instead of truncated first: on a full disk there is no other space.
        lock.rewind().map_err(failed)?;
        write!(lock, "{:<HOLDER_BYTES$}", std::process::id()).map_err(failed)?;
        lock.set_len(HOLDER_BYTES as u64).map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// Creates a private folder inside.
    pub(crate) fn inner(&self, name: &str) -> Result<PathBuf, EngineError> {
        let path = self.path.join(name);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|source| EngineError::Folder {
            folder: path.clone(),
            source,
        })?;
        Ok(path)
    }

    /// Returns the gateway of this folder; its id is created at the first start.
    pub(crate) fn gateway(&self) -> Result<Gateway, EngineError> {
        let path = self.path.join(GATEWAY_ID);
        let id = gateway_id(&path).map_err(|source| EngineError::Folder {
            folder: self.path.clone(),
            source,
        })?;
        Ok(Gateway {
            id,
            folder: self.path.clone(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The file that holds the gateway's id.
const GATEWAY_ID: &str = "gateway_id";

/// Reads or creates the gateway's id. The file is written atomically, even across a power loss:
/// with another id the gateway would not recognise its own rows.
fn gateway_id(path: &Path) -> io::Result<GatewayId> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let id = text.trim().parse();
            return id.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    let id = GatewayId::from_random(u128::from_le_bytes(random()));
    let unfinished = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&unfinished)?;
    writeln!(file, "{id}")?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(id)
}

/// How many bytes the holder of a lock writes, so that nothing of an earlier one remains.
const HOLDER_BYTES: usize = 20;

/// How often, and at which interval, a lock is tried while its holder runs, and while none does.
const LOOKS: u32 = 20;
const LOOKS_WITHOUT_HOLDER: u32 = 500;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Locks the file, or returns its holder.
///
/// A killed gateway has the lock until the kernel has closed its files, and a child that it forked has
/// it until that child executes its program: both are waited for. A new holder records its process id
/// a moment later; until then the file is empty, or has the one of the holder before.
fn lock_or_holder(lock: &mut File) -> io::Result<Option<String>> {
    let mut text = String::new();
    let (mut looks, mut looks_at_holder) = (0, 0);
    while looks < LOOKS_WITHOUT_HOLDER && looks_at_holder < LOOKS {
        if lock.try_lock().is_ok() {
            return Ok(None);
        }
        text.clear();
        lock.rewind()?;
        lock.read_to_string(&mut text)?;
        looks += 1;
        looks_at_holder += u32::from(runs(text.trim()));
        thread::sleep(BETWEEN_LOOKS);
    }
    Ok(Some(match text.trim() {
        "" => "another gateway".to_owned(),
        pid => format!("the gateway with process id {pid}"),
    }))
}

/// The flag of a process that the kernel is ending, in `/proc/PID/stat`.
const PF_EXITING: u64 = 0x4;

/// Returns whether there is a process with this id that is not ending.
fn runs(pid: &str) -> bool {
    let Ok(pid) = pid.parse::<u32>() else {
        return false;
    };
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program is in parentheses and may contain any character.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
    let flags = fields.and_then(|fields| fields.split_whitespace().nth(6)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_EXITING == 0)
}

/// Opens the store of a data folder for the gateway of a test.
#[cfg(test)]
pub(crate) async fn store_in(folder: &Path) -> gantry_store::Store {
    let gateway = Gateway {
        id: GatewayId::from_random(1),
        folder: folder.to_owned(),
    };
    let config = gantry_store::StoreConfig::in_folder(folder);
    gantry_store::Store::open(&config, &gateway)
        .await
        .expect("the store opens")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_the_id_of_its_gateway() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("data");
        let id = |path: &Path| DataFolder::take(path).unwrap().gateway().unwrap().id;
        let first = id(&path);
        assert_eq!(id(&path), first);
        assert_ne!(id(&temp.path().join("other")), first);
        let mode = std::fs::metadata(path.join(GATEWAY_ID)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(path.join(GATEWAY_ID), "nonsense").unwrap();
        assert!(matches!(
            DataFolder::take(&path).unwrap().gateway(),
            Err(EngineError::Folder { .. })
        ));
    }

    #[test]
    fn a_folder_has_one_holder_who_is_named() {
        // fault P15
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("data");
        let first = DataFolder::take(&path).unwrap();
        let Err(EngineError::Locked { holder, .. }) = DataFolder::take(&path) else {
            panic!("the folder was taken twice");
        };
        assert_eq!(
            holder,
            format!("the gateway with process id {}", std::process::id())
        );
        drop(first);
        DataFolder::take(&path).unwrap();
    }

    #[test]
    fn a_holder_who_has_not_written_itself_down_yet_is_waited_for() {
        // fault P15
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("data");
        drop(DataFolder::take(&path).unwrap());
        // Killed long ago: no process has this number.
        std::fs::write(path.join("lock"), u32::MAX.to_string()).unwrap();
        let mut slow = File::options().write(true).open(path.join("lock")).unwrap();
        slow.lock().unwrap();
        let second = thread::spawn(move || DataFolder::take(&path).err());
        slow.set_len(0).unwrap();
        let own = std::process::id();
        write!(slow, "{own}").unwrap();
        let refused = second.join().unwrap();
        let Some(EngineError::Locked { holder, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(holder, format!("the gateway with process id {own}"));
    }

    #[test]
    fn a_folder_that_a_killed_gateway_is_about_to_release_is_waited_for() {
        // fault P15
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("data");
        drop(DataFolder::take(&path).unwrap());
        // No process has this number: its child has the lock, or the kernel is not done with it.
        std::fs::write(path.join("lock"), u32::MAX.to_string()).unwrap();
        let dying = File::open(path.join("lock")).unwrap();
        dying.lock().unwrap();
        let next = thread::spawn({
            let path = path.clone();
            move || DataFolder::take(&path).map(drop)
        });
        let opened = || {
            let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
            let targets = open.filter_map(|file| std::fs::read_link(file.path()).ok());
            targets
                .filter(|target| *target == path.join("lock"))
                .count()
        };
        while opened() < 2 {
            assert!(!next.is_finished(), "it gave up");
            thread::yield_now();
        }
        drop(dying);
        next.join().unwrap().unwrap();
    }

    #[test]
    fn a_process_that_has_ended_holds_nothing() {
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        assert!(runs(&std::process::id().to_string()));
        // Its parent has not asked for its status: it is still there.
        let pid = ended.id().to_string();
        let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        while !stat().contains(") Z ") {
            thread::yield_now();
        }
        assert!(!runs(&pid));
        ended.wait().unwrap();
        assert!(!runs(&pid) && !runs(""));
    }

    #[test]
    fn a_folder_that_others_can_read_is_refused() {
        // fault F5
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("data");
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(
            DataFolder::take(&path),
            Err(EngineError::Open { mode: 0o755, .. })
        ));
    }
}
