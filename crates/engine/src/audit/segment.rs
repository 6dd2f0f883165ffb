//! One file of the journal: preallocated, private, never accessed through a link.
//!
//! A segment's header, which is stored twice, has its id, salt, size and journal, and the state of
//! the one before it. A file gets its final name only when it is complete, so an incomplete one was
//! damaged. Does not interpret records. Entry points: `Directory`, `Segment::create`,
//! `Segment::open`.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use super::ids::random_bits;
use super::record::Salt;

/// The size of a header; a copy of it ends the file.
pub(super) const HEADER: u64 = 64;
const MAGIC: &[u8; 8] = b"gantryJ2";
/// The magic of unchained segments, which earlier releases wrote.
const UNCHAINED_MAGIC: &[u8; 8] = b"gantryJ1";
/// The "previous segment" of one that was never used.
const UNUSED: u64 = u64::MAX;

/// The folder that holds the segments.
#[derive(Debug)]
pub(super) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

/// One file of the journal.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) id: u64,
    pub(super) salt: Salt,
    pub(super) size: u64,
    pub(super) file: File,
    /// The identity of its journal.
    pub(super) journal: u32,
    /// Whether it is damaged: its file is kept when its records are imported.
    pub(super) damaged: bool,
}

/// The link of a segment to the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ChainLink {
    /// The previous segment; 0 if there was none.
    pub(super) previous: u64,
    /// Everything before this offset of it was written by then.
    pub(super) previous_end: u64,
    /// How many calls began in it.
    pub(super) previous_calls: u64,
    /// How many bytes of it could not be written.
    pub(super) previous_failed: u64,
    /// How many calls began in the journal before this segment.
    pub(super) calls_before: u64,
}

/// The use of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Usage {
    /// Written by an earlier release, which did not chain segments.
    Unchained,
    /// Allocated in advance.
    Spare,
    /// In use, after another one.
    Linked(ChainLink),
}

/// What was found under a segment's name.
#[derive(Debug)]
pub(super) enum Opened {
    /// A segment.
    Segment(Segment, Usage),
    /// The file of another segment.
    Foreign,
    /// A file with unreadable headers.
    Unreadable,
}

impl Directory {
    /// Opens the folder, creating it if it is missing; only its owner may access it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        if folder.metadata()?.mode() & 0o077 != 0 {
            folder.set_permissions(std::fs::Permissions::from_mode(0o700))?;
        }
        Ok(Self {
            fd: folder.into(),
            path: path.to_owned(),
        })
    }

    /// Returns where the folder is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns how many bytes are free on its file system.
    pub(super) fn available(&self) -> io::Result<u64> {
        let disk = rustix::fs::fstatvfs(&self.fd)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Returns the device and inode of the open folder.
    pub(super) fn identity(&self) -> io::Result<(u64, u64)> {
        let stat = rustix::fs::fstat(&self.fd)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Removes files that an earlier process was creating when it ended.
    pub(super) fn remove_unfinished(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let unfinished = name.to_str().and_then(|name| name.strip_suffix(UNFINISHED));
            if unfinished.is_some_and(|name| id_of(name).is_some()) {
                match rustix::fs::unlinkat(&self.fd, &name, AtFlags::empty()) {
                    // A folder is none of ours, and in nobody's way.
                    Err(Errno::ISDIR) => {}
                    removed => removed?,
                }
            }
        }
        Ok(())
    }

    /// Returns the ids of the segments there are, oldest first.
    pub(super) fn segments(&self) -> io::Result<Vec<u64>> {
        let mut ids = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            ids.extend(entry?.file_name().to_str().and_then(id_of));
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// Removes a segment's file.
    pub(super) fn remove(&self, id: u64) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(
            &self.fd,
            name_of(id),
            AtFlags::empty(),
        )?)
    }

    /// Returns whether a segment's file is blank.
    pub(super) fn is_blank(&self, id: u64) -> io::Result<bool> {
        // Not waiting for who writes to it, if it is a pipe.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(&self.fd, name_of(id), flags, Mode::empty()) {
            Err(Errno::LOOP | Errno::NXIO) => return Ok(false),
            opened => opened?,
        };
        let mut file = File::from(fd);
        if !file.metadata()?.is_file() {
            return Ok(false);
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes.iter().all(|byte| *byte == 0))
    }

    /// Returns whether this file is still there as a segment; also where that cannot be found out.
    pub(super) fn holds(&self, id: u64, file: &Metadata) -> bool {
        match rustix::fs::statat(&self.fd, name_of(id), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => (found.st_dev, found.st_ino) == (file.dev(), file.ino()),
            Err(error) => error != Errno::NOENT,
        }
    }

    /// Renames a damaged segment, for inspection; returns its new name.
    pub(super) fn set_aside(&self, id: u64) -> io::Result<String> {
        let aside = self.name_aside(id);
        rustix::fs::renameat(&self.fd, name_of(id), &self.fd, &aside)?;
        Ok(aside)
    }

    /// Returns the name for a damaged segment; earlier ones keep theirs.
    pub(super) fn name_aside(&self, id: u64) -> String {
        let first = format!("{}.damaged", name_of(id));
        let more = (2..).map(|count| format!("{first}-{count}"));
        std::iter::once(first.clone())
            .chain(more)
            .find(|name| std::fs::symlink_metadata(self.path.join(name)).is_err())
            .unwrap_or(first)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }
}

impl Segment {
    /// Creates a segment of `size` bytes, all of them allocated.
    pub(super) fn create(
        directory: &Directory,
        journal: u32,
        id: u64,
        size: u64,
    ) -> io::Result<Self> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let unfinished = format!("{}{UNFINISHED}", name_of(id));
        let fd = rustix::fs::openat(&directory.fd, &unfinished, flags, Mode::from(0o600))?;
        let segment = Self {
            id,
            salt: Salt(random_bits()),
            size,
            file: fd.into(),
            journal,
            damaged: false,
        };
        let made = segment.prepare().and_then(|()| {
            let (from, to) = (&unfinished, name_of(id));
            Ok(rustix::fs::renameat(
                &directory.fd,
                from,
                &directory.fd,
                to,
            )?)
        });
        if let Err(error) = made {
            // An incomplete file must not occupy the missing space.
            let removed = rustix::fs::unlinkat(&directory.fd, &unfinished, AtFlags::empty());
            if let Err(error) = removed {
                tracing::warn!(segment = id, %error, "cannot remove an unfinished journal segment");
            }
            return Err(error);
        }
        Ok(segment)
    }

    /// Reuses the file of this segment, whose rows are all in the database, for a new one.
    ///
    /// Its space stays allocated, and overwriting pages in memory is cheaper than allocating new
    /// ones. The old records stay in it, but are no longer valid, since the salt differs.
    pub(super) fn recycle(&self, directory: &Directory, journal: u32, id: u64) -> io::Result<Self> {
        let file = self.file.try_clone()?;
        let segment = Self {
            id,
            salt: Salt(random_bits()),
            size: self.size,
            file,
            journal,
            damaged: false,
        };
        // The header first: under its old name the file is known to be imported.
        segment.write_headers(Usage::Spare)?;
        rustix::fs::renameat(&directory.fd, name_of(self.id), &directory.fd, name_of(id))?;
        Ok(segment)
    }

    /// Syncs the segment and its name before it is used.
    pub(super) fn settle(&self, directory: &Directory) -> io::Result<()> {
        self.file.sync_all()?;
        directory.sync()
    }

    /// Starts using the segment after the one in `link`.
    pub(super) fn link(&self, link: ChainLink) -> io::Result<()> {
        self.write_headers(Usage::Linked(link))
    }

    /// Opens a segment of an earlier process.
    pub(super) fn open(directory: &Directory, id: u64) -> io::Result<Opened> {
        // For writing, too: its file may be used again.
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(&directory.fd, name_of(id), flags, Mode::empty()) {
            // A folder, a link, or a socket in its place.
            Err(Errno::ISDIR | Errno::LOOP | Errno::NXIO) => return Ok(Opened::Unreadable),
            opened => opened?,
        };
        let file = File::from(fd);
        let length = file.metadata()?.len();
        for at in [0, length.saturating_sub(HEADER)] {
            let mut header = [0; HEADER as usize];
            if file.read_exact_at(&mut header, at).is_err() {
                continue;
            }
            let Some(header) = Header::parse(&header) else {
                continue;
            };
            if header.id != id {
                return Ok(Opened::Foreign);
            }
            let segment = Self {
                id,
                salt: header.salt,
                size: header.size,
                file,
                journal: header.journal,
                damaged: length < header.size,
            };
            return Ok(Opened::Segment(segment, header.usage));
        }
        Ok(Opened::Unreadable)
    }

    /// Returns whether one of the two copies of its header is damaged.
    pub(super) fn has_damaged_header(&self) -> io::Result<bool> {
        for at in [0, self.file.metadata()?.len().saturating_sub(HEADER)] {
            let mut header = [0; HEADER as usize];
            self.file.read_exact_at(&mut header, at)?;
            if Header::parse(&header).is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Releases the space from `offset` on, as far as it is for records.
    pub(super) fn release_from(&self, offset: u64) -> io::Result<()> {
        let from = offset.next_multiple_of(PAGE);
        let to = self.end() / PAGE * PAGE;
        if from >= to {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, flags, from, to - from)?)
    }

    /// Returns a placeholder segment without space, until the first one can be allocated.
    pub(super) fn nowhere(id: u64) -> io::Result<Self> {
        let file = File::open("/dev/null")?;
        Ok(Self {
            id,
            salt: Salt(0),
            size: 2 * HEADER,
            file,
            journal: 0,
            damaged: false,
        })
    }

    /// Returns whether the segment is a placeholder without space.
    pub(super) fn is_nowhere(&self) -> bool {
        self.size == 2 * HEADER
    }

    /// Returns the first offset that is not for records.
    pub(super) fn end(&self) -> u64 {
        self.size - HEADER
    }

    /// Writes a record at its position.
    pub(super) fn write(&self, offset: u64, record: &[u8]) -> io::Result<()> {
        self.file.write_all_at(record, offset)
    }

    /// Fills `buffer` with up to `length` bytes from `offset` on; fewer if the file is shorter.
    pub(super) fn read(&self, offset: u64, length: usize, buffer: &mut Vec<u8>) -> io::Result<()> {
        buffer.resize(length, 0);
        let mut filled = 0;
        while filled < length {
            match self
                .file
                .read_at(&mut buffer[filled..], offset + filled as u64)
            {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        buffer.truncate(filled);
        Ok(())
    }

    fn prepare(&self) -> io::Result<()> {
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, self.size) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => self.fill()?,
            allocated => allocated?,
        }
        self.write_headers(Usage::Spare)
    }

    fn write_headers(&self, usage: Usage) -> io::Result<()> {
        let header = Header {
            id: self.id,
            size: self.size,
            salt: self.salt,
            journal: self.journal,
            usage,
        };
        let header = header.bytes();
        self.file.write_all_at(&header, 0)?;
        self.file.write_all_at(&header, self.end())
    }

    /// Allocates the space by writing it, on file systems without allocation.
    fn fill(&self) -> io::Result<()> {
        let zeroes = vec![0; 64 << 10];
        let mut at = 0;
        while at < self.size {
            let count = zeroes.len().min((self.size - at) as usize);
            self.file.write_all_at(&zeroes[..count], at)?;
            at += count as u64;
        }
        Ok(())
    }
}

/// The decoded header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    id: u64,
    size: u64,
    salt: Salt,
    journal: u32,
    usage: Usage,
}

/// The unit in which failed bytes are counted.
const FAILED_UNIT: u64 = 4096;

impl Header {
    /// Encodes magic, id, size, salt; then the journal, and of the previous segment its id, end and
    /// calls, all calls before this one in six bytes, and the failed bytes in units; last the
    /// checksum.
    fn bytes(&self) -> [u8; HEADER as usize] {
        let link = match self.usage {
            Usage::Linked(link) => link,
            Usage::Spare | Usage::Unchained => ChainLink {
                previous: UNUSED,
                ..ChainLink::default()
            },
        };
        let word = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let failed = link.previous_failed.div_ceil(FAILED_UNIT);
        let mut header = [0; HEADER as usize];
        header[..8].copy_from_slice(MAGIC);
        header[8..16].copy_from_slice(&self.id.to_le_bytes());
        header[16..24].copy_from_slice(&self.size.to_le_bytes());
        header[24..32].copy_from_slice(&self.salt.0.to_le_bytes());
        header[32..36].copy_from_slice(&self.journal.to_le_bytes());
        header[36..44].copy_from_slice(&link.previous.to_le_bytes());
        header[44..48].copy_from_slice(&word(link.previous_end).to_le_bytes());
        header[48..52].copy_from_slice(&word(link.previous_calls).to_le_bytes());
        header[52..58].copy_from_slice(&link.calls_before.to_le_bytes()[..6]);
        header[58..60].copy_from_slice(&u16::try_from(failed).unwrap_or(u16::MAX).to_le_bytes());
        let checksum = crc32fast::hash(&header[..60]);
        header[60..].copy_from_slice(&checksum.to_le_bytes());
        header
    }

    fn parse(header: &[u8; HEADER as usize]) -> Option<Self> {
        let number = |at: usize, length: usize| {
            let mut bytes = [0; 8];
            bytes[..length].copy_from_slice(&header[at..at + length]);
            u64::from_le_bytes(bytes)
        };
        let sealed =
            |until: usize| number(until, 4) == u64::from(crc32fast::hash(&header[..until]));
        let usage = match &header[..8] {
            magic if magic == MAGIC && sealed(60) => match number(36, 8) {
                UNUSED => Usage::Spare,
                previous => Usage::Linked(ChainLink {
                    previous,
                    previous_end: number(44, 4),
                    previous_calls: number(48, 4),
                    previous_failed: number(58, 2) * FAILED_UNIT,
                    calls_before: number(52, 6),
                }),
            },
            magic if magic == UNCHAINED_MAGIC && sealed(32) => Usage::Unchained,
            _ => return None,
        };
        let journal = match usage {
            Usage::Unchained => 0,
            Usage::Spare | Usage::Linked(_) => number(32, 4) as u32,
        };
        let header = Self {
            id: number(8, 8),
            size: number(16, 8),
            salt: Salt(number(24, 8)),
            journal,
            usage,
        };
        (header.size > 2 * HEADER).then_some(header)
    }
}

/// The unit in which space is released.
pub(super) const PAGE: u64 = 4096;

/// The suffix of a segment that is being created.
const UNFINISHED: &str = ".new";

fn name_of(id: u64) -> String {
    format!("journal-{id:016x}.seg")
}

fn id_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("journal-")?.strip_suffix(".seg")?;
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let link = ChainLink {
            previous: 6,
            previous_end: 8_000_000,
            previous_calls: 70_001,
            previous_failed: 2 * FAILED_UNIT,
            calls_before: 0x1234_5678_9abc,
        };
        for usage in [Usage::Spare, Usage::Linked(link)] {
            let (id, size, salt, journal) = (7, 8 << 20, Salt(0xfeed_beef_1234), 0xdead_beef);
            let header = Header {
                id,
                size,
                salt,
                journal,
                usage,
            };
            assert_eq!(Header::parse(&header.bytes()), Some(header));
            for place in 0..HEADER as usize {
                let mut damaged = header.bytes();
                damaged[place] ^= 4;
                assert_eq!(Header::parse(&damaged), None, "byte {place}");
            }
        }
    }

    #[test]
    fn a_header_of_an_earlier_release_is_read() {
        let mut header = [0; HEADER as usize];
        header[..8].copy_from_slice(UNCHAINED_MAGIC);
        header[8..16].copy_from_slice(&7_u64.to_le_bytes());
        header[16..24].copy_from_slice(&4096_u64.to_le_bytes());
        header[24..32].copy_from_slice(&99_u64.to_le_bytes());
        let checksum = crc32fast::hash(&header[..32]);
        header[32..36].copy_from_slice(&checksum.to_le_bytes());
        let expected = Header {
            id: 7,
            size: 4096,
            salt: Salt(99),
            journal: 0,
            usage: Usage::Unchained,
        };
        assert_eq!(Header::parse(&header), Some(expected));
    }
}
