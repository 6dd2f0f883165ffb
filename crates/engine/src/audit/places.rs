//! Checks that the files that calls are recorded in still exist: the data folder, the journal's
//! folder, the database and the lock.
//!
//! A process can keep writing to removed files and loses all of it when it ends. Nothing is recreated
//! here. Entry points: `Places::of` and `Places::gone`.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The files and folders that must not be replaced.
#[derive(Debug)]
pub(super) struct Places(Vec<Place>);

#[derive(Debug)]
struct Place {
    path: PathBuf,
    device: u64,
    number: u64,
    /// Prevents the reuse of a folder's inode. The database is never opened: closing it here would
    /// drop the locks that SQLite holds.
    _held: Option<File>,
}

impl Places {
    /// Remembers the current files.
    pub(super) fn of(journal: &Path, database: Option<&Path>) -> io::Result<Self> {
        let mut places = Vec::new();
        let folder = journal
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let lock = folder.map(|folder| folder.join("lock"));
        let wanted = folder.into_iter().chain([journal]).chain(database);
        for path in wanted {
            places.push(Place::of(path)?);
        }
        // An engine without its own data folder has no lock.
        places.extend(lock.and_then(|lock| Place::of(&lock).ok()));
        Ok(Self(places))
    }

    /// Returns the first file that is missing or was replaced.
    pub(super) fn gone(&self) -> Option<&Path> {
        let gone = self.0.iter().find(|place| place.is_gone());
        gone.map(|place| place.path.as_path())
    }
}

impl Place {
    fn of(path: &Path) -> io::Result<Self> {
        let found = std::fs::metadata(path)?;
        let held = found.is_dir().then(|| File::open(path)).transpose()?;
        Ok(Self {
            _held: held,
            path: path.to_owned(),
            device: found.dev(),
            number: found.ino(),
        })
    }

    fn is_gone(&self) -> bool {
        match std::fs::metadata(&self.path) {
            Ok(found) => (found.dev(), found.ino()) != (self.device, self.number),
            // Any other error says nothing about existence.
            Err(error) => matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_removed_moved_or_replaced_is_noticed() {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join("data");
        let (journal, database) = (data.join("journal"), data.join("gantry.db"));
        fs::create_dir_all(&journal).unwrap();
        fs::write(&database, "x").unwrap();
        fs::write(data.join("lock"), "1").unwrap();
        let places = Places::of(&journal, Some(&database)).unwrap();
        assert_eq!(places.gone(), None);
        fs::rename(&data, home.path().join("elsewhere")).unwrap();
        assert_eq!(places.gone(), Some(data.as_path()));
        fs::rename(home.path().join("elsewhere"), &data).unwrap();
        assert_eq!(places.gone(), None);
        fs::write(data.join("new"), "x").unwrap();
        fs::rename(data.join("new"), &database).unwrap();
        assert_eq!(places.gone(), Some(database.as_path()));
        fs::remove_dir_all(&data).unwrap();
        fs::create_dir_all(&journal).unwrap();
        assert_eq!(places.gone(), Some(data.as_path()));
    }
}
