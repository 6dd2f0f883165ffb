//! One file of the journal: preallocated, private, never followed through a link.
//!
//! A segment knows its id, its salt and its size, all in a header that is kept twice. It does not
//! know what its records mean. Entry points: `Directory`, `Segment::create`, `Segment::open`.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags};

use super::ids::random_bits;
use super::record::Salt;

/// The bytes of a header; a copy of it ends the file.
pub(super) const HEADER: u64 = 64;
const MAGIC: &[u8; 8] = b"gantryJ1";

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
}

impl Directory {
    /// Opens the folder, making it if it is missing; only its owner may look into it.
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

    /// Tells whether nothing was ever written into a segment's file.
    pub(super) fn is_blank(&self, id: u64) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name_of(id), flags, Mode::empty())?;
        let mut bytes = Vec::new();
        File::from(fd).read_to_end(&mut bytes)?;
        Ok(bytes.iter().all(|byte| *byte == 0))
    }

    /// Puts a segment whose header is unreadable out of the way, for people to look at.
    pub(super) fn set_aside(&self, id: u64) -> io::Result<()> {
        let aside = format!("{}.damaged", name_of(id));
        Ok(rustix::fs::renameat(
            &self.fd,
            name_of(id),
            &self.fd,
            aside,
        )?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }
}

impl Segment {
    /// Makes a segment of `size` bytes, all of them allocated.
    pub(super) fn create(directory: &Directory, id: u64, size: u64) -> io::Result<Self> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&directory.fd, name_of(id), flags, Mode::from(0o600))?;
        let segment = Self {
            id,
            salt: Salt(random_bits()),
            size,
            file: fd.into(),
        };
        if let Err(error) = segment.prepare() {
            // What was half made must not hold the space that is missing.
            if let Err(error) = directory.remove(id) {
                tracing::warn!(segment = id, %error, "cannot remove an unfinished journal segment");
            }
            return Err(error);
        }
        Ok(segment)
    }

    /// Makes a new segment of the file of this one, whose rows are all in the database.
    ///
    /// Its space stays allocated, and writing over pages in memory is cheaper than taking new ones.
    /// The old records stay in it, but no longer pass for records: the salt is another.
    pub(super) fn recycle(&self, directory: &Directory, id: u64) -> io::Result<Self> {
        let file = self.file.try_clone()?;
        let segment = Self {
            id,
            salt: Salt(random_bits()),
            size: self.size,
            file,
        };
        // The header first: under its old name the file is known to be folded.
        segment.write_headers()?;
        rustix::fs::renameat(&directory.fd, name_of(self.id), &directory.fd, name_of(id))?;
        Ok(segment)
    }

    /// Has the disk know the segment and its name before it is used.
    pub(super) fn settle(&self, directory: &Directory) -> io::Result<()> {
        self.file.sync_all()?;
        directory.sync()
    }

    /// Opens a segment that a former gateway left; `None` if both copies of its header are damaged.
    pub(super) fn open(directory: &Directory, id: u64) -> io::Result<Option<Self>> {
        // For writing, too: its file may be used again.
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&directory.fd, name_of(id), flags, Mode::empty())?;
        let file = File::from(fd);
        let length = file.metadata()?.len();
        for at in [0, length.saturating_sub(HEADER)] {
            let mut header = [0; HEADER as usize];
            if file.read_exact_at(&mut header, at).is_ok()
                && let Some((salt, size)) = parse_header(&header, id)
            {
                return Ok(Some(Self {
                    id,
                    salt,
                    size,
                    file,
                }));
            }
        }
        Ok(None)
    }

    /// Returns a segment without any room, for the time before the first one can be allocated.
    pub(super) fn nowhere(id: u64) -> io::Result<Self> {
        let file = File::open("/dev/null")?;
        Ok(Self {
            id,
            salt: Salt(0),
            size: 2 * HEADER,
            file,
        })
    }

    /// Tells whether the segment is a stand-in without room.
    pub(super) fn is_nowhere(&self) -> bool {
        self.size == 2 * HEADER
    }

    /// Returns the first offset that is not for records.
    pub(super) fn end(&self) -> u64 {
        self.size - HEADER
    }

    /// Writes a record at its own place.
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
        self.write_headers()
    }

    fn write_headers(&self) -> io::Result<()> {
        let header = self.header();
        self.file.write_all_at(&header, 0)?;
        self.file.write_all_at(&header, self.end())
    }

    /// Takes the space by writing it, on file systems that cannot allocate.
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

    fn header(&self) -> [u8; HEADER as usize] {
        let mut header = [0; HEADER as usize];
        header[..8].copy_from_slice(MAGIC);
        header[8..16].copy_from_slice(&self.id.to_le_bytes());
        header[16..24].copy_from_slice(&self.size.to_le_bytes());
        header[24..32].copy_from_slice(&self.salt.0.to_le_bytes());
        let checksum = crc32fast::hash(&header[..32]);
        header[32..36].copy_from_slice(&checksum.to_le_bytes());
        header
    }
}

fn parse_header(header: &[u8; HEADER as usize], id: u64) -> Option<(Salt, u64)> {
    let number = |at: usize| Some(u64::from_le_bytes(header[at..at + 8].try_into().ok()?));
    let checksum = u32::from_le_bytes(header[32..36].try_into().ok()?);
    let size = number(16)?;
    let valid = &header[..8] == MAGIC
        && checksum == crc32fast::hash(&header[..32])
        && number(8)? == id
        && size > 2 * HEADER;
    valid.then_some((Salt(number(24)?), size))
}

fn name_of(id: u64) -> String {
    format!("journal-{id:016x}.seg")
}

fn id_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("journal-")?.strip_suffix(".seg")?;
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok())?
}
