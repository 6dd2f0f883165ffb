//! Replaces a file of another program atomically: mode and owner are kept, a backup without
//! Gantry's keys is written next to it, and concurrent changes are detected.
//!
//! A file that will contain a key becomes readable by its owner only. A symbolic link is kept, and
//! its target replaced. Entry point: [`Opened::read`].

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use gantry_model::secret::Redactor;

use super::ClientError;
use crate::data_folder::create_private;

/// Maximum size of a file.
const LONGEST_BYTES: u64 = 64 << 20;

/// Maximum number of backups per file.
const MOST_COPIES: u32 = 99;

/// Who may read a file after it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// The same users as before.
    AsBefore,
    /// Only its owner: it contains a key.
    Owner,
}

impl Readers {
    fn mode(self, before: u32) -> u32 {
        match self {
            Self::AsBefore => before,
            Self::Owner => before & 0o600,
        }
    }
}

/// A file as it was when read.
#[derive(Debug)]
pub struct Opened {
    path: PathBuf,
    /// The link target, if the path is a link.
    target: PathBuf,
    before: Option<Before>,
}

#[derive(Debug, PartialEq, Eq)]
struct Before {
    text: String,
    mode: u32,
    owner: (u32, u32),
}

impl Opened {
    /// Reads a file; a missing one is empty.
    pub fn read(path: &Path) -> Result<Self, ClientError> {
        let failed = |what| failed(what, path);
        let target = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self {
                    path: path.to_owned(),
                    target: path.to_owned(),
                    before: None,
                });
            }
            Err(error) => return Err(failed("look at")(error)),
            Ok(_) => match fs::canonicalize(path) {
                Ok(target) => target,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(kind(path, "a dangling symbolic link"));
                }
                Err(error) => return Err(failed("look at")(error)),
            },
        };
        let before = look(&target, path)?;
        Ok(Self {
            path: path.to_owned(),
            target,
            before: Some(before),
        })
    }

    /// Returns its content.
    pub fn text(&self) -> &str {
        self.before.as_ref().map_or("", |before| &before.text)
    }

    /// Returns whether it existed.
    pub fn existed(&self) -> bool {
        self.before.is_some()
    }

    /// Returns whether other users may read it.
    pub fn is_open_to_others(&self) -> bool {
        self.before
            .as_ref()
            .is_some_and(|before| before.mode & 0o044 != 0)
    }

    /// Returns the path as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fails early if the file could not be written.
    pub fn check_writable(&self) -> Result<(), ClientError> {
        match &self.before {
            Some(before) if before.mode & 0o222 == 0 => Err(ClientError::ReadOnly {
                path: self.path.clone(),
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// Removes the permissions of other users.
    pub fn close_to_others(&self) -> Result<(), ClientError> {
        let Some(before) = &self.before else {
            return Ok(());
        };
        let mode = fs::Permissions::from_mode(Readers::Owner.mode(before.mode));
        fs::set_permissions(&self.target, mode).map_err(failed("close to others", &self.path))
    }

    /// Replaces the text, and returns the path of the backup.
    pub fn replace(&self, text: &str, readers: Readers) -> Result<Option<PathBuf>, ClientError> {
        self.check_writable()?;
        let folder = self.target.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder).map_err(failed("make the folder", folder))?;
        let copy = match &self.before {
            Some(before) => Some(self.keep(before)?),
            None => None,
        };
        if let Err(error) = self.put(text, readers) {
            if let (Some((copy, true)), ClientError::Changed { .. }) = (&copy, &error) {
                drop(fs::remove_file(copy));
            }
            return Err(error);
        }
        Ok(copy.map(|(copy, _)| copy))
    }

    /// Replaces the text atomically.
    fn put(&self, text: &str, readers: Readers) -> Result<(), ClientError> {
        let folder = self.target.parent().unwrap_or(Path::new("/"));
        let name = self
            .target
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let draft = folder.join(format!(".{name}.gantry-{}", std::process::id()));
        let placed = self
            .draft(&draft, text, readers)
            .and_then(|()| self.unchanged())
            .and_then(|()| fs::rename(&draft, &self.target).map_err(failed("write", &self.path)));
        if placed.is_err() {
            // A missing file needs no removal.
            drop(fs::remove_file(&draft));
        }
        placed
    }

    fn draft(&self, draft: &Path, text: &str, readers: Readers) -> Result<(), ClientError> {
        let failed = || failed("write", draft);
        match fs::remove_file(draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed()(error)),
            Ok(()) | Err(_) => {}
        }
        // The file is private until it gets its mode.
        let mut file = create_private(draft).map_err(failed())?;
        file.write_all(text.as_bytes()).map_err(failed())?;
        if let Some(before) = &self.before {
            let made = file.metadata().map_err(failed())?;
            if (made.uid(), made.gid()) != before.owner {
                let (owner, group) = before.owner;
                fchown(&file, Some(owner), Some(group)).map_err(failed())?;
            }
            let mode = fs::Permissions::from_mode(readers.mode(before.mode));
            file.set_permissions(mode).map_err(failed())?;
        }
        file.sync_all().map_err(failed())
    }

    fn unchanged(&self) -> Result<(), ClientError> {
        let now = match fs::symlink_metadata(&self.target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed("look at", &self.path)(error)),
            Ok(_) => Some(look(&self.target, &self.path)?.text),
        };
        if now.as_deref() == self.before.as_ref().map(|before| before.text.as_str()) {
            Ok(())
        } else {
            Err(ClientError::Changed {
                path: self.path.clone(),
            })
        }
    }

    /// Returns the names of backups, in order.
    fn copies(&self) -> impl Iterator<Item = PathBuf> {
        let name = self.path.as_os_str().to_owned();
        (0..=MOST_COPIES).map(move |number| {
            let mut copy = name.clone();
            match number {
                0 => copy.push(".bak"),
                _ => copy.push(format!(".bak.{number}")),
            }
            PathBuf::from(copy)
        })
    }

    /// Removes Gantry's keys from existing backups; returns those that contained one, or, after
    /// trying all, the first that cannot be cleaned. fault U2
    pub fn clean_copies(&self) -> Result<Vec<PathBuf>, ClientError> {
        let mut cleaned = Vec::new();
        let mut failed = None;
        for copy in self.copies() {
            match fs::symlink_metadata(&copy) {
                Ok(found) if found.is_file() => {}
                Ok(_) | Err(_) => continue,
            }
            let Ok(before) = look(&copy, &copy) else {
                continue;
            };
            let without = without_keys(&before.text);
            if without == before.text {
                continue;
            }
            let opened = Self {
                path: copy.clone(),
                target: copy.clone(),
                before: Some(before),
            };
            match opened.put(&without, Readers::Owner) {
                Ok(()) => cleaned.push(copy),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(cleaned),
        }
    }

    /// Writes a backup without Gantry's keys; returns its path, and whether it is new. fault U2
    fn keep(&self, before: &Before) -> Result<(PathBuf, bool), ClientError> {
        let text = without_keys(&before.text);
        for copy in self.copies() {
            let opened = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(before.mode & 0o700)
                .open(&copy);
            match opened {
                Ok(mut file) => {
                    let written = file.write_all(text.as_bytes());
                    written.map_err(failed("write", &copy))?;
                    return Ok((copy, true));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    if fs::read(&copy).is_ok_and(|known| known == text.as_bytes()) {
                        return Ok((copy, false));
                    }
                }
                Err(error) => return Err(failed("write", &copy)(error)),
            }
        }
        Err(kind(
            &self.path,
            "surrounded by too many copies named `.bak`",
        ))
    }
}

/// Removes Gantry's keys from a text.
fn without_keys(text: &str) -> String {
    Redactor::own_keys().redact(text).into_owned()
}

/// Reads `target`; errors name `path`.
fn look(target: &Path, path: &Path) -> Result<Before, ClientError> {
    let mut file = fs::File::open(target).map_err(failed("read", path))?;
    let found = file.metadata().map_err(failed("look at", path))?;
    if !found.is_file() {
        return Err(kind(path, "no file"));
    }
    if found.len() > LONGEST_BYTES {
        return Err(kind(path, "longer than 64 MiB"));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)
        .map_err(failed("read", path))?;
    Ok(Before {
        text,
        mode: found.mode() & 0o7777,
        owner: (found.uid(), found.gid()),
    })
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ClientError {
    let path = path.to_owned();
    move |source| ClientError::Io { what, path, source }
}

fn kind(path: &Path, found: &'static str) -> ClientError {
    ClientError::Kind {
        path: path.to_owned(),
        found,
    }
}

#[cfg(test)]
mod tests;
