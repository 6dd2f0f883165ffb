//! The append-only journal: where each record goes, and whether there is space for it.
//!
//! A short lock assigns a position; each record is then written there with one `pwrite`, without
//! waiting for others. With each intent the space for its outcome is reserved, so that a full disk
//! refuses new calls and never loses the end of one. Knows nothing of the database. Entry point:
//! `append`.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gantry_store::DamageKind;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::error::AuditError;
use super::mark::{Mark, MarkFile};
use super::policy::{AuditPolicy, Durability};
use super::record;
use super::segment::{self, ChainLink, Directory, Segment};
use super::sync::GroupSync;

mod disk_share;
mod space;

pub(super) use disk_share::make_room;
use space::SpaceState;

/// The import is woken early when this many records wait.
const MANY: u64 = 4096;
/// How many bytes `relaxed` collects before it writes.
const GATHERED_BYTES: usize = 64 << 10;

/// A position in the journal; the order of positions is the order of the audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) segment: u64,
    pub(super) offset: u64,
}

impl Position {
    /// Returns the position as the number by which rows are ordered.
    pub(super) const fn sequence(self) -> u64 {
        (self.segment << 28) | (self.offset / record::ALIGNMENT as u64)
    }

    /// Returns the smallest number of a row in a segment.
    pub(super) const fn first_sequence(segment: u64) -> u64 {
        segment << 28
    }

    /// Returns the start of a segment's records.
    pub(super) const fn start_of(segment: u64) -> Self {
        Self {
            segment,
            offset: segment::HEADER,
        }
    }
}

/// What a record needs besides its own bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// Reserves the space for the outcome.
    Intent,
    /// Uses the space that its intent reserved.
    Outcome,
    /// Needs nothing more.
    Whole,
}

/// The state from which a journal continues.
#[derive(Debug)]
pub(super) struct Beginning {
    /// The first segment of this process.
    pub(super) first: u64,
    /// The segments of an earlier process that are not imported yet.
    pub(super) left: VecDeque<Arc<Segment>>,
    /// The number in the header of every segment.
    pub(super) identity: u32,
    /// The first segment's link to the earlier process's last one.
    pub(super) link: ChainLink,
    /// Whether the database is on the same file system.
    pub(super) shares_disk: bool,
}

/// The journal of this process.
#[derive(Debug)]
pub(super) struct Journal {
    directory: Directory,
    /// How many empty segments are kept if there is space.
    reserve: usize,
    segment_bytes: u64,
    journal_bytes: u64,
    durability: Durability,
    identity: u32,
    shares_disk: bool,
    mark: MarkFile,
    /// The space that an open call reserves for its outcome.
    promise: u64,
    largest: u64,
    state: Mutex<SpaceState>,
    disk: Option<GroupSync>,
    /// Wakes the background task: many records wait, or a segment is needed.
    pub(super) wake: Notify,
    woken: AtomicBool,
    appended: AtomicU64,
    imported: AtomicU64,
}

/// The state of the journal, for the health report.
#[derive(Debug)]
pub(super) struct Condition {
    pub(super) refusing: Option<AuditError>,
    pub(super) bytes: u64,
    pub(super) waiting: u64,
}

impl Journal {
    /// Starts a journal after the records of an earlier process.
    ///
    /// It starts even without space, and then refuses calls until there is some.
    pub(super) fn start(
        directory: Directory,
        policy: &AuditPolicy,
        beginning: Beginning,
    ) -> Result<Self, AuditError> {
        let failed = |source: io::Error| AuditError::Open {
            path: directory.path().to_owned(),
            source,
        };
        let disk = match policy.durability {
            Durability::Disk => Some(GroupSync::start().map_err(failed)?),
            Durability::Os | Durability::Relaxed | Durability::Database => None,
        };
        let nowhere = Segment::nowhere(beginning.first).map_err(failed)?;
        let mut state = SpaceState::new(Arc::new(nowhere), beginning.left);
        state.link = beginning.link;
        let body_bytes = policy.stored_body_bytes();
        let journal = Self {
            segment_bytes: policy.segment_bytes,
            reserve: policy.reserve,
            journal_bytes: policy.journal_bytes,
            durability: policy.durability,
            promise: record::largest_outcome(body_bytes),
            largest: record::largest_record(body_bytes),
            identity: beginning.identity,
            shares_disk: beginning.shares_disk,
            mark: MarkFile::new(super::mark::path_of(directory.path())),
            state: Mutex::new(state),
            disk,
            wake: Notify::new(),
            woken: AtomicBool::new(false),
            appended: AtomicU64::new(0),
            imported: AtomicU64::new(0),
            directory,
        };
        if let Err(error) = journal.begin() {
            tracing::error!(path = %journal.path().display(), %error, "calls are refused");
        }
        Ok(journal)
    }

    /// Returns the folder of the journal.
    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Appends an encoded record; returns its segment.
    pub(super) fn append(
        &self,
        encoded: &mut [u8],
        claim: Claim,
    ) -> Result<Arc<Segment>, AuditError> {
        if claim != Claim::Outcome
            && let Some(source) = self.disk.as_ref().and_then(GroupSync::failure)
        {
            return Err(AuditError::Sync {
                path: self.path().to_owned(),
                source,
            });
        }
        let appended = match self.durability {
            Durability::Relaxed => self.gather(encoded, claim),
            Durability::Os | Durability::Disk | Durability::Database => self.write(encoded, claim),
        };
        if appended.is_ok() {
            // The import may have counted this record already.
            let appended = self.appended.fetch_add(1, Ordering::Relaxed) + 1;
            let waiting = appended.saturating_sub(self.imported.load(Ordering::Relaxed));
            if waiting >= MANY && !self.woken.swap(true, Ordering::Relaxed) {
                self.wake.notify_one();
            }
        }
        appended
    }

    /// Waits until the records appended to `segment` have the promised durability.
    pub(super) async fn settle(&self, segment: Arc<Segment>) -> Result<(), AuditError> {
        match &self.disk {
            None => Ok(()),
            Some(disk) => disk.wait(segment).await.map_err(|source| AuditError::Sync {
                path: self.path().to_owned(),
                source,
            }),
        }
    }

    /// Waits until the disk fails to confirm an appended record, and returns the error.
    pub(super) async fn disk_failed(&self) -> AuditError {
        let source = match &self.disk {
            Some(disk) => disk.failed().await,
            None => std::future::pending().await,
        };
        AuditError::Sync {
            path: self.path().to_owned(),
            source,
        }
    }

    /// Requests durability of the records appended to `segment`, without waiting.
    pub(super) fn settle_soon(&self, segment: Arc<Segment>) {
        if let Some(disk) = &self.disk {
            disk.request(segment);
        }
    }

    fn write(&self, encoded: &mut [u8], claim: Claim) -> Result<Arc<Segment>, AuditError> {
        let (segment, offset) = {
            let mut state = self.state.lock();
            let place = self.place(&mut state, encoded.len() as u64, claim)?;
            state.writing.push(place);
            (Arc::clone(&state.current), place.offset)
        };
        record::seal(encoded, segment.salt, offset);
        let written = segment.write(offset, encoded);
        let mut state = self.state.lock();
        let place = Position {
            segment: segment.id,
            offset,
        };
        state.writing.retain(|writing| *writing != place);
        if let Err(source) = written {
            if claim == Claim::Intent {
                state.promised -= self.promise;
            }
            *state.failed.entry(segment.id).or_default() += encoded.len() as u64;
            return Err(self.write_failed(&mut state, source));
        }
        state.write_succeeded();
        state.unmarked += 1;
        let mark = state.mark_is_due().then(|| state.next_mark(self.identity));
        drop(state);
        if let Some((number, mark)) = mark {
            self.mark.write(number, &mark);
        }
        Ok(segment)
    }

    /// Writes the mark; returns whether that ever succeeded.
    pub(super) fn mark_now(&self) -> bool {
        let (number, mark) = {
            let mut state = self.state.lock();
            let written = self.mark.is_written();
            if state.current.is_nowhere() || (state.unmarked == 0 && written) {
                return written;
            }
            state.next_mark(self.identity)
        };
        self.mark.write(number, &mark)
    }

    fn gather(&self, encoded: &mut [u8], claim: Claim) -> Result<Arc<Segment>, AuditError> {
        let mut state = self.state.lock();
        if state.gathered.len() >= GATHERED_BYTES
            && let Err(error) = self.write_gathered(&mut state)
            && claim != Claim::Outcome
        {
            return Err(error);
        }
        let place = self.place(&mut state, encoded.len() as u64, claim)?;
        let segment = Arc::clone(&state.current);
        record::seal(encoded, segment.salt, place.offset);
        state.gathered.extend_from_slice(encoded);
        Ok(segment)
    }

    /// Writes the records that `relaxed` has collected.
    pub(super) fn flush(&self) -> Result<(), AuditError> {
        self.write_gathered(&mut self.state.lock())
    }

    fn write_gathered(&self, state: &mut SpaceState) -> Result<(), AuditError> {
        if state.gathered.is_empty() {
            return Ok(());
        }
        let offset = state.tail - state.gathered.len() as u64;
        if let Err(source) = state.current.write(offset, &state.gathered) {
            return Err(self.write_failed(state, source));
        }
        state.gathered.clear();
        state.write_succeeded();
        let (number, mark) = state.next_mark(self.identity);
        self.mark.write(number, &mark);
        Ok(())
    }

    /// Returns the position after the last record, written or under way.
    pub(super) fn tail(&self) -> Position {
        self.state.lock().tail()
    }

    /// Returns the position before which everything is written.
    pub(super) fn stable(&self) -> Position {
        self.state.lock().stable()
    }

    /// Returns how many bytes of a segment of this process could not be written.
    pub(super) fn failed_bytes(&self, segment: u64) -> u64 {
        self.state.lock().failed.get(&segment).copied().unwrap_or(0)
    }

    /// Returns the identity of the journal.
    pub(super) fn identity(&self) -> u32 {
        self.identity
    }

    /// Returns how many calls began in the journal so far.
    pub(super) fn calls(&self) -> u64 {
        let state = self.state.lock();
        state.link.calls_before + state.calls
    }

    /// Returns where the records of a segment of this process end, if it is no longer in use.
    pub(super) fn end_of(&self, segment: u64) -> Option<u64> {
        self.state.lock().ends.get(&segment).copied()
    }

    /// Returns how many calls began in the current segment or the one before it.
    pub(super) fn calls_in(&self, segment: u64) -> Option<u64> {
        let state = self.state.lock();
        if state.current.id == segment {
            return Some(state.calls);
        }
        (state.link.previous == segment).then_some(state.link.previous_calls)
    }

    /// Keeps a segment's file when its records are imported; returns its future name.
    pub(super) fn keep_damaged(&self, segment: u64) -> String {
        self.state.lock().damaged.insert(segment);
        self.directory.name_aside(segment)
    }

    /// Refuses calls from now on, because a file for recording them is missing; `None` accepts them
    /// again.
    pub(super) fn set_gone(&self, what: Option<&Path>) {
        self.state.lock().gone = what.map(Arc::from);
    }

    /// Returns the missing file, if calls are refused for that.
    pub(super) fn gone(&self) -> Option<AuditError> {
        self.state.lock().gone_error()
    }

    /// Checks whether the current segment was removed or truncated; then switches to another one. A mark
    /// that was removed is written again.
    pub(super) fn inspect_current(&self) -> Option<(u64, DamageKind)> {
        let current = Arc::clone(&self.state.lock().current);
        if current.is_nowhere() {
            return None;
        }
        if self.gone().is_none() {
            self.mark.restore();
        }
        let kind = current.file.metadata().ok().and_then(|found| {
            let gone = !self.directory.holds(current.id, &found);
            let short = found.len() < current.size;
            match (gone, short) {
                (true, _) => Some(DamageKind::Missing),
                (false, true) => Some(DamageKind::Truncated),
                (false, false) => None,
            }
        })?;
        let mut state = self.state.lock();
        if state.current.id != current.id {
            return None;
        }
        let known = !state.damaged.insert(current.id);
        if let Err(error) = self.leave_current(&mut state) {
            tracing::debug!(%error, "the damaged journal segment stays in use for now");
        }
        (!known).then_some((current.id, kind))
    }

    /// Returns the oldest segment that may contain records from `from` on.
    pub(super) fn segment_from(&self, from: u64) -> Option<Arc<Segment>> {
        let state = self.state.lock();
        state
            .older
            .iter()
            .chain([&state.current])
            .find(|segment| segment.id >= from)
            .cloned()
    }

    /// Releases the segments before `id` for deletion or reuse; all their rows are in the database.
    pub(super) fn forget_before(&self, id: u64) {
        loop {
            let mut state = self.state.lock();
            let Some(segment) = state.older.pop_front_if(|segment| segment.id < id) else {
                return;
            };
            state.segment_went();
            state.failed.remove(&segment.id);
            state.ends.remove(&segment.id);
            let damaged = state.damaged.remove(&segment.id) || segment.damaged;
            let new_id = match damaged {
                true => None,
                false => self.wants_again(&mut state, &segment),
            };
            drop(state);
            let done = match new_id {
                Some(new_id) => self.reuse(&segment, new_id),
                None if damaged => self.directory.set_aside(segment.id).map(drop),
                None => self.directory.remove(segment.id),
            };
            if let Err(error) = done {
                tracing::warn!(segment = segment.id, %error, "cannot clear a imported journal segment");
            }
        }
    }

    /// Records that `count` more records are in the database.
    pub(super) fn imported(&self, count: u64) {
        self.imported.fetch_add(count, Ordering::Relaxed);
        self.woken.store(false, Ordering::Relaxed);
    }

    /// Returns whether it accepts records now.
    pub(super) fn is_writable(&self) -> bool {
        let failed = self.disk.as_ref().and_then(GroupSync::failure);
        failed.is_none() && self.refusing(&self.state.lock()).is_none()
    }

    /// Returns the state of the journal.
    pub(super) fn condition(&self) -> Condition {
        let state = self.state.lock();
        let refusing = match self.disk.as_ref().and_then(GroupSync::failure) {
            Some(source) => Some(AuditError::Sync {
                path: self.path().to_owned(),
                source,
            }),
            None => self.refusing(&state),
        };
        let appended = self.appended.load(Ordering::Relaxed);
        let waiting = appended.saturating_sub(self.imported.load(Ordering::Relaxed));
        Condition {
            refusing,
            bytes: state.bytes(),
            waiting,
        }
    }

    /// Returns how many syncs were done.
    #[cfg(test)]
    pub(super) fn syncs(&self) -> u64 {
        self.disk.as_ref().map_or(0, GroupSync::rounds)
    }

    /// Returns how many empty segments there are.
    #[cfg(test)]
    pub(super) fn spares(&self) -> usize {
        self.state.lock().spares.len()
    }
}

#[cfg(test)]
pub(super) mod tests;
