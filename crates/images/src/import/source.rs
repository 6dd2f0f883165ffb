//! The files of an archive or a folder, by name. Reads only the requested files.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

use super::Problem;
use crate::compression::Compression;
use crate::layers::{LayerError, LayerStore, Scratch};
use crate::tar::{Archive, Bounds, EntryPath, Kind, Refusal, shown};

/// The most files in an archive. Images have two or three per layer.
const MOST_FILES: u64 = 4_000;
/// Files larger than this are skipped without reading while the archive is listed.
const SKIPPED_BYTES: u64 = 1024 * 1024;
/// How many links in a row are followed.
const MOST_LINKS: usize = 8;

/// The location of the files.
pub(super) enum Source {
    Folder(OwnedFd),
    Archive {
        file: Arc<File>,
        files: HashMap<Vec<u8>, Place>,
        /// The folder with the decompressed archive.
        _scratch: Option<Scratch>,
    },
}

/// The location of a file in an archive.
pub(super) enum Place {
    Content {
        offset: u64,
        bytes: u64,
    },
    /// Old archives contain each layer once, and links to it.
    Link(Vec<u8>),
}

impl Source {
    pub(super) fn open(
        path: &Path,
        store: &LayerStore,
        stop: &CancellationToken,
    ) -> Result<Self, Problem> {
        let unreadable = |error: Errno| {
            let error = io::Error::from(error);
            Problem::Invalid(format!("it cannot be opened: {error}"))
        };
        // Opening a pipe must not block until there is a writer; it is refused afterwards.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = openat(rustix::fs::CWD, path, flags, Mode::empty()).map_err(unreadable)?;
        let stat = fstat(&opened).map_err(unreadable)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            return Ok(Self::Folder(opened));
        }
        if kind != FileType::RegularFile {
            let why = "it is neither a file nor a folder".to_owned();
            return Err(Problem::Invalid(why));
        }
        let mut file = Arc::new(File::from(opened));
        let mut whole = Part::new(&file, 0, u64::MAX);
        let start = whole.peek().map_err(LayerError::Read)?;
        let compression = Compression::of_content(&start);
        let mut scratch = None;
        if compression != Compression::None {
            let folder = store.scratch()?;
            file = Arc::new(decompress(compression, whole, &folder, store, stop)?);
            scratch = Some(folder);
        }
        let files = list(&file, store, stop)?;
        Ok(Self::Archive {
            file,
            files,
            _scratch: scratch,
        })
    }

    /// Opens a file; an error if it does not exist.
    pub(super) fn part(&self, name: &str) -> Result<Part, Problem> {
        self.find(name)?
            .ok_or_else(|| Problem::Invalid(format!("it has no `{}`", shown(name.as_bytes()))))
    }

    /// Reads a small file; an error if it does not exist.
    pub(super) fn document(&self, name: &str, most_bytes: u64) -> Result<Vec<u8>, Problem> {
        read(self.part(name)?, name, most_bytes)
    }

    /// Reads a small file, if it exists.
    pub(super) fn document_if_any(
        &self,
        name: &str,
        most_bytes: u64,
    ) -> Result<Option<Vec<u8>>, Problem> {
        let part = self.find(name)?;
        part.map(|part| read(part, name, most_bytes)).transpose()
    }

    fn find(&self, name: &str) -> Result<Option<Part>, Problem> {
        let invalid =
            |why: String| Problem::Invalid(format!("`{}`: {why}", shown(name.as_bytes())));
        let path =
            EntryPath::parse(name.as_bytes(), "path").map_err(|why| invalid(why.to_string()))?;
        match self {
            Self::Folder(folder) => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
                let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
                let empty = Mode::empty();
                let file = match openat2(folder.as_fd(), path.as_bytes(), flags, empty, resolve) {
                    Ok(file) => file,
                    Err(Errno::NOENT) => return Ok(None),
                    Err(error) => return Err(invalid(io::Error::from(error).to_string())),
                };
                let stat = fstat(&file).map_err(|error| invalid(error.to_string()))?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                    return Err(invalid("it is not a file".to_owned()));
                }
                let bytes = u64::try_from(stat.st_size).unwrap_or_default();
                Ok(Some(Part::new(&Arc::new(File::from(file)), 0, bytes)))
            }
            Self::Archive { file, files, .. } => {
                let mut name = path.as_bytes();
                for _ in 0..MOST_LINKS {
                    match files.get(name) {
                        None => return Ok(None),
                        Some(Place::Link(target)) => name = target,
                        Some(&Place::Content { offset, bytes }) => {
                            return Ok(Some(Part::new(file, offset, bytes)));
                        }
                    }
                }
                Err(invalid("its links form a cycle".to_owned()))
            }
        }
    }
}

/// A file of a source, read from its start.
pub(super) struct Part {
    file: Arc<File>,
    offset: u64,
    left: u64,
}

impl Part {
    fn new(file: &Arc<File>, offset: u64, bytes: u64) -> Self {
        Self {
            file: Arc::clone(file),
            offset,
            left: bytes,
        }
    }

    /// Returns the first bytes, which show the compression, without consuming them.
    pub(super) fn peek(&mut self) -> io::Result<[u8; 4]> {
        let mut start = [0; 4];
        let mut ahead = Self::new(&self.file, self.offset, self.left);
        let mut done = 0;
        while done < start.len() {
            match ahead.read(&mut start[done..])? {
                0 => break,
                count => done += count,
            }
        }
        Ok(start)
    }
}

impl Read for Part {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut into[..most], self.offset)?;
        self.offset += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

fn read(part: Part, name: &str, most_bytes: u64) -> Result<Vec<u8>, Problem> {
    let mut content = Vec::new();
    part.take(most_bytes + 1)
        .read_to_end(&mut content)
        .map_err(LayerError::Read)?;
    if content.len() as u64 > most_bytes {
        let name = shown(name.as_bytes());
        return Err(Problem::Invalid(format!(
            "`{name}` has more than {most_bytes} bytes"
        )));
    }
    Ok(content)
}

/// Lists the files of an archive.
fn list(
    file: &Arc<File>,
    store: &LayerStore,
    stop: &CancellationToken,
) -> Result<HashMap<Vec<u8>, Place>, Problem> {
    let limits = store.limits();
    let mut files = HashMap::new();
    // Where reading starts, and how many entries precede that position.
    let (mut start, mut before) = (0, 0);
    'parts: loop {
        let bounds = Bounds {
            bytes: u64::MAX,
            entries: MOST_FILES - before,
            time: limits.layer_time,
            stop,
            cost: None,
        };
        let mut archive = Archive::unhashed(Part::new(file, start, u64::MAX), bounds);
        while let Some(entry) = archive.next()? {
            let offset = start + archive.position();
            let place = match entry.kind {
                Kind::File => Some(Place::Content {
                    offset,
                    bytes: entry.size,
                }),
                Kind::Symlink => beside(entry.path.parent(), &entry.link).map(Place::Link),
                Kind::HardLink => {
                    let target = EntryPath::parse(&entry.link, "link target");
                    let target = target.map_err(|why| archive.refused(why))?;
                    Some(Place::Link(target.as_bytes().to_vec()))
                }
                Kind::Directory | Kind::Fifo | Kind::Device => None,
            };
            if let Some(place) = place {
                files.insert(entry.path.as_bytes().to_vec(), place);
            }
            if entry.size >= SKIPPED_BYTES {
                // Continues after its content without reading it.
                let end = entry.size.checked_next_multiple_of(512);
                let end = end.and_then(|bytes| offset.checked_add(bytes));
                let too_large = || archive.refused(Refusal::Truncated);
                start = end.ok_or_else(too_large)?;
                before += archive.entries();
                continue 'parts;
            }
        }
        return Ok(files);
    }
}

/// Resolves a symbolic link in a folder of the archive; `None` if it leaves the archive.
fn beside(folder: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    let mut parts: Vec<&[u8]> = folder.split(|&byte| byte == b'/').collect();
    parts.retain(|part| !part.is_empty());
    if target.starts_with(b"/") {
        return None;
    }
    for part in target.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join(&b'/'))
}

/// Decompresses an archive into a file, so that its files can be accessed by offset.
fn decompress(
    compression: Compression,
    part: Part,
    folder: &Scratch,
    store: &LayerStore,
    stop: &CancellationToken,
) -> Result<File, Problem> {
    let limit_bytes = store.limits().image_bytes;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(folder.folder(), "archive", flags, Mode::RUSR | Mode::WUSR)
        .map_err(LayerError::store("create", "archive"))?;
    let mut file = File::from(file);
    let mut plain = compression.reader(part, stop);
    let (mut bytes, mut next_look) = (0, 0);
    let mut buffer = vec![0; 256 * 1024];
    loop {
        if stop.is_cancelled() {
            return Err(LayerError::Cancelled.into());
        }
        if bytes >= next_look {
            store.check_space()?;
            next_look = bytes + (1 << 20);
        }
        let count = plain
            .read(&mut buffer)
            .map_err(|error| match stop.is_cancelled() {
                true => LayerError::Cancelled,
                false => LayerError::Read(error),
            })?;
        if count == 0 {
            return Ok(file);
        }
        bytes += count as u64;
        if bytes > limit_bytes {
            return Err(LayerError::TooLarge { limit_bytes }.into());
        }
        io::Write::write_all(&mut file, &buffer[..count])
            .map_err(LayerError::store("write", "archive"))?;
    }
}
