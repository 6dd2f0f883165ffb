//! Files with holes, archived as GNU tar does: with their data alone, so that the archive of a volume is
//! no longer than what is on disk, whatever length a server gives its files. Entry point: [`append`].

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// The block of an archive.
const BLOCK: u64 = 512;
/// How many parts one further header describes.
const MORE: usize = 21;

/// A part of a file that has data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    offset: u64,
    length: u64,
}

/// Appends a regular file to an archive; its header is complete but for the size.
///
/// What the headers say is written, even if the file grows or shrinks meanwhile.
pub(super) fn append<W: Write>(
    archive: &mut tar::Builder<W>,
    header: &mut tar::Header,
    path: &Path,
    file: File,
    (size, on_disk): (u64, u64),
) -> io::Result<()> {
    let whole = Part {
        offset: 0,
        length: size,
    };
    // Less on disk than its length are holes, or a file system that compresses.
    let mut parts = match on_disk < size {
        true => parts(&file, size)?,
        false => vec![whole],
    };
    if parts == [whole] {
        seek(&file, SeekFrom::Start(0))?;
        header.set_size(size);
        let content = file.chain(io::repeat(0)).take(size);
        return archive.append_data(header, path, content);
    }
    header.set_entry_type(tar::EntryType::GNUSparse);
    header.set_size(parts.iter().map(|part| part.length).sum());
    // The end of the file, if it ends with a hole.
    let last = parts.last().map_or(0, |part| part.offset + part.length);
    if last < size {
        let (offset, length) = (size, 0);
        parts.push(Part { offset, length });
    }
    let Some(gnu) = header.as_gnu_mut() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    gnu.set_real_size(size);
    let (first, more) = parts.split_at(parts.len().min(gnu.sparse.len()));
    for (entry, part) in gnu.sparse.iter_mut().zip(first) {
        entry.set_offset(part.offset);
        entry.set_length(part.length);
    }
    gnu.set_is_extended(!more.is_empty());
    let data = Data {
        file,
        parts: parts.clone(),
        next: 0,
        done: 0,
    };
    archive.append_data(header, path, io::Cursor::new(described(more)).chain(data))
}

/// Returns the further headers, which are not counted in the size of the entry.
fn described(parts: &[Part]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut chunks = parts.chunks(MORE).peekable();
    while let Some(chunk) = chunks.next() {
        let mut header = tar::GnuExtSparseHeader::new();
        for (entry, part) in header.sparse.iter_mut().zip(chunk) {
            entry.set_offset(part.offset);
            entry.set_length(part.length);
        }
        header.set_is_extended(chunks.peek().is_some());
        bytes.extend_from_slice(header.as_bytes());
    }
    bytes
}

/// Returns the parts that have data, in order. Each begins at a block, and only the last may end
/// within one.
fn parts(file: &File, size: u64) -> io::Result<Vec<Part>> {
    let mut parts = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match seek(file, SeekFrom::Data(at)) {
            // There is nothing but a hole.
            Err(Errno::NXIO) => break,
            // The file system does not tell.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            found => found?,
        };
        let end = match seek(file, SeekFrom::Hole(start)) {
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => size,
            found => found?,
        };
        let offset = (start - start % BLOCK).max(at);
        let end = end.max(start + 1).next_multiple_of(BLOCK).min(size);
        if end <= offset {
            break;
        }
        let length = end - offset;
        parts.push(Part { offset, length });
        at = end;
    }
    Ok(parts)
}

/// Reads the parts one after the other.
struct Data {
    file: File,
    parts: Vec<Part>,
    /// The part that is read, and how much of it was.
    next: usize,
    done: u64,
}

impl Read for Data {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(part) = self.parts.get(self.next) else {
                return Ok(0);
            };
            let left = part.length - self.done;
            if left == 0 {
                (self.next, self.done) = (self.next + 1, 0);
                continue;
            }
            let most = usize::try_from(left).unwrap_or(usize::MAX);
            let most = buffer.len().min(most);
            let wanted = &mut buffer[..most];
            let read = match self.file.read_at(wanted, part.offset + self.done)? {
                // It has become shorter.
                0 => {
                    wanted.fill(0);
                    most
                }
                read => read,
            };
            self.done += read as u64;
            return Ok(read);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // fault P9
    #[test]
    fn a_file_of_holes_takes_no_room_in_an_archive_and_comes_back_whole() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("file");
        let file = File::create(&path).unwrap();
        // More parts than the first header describes, and a hole at the end.
        let places = (0..40).map(|n| n * (192 << 10));
        for place in places.clone() {
            file.write_all_at(b"data", place + 100).unwrap();
        }
        let size = 4 << 40;
        file.set_len(size).unwrap();
        let mut archive = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        let opened = File::open(&path).unwrap();
        append(
            &mut archive,
            &mut header,
            Path::new("file"),
            opened,
            (size, 0),
        )
        .unwrap();
        let bytes = archive.into_inner().unwrap();
        assert!(bytes.len() < 1 << 20, "{}", bytes.len());
        let mut archive = tar::Archive::new(&bytes[..]);
        let mut entry = archive.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(entry.size(), size);
        let mut start = vec![0; 8 << 20];
        entry.read_exact(&mut start).unwrap();
        for place in places {
            let at = usize::try_from(place).unwrap() + 100;
            assert_eq!(start.get(at..at + 4), Some(&b"data"[..]), "at {place}");
        }
        assert_eq!(start.iter().filter(|byte| **byte != 0).count(), 160);
    }

    #[test]
    fn a_file_that_becomes_shorter_does_not_damage_the_archive() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("file");
        let file = File::create(&path).unwrap();
        file.write_all_at(b"data", 1 << 20).unwrap();
        let mut archive = tar::Builder::new(Vec::new());
        for on_disk in [0, 4 << 20] {
            let mut header = tar::Header::new_gnu();
            let opened = File::open(&path).unwrap();
            append(
                &mut archive,
                &mut header,
                Path::new("file"),
                opened,
                (2 << 20, on_disk),
            )
            .unwrap();
        }
        let bytes = archive.into_inner().unwrap();
        let mut archive = tar::Archive::new(&bytes[..]);
        let sizes = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().size());
        assert_eq!(sizes.collect::<Vec<_>>(), [2 << 20; 2]);
    }
}
