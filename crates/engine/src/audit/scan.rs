//! Reads the journal back, in order, a chunk at a time.
//!
//! A killed process leaves holes and torn records behind; the scan steps over them and takes up
//! again at the next place where a valid record stands. Entry point `scan`.

use std::io;

use super::journal::{Journal, Position};
use super::record::{self, ALIGNMENT, Entry, Found};
use super::segment::Segment;

/// How much is read at once; far more than the largest record.
const CHUNK_BYTES: u64 = 1 << 20;
/// About as many records as make one batch of rows.
const CHUNK_RECORDS: usize = 4000;

/// The records of one chunk.
#[derive(Debug)]
pub(super) struct Chunk {
    /// The records and where they stand.
    pub(super) entries: Vec<(Position, Entry)>,
    /// Where the next chunk begins.
    pub(super) next: Position,
    /// How many bytes between valid records were neither empty nor part of one.
    pub(super) damaged_bytes: u64,
}

/// Reads the next records between `from` and `bound`; nothing is written there any more.
pub(super) fn scan(journal: &Journal, from: Position, bound: Position) -> io::Result<Chunk> {
    let found = journal
        .segment_from(from.segment)
        .filter(|found| found.id <= bound.segment);
    let Some(segment) = found else {
        return Ok(Chunk {
            entries: Vec::new(),
            next: bound,
            damaged_bytes: 0,
        });
    };
    let start = from.max(Position::start_of(segment.id));
    let last = segment.id == bound.segment;
    let end = if last { bound.offset } else { segment.end() };
    let mut chunk = Chunk {
        entries: Vec::new(),
        next: start,
        damaged_bytes: 0,
    };
    let reached_end = chunk.read(&segment, end)?;
    if reached_end && !last {
        chunk.next = Position::start_of(segment.id + 1);
    }
    Ok(chunk)
}

impl Chunk {
    /// Reads on from `next`; tells whether the segment's end was reached.
    fn read(&mut self, segment: &Segment, end: u64) -> io::Result<bool> {
        let start = self.next.offset;
        let wanted = end.saturating_sub(start).min(CHUNK_BYTES);
        let mut bytes = Vec::new();
        segment.read(start, wanted as usize, &mut bytes)?;
        // A file that is shorter than it says was cut: what follows is gone.
        let last = start + wanted >= end || (bytes.len() as u64) < wanted;
        let mut at = 0;
        // Behind the last record the leftovers of a reused file are no damage.
        let mut doubtful = 0;
        while at < bytes.len() && self.entries.len() < CHUNK_RECORDS {
            let offset = start + at as u64;
            match record::read(&bytes[at..], segment.salt, offset) {
                Found::Record(entry, length) => {
                    self.damaged_bytes += std::mem::take(&mut doubtful);
                    self.entries.push((
                        Position {
                            segment: segment.id,
                            offset,
                        },
                        entry,
                    ));
                    at += length;
                }
                Found::Incomplete if !last => break,
                Found::Incomplete | Found::Nothing => {
                    let step = &bytes[at..bytes.len().min(at + ALIGNMENT)];
                    doubtful += step.iter().filter(|byte| **byte != 0).count() as u64;
                    at += ALIGNMENT;
                }
            }
        }
        self.next.offset = start + at as u64;
        Ok(last && at >= bytes.len())
    }
}
