//! How far calls and acts were delivered, in a small file of the data folder. It is written after
//! the receiver has what it says, so that a killed gateway sends again rather than too little.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use gantry_model::diagnose::chain;
use gantry_model::hex::{hex, unhex};
use gantry_store::{Hash, Store, StoreError};
use rustix::fs::{Mode, OFlags};

/// The first line of the file.
const FIRST: &str = "gantry siem mark 1";
/// The fixed size of the file, padded with spaces, so that one write replaces all of it.
const BYTES: usize = 256;

/// Everything up to here was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The last block of the audit's chain, and its hash.
    pub(super) block: u64,
    pub(super) hash: Hash,
    /// The last administrative act.
    pub(super) act: u64,
}

/// The file; made when the gateway starts, since a data folder that is removed is not made again.
#[derive(Debug)]
pub(super) struct MarkFile {
    path: PathBuf,
    file: Option<File>,
    written: Option<Cursor>,
    failing: bool,
}

impl Cursor {
    /// Returns where to continue: where the file says, and at the end of what is recorded if there
    /// is no file yet.
    pub(super) async fn of(store: &Store, folder: &Path) -> Result<Self, StoreError> {
        let newest = store.newest_act().await?;
        let head = store.chain_head().await?;
        let end = Self {
            block: head.as_ref().map_or(0, |head| head.number),
            hash: head.map_or([0; 32], |head| head.hash),
            act: newest,
        };
        let Some(mark) = Self::read(folder) else {
            return Ok(end);
        };
        let act = mark.act.min(newest);
        if mark.block == 0 || store.block_hash(mark.block).await? == Some(mark.hash) {
            return Ok(Self { act, ..mark });
        }
        // Of a restored copy everything up to its end was delivered; another database was not.
        Ok(match mark.block > end.block {
            true => Self { act, ..end },
            false => Self {
                block: 0,
                hash: [0; 32],
                act: 0,
            },
        })
    }

    fn read(folder: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(path_in(folder)).ok()?;
        let mut lines = text.lines();
        let is_ours = lines.next()? == FIRST;
        let block = lines.next()?.parse().ok()?;
        let hash = unhex(lines.next()?)?.try_into().ok()?;
        let act = lines.next()?.parse().ok()?;
        is_ours.then_some(Self { block, hash, act })
    }
}

fn path_in(folder: &Path) -> PathBuf {
    folder.join("marks").join("siem.mark")
}

impl MarkFile {
    pub(super) fn open(folder: &Path, cursor: Cursor) -> Self {
        let path = path_in(folder);
        let mut mark = Self {
            file: open(&path).ok(),
            path,
            written: None,
            failing: false,
        };
        mark.write(cursor);
        mark
    }

    /// Writes how far everything was delivered; logs a failure once.
    pub(super) fn write(&mut self, cursor: Cursor) {
        if self.written == Some(cursor) {
            return;
        }
        let Cursor { block, hash, act } = cursor;
        let mut text = format!("{FIRST}\n{block}\n{}\n{act}\n", hex(&hash));
        text.push_str(&" ".repeat(BYTES.saturating_sub(text.len())));
        let written = match &self.file {
            Some(file) => file.write_all_at(text.as_bytes(), 0),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        match written {
            Ok(()) => (self.written, self.failing) = (Some(cursor), false),
            Err(error) if !self.failing => {
                let error = chain(&error);
                tracing::warn!(path = %self.path.display(), error, "how far the audit was pushed cannot be noted");
                self.failing = true;
            }
            Err(_) => {}
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(File::from(rustix::fs::open(path, flags, mode)?))
}
