//! How the journal shares a small disk with the database: it takes a part of the free space, and
//! gives back what it allocated ahead when the database can no longer write.
//!
//! Never touches space that is reserved for open calls. Entry points: `Journal::next_size` and
//! `Journal::give_back`.

use std::io;
use std::path::Path;

use super::Journal;
use super::space::SpaceState;
use crate::audit::record::{self, ALIGNMENT, Found};
use crate::audit::segment::{self, Directory, Opened, Segment, Usage};

/// With space for so many segments nobody misses one.
const AMPLE: u64 = 4;

/// With space for so many, some can be kept in reserve.
const ROOMY: u64 = 16;

/// With space for so many nobody needs a reserve: it is made when the disk begins to fill.
const PLENTY: u64 = 256;

/// With less, a new segment takes one such part of what is free; the rest is for the database, which
/// needs about twice the bytes of the rows that it takes, and some for its own log.
const SHARE: u64 = 8;

/// A start gives back what a former gateway had taken ahead if less than this is free.
const LITTLE: u64 = 4 << 20;

/// Longer segments are not searched for the end of their records.
const LONGEST_SEARCH: u64 = 64 << 20;

impl Journal {
    /// Tells whether there is so much space that nobody misses a segment that is made ahead.
    pub(super) fn is_ample(&self) -> bool {
        !self.shares_disk
            || self
                .directory
                .available()
                .is_ok_and(|available| available >= AMPLE * self.segment_bytes)
    }

    /// Tells whether an empty segment more is kept, so that calls are recorded for a while when the disk
    /// runs full: nobody else can take that space.
    pub(super) fn lacks_reserve(&self, state: &SpaceState) -> bool {
        let is_calm = !state.retired && !state.current.is_nowhere() && !state.is_troubled();
        is_calm
            && state.spares.len() < self.reserve
            && state.bytes() + self.segment_bytes <= self.journal_bytes / 2
            && self.directory.available().is_ok_and(|available| {
                let segments = available / self.segment_bytes.max(1);
                (ROOMY..PLENTY).contains(&segments)
            })
    }

    /// Returns how big the next segment may be; without space for the smallest, that is an error.
    pub(super) fn next_size(&self) -> io::Result<u64> {
        if !self.shares_disk {
            return Ok(self.segment_bytes);
        }
        let available = self.directory.available()?;
        if available >= AMPLE * self.segment_bytes {
            return Ok(self.segment_bytes);
        }
        let share = (available / SHARE).min(self.segment_bytes);
        let size = share / ALIGNMENT as u64 * ALIGNMENT as u64;
        // Four of the largest records are the least that a segment can work with.
        if size < (4 * self.largest).min(self.segment_bytes) {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        Ok(size)
    }

    /// Gives back some of the space that was taken ahead of need, as far as open calls were not promised
    /// it: a segment at a time, so that what the database does not take stays in reserve. Tells whether
    /// there is more space now.
    pub(in crate::audit) fn give_back(&self) -> bool {
        let mut state = self.lock();
        if !self.shares_disk || state.current.is_nowhere() {
            return false;
        }
        let kept = state.spares.iter().rev().skip(1);
        let kept: u64 = kept
            .map(|spare| self.usable(spare.end() - segment::HEADER))
            .sum();
        let enough = self.usable(state.left()) + kept >= state.promised;
        if enough && let Some(spare) = state.spares.pop_back() {
            if let Err(error) = self.directory.remove(spare.id) {
                tracing::warn!(segment = spare.id, %error, "cannot remove an unused journal segment");
            }
            return true;
        }
        let needed =
            (state.tail + state.promised + 2 * self.largest).next_multiple_of(segment::PAGE);
        if state.spares.is_empty() && needed < state.end {
            match state.current.release_from(needed) {
                Ok(()) => {
                    state.end = needed;
                    return true;
                }
                Err(error) => {
                    tracing::debug!(%error, "unused space of the journal is not given back")
                }
            }
        }
        false
    }
}

/// Gives back what a former gateway had taken ahead of need, if the disk is nearly full.
///
/// Changes nothing of what was recorded.
pub(in crate::audit) fn make_room(path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        return Ok(());
    }
    let directory = Directory::open(path)?;
    if directory.available()? >= LITTLE {
        return Ok(());
    }
    directory.remove_unfinished()?;
    for id in directory.segments()? {
        match Segment::open(&directory, id)? {
            Opened::Segment(_, Usage::Spare) => directory.remove(id)?,
            Opened::Segment(segment, _) if !segment.damaged && segment.size <= LONGEST_SEARCH => {
                segment.release_from(end_of_records(&segment)?)?;
            }
            Opened::Segment(..) | Opened::Foreign | Opened::Unreadable => {}
        }
    }
    Ok(())
}

/// Returns where the last record of a segment ends.
fn end_of_records(segment: &Segment) -> io::Result<u64> {
    let mut bytes = Vec::new();
    let length = segment.end() - segment::HEADER;
    segment.read(segment::HEADER, length as usize, &mut bytes)?;
    let (mut at, mut end) = (0, 0);
    while at < bytes.len() {
        match record::read(&bytes[at..], segment.salt, segment::HEADER + at as u64) {
            Found::Record(_, _, length) => {
                at += length;
                end = at;
            }
            Found::Incomplete | Found::Nothing => at += ALIGNMENT,
        }
    }
    Ok(segment::HEADER + end as u64)
}
