//! Reads the journal back, in order, a chunk at a time.
//!
//! A killed process leaves gaps and torn records; the scan skips them and continues at the next valid
//! record. Entry point: `scan`.

use std::io;

use gantry_model::id::CallId;

use super::journal::{Journal, Position};
use super::record::{self, ALIGNMENT, Entry, Found, Kind};
use super::segment::Segment;

/// How many bytes are read at once; far more than the largest record.
const CHUNK_BYTES: u64 = 2 << 20;
/// About as many records as make one batch of rows: all that wait when the import is woken, and some
/// that came since, so that it does not make a second small batch of these.
const CHUNK_RECORDS: usize = 5000;

/// A piece of the journal and the positions of its records.
#[derive(Debug)]
pub(super) struct Chunk {
    bytes: Vec<u8>,
    /// The position of `bytes`.
    start: Position,
    /// The valid records, in order.
    pub(super) marks: Vec<Mark>,
    /// Where the next chunk begins.
    pub(super) next: Position,
    /// How many bytes between valid records were neither empty nor part of one.
    pub(super) damaged_bytes: u64,
    /// The ranges without records, in order.
    pub(super) gaps: Vec<(u64, u64)>,
}

/// The position of a record, and its call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub(super) kind: Kind,
    pub(super) id: CallId,
    at: u32,
}

/// Reads the next records between `from` and `bound`; nothing is written there any more.
pub(super) fn scan(journal: &Journal, from: Position, bound: Position) -> io::Result<Chunk> {
    let found = journal
        .segment_from(from.segment)
        .filter(|found| found.id <= bound.segment);
    let Some(segment) = found else {
        return Ok(Chunk::empty(from, bound));
    };
    let start = from.max(Position::start_of(segment.id));
    let last = segment.id == bound.segment;
    let end = if last { bound.offset } else { segment.end() };
    let mut chunk = Chunk::empty(start, start);
    let reached_end = chunk.read(&segment, end)?;
    if reached_end && !last {
        chunk.next = Position::start_of(segment.id + 1);
    }
    Ok(chunk)
}

/// Counts the records of a segment and returns from where to where there is none.
pub(super) fn records_in(segment: &Segment) -> io::Result<(u64, Vec<(u64, u64)>)> {
    let (mut records, mut gaps) = (0, Vec::new());
    let mut at = Position::start_of(segment.id);
    loop {
        let mut chunk = Chunk::empty(at, at);
        let reached_end = chunk.read(segment, segment.end())?;
        records += chunk.marks.len() as u64;
        gaps.append(&mut chunk.gaps);
        gaps.extend(chunk.used_padding());
        if reached_end || chunk.next.offset <= at.offset {
            return Ok((records, gaps));
        }
        at = chunk.next;
    }
}

/// Returns how many bytes are empty before the next step with content. Most of a segment is unused,
/// and no record starts with zeroes only: its length is among them.
fn empty_bytes(bytes: &[u8]) -> usize {
    let (steps, _) = bytes.as_chunks::<ALIGNMENT>();
    let empty = steps.iter().take_while(|step| **step == [0; ALIGNMENT]);
    empty.count() * ALIGNMENT
}

impl Chunk {
    fn empty(start: Position, next: Position) -> Self {
        Self {
            bytes: Vec::new(),
            start,
            marks: Vec::new(),
            next,
            damaged_bytes: 0,
            gaps: Vec::new(),
        }
    }

    /// Returns the position of a record.
    pub(super) fn position(&self, mark: Mark) -> Position {
        Position {
            segment: self.start.segment,
            offset: self.start.offset + u64::from(mark.at),
        }
    }

    /// Returns where something stands behind a record that must be empty.
    fn used_padding(&self) -> impl Iterator<Item = (u64, u64)> {
        self.marks.iter().filter_map(|mark| {
            let rest = &self.bytes[mark.at as usize..];
            let padding = record::padding(rest);
            let begin = self.start.offset + u64::from(mark.at);
            let range = (begin + padding.start as u64, begin + padding.end as u64);
            rest[padding].iter().any(|byte| *byte != 0).then_some(range)
        })
    }

    /// Returns the segment of the chunk.
    pub(super) fn segment(&self) -> u64 {
        self.start.segment
    }

    /// Decodes a record.
    pub(super) fn entry(&self, mark: Mark) -> Entry<'_> {
        record::decode(&self.bytes[mark.at as usize..]).expect("the scan has decoded it")
    }

    /// Continues reading from `start`; returns whether the segment's end was reached.
    fn read(&mut self, segment: &Segment, end: u64) -> io::Result<bool> {
        let start = self.start.offset;
        let wanted = end.saturating_sub(start).min(CHUNK_BYTES);
        segment.read(start, wanted as usize, &mut self.bytes)?;
        let bytes = &self.bytes;
        // A file shorter than its header says was truncated.
        let cut = (bytes.len() as u64) < wanted;
        let last = start + wanted >= end || cut;
        let mut gaps: Vec<(u64, u64)> = Vec::new();
        let mut add_gap = |from: u64, to: u64| match gaps.last_mut() {
            Some(gap) if gap.1 == from => gap.1 = to,
            _ => gaps.push((from, to)),
        };
        let mut at = 0;
        // Leftovers of a reused file after the last record are not damage.
        let mut doubtful = 0;
        while at < bytes.len() && self.marks.len() < CHUNK_RECORDS {
            match record::read(&bytes[at..], segment.salt, start + at as u64) {
                Found::Record(kind, id, length) => {
                    self.damaged_bytes += std::mem::take(&mut doubtful);
                    let place = at as u32;
                    self.marks.push(Mark {
                        kind,
                        id,
                        at: place,
                    });
                    at += length;
                }
                Found::Incomplete if !last => break,
                Found::Incomplete | Found::Nothing => {
                    let step = &bytes[at..bytes.len().min(at + ALIGNMENT)];
                    doubtful += step.iter().filter(|byte| **byte != 0).count() as u64;
                    let from = at;
                    at += ALIGNMENT;
                    at += empty_bytes(bytes.get(at..).unwrap_or_default());
                    add_gap(start + from as u64, start + at as u64);
                }
            }
        }
        let reached_end = last && at >= bytes.len();
        self.next.offset = start + at as u64;
        if cut && reached_end {
            add_gap(self.next.offset, end);
            self.next.offset = end;
        }
        self.gaps = gaps;
        Ok(reached_end)
    }
}
