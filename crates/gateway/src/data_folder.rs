//! The data folder: its location, its permissions, and the small files that the gateway leaves
//! there for the other verbs (`gateway.json`, `port`, `keys/`). The store and the journal belong to
//! the engine.
//!
//! Folders are 0700 and files 0600, symbolic links are refused (fault F5), and files are written
//! atomically. Entry point: [`DataFolder::open`].

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use gantry_model::diagnose::{Diagnose, Fault};
use serde::{Deserialize, Serialize};

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// Neither a flag nor a variable names one.
    #[error("no data folder is given, and neither `XDG_STATE_HOME` nor `HOME` is set")]
    Nowhere,
    /// It is something else.
    #[error("the data folder `{}` is {found}", path.display())]
    Kind {
        /// Which folder.
        path: PathBuf,
        /// What is there instead.
        found: &'static str,
    },
    /// Another user owns it.
    #[error("the data folder `{}` belongs to user {owner}, and the gateway runs as user {us}", path.display())]
    Owner {
        /// Which folder.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        us: u32,
    },
    /// Others may enter it.
    #[error("the data folder `{}` is open to others (mode {mode:04o}), and keys are kept there", path.display())]
    Open {
        /// Which folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The operating system refused.
    #[error("cannot {what} `{}`", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl Diagnose for DataError {
    fn code(&self) -> &'static str {
        match self {
            Self::Nowhere => "data.nowhere",
            Self::Kind { .. } => "data.kind",
            Self::Owner { .. } => "data.owner",
            Self::Open { .. } => "data.open",
            Self::Io { .. } => "data.io",
        }
    }

    fn fault(&self) -> Fault {
        Fault::Gateway
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Nowhere => Some("name one with `--data DIR`".to_owned()),
            Self::Open { path, .. } => Some(format!("run `chmod 700 '{}'`", path.display())),
            Self::Kind { .. } | Self::Owner { .. } => {
                Some("name another with `--data DIR`".to_owned())
            }
            Self::Io { what, .. } if what.starts_with("make") => {
                Some("name another with `--data DIR`".to_owned())
            }
            Self::Io { .. } => None,
        }
    }
}

/// The file that records approvals.
const APPROVED: &str = "approved.json";

/// What a running gateway publishes in `gateway.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Its process.
    pub pid: u32,
    /// Its base URL.
    pub url: String,
    /// When it started, in milliseconds since 1970.
    pub started_ms: u64,
    /// Its version.
    pub version: String,
    /// Whether a `gantry stdio` started it; it then ends with the last of them.
    #[serde(default)]
    pub on_demand: bool,
    /// The folder that it was started in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
}

/// A folder that only its owner can access.
#[derive(Debug, Clone)]
pub struct DataFolder {
    path: PathBuf,
}

impl DataFolder {
    /// Returns the data folder of a working folder: its name and a hash of its path, so that two
    /// checkouts of the same name have two gateways.
    pub fn default_path(state_home: Option<PathBuf>, working: &Path) -> Result<PathBuf, DataError> {
        let state_home = state_home.ok_or(DataError::Nowhere)?;
        let name = working
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let slug: String = name
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') {
                    c
                } else {
                    '-'
                }
            })
            .take(40)
            .collect();
        let slug = if slug.trim_matches(['.', '-']).is_empty() {
            "root".to_owned()
        } else {
            slug
        };
        let hash = fnv1a(working.as_os_str().as_encoded_bytes());
        Ok(state_home
            .join("gantry")
            .join(format!("{slug}-{:08x}", (hash >> 32) as u32 ^ hash as u32)))
    }

    /// Opens a folder for a gateway: creates it if missing, refuses it unless it is private.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let io = |what, path: &Path| {
            let path = path.to_owned();
            move |source| DataError::Io { what, path, source }
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(io("make the folder", path))?;
        check(path)?;
        // Absolute from here on, whatever the working folder.
        let path = fs::canonicalize(path).map_err(io("find the folder", path))?;
        let folder = Self { path };
        for part in [folder.keys(), folder.approvals_folder()] {
            match DirBuilder::new().mode(0o700).create(&part) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io("make the folder", &part)(error)),
                Ok(()) => {}
            }
            check(&part)?;
        }
        // Where earlier versions kept it.
        match fs::rename(folder.path.join(APPROVED), folder.approvals()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            moved => moved.map_err(io("move the approvals to", &folder.approvals()))?,
        }
        Ok(folder)
    }

    /// Names a folder for verbs that only read; nothing is created or checked.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Returns the folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file with the admin key.
    pub fn admin_key(&self) -> PathBuf {
        self.keys().join("admin.key")
    }

    /// Returns the file with the default agent's key.
    pub fn agent_key(&self) -> PathBuf {
        self.keys().join("agent.key")
    }

    fn keys(&self) -> PathBuf {
        self.path.join("keys")
    }

    /// Writes a key file and syncs it to disk.
    pub fn write_key(&self, file: &Path, key: &str) -> Result<(), DataError> {
        write(file, format!("{key}\n").as_bytes())?;
        for path in [file, &self.keys()] {
            let synced = fs::File::open(path).and_then(|opened| opened.sync_all());
            synced.map_err(|source| DataError::Io {
                what: "write",
                path: path.to_owned(),
                source,
            })?;
        }
        Ok(())
    }

    /// Writes the keys of a first start, replacing those of an unfinished one.
    pub fn write_first_keys(&self, admin: &str, agent: &str) -> Result<(), DataError> {
        self.write_key(&self.admin_key(), admin)?;
        self.write_key(&self.agent_key(), agent)
    }

    /// Schedules revocation of a label's keys created until now, at the next start here.
    pub fn revoke_later(&self, label: &str, now_ms: u64) -> Result<(), DataError> {
        let mut queued = self.to_revoke();
        queued.insert(label.to_owned(), now_ms);
        self.write_to_revoke(&queued)
    }

    /// Returns the labels whose keys are to be revoked, each with the latest creation time.
    pub fn to_revoke(&self) -> BTreeMap<String, u64> {
        let text = fs::read(self.to_revoke_file()).ok();
        text.and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default()
    }

    /// Removes labels from the list, since their keys are revoked or in use again; labels added
    /// since the list was read are kept.
    pub fn no_longer_revoke(&self, done: &BTreeMap<String, u64>) -> Result<(), DataError> {
        let mut queued = self.to_revoke();
        let before = queued.len();
        queued.retain(|label, until| done.get(label).is_none_or(|known| known < until));
        if queued.len() == before {
            return Ok(());
        }
        self.write_to_revoke(&queued)
    }

    fn write_to_revoke(&self, queued: &BTreeMap<String, u64>) -> Result<(), DataError> {
        let text = serde_json::to_vec_pretty(queued).expect("texts are always expressible as JSON");
        write(&self.to_revoke_file(), &text)
    }

    /// Remembers the hash of the key that a client's file was given.
    pub fn note_client_key(&self, label: &str, hash: &str) -> Result<(), DataError> {
        let mut known = self.client_keys();
        if known.insert(label.to_owned(), hash.to_owned()).as_deref() == Some(hash) {
            return Ok(());
        }
        let text = serde_json::to_vec_pretty(&known).expect("texts are always expressible as JSON");
        write(&self.client_keys_file(), &text)
    }

    /// Returns the hashes of the keys that clients' files were given, by label.
    pub fn client_keys(&self) -> BTreeMap<String, String> {
        let text = fs::read(self.client_keys_file()).ok();
        text.and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default()
    }

    fn client_keys_file(&self) -> PathBuf {
        self.keys().join("clients.json")
    }

    fn to_revoke_file(&self) -> PathBuf {
        self.keys().join("revoke.json")
    }

    /// Returns the port of the last gateway here.
    pub fn port(&self) -> Option<u16> {
        fs::read_to_string(self.path.join("port"))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// Remembers the port for the next gateway here.
    pub fn remember_port(&self, port: u16) -> Result<(), DataError> {
        write(&self.path.join("port"), format!("{port}\n").as_bytes())
    }

    /// Returns the file that records approvals.
    pub fn approvals(&self) -> PathBuf {
        self.approvals_folder().join(APPROVED)
    }

    /// A folder of its own, since it is watched: what is written beside the store would wake the watch
    /// with every call.
    fn approvals_folder(&self) -> PathBuf {
        self.path.join("approvals")
    }

    /// Returns the recorded approvals, if any.
    pub fn read_approvals(&self) -> Option<Vec<u8>> {
        fs::read(self.approvals()).ok()
    }

    /// Records approvals.
    pub fn write_approvals(&self, text: &[u8]) -> Result<(), DataError> {
        write(&self.approvals(), text)
    }

    /// Keeps a private copy of an approved file, under a name that stands for its content.
    pub fn keep_approved(&self, name: &str, content: &[u8]) -> Result<PathBuf, DataError> {
        let path = self.approvals_folder().join(name);
        write(&path, content)?;
        Ok(path)
    }

    /// Publishes the gateway's address for the other verbs.
    pub fn announce(&self, running: &Running) -> Result<(), DataError> {
        let text = serde_json::to_vec_pretty(running)
            .expect("plain fields are always expressible as JSON");
        write(&self.path.join("gateway.json"), &text)
    }

    /// Reverts [`Self::announce`].
    pub fn withdraw(&self) {
        if let Err(error) = fs::remove_file(self.path.join("gateway.json")) {
            tracing::debug!(%error, "`gateway.json` was gone already");
        }
    }

    /// Returns what the gateway here published; it may have been killed since.
    pub fn running(&self) -> Option<Running> {
        serde_json::from_slice(&fs::read(self.path.join("gateway.json")).ok()?).ok()
    }
}

/// Refuses a folder that is a symbolic link, another user's, or open to others.
fn check(path: &Path) -> Result<(), DataError> {
    let found = fs::symlink_metadata(path).map_err(|source| DataError::Io {
        what: "look at",
        path: path.to_owned(),
        source,
    })?;
    if found.is_symlink() {
        return Err(DataError::Kind {
            path: path.to_owned(),
            found: "a symbolic link",
        });
    }
    if !found.is_dir() {
        return Err(DataError::Kind {
            path: path.to_owned(),
            found: "no folder",
        });
    }
    let us = rustix::process::geteuid().as_raw();
    if found.uid() != us {
        return Err(DataError::Owner {
            path: path.to_owned(),
            owner: found.uid(),
            us,
        });
    }
    if found.mode() & 0o077 != 0 {
        return Err(DataError::Open {
            path: path.to_owned(),
            mode: found.mode() & 0o7777,
        });
    }
    Ok(())
}

/// Writes a private file atomically; a symbolic link in its place is replaced.
fn write(path: &Path, content: &[u8]) -> Result<(), DataError> {
    let io = |what| {
        move |source| DataError::Io {
            what,
            path: path.to_owned(),
            source,
        }
    };
    let draft = path.with_extension(format!("draft-{}", std::process::id()));
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io("replace")(error)),
        Ok(()) | Err(_) => {}
    }
    let mut file = create_private(&draft).map_err(io("write"))?;
    file.write_all(content).map_err(io("write"))?;
    drop(file);
    fs::rename(&draft, path).map_err(io("write"))
}

/// Creates a file that only its owner can read; one that is there, or a link, is not touched.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn each_working_folder_has_its_own() {
        let at = |working: &str| {
            DataFolder::default_path(Some("/s".into()), Path::new(working)).unwrap()
        };
        assert_ne!(at("/a/x"), at("/b/x"));
        assert!(
            at("/a/my shop")
                .to_string_lossy()
                .starts_with("/s/gantry/my-shop-")
        );
        assert!(at("/").to_string_lossy().starts_with("/s/gantry/root-"));
        assert!(matches!(
            DataFolder::default_path(None, Path::new("/a")),
            Err(DataError::Nowhere)
        ));
    }

    // fault G5: what an earlier version wrote down as approved stays approved.
    #[test]
    fn approvals_of_earlier_versions_move_to_their_new_place() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        drop(DataFolder::open(&path).unwrap());
        fs::write(path.join(APPROVED), "{}").unwrap();
        let folder = DataFolder::open(&path).unwrap();
        assert_eq!(folder.read_approvals().as_deref(), Some(b"{}".as_slice()));
        assert!(!path.join(APPROVED).exists());
        assert_eq!(mode(&folder.approvals_folder()), 0o700);
    }

    #[test]
    fn only_we_may_enter_and_read() {
        // faults F5, U2
        let home = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(&home.path().join("state/gantry/x")).unwrap();
        assert_eq!(mode(folder.path()), 0o700);
        folder.write_key(&folder.admin_key(), "k1").unwrap();
        folder.write_key(&folder.admin_key(), "k2").unwrap();
        assert_eq!(mode(&folder.admin_key()), 0o600);
        assert_eq!(fs::read_to_string(folder.admin_key()).unwrap(), "k2\n");
    }

    #[test]
    fn a_folder_that_is_not_ours_alone_is_refused() {
        // fault F5
        let home = tempfile::tempdir().unwrap();
        let open = home.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        let error = DataFolder::open(&open).unwrap_err();
        assert!(matches!(error, DataError::Open { mode: 0o755, .. }));
        assert!(error.hint().unwrap().starts_with("run `chmod 700"));
        let link = home.path().join("link");
        symlink(home.path(), &link).unwrap();
        assert!(matches!(
            DataFolder::open(&link),
            Err(DataError::Kind { .. })
        ));
    }

    #[test]
    fn a_link_in_a_files_place_is_replaced_not_followed() {
        // fault F5
        let home = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(&home.path().join("d")).unwrap();
        let victim = home.path().join("victim");
        fs::write(&victim, "untouched").unwrap();
        symlink(&victim, folder.agent_key()).unwrap();
        folder.write_key(&folder.agent_key(), "key").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        assert_eq!(fs::read_to_string(folder.agent_key()).unwrap(), "key\n");
    }

    #[test]
    fn what_is_announced_is_found() {
        let home = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(&home.path().join("d")).unwrap();
        assert_eq!((folder.running(), folder.port()), (None, None));
        let running = Running {
            pid: 7,
            url: "http://127.0.0.1:1".into(),
            started_ms: 1,
            version: "0".into(),
            on_demand: true,
            folder: Some("/srv/shop".into()),
        };
        folder.announce(&running).unwrap();
        folder.remember_port(4180).unwrap();
        assert_eq!(
            (folder.running(), folder.port()),
            (Some(running), Some(4180))
        );
        folder.withdraw();
        assert_eq!(folder.running(), None);
    }

    #[test]
    fn what_waits_to_be_revoked_is_taken_off_the_list_label_by_label() {
        // First hour 2
        let home = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(&home.path().join("d")).unwrap();
        folder.revoke_later("a", 1).unwrap();
        folder.revoke_later("b", 2).unwrap();
        let read = folder.to_revoke();
        // While those are revoked, two more come.
        folder.revoke_later("b", 5).unwrap();
        folder.revoke_later("c", 5).unwrap();
        folder.no_longer_revoke(&read).unwrap();
        let left: Vec<_> = folder.to_revoke().into_iter().collect();
        assert_eq!(left, [("b".to_owned(), 5), ("c".to_owned(), 5)]);
    }
}
