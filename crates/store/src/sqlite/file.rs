//! The database file: its folder, its mode, other files in its place, and its copies.
//!
//! Never opens the file: closing any descriptor of it would drop the locks that SQLite holds in
//! this process (<https://www.sqlite.org/howtocorrupt.html>, section 2.2).

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::StoreError;

/// What exists at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileState {
    /// Nothing.
    Missing,
    /// A file that may be a database.
    File,
}

/// Creates the file's folder, private to its owner, if it is missing.
pub(crate) fn prepare_folder(path: &Path) -> Result<(), StoreError> {
    let folder = folder_of(path);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| StoreError::open(path, error))?;
    let mode = fs::metadata(folder)
        .map_err(|error| StoreError::open(path, error))?
        .permissions();
    if mode.mode() & 0o022 != 0 && mode.mode() & 0o1000 == 0 {
        tracing::warn!(folder = %folder.display(), "others may write to the database's folder");
    }
    Ok(())
}

/// Examines the file, and removes the permissions of other users.
///
/// Refuses links, anything but regular files, an empty file, and a write-ahead log without its
/// file: a new database in their place would lose or misplace data.
pub(crate) fn look(path: &Path) -> Result<FileState, StoreError> {
    let log = beside(path, "-wal");
    for part in [path, &log, &beside(path, "-shm")] {
        if let Some(metadata) = stat(path, part)?
            && !metadata.is_file()
        {
            let what = if metadata.is_symlink() {
                "a symbolic link"
            } else {
                "no regular file"
            };
            return Err(StoreError::open(
                path,
                format!("`{}` is {what}", part.display()),
            ));
        }
    }
    let Some(metadata) = stat(path, path)? else {
        if stat(path, &log)?.is_some_and(|log| log.len() > 0) {
            let reason = format!("it is gone, but its log `{}` is not", log.display());
            return Err(StoreError::corrupt(path, reason));
        }
        return Ok(FileState::Missing);
    };
    if metadata.len() == 0 {
        return Err(StoreError::corrupt(path, "it is empty"));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        tracing::warn!(file = %path.display(), "others could read the database; no longer");
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(path, private).map_err(|error| StoreError::open(path, error))?;
    }
    Ok(FileState::File)
}

/// Creates an empty file, private to its owner; it must not exist.
pub(crate) fn make(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Removes an unfinished database, and SQLite's files beside it.
pub(crate) fn remove_unfinished(path: &Path) -> io::Result<()> {
    for part in [
        path,
        &beside(path, "-wal"),
        &beside(path, "-shm"),
        &beside(path, "-journal"),
    ] {
        match fs::remove_file(part) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Moves a finished file into place atomically, even across a power loss.
pub(crate) fn put_in_place(finished: &Path, path: &Path) -> io::Result<()> {
    File::open(finished)?.sync_all()?;
    fs::rename(finished, path)?;
    File::open(folder_of(path))?.sync_all()
}

/// Returns the name of a file beside the database.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path.as_os_str());
    name.push(suffix);
    PathBuf::from(name)
}

/// Returns the path of the copy that is made before schema `version` is changed.
pub(crate) fn backup_of(path: &Path, version: i64) -> PathBuf {
    beside(path, &format!(".schema-{version}.bak"))
}

/// Returns the copy with the latest schema beside the database, if there is one.
pub(crate) fn newest_backup(path: &Path) -> Option<PathBuf> {
    let prefix = format!("{}.schema-", path.file_name()?.to_str()?);
    let version = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let version: i64 = name
            .strip_prefix(&prefix)?
            .strip_suffix(".bak")?
            .parse()
            .ok()?;
        Some((version, entry.path()))
    };
    let entries = fs::read_dir(folder_of(path)).ok()?;
    entries
        .filter_map(|entry| version(entry.ok()?))
        .max()
        .map(|(_, path)| path)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

fn stat(path: &Path, part: &Path) -> Result<Option<fs::Metadata>, StoreError> {
    match fs::symlink_metadata(part) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::open(path, error)),
    }
}
