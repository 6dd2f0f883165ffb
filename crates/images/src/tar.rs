//! Reads untrusted tar archives strictly: one entry after the other, within limits.
//!
//! If programs disagree on the meaning of an archive (two names, two sizes, sparse files, global
//! headers), it is refused. Writes nothing. Entry point: [`Archive::next`].

mod header;
mod path;
mod pax;
mod refusal;
mod stream;

use std::io::Read;

pub use self::refusal::Refusal;

pub(crate) use self::path::EntryPath;
pub(crate) use self::refusal::shown;
pub(crate) use self::stream::{Bounds, Cost};

use self::header::{BLOCK, Header};
use self::pax::Pax;
use self::stream::Stream;
use crate::digest::{Digest, Hasher};
use crate::layers::{Budget, LayerError};

/// The largest extension header.
const LARGEST_EXTENSION: u64 = 1024 * 1024;
/// The last second of the year 9999.
const LATEST: i64 = 253_402_300_799;

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    HardLink,
    Symlink,
    Directory,
    Fifo,
    /// A character or block device.
    Device,
}

/// One entry, including the data of its extension headers.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) path: EntryPath,
    /// The target of a link, as written in the archive.
    pub(crate) link: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) size: u64,
    /// The permission bits: twelve bits.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Seconds and nanoseconds, between 1970 and 9999.
    pub(crate) mtime: (i64, u32),
    /// Extended attributes.
    pub(crate) attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// An archive that is being read.
pub(crate) struct Archive<'a, R> {
    stream: Stream<'a, R>,
    /// Entries so far, including extension headers.
    entries: u64,
    /// The unread bytes of the current entry's content.
    content: u64,
    /// The padding between the content and the next header.
    padding: u64,
    /// The path of the current entry, for messages.
    current: Vec<u8>,
}

impl<'a, R: Read> Archive<'a, R> {
    pub(crate) fn new(reader: R, bounds: Bounds<'a>) -> Self {
        Self::with_hasher(reader, bounds, Some(Hasher::default()))
    }

    /// Opens an archive without hashing it; its digest must not be used.
    pub(crate) fn unhashed(reader: R, bounds: Bounds<'a>) -> Self {
        Self::with_hasher(reader, bounds, None)
    }

    fn with_hasher(reader: R, bounds: Bounds<'a>, hasher: Option<Hasher>) -> Self {
        Self {
            stream: Stream::new(reader, bounds, hasher),
            entries: 0,
            content: 0,
            padding: 0,
            current: Vec::new(),
        }
    }

    /// Returns the budget that written content is charged to, if any.
    pub(crate) fn budget(&self) -> Option<&'a Budget> {
        self.stream.bounds().cost.and_then(|cost| cost.budget)
    }

    /// Returns how many entries were read, including extension headers.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns how many bytes were read; after `next` this is the offset of the entry's content.
    pub(crate) fn position(&self) -> u64 {
        self.stream.position()
    }

    /// Returns the next entry; `None` at the end of the archive.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, LayerError> {
        let mut extensions = Extensions::default();
        loop {
            self.skip()?;
            let Some(block) = self.block()? else {
                if extensions.is_empty() {
                    return Ok(None);
                }
                return Err(self.refused(Refusal::ExtensionAlone));
            };
            self.count(1)?;
            let header = Header::parse(&block).map_err(|why| self.refused(why))?;
            self.current = extensions.path(&header);
            let size = header.size().map_err(|why| self.refused(why))?;
            self.stream.check_room(size)?;
            self.content = size;
            self.padding = size.next_multiple_of(BLOCK as u64) - size;
            match header.kind() {
                b'L' | b'K' | b'x' | b'g' => {
                    let content = self.extension(size)?;
                    extensions
                        .take(header.kind(), content)
                        .map_err(|why| self.refused(why))?;
                }
                _ => {
                    let entry = extensions.entry(&header, size);
                    return entry.map(Some).map_err(|why| self.refused(why));
                }
            }
        }
    }

    /// Returns the next piece of the current entry's content; empty at its end.
    pub(crate) fn content(&mut self) -> Result<&[u8], LayerError> {
        if self.content == 0 {
            return Ok(b"");
        }
        let available = self.stream.fill()?.len();
        if available == 0 {
            return Err(self.refused(Refusal::Truncated));
        }
        let piece = available.min(usize::try_from(self.content).unwrap_or(usize::MAX));
        Ok(&self.stream.fill()?[..piece])
    }

    /// Marks bytes that `content` returned as read.
    pub(crate) fn consume(&mut self, count: usize) {
        self.stream.consume(count);
        self.content -= (count as u64).min(self.content);
    }

    /// Reads to the end of the stream, including the final zero blocks and anything after them;
    /// returns digest and length of the whole.
    pub(crate) fn finish(self) -> Result<(Digest, u64), LayerError> {
        self.stream.finish()
    }

    /// Counts additional entries, such as implied folders, against the limit.
    pub(crate) fn count(&mut self, entries: u64) -> Result<(), LayerError> {
        self.stream.check_time()?;
        let limit = self.stream.bounds().entries;
        self.entries = self.entries.saturating_add(entries);
        if self.entries > limit {
            return Err(LayerError::TooManyEntries { limit });
        }
        Ok(())
    }

    /// Returns the error that refuses the current entry.
    pub(crate) fn refused(&self, why: Refusal) -> LayerError {
        LayerError::refused(&self.current, why)
    }

    /// Skips the rest of the current entry.
    fn skip(&mut self) -> Result<(), LayerError> {
        let mut left = self.content + self.padding;
        while left > 0 {
            let available = self.stream.fill()?.len() as u64;
            if available == 0 {
                return Err(self.refused(Refusal::Truncated));
            }
            let count = available.min(left);
            self.stream.consume(count as usize);
            left -= count;
        }
        (self.content, self.padding) = (0, 0);
        Ok(())
    }

    /// Returns the next block; `None` at two zero blocks, or if the stream ends between entries.
    fn block(&mut self) -> Result<Option<[u8; BLOCK]>, LayerError> {
        let mut block = [0; BLOCK];
        let mut zeros = false;
        loop {
            match self.stream.read_full(&mut block)? {
                0 => return Ok(None),
                BLOCK => {}
                _ => return Err(self.refused(Refusal::Truncated)),
            }
            match (zeros, block.iter().all(|&byte| byte == 0)) {
                (false, false) => return Ok(Some(block)),
                (false, true) => zeros = true,
                (true, true) => return Ok(None),
                (true, false) => return Err(self.refused(Refusal::EndMarker)),
            }
        }
    }

    /// Reads the content of an extension header.
    fn extension(&mut self, bytes: u64) -> Result<Vec<u8>, LayerError> {
        if bytes > LARGEST_EXTENSION {
            return Err(self.refused(Refusal::ExtensionTooLarge {
                bytes,
                limit: LARGEST_EXTENSION,
            }));
        }
        let mut content = vec![0; bytes as usize];
        if self.stream.read_full(&mut content)? < content.len() {
            return Err(self.refused(Refusal::Truncated));
        }
        self.content = 0;
        Ok(content)
    }
}

/// The data of extension headers for the next entry.
#[derive(Default)]
struct Extensions {
    long_path: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    pax: Option<Pax>,
}

impl Extensions {
    fn is_empty(&self) -> bool {
        self.long_path.is_none() && self.long_link.is_none() && self.pax.is_none()
    }

    fn take(&mut self, kind: u8, content: Vec<u8>) -> Result<(), Refusal> {
        match kind {
            b'L' if self.long_path.is_none() => self.long_path = Some(long_name(content)),
            b'K' if self.long_link.is_none() => self.long_link = Some(long_name(content)),
            b'x' if self.pax.is_none() => self.pax = Some(Pax::parse(&content)?),
            b'L' => return Err(Refusal::GivenTwice { field: "path" }),
            b'K' => return Err(Refusal::GivenTwice { field: "linkpath" }),
            b'x' => {
                return Err(Refusal::GivenTwice {
                    field: "PAX header",
                });
            }
            // A global header is ignored: it must not change any entry.
            _ => Pax::check_global(&content)?,
        }
        Ok(())
    }

    /// Returns the path of an entry with this header, as far as it is known.
    fn path(&self, header: &Header<'_>) -> Vec<u8> {
        let pax = self.pax.as_ref().and_then(|pax| pax.path.clone());
        pax.or_else(|| self.long_path.clone())
            .unwrap_or_else(|| header.path())
    }

    fn entry(self, header: &Header<'_>, size: u64) -> Result<Entry, Refusal> {
        let pax = self.pax.unwrap_or_default();
        let path = either(self.long_path, pax.path, "path")?.unwrap_or_else(|| header.path());
        let link = either(self.long_link, pax.link, "linkpath")?.unwrap_or_else(|| header.link());
        let kind = match header.kind() {
            // In old archives a directory is a file whose name ends with a slash.
            b'0' | 0 if path.ends_with(b"/") => Kind::Directory,
            b'0' | 0 | b'7' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' | b'4' => Kind::Device,
            b'5' => Kind::Directory,
            b'6' => Kind::Fifo,
            b'S' => return Err(Refusal::Sparse),
            other => {
                return Err(Refusal::Kind {
                    kind: shown(&[other]),
                });
            }
        };
        match pax.size {
            Some(pax) if pax != size => return Err(Refusal::PaxSize { pax, header: size }),
            _ => {}
        }
        if kind != Kind::File && size > 0 {
            return Err(Refusal::Content { bytes: size });
        }
        let mtime = match pax.mtime {
            Some(mtime) => mtime,
            None => (header.mtime()?, 0),
        };
        Ok(Entry {
            path: EntryPath::parse(&path, "path")?,
            link,
            kind,
            size,
            mode: header.mode()?,
            uid: owner(pax.uid.map_or_else(|| header.uid(), Ok)?)?,
            gid: owner(pax.gid.map_or_else(|| header.gid(), Ok)?)?,
            mtime: match mtime {
                (..0, _) => (0, 0),
                (seconds, _) if seconds > LATEST => (LATEST, 0),
                mtime => mtime,
            },
            attributes: pax.attributes,
        })
    }
}

/// Returns the content of a GNU long name without its final zero byte.
fn long_name(mut content: Vec<u8>) -> Vec<u8> {
    if content.last() == Some(&0) {
        content.pop();
    }
    content
}

fn either(
    long: Option<Vec<u8>>,
    pax: Option<Vec<u8>>,
    field: &'static str,
) -> Result<Option<Vec<u8>>, Refusal> {
    match (long, pax) {
        (Some(_), Some(_)) => Err(Refusal::GivenTwice { field }),
        (long, pax) => Ok(long.or(pax)),
    }
}

/// Checks a user or group id. The kernel treats the largest one as "unchanged".
fn owner(id: i64) -> Result<u32, Refusal> {
    match u32::try_from(id) {
        Ok(id) if id != u32::MAX => Ok(id),
        _ => Err(Refusal::Owner { id }),
    }
}
