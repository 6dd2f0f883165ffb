//! How the journal shares a small disk with the database: it takes a part of the free space, and
//! releases space it allocated in advance when the database can no longer write.
//!
//! Never touches space that is reserved for open calls. Entry points: `Journal::next_size` and
//! `Journal::give_back`.

use std::io;
use std::path::Path;

use super::Journal;
use super::space::SpaceState;
use crate::audit::record::{self, ALIGNMENT, Found};
use crate::audit::segment::{self, Directory, Opened, Segment, Usage};

/// With space for this many segments, one can be allocated in advance.
const AMPLE: u64 = 4;

/// With space for this many, some can be kept in reserve.
const ROOMY: u64 = 16;

/// With space for this many no reserve is needed: it is allocated when the disk starts to fill.
const PLENTY: u64 = 256;

/// With less, a new segment takes this fraction of the free space; the rest is for the database,
/// which needs about twice the bytes of its rows, and some for its own log.
const SHARE: u64 = 8;

/// If less is free, a start releases the space that an earlier process had allocated in advance.
const LITTLE: u64 = 4 << 20;

/// Longer segments are not searched for the end of their records.
const LONGEST_SEARCH: u64 = 64 << 20;

impl Journal {
    /// Returns whether there is enough space to allocate a segment in advance.
    pub(super) fn is_ample(&self) -> bool {
        !self.shares_disk
            || self
                .directory
                .available()
                .is_ok_and(|available| available >= AMPLE * self.segment_bytes)
    }

    /// Returns whether another empty segment should be kept, so that calls can be recorded for a
    /// while on a full disk: no other program can take that space.
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

    /// Returns the size of the next segment; an error if there is no space for the smallest.
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
        // A segment needs space for at least four of the largest records.
        if size < (4 * self.largest).min(self.segment_bytes) {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        Ok(size)
    }

    /// Releases some of the space that was allocated in advance and is not reserved for open calls:
    /// one segment at a time, so that what the database does not need stays in reserve. Returns
    /// whether there is more space now.
    pub(in crate::audit) fn give_back(&self) -> bool {
        let mut state = self.state.lock();
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

/// Releases the space that an earlier process had allocated in advance, if the disk is nearly full.
///
/// Changes no records.
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
