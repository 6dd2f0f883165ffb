//! The high-water mark: how far the journal was written, in a small file in its own folder.
//!
//! The folder is separate from the data folder, which is watched for changes, and from the journal's,
//! so that the mark survives the loss of that. A truncated segment does not show what was cut off;
//! the mark does. It is written when no call is open and whenever a segment is taken into use, under
//! load once for several records, so that it costs a call next to nothing. It may be a few records
//! behind and is never ahead. Entry points: `read` and `MarkFile::write`.

use std::fs::{DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};

use super::journal::Position;

/// The mark is written after at most this many records.
pub(super) const MARK_EVERY: u64 = 16;
/// A record writes the mark if the last one is older.
pub(super) const MARK_AFTER: Duration = Duration::from_millis(1);

const MAGIC: &[u8; 8] = b"gantryM1";
const BYTES: usize = 64;

/// The mark: how far the journal was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// The journal's identity.
    pub(super) journal: u32,
    /// Everything before this position was written.
    pub(super) stable: Position,
    /// The segment in use.
    pub(super) current: u64,
    /// How many calls began in it.
    pub(super) calls: u64,
    /// How many calls began in the journal before it.
    pub(super) calls_before: u64,
    /// How many bytes of the segment in use could not be written.
    pub(super) failed: u64,
    /// Whether that segment must be there.
    pub(super) left: SegmentsLeft,
}

/// Which segments a gateway leaves in the journal's folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SegmentsLeft {
    /// Unknown: the mark was written by an earlier release.
    Unknown,
    /// At least the one in use.
    InUse,
    /// None, because everything was imported when the gateway stopped.
    None,
}

/// The file of the mark.
#[derive(Debug)]
pub(super) struct MarkFile {
    path: PathBuf,
    written: Mutex<MarkWritten>,
}

#[derive(Debug, Default)]
struct MarkWritten {
    file: Option<File>,
    /// The number of the newest mark in the file.
    newest: u64,
    /// That mark.
    last: Option<Mark>,
    failing: bool,
}

/// Returns the path of the mark for a journal's folder.
pub(super) fn path_of(journal: &Path) -> PathBuf {
    journal.with_file_name("marks").join("journal.mark")
}

/// Reads the mark of an earlier process; `None` if it is missing or unreadable.
pub(super) fn read(path: &Path) -> io::Result<Option<Mark>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        opened => File::from(opened?),
    };
    let mut bytes = [0; BYTES];
    Ok(match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => Mark::parse(&bytes),
        Err(_) => None,
    })
}

impl MarkFile {
    /// Sets the path; the file is created with the first mark.
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            written: Mutex::default(),
        }
    }

    /// Writes a mark, unless one with a higher number exists; returns whether the file has one of
    /// this process.
    pub(super) fn write(&self, number: u64, mark: &Mark) -> bool {
        let mut written = self.written.lock();
        if number <= written.newest {
            return true;
        }
        match self.put(&mut written, mark) {
            Ok(()) => {
                written.newest = number;
                written.last = Some(*mark);
                written.failing = false;
            }
            Err(error) if !written.failing => {
                written.failing = true;
                tracing::warn!(path = %self.path.display(), %error, "cannot write the journal's mark");
            }
            Err(_) => {}
        }
        written.newest > 0
    }

    /// Writes the mark of this process again if its file was removed or replaced.
    pub(super) fn restore(&self) {
        let mut written = self.written.lock();
        let (Some(file), Some(last)) = (&written.file, written.last) else {
            return;
        };
        let place = |found: Metadata| (found.dev(), found.ino());
        let named = match std::fs::symlink_metadata(&self.path) {
            Ok(found) => Some(place(found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            // It may still be there.
            Err(_) => return,
        };
        if file
            .metadata()
            .is_ok_and(|found| named == Some(place(found)))
        {
            return;
        }
        written.file = None;
        let path = self.path.display();
        match self.put(&mut written, &last) {
            Ok(()) => tracing::warn!(%path, "the journal's mark was removed and is written again"),
            Err(error) => tracing::warn!(%path, %error, "the journal's mark was removed"),
        }
    }

    /// Tells whether the file has a mark of this process.
    pub(super) fn is_written(&self) -> bool {
        let written = self.written.lock();
        written.newest > 0
    }

    fn put(&self, written: &mut MarkWritten, mark: &Mark) -> io::Result<()> {
        let file = match &mut written.file {
            Some(file) => file,
            none => {
                self.make_folder()?;
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::open(&self.path, flags, Mode::from(0o600))?;
                none.insert(File::from(file))
            }
        };
        file.write_all_at(&mark.bytes(), 0)
    }

    fn make_folder(&self) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }
}

impl Mark {
    /// Returns how many calls began in the segment in use, at most.
    pub(super) const fn calls_at_most(&self) -> u64 {
        match self.left {
            // Written when everything else was.
            SegmentsLeft::None => self.calls,
            SegmentsLeft::Unknown | SegmentsLeft::InUse => self.calls + MARK_EVERY,
        }
    }

    fn bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&self.journal.to_le_bytes());
        let numbers = [
            self.stable.segment,
            self.stable.offset,
            self.current,
            self.calls,
            self.calls_before,
        ];
        let failed = u32::try_from(self.failed).unwrap_or(u32::MAX);
        bytes[12..16].copy_from_slice(&failed.to_le_bytes());
        for (at, number) in (16..).step_by(8).zip(numbers) {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let left: u32 = match self.left {
            SegmentsLeft::Unknown => 0,
            SegmentsLeft::InUse => 1,
            SegmentsLeft::None => 2,
        };
        bytes[56..60].copy_from_slice(&left.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8; BYTES]) -> Option<Self> {
        let number = |at: usize| Some(u64::from_le_bytes(bytes[at..at + 8].try_into().ok()?));
        let word = |at: usize| Some(u32::from_le_bytes(bytes[at..at + 4].try_into().ok()?));
        let valid = &bytes[..8] == MAGIC && word(60)? == crc32fast::hash(&bytes[..60]);
        let stable = Position {
            segment: number(16)?,
            offset: number(24)?,
        };
        let mark = Self {
            journal: word(8)?,
            stable,
            current: number(32)?,
            calls: number(40)?,
            calls_before: number(48)?,
            failed: u64::from(word(12)?),
            left: match word(56)? {
                1 => SegmentsLeft::InUse,
                2 => SegmentsLeft::None,
                _ => SegmentsLeft::Unknown,
            },
        };
        valid.then_some(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_an_older_one_replaces_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = path_of(&folder.path().join("journal"));
        assert_eq!(read(&path).unwrap(), None);
        let stable = Position {
            segment: 7,
            offset: 4096,
        };
        let mark = Mark {
            journal: 0xdead_beef,
            stable,
            current: 8,
            calls: 250,
            calls_before: 1 << 40,
            failed: 96,
            left: SegmentsLeft::InUse,
        };
        let file = MarkFile::new(path.clone());
        assert!(file.write(2, &mark));
        assert!(file.write(1, &Mark { calls: 240, ..mark }));
        assert_eq!(read(&path).unwrap(), Some(mark));
        for left in [SegmentsLeft::Unknown, SegmentsLeft::None] {
            let mark = Mark { left, ..mark };
            assert_eq!(Mark::parse(&mark.bytes()), Some(mark));
        }
        let latest = Mark { calls: 251, ..mark };
        assert!(file.write(3, &latest));
        for harm in [
            |path: &Path| std::fs::remove_dir_all(path.parent().unwrap()),
            |path: &Path| {
                std::fs::remove_file(path)?;
                std::fs::write(path, [0; BYTES])
            },
        ] {
            harm(&path).unwrap();
            assert_eq!(read(&path).unwrap(), None);
            file.restore();
            assert_eq!(read(&path).unwrap(), Some(latest));
        }
        std::fs::write(&path, [0; BYTES]).unwrap();
        assert_eq!(read(&path).unwrap(), None);
    }
}
