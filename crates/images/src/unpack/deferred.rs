//! Lists that are collected while a layer is unpacked; in files, so that a hostile layer cannot
//! fill the memory.

use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, utimensat};

use super::tree::{open_folder, timestamps};
use crate::layers::LayerError;

/// The times of folders. Creating entries changes them, so they are set at the end.
#[derive(Debug)]
pub(crate) struct DirectoryTimes {
    file: BufWriter<File>,
}

impl DirectoryTimes {
    pub(super) fn new(file: File) -> Self {
        Self {
            file: BufWriter::new(file),
        }
    }

    pub(super) fn put_off(&mut self, path: &[u8], time: (i64, u32)) -> Result<(), LayerError> {
        let length = u16::try_from(path.len()).expect("a parsed path is shorter than 4,001 bytes");
        let record = [
            &time.0.to_le_bytes()[..],
            &time.1.to_le_bytes(),
            &length.to_le_bytes(),
            path,
        ];
        record
            .iter()
            .try_for_each(|part| self.file.write_all(part))
            .map_err(LayerError::store("write", "times"))
    }

    /// Sets all times. A folder that was replaced since keeps its own time.
    pub(super) fn apply(self, root: BorrowedFd<'_>) -> Result<(), LayerError> {
        let failed = || LayerError::store("read", "times");
        let mut file = self.file.into_inner().map_err(|error| {
            LayerError::store("write", "times")(std::io::Error::from(error.error().kind()))
        })?;
        file.rewind().map_err(failed())?;
        let mut file = BufReader::new(file);
        let mut head = [0; 14];
        let mut path = Vec::new();
        while !file.fill_buf().map_err(failed())?.is_empty() {
            file.read_exact(&mut head).map_err(failed())?;
            let (seconds, rest) = head.split_first_chunk().expect("14 bytes hold 8");
            let (nanoseconds, length) = rest.split_first_chunk().expect("6 bytes hold 4");
            let length = length.first_chunk().expect("2 bytes");
            path.resize(usize::from(u16::from_le_bytes(*length)), 0);
            file.read_exact(&mut path).map_err(failed())?;
            let time = timestamps((
                i64::from_le_bytes(*seconds),
                u32::from_le_bytes(*nanoseconds),
            ));
            if let Ok(folder) = open_folder(root, &path) {
                utimensat(&folder, ".", &time, AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(LayerError::store("set the time of", &path))?;
            }
        }
        Ok(())
    }
}

/// The folders that a layer uses without an entry for them; it expects them in a lower layer.
#[derive(Debug)]
pub(crate) struct ImpliedFolders {
    file: BufWriter<File>,
}

/// Created without an entry.
const IMPLIED: u8 = b'i';
/// Existed already, and then got an entry.
const DECLARED: u8 = b'd';

impl ImpliedFolders {
    pub(super) fn new(file: File) -> Self {
        Self {
            file: BufWriter::new(file),
        }
    }

    pub(super) fn imply(&mut self, path: &[u8]) -> Result<(), LayerError> {
        self.put(IMPLIED, path)
    }

    pub(super) fn declare(&mut self, path: &[u8]) -> Result<(), LayerError> {
        self.put(DECLARED, path)
    }

    pub(super) fn flush(&mut self) -> Result<(), LayerError> {
        let flushed = self.file.flush();
        flushed.map_err(LayerError::store("write", "implied"))
    }

    fn put(&mut self, kind: u8, path: &[u8]) -> Result<(), LayerError> {
        [&[kind][..], path, &[0]]
            .iter()
            .try_for_each(|part| self.file.write_all(part))
            .map_err(LayerError::store("write", "implied"))
    }

    /// Calls `each` with every folder that has no entry, until it fails. May pass one twice.
    pub(crate) fn visit<E: From<std::io::Error>>(
        file: &mut File,
        mut each: impl FnMut(&[u8]) -> Result<bool, E>,
    ) -> Result<Option<Vec<u8>>, E> {
        // A folder may get an entry later. Only keyed hashes of those paths are kept, since the
        // paths would fill the memory.
        let keys = RandomState::new();
        let mut declared = HashSet::new();
        records(file, |kind, path| {
            if kind == DECLARED {
                declared.insert(keys.hash_one(path));
            }
            Ok::<_, E>(false)
        })?;
        let mut suspect = None;
        records(file, |kind, path| {
            let is_implied = kind == IMPLIED && !declared.contains(&keys.hash_one(path));
            if is_implied && each(path)? {
                suspect = Some(path.to_vec());
            }
            Ok::<_, E>(suspect.is_some())
        })?;
        Ok(suspect)
    }
}

/// Reads records until `each` returns true; returns whether it did.
fn records<E: From<std::io::Error>>(
    file: &mut File,
    mut each: impl FnMut(u8, &[u8]) -> Result<bool, E>,
) -> Result<bool, E> {
    file.rewind()?;
    let mut reader = BufReader::new(file);
    let mut record = Vec::new();
    loop {
        record.clear();
        if reader.read_until(0, &mut record)? == 0 {
            return Ok(false);
        }
        if let [kind, path @ .., 0] = &record[..]
            && each(*kind, path)?
        {
            return Ok(true);
        }
    }
}
