//! Whether the journal has space, and where the next record goes.
//!
//! Invariant: the free space in the allocated segments, without the waste at the end of each, is
//! never below the space reserved for outcomes of open calls.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;
use tokio::time::Instant;

use super::{Claim, Journal, Mark, Position};
use crate::audit::error::AuditError;
use crate::audit::mark::{MARK_AFTER, MARK_EVERY, SegmentsLeft};
use crate::audit::policy::Durability;
use crate::audit::segment::{self, ChainLink, Segment};

/// The pause after a failed allocation or write.
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// How many empty segments are kept.
const SPARES: usize = 2;

/// The state behind the lock.
#[derive(Debug)]
pub(super) struct SpaceState {
    pub(super) current: Arc<Segment>,
    pub(super) tail: u64,
    /// Where the space for records ends; before the segment's own end if space was released.
    pub(super) end: u64,
    /// The current segment's link to the one before it; the next one's if there is no current
    /// segment.
    pub(super) link: ChainLink,
    /// How many calls began in the segment in use.
    pub(super) calls: u64,
    /// How many bytes of each segment of this process could not be written.
    pub(super) failed: BTreeMap<u64, u64>,
    /// Where the records of this process's earlier segments end.
    pub(super) ends: BTreeMap<u64, u64>,
    /// Segments whose files are kept when they are imported.
    pub(super) damaged: BTreeSet<u64>,
    /// Records since the last mark, when that was written, and how many marks there were.
    pub(super) unmarked: u64,
    pub(super) marked_at: Option<Instant>,
    pub(super) marks: u64,
    /// A missing file or folder for recording calls.
    pub(super) gone: Option<Arc<Path>>,
    /// Allocated and empty segments, in order.
    pub(super) spares: VecDeque<Arc<Segment>>,
    /// Full segments, and those of an earlier process, in order; not all imported yet.
    pub(super) older: VecDeque<Arc<Segment>>,
    next_id: u64,
    /// The space reserved for outcomes of open calls.
    pub(super) promised: u64,
    /// The positions of records that are being written.
    pub(super) writing: Vec<Position>,
    /// Sealed records before `tail` that are not written yet; only with `relaxed`.
    pub(super) gathered: Vec<u8>,
    trouble: Option<Trouble>,
    /// Whether the background task was asked for a segment.
    wanted: bool,
    /// Whether the gateway stops, so that nothing is kept in reserve any more.
    pub(super) retired: bool,
}

/// The last error, until a success.
#[derive(Debug, Clone, Copy)]
struct Trouble {
    kind: TroubleKind,
    retry_at: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TroubleKind {
    /// No segment could be allocated: the error number.
    Space(i32),
    /// The journal has reached its limit.
    Bound,
    /// A record could not be written: the error number.
    Write(i32),
}

impl SpaceState {
    pub(super) fn new(current: Arc<Segment>, older: VecDeque<Arc<Segment>>) -> Self {
        Self {
            tail: segment::HEADER,
            end: current.end(),
            link: ChainLink::default(),
            calls: 0,
            failed: BTreeMap::new(),
            ends: BTreeMap::new(),
            damaged: BTreeSet::new(),
            unmarked: 0,
            marked_at: None,
            marks: 0,
            gone: None,
            spares: VecDeque::new(),
            older,
            // A placeholder segment only reserves its id.
            next_id: current.id + u64::from(!current.is_nowhere()),
            promised: 0,
            writing: Vec::new(),
            gathered: Vec::new(),
            trouble: None,
            wanted: false,
            retired: false,
            current,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        let others = self.older.iter().chain(&self.spares);
        self.current.size + others.map(|segment| segment.size).sum::<u64>()
    }

    pub(super) fn write_succeeded(&mut self) {
        if self
            .trouble
            .is_some_and(|trouble| matches!(trouble.kind, TroubleKind::Write(_)))
        {
            self.trouble = None;
        }
    }

    /// Records that a segment was removed, so that there is room below the limit.
    pub(super) fn segment_went(&mut self) {
        if self
            .trouble
            .is_some_and(|trouble| trouble.kind == TroubleKind::Bound)
        {
            self.trouble = None;
        }
    }

    /// Returns whether the last operation failed.
    pub(super) fn is_troubled(&self) -> bool {
        self.trouble.is_some()
    }

    pub(super) fn left(&self) -> u64 {
        self.end - self.tail
    }

    /// Returns the position after the last record.
    pub(super) fn tail(&self) -> Position {
        Position {
            segment: self.current.id,
            offset: self.tail - self.gathered.len() as u64,
        }
    }

    /// Returns the position before which everything is written.
    pub(super) fn stable(&self) -> Position {
        let end = self.tail();
        let first = self.writing.iter().copied().min();
        first.map_or(end, |first| first.min(end))
    }

    /// Returns the link of a segment after the current one.
    fn next_link(&self) -> ChainLink {
        if self.current.is_nowhere() {
            return self.link;
        }
        let id = self.current.id;
        let unwritten = self.writing.iter().filter(|place| place.segment == id);
        let end = unwritten.map(|place| place.offset).min();
        ChainLink {
            previous: id,
            previous_end: end.unwrap_or(self.tail),
            previous_calls: self.calls,
            previous_failed: self.failed.get(&id).copied().unwrap_or(0),
            calls_before: self.link.calls_before + self.calls,
        }
    }

    /// Returns the current mark, and its number.
    pub(super) fn next_mark(&mut self, journal: u32) -> (u64, Mark) {
        self.unmarked = 0;
        self.marked_at = Some(Instant::now());
        self.marks += 1;
        let mark = Mark {
            journal,
            stable: self.stable(),
            current: self.current.id,
            calls: self.calls,
            calls_before: self.link.calls_before,
            failed: self.failed.get(&self.current.id).copied().unwrap_or(0),
            left: SegmentsLeft::InUse,
        };
        (self.marks, mark)
    }

    /// Tells whether a record has to write the mark: many were written without, or it may be the last
    /// one for a while.
    pub(super) fn mark_is_due(&self) -> bool {
        let is_old = |at: Instant| at.elapsed() >= MARK_AFTER;
        self.unmarked >= MARK_EVERY || self.promised == 0 || self.marked_at.is_none_or(is_old)
    }

    pub(super) fn gone_error(&self) -> Option<AuditError> {
        self.gone.as_ref().map(|path| AuditError::Gone {
            path: path.to_path_buf(),
        })
    }
}

impl Journal {
    /// Assigns the position of a record of `length` bytes.
    pub(super) fn place(
        &self,
        state: &mut SpaceState,
        length: u64,
        claim: Claim,
    ) -> Result<Position, AuditError> {
        match claim {
            Claim::Intent => self.admit(state, length, self.promise)?,
            Claim::Whole => self.admit(state, length, 0)?,
            Claim::Outcome => state.promised -= self.promise,
        }
        if length > state.left() {
            self.rotate(state)?;
        }
        let place = Position {
            segment: state.current.id,
            offset: state.tail,
        };
        state.tail += length;
        state.calls += u64::from(claim != Claim::Outcome);
        if claim == Claim::Intent {
            state.promised += self.promise;
        }
        if state.spares.is_empty() && !state.wanted && state.left() < state.current.size / 2 {
            state.wanted = true;
            self.wake.notify_one();
        }
        Ok(place)
    }

    /// Starts using the first segment.
    pub(super) fn begin(&self) -> Result<(), AuditError> {
        let mut state = self.state.lock();
        self.allocate(&mut state)?;
        self.rotate(&mut state)
    }

    /// Makes sure that a record fits and that all reservations can be kept.
    fn admit(&self, state: &mut SpaceState, length: u64, promise: u64) -> Result<(), AuditError> {
        if let Some(error) = state.gone_error() {
            return Err(error);
        }
        if let Some(Trouble {
            kind: TroubleKind::Write(number),
            retry_at,
        }) = state.trouble
            && Instant::now() < retry_at
        {
            let source = io::Error::from_raw_os_error(number);
            return Err(refusal_of(self.path(), source));
        }
        while !self.fits(state, length, promise) {
            self.allocate(state)?;
        }
        Ok(())
    }

    fn fits(&self, state: &SpaceState, length: u64, promise: u64) -> bool {
        let whole = |segment: &Arc<Segment>| segment.end() - segment::HEADER;
        let mut spares = state.spares.iter();
        let free = if length <= state.left() {
            state.left() - length
        } else {
            match spares.next().map(whole) {
                Some(whole) if length <= whole => whole - length,
                _ => return false,
            }
        };
        let spares: u64 = spares.map(|spare| self.usable(whole(spare))).sum();
        state.promised + promise <= self.usable(free) + spares
    }

    /// Returns the usable part of a segment's free space: it is left when the next record does not
    /// fit, so at most the largest record is wasted.
    pub(super) fn usable(&self, free: u64) -> u64 {
        free.saturating_sub(self.largest)
    }

    /// Allocates a segment immediately, but not repeatedly after a failure.
    fn allocate(&self, state: &mut SpaceState) -> Result<(), AuditError> {
        if let Some(trouble) = state.trouble
            && Instant::now() < trouble.retry_at
        {
            return Err(self.error_of(trouble.kind));
        }
        let id = self.claim_id(state)?;
        match self.create(id) {
            Ok(segment) => {
                state.trouble = None;
                state.spares.push_back(Arc::new(segment));
                Ok(())
            }
            Err(error) => Err(self.allocation_failed(state, &error)),
        }
    }

    /// Returns whether `provide` has something to do.
    pub(in crate::audit) fn wants_segment(&self) -> bool {
        let state = self.state.lock();
        state.wanted || self.starved(&state) || self.lacks_reserve(&state)
    }

    /// Allocates the next segment in advance, and retries after a lack of space.
    ///
    /// Blocks; called by the background task on a blocking thread.
    pub(in crate::audit) fn provide(&self) -> Result<(), AuditError> {
        let id = {
            let mut state = self.state.lock();
            let ahead = state.wanted && self.is_ample() || self.lacks_reserve(&state);
            if !ahead && !self.starved(&state) {
                return Ok(());
            }
            self.claim_id(&mut state)?
        };
        let created = self.create(id);
        let mut state = self.state.lock();
        let segment = match created {
            Ok(segment) => segment,
            Err(error) => return Err(self.allocation_failed(&mut state, &error)),
        };
        self.offer(state, segment)
            .map_err(|source| AuditError::Write {
                path: self.path().to_owned(),
                source,
            })
    }

    /// Releases all space if everything is imported, so that the next start has nothing to read;
    /// returns the segment of a later record, or `None` if calls are open. A later record allocates
    /// new space.
    pub(in crate::audit) fn retire(&self, imported: Position) -> io::Result<Option<u64>> {
        let mut state = self.state.lock();
        let end = Position {
            segment: state.current.id,
            offset: state.tail,
        };
        let busy = state.promised > 0 || !state.writing.is_empty() || !state.gathered.is_empty();
        if busy || end != imported || state.current.is_nowhere() {
            return Ok(None);
        }
        let nowhere = Arc::new(Segment::nowhere(state.next_id)?);
        let id = nowhere.id;
        // Before any file is removed: without it, the missing files would look like damage.
        let (number, mark) = state.next_mark(self.identity);
        let left = SegmentsLeft::None;
        self.mark.write(number, &Mark { left, ..mark });
        state.link = state.next_link();
        state.calls = 0;
        let last = std::mem::replace(&mut state.current, nowhere);
        let tail = state.tail;
        state.ends.insert(last.id, tail);
        state.older.push_back(last);
        state.tail = segment::HEADER;
        state.end = state.current.end();
        state.retired = true;
        for spare in std::mem::take(&mut state.spares) {
            self.directory.remove(spare.id)?;
        }
        Ok(Some(id))
    }

    /// Returns the new id of an imported segment if it is to be reused.
    pub(super) fn wants_again(&self, state: &mut SpaceState, segment: &Segment) -> Option<u64> {
        let wanted = !state.retired
            && segment.size == self.segment_bytes
            && (state.spares.len() < SPARES && self.is_ample() || self.lacks_reserve(state));
        wanted.then(|| {
            let id = state.next_id;
            state.next_id += 1;
            id
        })
    }

    /// Turns an imported segment into an empty one.
    pub(super) fn reuse(&self, imported: &Segment, id: u64) -> io::Result<()> {
        let segment = imported.recycle(&self.directory, self.identity, id)?;
        if self.durability == Durability::Disk {
            segment.settle(&self.directory)?;
        }
        self.offer(self.state.lock(), segment)
    }

    /// Adds a segment to the empty ones, unless it is out of order.
    fn offer(&self, mut state: MutexGuard<'_, SpaceState>, segment: Segment) -> io::Result<()> {
        if !matches!(
            state.trouble,
            Some(Trouble {
                kind: TroubleKind::Write(_),
                ..
            })
        ) {
            state.trouble = None;
        }
        state.wanted = false;
        let newest = state
            .spares
            .back()
            .map_or(state.current.id, |spare| spare.id);
        if newest < segment.id {
            state.spares.push_back(Arc::new(segment));
            return Ok(());
        }
        // A call could not wait and has allocated its own segment: the order of ids takes
        // precedence.
        drop(state);
        self.directory.remove(segment.id)
    }

    /// Returns why the next call would be refused, if it would.
    pub(super) fn refusing(&self, state: &SpaceState) -> Option<AuditError> {
        if let Some(error) = state.gone_error() {
            return Some(error);
        }
        let kind = state.trouble?.kind;
        let writing = matches!(kind, TroubleKind::Write(_));
        (writing || self.starved(state)).then(|| self.error_of(kind))
    }

    /// Returns whether the next call might not fit although a segment was requested.
    fn starved(&self, state: &SpaceState) -> bool {
        let asked = |trouble: Trouble| !matches!(trouble.kind, TroubleKind::Write(_));
        state.trouble.is_some_and(asked)
            && !self.fits(state, self.largest - self.promise, self.promise)
    }

    pub(super) fn write_failed(&self, state: &mut SpaceState, source: io::Error) -> AuditError {
        let kind = TroubleKind::Write(source.raw_os_error().unwrap_or(-1));
        state.trouble = Some(Trouble {
            kind,
            retry_at: Instant::now() + RETRY_AFTER,
        });
        refusal_of(self.path(), source)
    }

    pub(super) fn rotate(&self, state: &mut SpaceState) -> Result<(), AuditError> {
        self.write_gathered(state)?;
        if state.spares.is_empty() {
            self.allocate(state)?;
        }
        let link = state.next_link();
        let next = Arc::clone(state.spares.front().expect("allocated just above"));
        if let Err(source) = next.link(link) {
            return Err(self.write_failed(state, source));
        }
        state.spares.pop_front();
        let full = std::mem::replace(&mut state.current, next);
        if !full.is_nowhere() {
            state.ends.insert(full.id, state.tail);
            state.older.push_back(full);
        }
        state.link = link;
        state.calls = 0;
        state.tail = segment::HEADER;
        state.end = state.current.end();
        state.wanted = false;
        // Under the lock: no record is in a segment that the mark does not know.
        let (number, mark) = state.next_mark(self.identity);
        self.mark.write(number, &mark);
        Ok(())
    }

    /// Continues in another segment before the current one is full.
    pub(super) fn leave_current(&self, state: &mut SpaceState) -> Result<(), AuditError> {
        if state.spares.is_empty() {
            self.allocate(state)?;
        }
        let room = state.spares.iter();
        let room: u64 = room
            .map(|spare| self.usable(spare.end() - segment::HEADER))
            .sum();
        // Open calls keep their reserved space in this segment.
        if state.promised <= room {
            self.rotate(state)?;
        }
        Ok(())
    }

    fn claim_id(&self, state: &mut SpaceState) -> Result<u64, AuditError> {
        if state.bytes() + self.segment_bytes > self.journal_bytes {
            let retry_at = Instant::now() + RETRY_AFTER;
            state.trouble = Some(Trouble {
                kind: TroubleKind::Bound,
                retry_at,
            });
            return Err(self.error_of(TroubleKind::Bound));
        }
        let id = state.next_id;
        state.next_id += 1;
        Ok(id)
    }

    fn create(&self, id: u64) -> io::Result<Segment> {
        let size = self.next_size()?;
        let segment = Segment::create(&self.directory, self.identity, id, size)?;
        if self.durability == Durability::Disk {
            segment.settle(&self.directory)?;
        }
        Ok(segment)
    }

    fn allocation_failed(&self, state: &mut SpaceState, error: &io::Error) -> AuditError {
        let kind = TroubleKind::Space(error.raw_os_error().unwrap_or(-1));
        state.trouble = Some(Trouble {
            kind,
            retry_at: Instant::now() + RETRY_AFTER,
        });
        self.error_of(kind)
    }

    fn error_of(&self, kind: TroubleKind) -> AuditError {
        match kind {
            TroubleKind::Space(number) | TroubleKind::Write(number) => {
                refusal_of(self.path(), io::Error::from_raw_os_error(number))
            }
            TroubleKind::Bound => AuditError::Behind {
                path: self.path().to_owned(),
                limit_bytes: self.journal_bytes,
            },
        }
    }
}

/// Distinguishes a full disk from one that is broken or read-only.
pub(super) fn refusal_of(path: &Path, source: io::Error) -> AuditError {
    let path = path.to_owned();
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    if full.contains(&source.kind()) {
        AuditError::Full { path, source }
    } else {
        AuditError::Write { path, source }
    }
}
