//! Imports the journal into the database: joins each intent with its outcome and writes the rows.
//!
//! The stored position never passes an intent whose call is open, unless that call has a `running`
//! row; so after a crash the rest of the journal completes the database. Rows are keyed by call id,
//! so importing twice changes nothing. A segment is deleted only after its rows are stored. Records
//! that should exist and do not are reported as damage. Entry point: `JournalImporter::import`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gantry_model::id::CallId;
use gantry_store::{CallRow, CallStatus, DamageKind, JournalPosition, JournalRun, Place, Store};
use parking_lot::Mutex;

mod join;

use super::chain::{Finding, SegmentCalls, WholeUpTo};
use super::codes::RowCode;
use super::damage::DamageLog;
use super::error::AuditError;
use super::evidence::{Batch, ChainWriter};
use super::journal::{Journal, Position};
use super::policy::Durability;
use super::scan::{Chunk, scan};
use crate::clock::unix_ms;
use join::{IntentLocation, Joined};

/// Calls that are settled at once.
const SETTLED_AT_ONCE: u32 = 500;

/// Which calls get a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowPolicy {
    /// Ended calls.
    Ended,
    /// Open calls as well.
    Open,
}

/// Calls whose outcome could not be written; their rows will say so.
pub(super) type LostOutcomes = Arc<Mutex<Vec<CallId>>>;

/// The state of the import from the journal to the database.
#[derive(Debug)]
pub(super) struct JournalImporter {
    journal: Arc<Journal>,
    keeper: RowWriter,
    /// Everything before this position was read.
    at: Position,
    /// Where this process's own records begin, while there are earlier ones before them.
    former_until: Option<Position>,
    own: u64,
    open: HashMap<CallId, OpenCall>,
    lost: LostOutcomes,
    damage: DamageLog,
    /// Up to where the segments of the earlier process must be intact, and how many calls they
    /// contained.
    former: BTreeMap<u64, (WholeUpTo, SegmentCalls)>,
    /// Written bytes that are no longer valid records, by segment and offset.
    holes: BTreeMap<(u64, u64), u64>,
    /// The start of this process's run, until the database knows it.
    run: Option<JournalRun>,
}

/// The initial state of the import.
#[derive(Debug)]
pub(super) struct PriorState {
    /// How far the journal is imported.
    pub(super) position: Position,
    /// The first segment of this process.
    pub(super) own: u64,
    /// Up to where the earlier segments must be intact, and how many calls they contained.
    pub(super) segments: BTreeMap<u64, (WholeUpTo, SegmentCalls)>,
}

/// Writes rows to the database.
#[derive(Debug)]
struct RowWriter {
    store: Store,
    chain: Arc<tokio::sync::Mutex<ChainWriter>>,
    journal: Arc<Journal>,
    durability: Durability,
    /// The position that the database has.
    saved: Position,
    /// Everything before this segment is imported for good.
    kept_from: u64,
    on_saved: OnSaved,
}

/// The hook for stored rows.
pub(super) enum OnSaved {
    /// There is none yet: rows are kept for it, up to a bound.
    Nobody(Vec<CallRow>),
    /// The hook that is called.
    Hook(Box<SavedHook>),
}

/// How many rows are kept for a hook that is still to come: those of calls that a former gateway left.
const MOST_EARLY: usize = 4096;

impl OnSaved {
    fn tell(&mut self, rows: &[CallRow<&str>]) {
        match self {
            Self::Hook(hook) if !rows.is_empty() => hook(rows),
            Self::Hook(_) => {}
            Self::Nobody(early) => {
                let room = MOST_EARLY - early.len();
                early.extend(rows.iter().take(room).map(CallRow::owned));
            }
        }
    }
}

/// Called with rows that were stored in the database.
pub(crate) type SavedHook = dyn Fn(&[CallRow<&str>]) + Send + Sync;

impl std::fmt::Debug for OnSaved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_hooked = matches!(self, Self::Hook(_));
        f.debug_tuple("OnSaved").field(&is_hooked).finish()
    }
}

#[derive(Debug)]
struct OpenCall {
    row: CallRow,
    at: Position,
    /// The database has a `running` row of it.
    stored: bool,
    /// Where the chain has that row.
    place: Option<Place>,
}

impl JournalImporter {
    /// Creates an importer that continues where the earlier process stopped.
    pub(super) fn new(
        (store, chain): (Store, Arc<tokio::sync::Mutex<ChainWriter>>),
        journal: Arc<Journal>,
        durability: Durability,
        former: PriorState,
        lost: LostOutcomes,
        damage: DamageLog,
    ) -> Self {
        let PriorState { position, own, .. } = former;
        let run = JournalRun {
            segment: own,
            calls: journal.calls(),
        };
        let keeper = RowWriter {
            store,
            chain,
            journal: Arc::clone(&journal),
            durability,
            saved: position,
            kept_from: position.segment,
            on_saved: OnSaved::Nobody(Vec::new()),
        };
        Self {
            journal,
            keeper,
            at: position,
            former_until: Some(Position::start_of(own)),
            own,
            open: HashMap::new(),
            lost,
            damage,
            former: former.segments,
            holes: BTreeMap::new(),
            run: Some(run),
        }
    }

    /// Has every row that is stored from now on told to `hook`; returns those that were stored before.
    pub(super) fn on_saved(&mut self, hook: Box<SavedHook>) -> Vec<CallRow> {
        match std::mem::replace(&mut self.keeper.on_saved, OnSaved::Hook(hook)) {
            OnSaved::Nobody(early) => early,
            OnSaved::Hook(_) => Vec::new(),
        }
    }

    /// Imports everything written so far.
    ///
    /// Cancel safe: nothing is lost or done twice.
    pub(super) async fn import(&mut self, show: RowPolicy) -> Result<(), AuditError> {
        if let Some(error) = self.journal.gone() {
            return Err(error);
        }
        if let Some(until) = self.former_until {
            self.import_former(until).await?;
        }
        self.begin_run().await?;
        let lost = self.lost.lock().clone();
        self.journal.flush()?;
        let bound = self.journal.stable();
        self.read_until(bound).await?;
        self.settle_lost(&lost).await?;
        let settled = self.damage.settle(&self.keeper.store).await;
        settled.map_err(AuditError::Store)?;
        if show == RowPolicy::Open {
            self.store_open(|_| true).await?;
        }
        self.keeper.forget().await
    }

    /// Leaves an empty journal if everything is imported and no call is open.
    pub(super) async fn retire(&mut self) -> Result<(), AuditError> {
        if !self.open.is_empty() {
            return Ok(());
        }
        let retired = self.journal.retire(self.at);
        let retired = retired.map_err(|source| AuditError::Write {
            path: self.journal.path().to_owned(),
            source,
        })?;
        if let Some(next) = retired {
            self.at = Position::start_of(next);
            self.keeper.close(self.at).await?;
        }
        Ok(())
    }

    /// Records in the database that this journal is in use, so that its loss would be noticed.
    async fn begin_run(&mut self) -> Result<(), AuditError> {
        // Without a mark, a missing one would later count as damage.
        let Some(run) = self.run.filter(|_| self.journal.mark_now()) else {
            return Ok(());
        };
        let (identity, position) = (self.journal.identity(), self.keeper.saved.stored());
        let begun = self.keeper.store.begin_journal_run(identity, run, position);
        begun.await.map_err(AuditError::Store)?;
        self.run = None;
        Ok(())
    }

    /// Imports the records of an earlier process and ends its open calls.
    async fn import_former(&mut self, until: Position) -> Result<(), AuditError> {
        self.read_until(until).await?;
        let now = unix_ms();
        if !self.open.is_empty() {
            let calls = self.open.len();
            tracing::warn!(calls, "calls were cut off when the last gateway ended");
        }
        let rows: Vec<_> = self
            .open
            .values()
            .map(|call| cut_off(&call.row, RowCode::Died, now))
            .collect();
        self.keeper.save(Batch::repeated(&rows), self.at).await?;
        self.open.clear();
        self.settle_running(now).await?;
        self.former_until = None;
        Ok(())
    }

    /// Ends the calls that former starts of this gateway left running, and whose records are imported.
    async fn settle_running(&mut self, now_ms: u64) -> Result<(), AuditError> {
        loop {
            let left = self.keeper.store.left_running(SETTLED_AT_ONCE).await;
            let left = left.map_err(AuditError::Store)?;
            let rows: Vec<_> = left
                .iter()
                .map(|call| cut_off(&call.row, RowCode::Died, now_ms))
                .collect();
            if rows.is_empty() {
                return Ok(());
            }
            self.keeper.save(Batch::repeated(&rows), self.at).await?;
        }
    }

    async fn read_until(&mut self, bound: Position) -> Result<(), AuditError> {
        while self.at < bound {
            let chunk = self.read(bound).await?;
            self.note_gaps(&chunk, bound);
            let joined = Joined::of(&chunk, &self.open);
            let orphans = self.look_up_orphans(&joined).await?;
            self.take(&chunk, joined, &orphans).await?;
        }
        Ok(())
    }

    async fn read(&self, bound: Position) -> Result<Chunk, AuditError> {
        let (journal, from) = (Arc::clone(&self.journal), self.at);
        let reading = tokio::task::spawn_blocking(move || scan(&journal, from, bound));
        let read = reading
            .await
            .map_err(std::io::Error::other)
            .and_then(|read| read);
        let chunk = read.map_err(|source| AuditError::Read {
            path: self.journal.path().to_owned(),
            source,
        })?;
        if chunk.damaged_bytes > 0 {
            let (segment, bytes) = (self.at.segment, chunk.damaged_bytes);
            tracing::warn!(segment, bytes, "stepped over damage in the audit journal");
        }
        Ok(chunk)
    }

    /// Records gaps where valid records were written; before the chunk's segment is cleared.
    fn note_gaps(&mut self, chunk: &Chunk, bound: Position) {
        let segment = chunk.segment();
        let limit = match self.former.get(&segment) {
            Some((limit, _)) => *limit,
            None if segment < self.own => WholeUpTo::default(),
            None if segment == bound.segment => WholeUpTo {
                end: bound.offset,
                failed: self.journal.failed_bytes(segment),
            },
            None => WholeUpTo {
                end: self.journal.end_of(segment).unwrap_or(0),
                failed: self.journal.failed_bytes(segment),
            },
        };
        for &(from, to) in &chunk.gaps {
            let lost = to.min(limit.end).saturating_sub(from);
            if lost > 0 {
                self.holes.insert((segment, from), lost);
            }
        }
        let holes = self.holes.range((segment, 0)..(segment + 1, 0));
        if holes.map(|(_, lost)| lost).sum::<u64>() <= limit.failed {
            return;
        }
        let held = self.former.get(&segment).map(|(_, held)| *held);
        let held = held.unwrap_or_else(|| SegmentCalls {
            first: segment,
            last: segment,
            calls: self.journal.calls_in(segment),
        });
        let file = Some(self.journal.keep_damaged(segment));
        self.damage.add(Finding {
            kind: DamageKind::Overwritten,
            segment,
            file,
            held,
        });
    }

    /// Fetches the rows of calls that end in the chunk but whose intents were imported earlier.
    async fn look_up_orphans(
        &self,
        joined: &Joined,
    ) -> Result<HashMap<CallId, CallRow>, AuditError> {
        let mut found = HashMap::new();
        for id in joined.orphans() {
            let row = self
                .keeper
                .store
                .call(id)
                .await
                .map_err(AuditError::Store)?;
            found.extend(row.map(|row| (id, row)));
        }
        Ok(found)
    }

    /// Stores the rows of a chunk's calls that have ended, and remembers those that are open.
    async fn take(
        &mut self,
        chunk: &Chunk,
        joined: Joined,
        orphans: &HashMap<CallId, CallRow>,
    ) -> Result<(), AuditError> {
        let mut rows = Vec::with_capacity(joined.ended.len() + joined.whole.len());
        let mut replaced = Vec::new();
        let mut may_repeat = self.former_until.is_some();
        rows.extend(joined.whole.iter().filter_map(|mark| chunk.whole(*mark)));
        for (begun, outcome) in &joined.ended {
            let row = match begun {
                IntentLocation::Here(intent) => chunk.intent(*intent),
                IntentLocation::Open => {
                    let call = self.open.get(&outcome.id);
                    replaced.extend(call.and_then(|call| call.place));
                    call.map(|call| call.row.borrowed())
                }
                IntentLocation::Before => {
                    may_repeat = true;
                    let at = chunk.position(*outcome);
                    orphan(orphans.get(&outcome.id), outcome.id, at)
                }
            };
            rows.extend(row.and_then(|row| chunk.ended(*outcome, row)));
        }
        // Nothing of the chunk counts as read before its rows are stored.
        let unstored =
            |(id, call): &(&CallId, &OpenCall)| !call.stored && !joined.closed.contains(id);
        let held = self.open.iter().filter(unstored).map(|(_, call)| call.at);
        let begun = joined.begun.values().map(|mark| chunk.position(*mark));
        let first = held.chain(begun).min().unwrap_or(chunk.next);
        let batch = Batch {
            rows: &rows,
            replaced,
            may_repeat,
        };
        self.keeper.save(batch, first.min(chunk.next)).await?;
        drop(rows);
        for id in &joined.closed {
            self.open.remove(id);
        }
        for (id, mark) in &joined.begun {
            if let Some(row) = chunk.intent(*mark) {
                let call = OpenCall {
                    row: row.owned(),
                    at: chunk.position(*mark),
                    stored: false,
                    place: None,
                };
                self.open.insert(*id, call);
            }
        }
        self.at = chunk.next;
        self.holes = self.holes.split_off(&(self.at.segment, 0));
        let own = if chunk.segment() >= self.own {
            chunk.marks.len() as u64
        } else {
            0
        };
        self.journal.imported(own);
        self.keeper.forget().await?;
        // An open call must not keep a segment: a `running` row replaces its intent.
        let current = self.at.segment;
        self.store_open(|call| call.at.segment < current).await
    }

    /// Stores a `running` row of the selected open calls that have none yet.
    async fn store_open(&mut self, wanted: impl Fn(&OpenCall) -> bool) -> Result<(), AuditError> {
        let is_wanted = |call: &&OpenCall| !call.stored && wanted(call);
        let (now, later): (Vec<_>, Vec<_>) = self
            .open
            .values()
            .filter(|call| !call.stored)
            .partition(is_wanted);
        if now.is_empty() {
            return Ok(());
        }
        let rows: Vec<_> = now.iter().map(|call| call.row.borrowed()).collect();
        let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
        let position = later.iter().map(|call| call.at).min().unwrap_or(self.at);
        let batch = Batch {
            rows: &rows,
            replaced: Vec::new(),
            may_repeat: self.former_until.is_some(),
        };
        let places = self.keeper.save(batch, position).await?;
        for (id, place) in ids.iter().zip(places) {
            if let Some(call) = self.open.get_mut(id) {
                (call.stored, call.place) = (true, place);
            }
        }
        Ok(())
    }

    /// Ends the calls whose outcome could not be written.
    async fn settle_lost(&mut self, lost: &[CallId]) -> Result<(), AuditError> {
        if lost.is_empty() {
            return Ok(());
        }
        let now = unix_ms();
        let calls = lost.iter().filter_map(|id| self.open.get(id));
        let rows: Vec<_> = calls
            .map(|call| cut_off(&call.row, RowCode::Lost, now))
            .collect();
        let unstored = |(id, call): &(&CallId, &OpenCall)| !call.stored && !lost.contains(id);
        let held = self.open.iter().filter(unstored).map(|(_, call)| call.at);
        let position = held.min().unwrap_or(self.at);
        let places = lost.iter().filter_map(|id| self.open.get(id)?.place);
        let batch = Batch {
            replaced: places.collect(),
            rows: &rows,
            may_repeat: false,
        };
        self.keeper.save(batch, position).await?;
        self.open.retain(|id, _| !lost.contains(id));
        let mut all = self.lost.lock();
        all.retain(|id| !lost.contains(id));
        Ok(())
    }
}

impl RowWriter {
    /// Stores rows, and the position up to which the database is complete.
    ///
    /// Returns where the chain has each row.
    async fn save(
        &mut self,
        batch: Batch<'_, '_>,
        position: Position,
    ) -> Result<Vec<Option<Place>>, AuditError> {
        let rows = batch.rows;
        // Without rows, only the change of a segment is worth a transaction.
        if rows.is_empty() && position.segment == self.saved.segment {
            return Ok(Vec::new());
        }
        let mut chain = self.chain.lock().await;
        let places = chain.import(batch, position.stored()).await;
        drop(chain);
        let places = places.map_err(AuditError::Store)?;
        self.on_saved.tell(rows);
        // Nothing is awaited from here on until the caller knows: a row must not be stored as new twice.
        self.saved = position;
        Ok(places)
    }

    /// Clears the segments whose rows are stored.
    async fn forget(&mut self) -> Result<(), AuditError> {
        let segment = self.saved.segment;
        if self.durability == Durability::Disk && segment != self.kept_from {
            self.store.sync().await.map_err(AuditError::Store)?;
        }
        self.kept_from = segment;
        self.journal.forget_before(segment);
        Ok(())
    }

    /// Stores that everything before the position is imported and that nothing follows.
    async fn close(&mut self, position: Position) -> Result<(), AuditError> {
        let ended = self.store.end_journal_run(position.stored()).await;
        ended.map_err(AuditError::Store)?;
        self.saved = position;
        self.forget().await
    }
}

impl Position {
    const fn stored(self) -> JournalPosition {
        JournalPosition {
            segment: self.segment,
            offset: self.offset,
        }
    }
}

/// Returns the row of an open call that will never end by itself.
fn cut_off(row: &CallRow, code: RowCode, now_ms: u64) -> CallRow<&str> {
    CallRow {
        status: CallStatus::Unknown,
        code: Some(code.code()),
        ended_ms: Some(now_ms),
        ..row.borrowed()
    }
}

/// Returns the row that an outcome without an intent completes, unless it is already complete.
fn orphan(known: Option<&CallRow>, id: CallId, at: Position) -> Option<CallRow<&str>> {
    match known {
        Some(row) => {
            let is_open = matches!(row.status, CallStatus::Running | CallStatus::Unknown);
            is_open.then(|| row.borrowed())
        }
        None => {
            // The intent was damaged. An incomplete row is better than none.
            tracing::warn!(call = %id, "the start of a call is missing in the audit journal");
            Some(CallRow {
                seq: at.sequence(),
                ..CallRow::of_id(id)
            })
        }
    }
}
