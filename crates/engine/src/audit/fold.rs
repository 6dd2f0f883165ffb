//! Folds the journal into the database: joins each intent with its outcome and writes the rows.
//!
//! The position that is stored with the rows never passes an intent whose call is open, unless
//! that call has a `running` row; so whatever happens, what the journal still holds completes what
//! the database has. Rows are keyed by call id, hence folding twice changes nothing. Never deletes
//! a segment before its rows are safe. Entry point `Folder::fold`.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use gantry_model::id::CallId;
use gantry_store::{CallRow, CallStatus, FoldPosition, Store};

use super::error::AuditError;
use super::journal::{Journal, Position};
use super::policy::Durability;
use super::record::{Ending, Entry};
use super::scan::{Chunk, scan};
use crate::clock::unix_ms;

/// The code of a call whose gateway ended before it did.
pub(super) const DIED: &str = "gateway.died";
/// The code of a call whose outcome could not be written.
pub(super) const LOST: &str = "audit.lost";

/// Which calls get a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Show {
    /// Those that ended.
    Ended,
    /// Those that are open as well.
    Open,
}

/// Calls whose outcome could not be written; their rows will say so.
pub(super) type Lost = Arc<Mutex<Vec<CallId>>>;

/// What stands between the journal and the database.
#[derive(Debug)]
pub(super) struct Folder {
    store: Store,
    journal: Arc<Journal>,
    durability: Durability,
    /// Everything before this was read.
    at: Position,
    /// The position that the database has.
    saved: Position,
    /// Where this process's own records begin, while there are some of a former one before it.
    former_until: Option<Position>,
    own: u64,
    open: HashMap<CallId, OpenCall>,
    lost: Lost,
    /// Read and joined, but not in the database yet.
    batch: Option<Batch>,
}

#[derive(Debug)]
struct OpenCall {
    row: CallRow,
    at: Position,
    /// The database has a `running` row of it.
    stored: bool,
}

#[derive(Debug)]
struct Batch {
    rows: Vec<CallRow>,
    position: Position,
    /// How many records of this process are in it.
    records: u64,
}

impl Folder {
    /// Makes a folder that goes on at `position`; `own` is the first segment of this process.
    pub(super) fn new(
        store: Store,
        journal: Arc<Journal>,
        durability: Durability,
        position: Position,
        own: u64,
        lost: Lost,
    ) -> Self {
        Self {
            store,
            journal,
            durability,
            at: position,
            saved: position,
            former_until: Some(Position::start_of(own)),
            own,
            open: HashMap::new(),
            lost,
            batch: None,
        }
    }

    /// Folds everything that is written by now.
    ///
    /// May be dropped while it waits: nothing is lost or done twice.
    pub(super) async fn fold(&mut self, show: Show) -> Result<(), AuditError> {
        self.save().await?;
        if let Some(until) = self.former_until {
            self.fold_former(until).await?;
        }
        let lost = self
            .lost
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        self.journal.flush()?;
        let bound = self.journal.stable();
        self.read_until(bound).await?;
        self.settle_lost(&lost);
        if show == Show::Open {
            let rows = self
                .open
                .values_mut()
                .filter(|call| !call.stored)
                .map(OpenCall::store);
            let rows = rows.collect();
            self.gather(rows, 0);
        }
        self.save().await
    }

    /// Folds what a former gateway left and ends its open calls.
    async fn fold_former(&mut self, until: Position) -> Result<(), AuditError> {
        self.read_until(until).await?;
        let now = unix_ms();
        let ended = |(_, mut call): (CallId, OpenCall)| {
            call.row.status = CallStatus::Unknown;
            call.row.code = Some(DIED.to_owned());
            call.row.ended_ms = Some(now);
            call.row
        };
        let rows: Vec<CallRow> = self.open.drain().map(ended).collect();
        if !rows.is_empty() {
            tracing::warn!(
                calls = rows.len(),
                "calls were cut off when the last gateway ended"
            );
        }
        self.gather(rows, 0);
        self.save().await?;
        self.store
            .settle_running(CallStatus::Unknown, now)
            .await
            .map_err(AuditError::Store)?;
        self.former_until = None;
        Ok(())
    }

    async fn read_until(&mut self, bound: Position) -> Result<(), AuditError> {
        while self.at < bound {
            let chunk = self.read(bound).await?;
            let found = self.look_up_orphans(&chunk).await?;
            self.take(chunk, found);
            self.save().await?;
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

    /// Fetches the rows of calls that end in the chunk but whose intents were folded long ago.
    async fn look_up_orphans(
        &self,
        chunk: &Chunk,
    ) -> Result<HashMap<CallId, Option<CallRow>>, AuditError> {
        let mut begun = HashSet::new();
        let mut found = HashMap::new();
        for (_, entry) in &chunk.entries {
            match entry {
                Entry::Intent(row) => {
                    begun.insert(row.id);
                }
                Entry::Outcome(ending)
                    if !begun.contains(&ending.id) && !self.open.contains_key(&ending.id) =>
                {
                    let row = self
                        .store
                        .call(ending.id)
                        .await
                        .map_err(AuditError::Store)?;
                    found.insert(ending.id, row);
                }
                Entry::Outcome(_) | Entry::Whole(_) => {}
            }
        }
        Ok(found)
    }

    /// Joins a chunk's records into rows.
    fn take(&mut self, chunk: Chunk, mut orphans: HashMap<CallId, Option<CallRow>>) {
        let mut rows = Vec::with_capacity(chunk.entries.len() / 2);
        let mut records = 0;
        for (at, entry) in chunk.entries {
            records += u64::from(at.segment >= self.own);
            match entry {
                Entry::Intent(mut row) => {
                    row.seq = at.sequence();
                    self.open.insert(
                        row.id,
                        OpenCall {
                            row: *row,
                            at,
                            stored: false,
                        },
                    );
                }
                Entry::Whole(mut row) => {
                    row.seq = at.sequence();
                    rows.push(*row);
                }
                Entry::Outcome(ending) => {
                    let row = match self.open.remove(&ending.id) {
                        Some(call) => Some(call.row),
                        None => orphan(orphans.remove(&ending.id).flatten(), &ending, at),
                    };
                    rows.extend(row.map(|mut row| {
                        ending.complete(&mut row);
                        row
                    }));
                }
            }
        }
        self.at = chunk.next;
        self.gather(rows, records);
    }

    /// Ends the calls whose outcome could not be written.
    fn settle_lost(&mut self, lost: &[CallId]) {
        if lost.is_empty() {
            return;
        }
        let mut rows = Vec::new();
        for id in lost {
            if let Some(OpenCall { mut row, .. }) = self.open.remove(id) {
                row.status = CallStatus::Unknown;
                row.code = Some(LOST.to_owned());
                row.ended_ms = Some(unix_ms());
                rows.push(row);
            }
        }
        let mut all = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|id| !lost.contains(id));
        drop(all);
        self.gather(rows, 0);
    }

    /// Adds rows to what the next `save` writes.
    fn gather(&mut self, mut rows: Vec<CallRow>, records: u64) {
        // An open call must not keep a segment alive: a `running` row stands in for its intent.
        let current = self.at.segment;
        let held = self
            .open
            .values_mut()
            .filter(|call| !call.stored && call.at.segment < current);
        rows.extend(held.map(OpenCall::store));
        let unstored = self
            .open
            .values()
            .filter(|call| !call.stored)
            .map(|call| call.at);
        let position = unstored.min().map_or(self.at, |first| first.min(self.at));
        match &mut self.batch {
            Some(batch) => {
                batch.rows.append(&mut rows);
                batch.position = position;
                batch.records += records;
            }
            None => {
                self.batch = Some(Batch {
                    rows,
                    position,
                    records,
                })
            }
        }
    }

    /// Writes what was gathered; it stays gathered if that fails.
    async fn save(&mut self) -> Result<(), AuditError> {
        let Some(batch) = &self.batch else {
            return Ok(());
        };
        let (position, records) = (batch.position, batch.records);
        // Without rows, only leaving a segment is worth a transaction.
        if !batch.rows.is_empty() || position.segment != self.saved.segment {
            let stored = FoldPosition {
                segment: position.segment,
                offset: position.offset,
            };
            self.store
                .fold(&batch.rows, stored)
                .await
                .map_err(AuditError::Store)?;
            if self.durability == Durability::Disk && position.segment != self.saved.segment {
                self.store.sync().await.map_err(AuditError::Store)?;
            }
            self.saved = position;
            self.journal.forget_before(position.segment);
        }
        self.journal.folded(records);
        self.batch = None;
        Ok(())
    }
}

impl OpenCall {
    fn store(&mut self) -> CallRow {
        self.stored = true;
        self.row.clone()
    }
}

/// Returns the row that an outcome without intent completes, if it is not complete already.
fn orphan(known: Option<CallRow>, ending: &Ending, at: Position) -> Option<CallRow> {
    match known {
        Some(row) => matches!(row.status, CallStatus::Running | CallStatus::Unknown).then_some(row),
        None => {
            // The intent was damaged. Better a row that says little than a call without one.
            tracing::warn!(call = %ending.id, "a call's beginning is missing in the audit journal");
            Some(nameless(ending.id, at))
        }
    }
}

fn nameless(id: CallId, at: Position) -> CallRow {
    CallRow {
        id,
        seq: at.sequence(),
        project: String::new(),
        agent: String::new(),
        key: String::new(),
        user: None,
        session: None,
        run: None,
        step: None,
        trace: None,
        surface: String::new(),
        server: String::new(),
        method: String::new(),
        tool: String::new(),
        schema_version: None,
        started_ms: (id.to_bits() >> 80) as u64,
        ended_ms: None,
        duration_us: None,
        status: CallStatus::Unknown,
        code: None,
        error: None,
        input: None,
        input_bytes: 0,
        output: None,
        output_bytes: 0,
        repeats: 1,
    }
}
