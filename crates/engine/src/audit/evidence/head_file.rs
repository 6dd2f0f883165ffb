//! The end of the chain in a small file next to the journal's mark: truncating the newest rows of
//! the database is detected unless this file is changed, too. It may be one block behind the
//! database and is never ahead.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt};
use std::path::{Path, PathBuf};

use gantry_model::diagnose::chain;
use gantry_model::hex::{hex, unhex};
use gantry_store::{ChainHead, Hash};
use rustix::fs::{Mode, OFlags};

/// The first line of the file.
const FIRST: &str = "gantry audit head 1";
/// The fixed size of the file, padded with spaces, so that one write replaces all of it.
const BYTES: usize = 256;

/// The end of a chain, as recorded in a data folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadMark {
    /// The gateway of the chain, by its number in the store.
    pub gateway: i64,
    /// The number of a block that must exist.
    pub number: u64,
    /// Its hash.
    pub hash: Hash,
}

/// The file, made when the gateway starts: a data folder that is removed later is not made again.
#[derive(Debug)]
pub(super) struct HeadFile {
    path: PathBuf,
    file: Option<File>,
    failing: bool,
}

/// Returns the path of the file in a data folder.
pub(super) fn path_in(data_folder: &Path) -> PathBuf {
    data_folder.join("marks").join("audit.head")
}

impl HeadMark {
    /// Reads the file of a data folder; `None` if it is missing or invalid.
    pub fn read(data_folder: &Path) -> io::Result<Option<Self>> {
        match std::fs::read_to_string(path_in(data_folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => Ok(Self::parse(&read?)),
        }
    }

    /// Parses GATEWAY:NUMBER:HASH, as a verification prints the end of a chain.
    pub fn from_text(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let gateway = parts.next()?.parse().ok()?;
        let number = parts.next()?.parse().ok()?;
        let hash = unhex(parts.next()?)?.try_into().ok()?;
        parts.next().is_none().then_some(Self {
            gateway,
            number,
            hash,
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let is_ours = lines.next()? == FIRST;
        let gateway = lines.next()?.parse().ok()?;
        let number = lines.next()?.parse().ok()?;
        let hash = unhex(lines.next()?)?.try_into().ok()?;
        is_ours.then_some(Self {
            gateway,
            number,
            hash,
        })
    }
}

impl HeadFile {
    pub(super) fn new(path: PathBuf) -> Self {
        let folder = path.parent().map(|folder| {
            let made = DirBuilder::new().mode(0o700).create(folder);
            made.or_else(|error| match error.kind() == io::ErrorKind::AlreadyExists {
                true => Ok(()),
                false => Err(error),
            })
        });
        let file = folder.unwrap_or(Ok(())).and_then(|()| open(&path));
        Self {
            path,
            file: file.ok(),
            failing: false,
        }
    }

    /// Writes the end of the chain; logs a failure once.
    pub(super) fn write(&mut self, head: &ChainHead) {
        let (gateway, number, hash) = (head.gateway, head.number, hex(&head.hash));
        let mut text = format!("{FIRST}\n{gateway}\n{number}\n{hash}\n");
        text.push_str(&" ".repeat(BYTES.saturating_sub(text.len())));
        let written = self
            .opened()
            .and_then(|file| file.write_all_at(text.as_bytes(), 0));
        if let Err(error) = written {
            self.file = None;
            if !self.failing {
                let error = chain(&error);
                tracing::warn!(path = %self.path.display(), error, "the end of the audit's chain cannot be noted");
            }
            self.failing = true;
        } else {
            self.failing = false;
        }
    }

    fn opened(&mut self) -> io::Result<&File> {
        if self.file.is_none() {
            self.file = Some(open(&self.path)?);
        }
        let file = self.file.as_ref();
        file.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(File::from(rustix::fs::open(path, flags, mode)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_read_as_it_was_written_last() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = HeadFile::new(path_in(folder.path()));
        assert_eq!(HeadMark::read(folder.path()).unwrap(), None);
        for number in [u64::MAX, 7] {
            let head = ChainHead {
                gateway: 3,
                number,
                hash: [9; 32],
                signature: vec![1; 64],
            };
            file.write(&head);
            let read = HeadMark::read(folder.path()).unwrap().unwrap();
            assert_eq!((read.gateway, read.number, read.hash), (3, number, [9; 32]));
        }
        std::fs::write(path_in(folder.path()), "something else").unwrap();
        assert_eq!(HeadMark::read(folder.path()).unwrap(), None);
    }
}
