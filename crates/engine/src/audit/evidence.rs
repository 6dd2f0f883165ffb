//! Tamper evidence: every write to calls and administrative acts is covered by a block of this gateway's hash
//! chain, signed with the key of its data folder.
//!
//! Each transaction writes one block together with its rows, so that a crash never leaves one
//! without the other. The end of the chain is stored twice: signed in the database, and in a small
//! file of the data folder, so that a truncation of the newest rows is detected, too. This module
//! does not decide what is written or removed. Entry points: `ChainWriter::import`,
//! `ChainWriter::drop_calls`, `ChainWriter::erase_calls`, [`ActLog`].

mod acts;
mod head_file;
mod key;
mod reserve;
mod verify;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use gantry_model::id::CallId;
use gantry_store::{
    Block, BlockKind, CallDetails, CallRow, CallStatus, ChainHead, Entries, Entry, Hash,
    JournalPosition, Place, Removed, RowOrigin, Salt, SignedBlock, Store, StoreError, StoredCall,
    row_digest,
};

use super::error::AuditError;
use crate::clock::unix_ms;

pub(crate) use acts::{ActLog, RecordedAct};
pub use head_file::HeadMark;
pub(crate) use key::KEY_FILE;
pub(super) use key::SigningKey;
pub use key::{PublicKey, public_in};
pub use verify::{Finding, FindingKind, TrustedKeys, Verification, VerifyOptions, verify};

use head_file::HeadFile;
use reserve::Reserve;

/// Appends to the chain of this gateway; there is one writer at a time.
#[derive(Debug)]
pub(super) struct ChainWriter {
    store: Store,
    origin: RowOrigin,
    key: SigningKey,
    file: HeadFile,
    reserve: Reserve,
    /// The end that a former process noted, until it is compared.
    noted: Option<HeadMark>,
    /// The blocks that the database lacks at its end, until that is on record.
    lost: Option<(u64, u64)>,
    /// The last block: its number and its hash.
    head: (u64, Hash),
    /// Whether the end of the stored chain is unknown: nothing was read yet, or a write was
    /// interrupted.
    unsure: bool,
    /// The rows of imports that were interrupted: the store may have them.
    doubtful: HashSet<CallId>,
    /// The rows of the last import, until it is known that they were written.
    attempted: Vec<CallId>,
    salts: Salts,
    buffer: Vec<u8>,
}

/// Random salts, read from the operating system in batches.
struct Salts {
    drawn: Vec<u8>,
}

impl std::fmt::Debug for Salts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Salts")
    }
}

impl Salts {
    fn next(&mut self) -> Salt {
        if self.drawn.is_empty() {
            self.drawn.extend(crate::random::random::<4096>());
        }
        let rest = self.drawn.len() - size_of::<Salt>();
        let mut salt = Salt::default();
        salt.copy_from_slice(&self.drawn[rest..]);
        self.drawn.truncate(rest);
        salt
    }
}

/// The rows to write.
pub(super) struct Batch<'b, 'r> {
    pub(super) rows: &'b [CallRow<&'r str>],
    /// The places of their earlier versions in the chain.
    pub(super) replaced: Vec<Place>,
    /// Whether the store may already have some of them.
    pub(super) may_repeat: bool,
}

impl<'b, 'r> Batch<'b, 'r> {
    /// Creates a batch of rows that the store may already have.
    pub(super) fn repeated(rows: &'b [CallRow<&'r str>]) -> Self {
        Self {
            rows,
            replaced: Vec::new(),
            may_repeat: true,
        }
    }
}

impl ChainWriter {
    /// Opens the key, or creates one; the chain itself is read with the first write.
    pub(super) fn open(data_folder: &Path, store: Store) -> Result<Self, AuditError> {
        let path = data_folder.join(KEY_FILE);
        let key = SigningKey::open(&path).map_err(|source| AuditError::Key { path, source })?;
        Ok(Self {
            origin: store.chain_origin(),
            store,
            key,
            file: HeadFile::new(head_file::path_in(data_folder)),
            reserve: Reserve::new(data_folder),
            noted: HeadMark::read(data_folder).ok().flatten(),
            lost: None,
            head: (0, [0; 32]),
            unsure: true,
            doubtful: HashSet::new(),
            attempted: Vec::new(),
            salts: Salts { drawn: Vec::new() },
            buffer: Vec::new(),
        })
    }

    /// Returns the public half of the key.
    pub(super) fn public_key(&self) -> PublicKey {
        self.key.public().clone()
    }

    /// Writes rows with the block that covers them, and the journal's position. Returns the place
    /// of each row in the chain, if it has one.
    pub(super) async fn import(
        &mut self,
        batch: Batch<'_, '_>,
        position: JournalPosition,
    ) -> Result<Vec<Option<Place>>, StoreError> {
        if batch.rows.is_empty() {
            self.store.import_calls::<&str>(&[], position).await?;
            return Ok(Vec::new());
        }
        let ids = || batch.rows.iter().map(|row| row.id);
        self.doubtful.extend(self.attempted.drain(..));
        let is_doubtful = !self.doubtful.is_empty() && ids().any(|id| self.doubtful.contains(&id));
        let may_repeat = batch.may_repeat || self.unsure || is_doubtful;
        self.ensure().await?;
        let known = match may_repeat {
            true => self.known(batch.rows).await?,
            false => HashMap::new(),
        };
        let mut places = Vec::with_capacity(batch.rows.len());
        let mut removed: Removed = batch.replaced.into_iter().collect();
        let mut entries = Entries::default();
        let merged: Vec<Merged>;
        let mut changed = Vec::new();
        // New rows, as nearly all are, are not copied.
        let rows = if known.is_empty() {
            let origin = self.origin;
            let pushed = batch.rows.iter();
            places.extend(pushed.map(|row| Some(self.push(&mut entries, origin, row))));
            batch.rows
        } else {
            let each = batch.rows.iter();
            merged = each
                .map(|row| Merged::of(row, known.get(&row.id)))
                .collect();
            for (row, merged) in batch.rows.iter().zip(&merged) {
                let place = known.get(&row.id).and_then(|(_, place)| *place);
                let (row, origin) = match merged {
                    Merged::AsItIs => (*row, self.origin),
                    Merged::Into(whole, origin) => (whole.borrowed(), *origin),
                    Merged::Known => {
                        places.push(place);
                        continue;
                    }
                };
                place.into_iter().for_each(|place| removed.insert(place));
                places.push(Some(self.push(&mut entries, origin, &row)));
                changed.push(row);
            }
            &changed[..]
        };
        if rows.is_empty() {
            self.store.import_calls::<&str>(&[], position).await?;
        } else {
            let (block, head) = self.seal(BlockKind::Import, String::new(), (entries, removed));
            self.unsure = true;
            self.attempted.extend(ids());
            self.store
                .import_chained(rows, position, (&block, &head))
                .await?;
            self.appended(&head);
        }
        self.attempted.clear();
        if !self.doubtful.is_empty() {
            for id in ids() {
                self.doubtful.remove(&id);
            }
        }
        Ok(places)
    }

    /// Deletes calls, and records that in the chain.
    pub(super) async fn drop_calls(&mut self, calls: &[StoredCall]) -> Result<(), StoreError> {
        self.ensure().await?;
        let removed = self.places(calls).await?.into_values().collect();
        let (block, head) = self.seal(
            BlockKind::Retention,
            String::new(),
            (Entries::default(), removed),
        );
        let ids: Vec<_> = calls.iter().map(|call| (call.row.id, call.block)).collect();
        self.unsure = true;
        self.store.drop_calls(&ids, &block, &head).await?;
        self.appended(&head);
        Ok(())
    }

    /// Erases a person's data from calls; the chain covers the remaining rows.
    pub(super) async fn erase_calls(&mut self, calls: &[StoredCall]) -> Result<(), StoreError> {
        self.ensure().await?;
        let removed = self.places(calls).await?.into_values().collect();
        let mut entries = Entries::default();
        for call in calls {
            let left = erased(&call.row);
            self.push(&mut entries, self.origin, &left.borrowed());
        }
        let (block, head) = self.seal(BlockKind::Erasure, String::new(), (entries, removed));
        let ids: Vec<_> = calls.iter().map(|call| (call.row.id, call.block)).collect();
        self.unsure = true;
        self.store.erase_calls(&ids, &block, &head).await?;
        self.appended(&head);
        Ok(())
    }

    /// Reads the end of the chain; starts a chain if there is none, and its part over acts.
    async fn ensure(&mut self) -> Result<(), StoreError> {
        if !self.unsure {
            return Ok(());
        }
        let public = self.key.public();
        self.store
            .put_audit_key(public.id(), public.bytes())
            .await?;
        let nothing = || (Entries::default(), Removed::default());
        match self.store.chain_head().await? {
            Some(head) => {
                self.head = (head.number, head.hash);
                self.compare_end(&head);
            }
            None => {
                self.head = (0, [0; 32]);
                let newest = self.store.newest_call().await?;
                let note = newest.map(|id| id.to_string()).unwrap_or_default();
                let (block, head) = self.seal(BlockKind::Begin, note, nothing());
                self.store.append_block(&block, &head).await?;
                self.head = (head.number, head.hash);
            }
        }
        if !self.store.covers_acts().await? {
            let newest = self.store.newest_act().await?.to_string();
            let (block, head) = self.seal(BlockKind::BeginActs, newest, nothing());
            self.store.begin_acts(&block, &head).await?;
            self.appended(&head);
        }
        self.unsure = false;
        Ok(())
    }

    /// Notices that the database was set back: its blocks continue, and what it lost would be forgotten.
    fn compare_end(&mut self, head: &ChainHead) {
        let is_beyond =
            |noted: &HeadMark| noted.gateway == head.gateway && noted.number > head.number;
        if let Some(noted) = self.noted.take().filter(is_beyond) {
            let (found, expected) = (head.number, noted.number);
            tracing::error!(
                found,
                expected,
                "the audit's chain was cut off: the database was set back, or lost its end"
            );
            self.lost = Some((found + 1, expected));
        }
    }

    fn appended(&mut self, head: &ChainHead) {
        self.head = (head.number, head.hash);
        self.unsure = false;
        self.file.write(head);
        self.reserve.take();
    }

    /// Creates the next block of the chain.
    fn seal(
        &self,
        kind: BlockKind,
        note: String,
        (entries, removed): (Entries, Removed),
    ) -> (SignedBlock, ChainHead) {
        let gateway = self.origin.gateway;
        let (last, previous) = self.head;
        let block = Block {
            gateway,
            number: last + 1,
            previous,
            at_ms: unix_ms(),
            kind,
            note,
            count: entries.len(),
            entries_hash: entries.hash(),
            removed,
            key_id: self.key.public().id().to_owned(),
        };
        let hash = block.hash();
        let head = ChainHead {
            gateway,
            number: block.number,
            hash,
            signature: self
                .key
                .sign(&ChainHead::signed_bytes(gateway, block.number, &hash)),
        };
        let signed = SignedBlock {
            signature: self.key.sign(&hash),
            live: block.count,
            block,
            hash,
            entries,
        };
        (signed, head)
    }

    /// Adds a row to the next block, and returns its place there.
    fn push(&mut self, entries: &mut Entries, origin: RowOrigin, row: &CallRow<&str>) -> Place {
        let salt = self.salts.next();
        let digest = row_digest(&mut self.buffer, origin, &salt, row);
        let entry = entries.push(&Entry {
            id: row.id,
            digest,
            salt,
        });
        Place {
            gateway: self.origin.gateway,
            block: self.head.0 + 1,
            entry,
        }
    }

    /// Returns which of the rows the store has, and their places in a chain.
    async fn known(
        &self,
        rows: &[CallRow<&str>],
    ) -> Result<HashMap<CallId, (StoredCall, Option<Place>)>, StoreError> {
        let ids: Vec<CallId> = rows.iter().map(|row| row.id).collect();
        let stored = self.store.stored_calls(&ids).await?;
        let mut places = self.places(&stored).await?;
        let known = stored.into_iter().map(|call| {
            let place = places.remove(&call.row.id);
            (call.row.id, (call, place))
        });
        Ok(known.collect())
    }

    /// Returns the places of calls in their chains.
    async fn places(&self, calls: &[StoredCall]) -> Result<HashMap<CallId, Place>, StoreError> {
        let covered = calls.iter().filter_map(|call| {
            let block = (call.origin.gateway, call.block?);
            Some((block, call.row.id))
        });
        self.places_in(covered).await
    }

    /// Returns the places of entries in the blocks that cover them.
    async fn places_in(
        &self,
        covered: impl Iterator<Item = ((i64, u64), CallId)>,
    ) -> Result<HashMap<CallId, Place>, StoreError> {
        let mut by_block: HashMap<(i64, u64), Vec<CallId>> = HashMap::new();
        for (block, id) in covered {
            by_block.entry(block).or_default().push(id);
        }
        let mut places = HashMap::new();
        for ((gateway, block), ids) in by_block {
            let entries = self.store.block_entries(gateway, block).await?;
            let entries = entries.unwrap_or_default();
            let entries = entries.iter().zip(0..);
            let index: HashMap<CallId, u32> =
                entries.map(|(entry, place)| (entry.id, place)).collect();
            let found = ids.into_iter().filter_map(|id| {
                let entry = *index.get(&id)?;
                let place = Place {
                    gateway,
                    block,
                    entry,
                };
                Some((id, place))
            });
            places.extend(found);
        }
        Ok(places)
    }
}

/// The result of merging a row with the stored one.
enum Merged {
    /// It is new.
    AsItIs,
    /// The store has it, and it does not change.
    Known,
    /// It completes the stored row.
    Into(Box<CallRow>, RowOrigin),
}

impl Merged {
    /// Merges like the store: an end replaces the stored row, `unknown` replaces only `running`,
    /// and `running` replaces nothing. Fields that the end lacks are kept.
    fn of(row: &CallRow<&str>, known: Option<&(StoredCall, Option<Place>)>) -> Self {
        let Some((stored, _)) = known else {
            return Self::AsItIs;
        };
        let replaces = match row.status {
            CallStatus::Running => false,
            CallStatus::Unknown => stored.row.status == CallStatus::Running,
            CallStatus::Ok
            | CallStatus::Error
            | CallStatus::Timeout
            | CallStatus::Cancelled
            | CallStatus::Refused => true,
        };
        if !replaces {
            return Self::Known;
        }
        let (new, old) = (row.owned(), &stored.row);
        let or = |new: Option<String>, old: &Option<String>| new.or_else(|| old.clone());
        let user_trust = match new.user {
            Some(_) => new.user_trust,
            None => old.user_trust,
        };
        let whole = CallRow {
            id: old.id,
            project: old.project.clone(),
            agent: old.agent.clone(),
            key: old.key.clone(),
            surface: old.surface.clone(),
            server: old.server.clone(),
            method: old.method.clone(),
            tool: old.tool.clone(),
            started_ms: old.started_ms,
            user: or(new.user, &old.user),
            user_trust,
            session: or(new.session, &old.session),
            run: or(new.run, &old.run),
            step: or(new.step, &old.step),
            trace: or(new.trace, &old.trace),
            parent_span: new.parent_span,
            schema_version: or(new.schema_version, &old.schema_version),
            server_id: new.server_id.or(old.server_id),
            input: or(new.input, &old.input),
            details: CallDetails {
                policy_revision: new.details.policy_revision.or(old.details.policy_revision),
                grant: or(new.details.grant, &old.details.grant),
                parent: or(new.details.parent, &old.details.parent),
                user_source: new.details.user_source.or(old.details.user_source),
                ..new.details
            },
            seq: new.seq,
            ended_ms: new.ended_ms,
            duration_us: new.duration_us,
            status: new.status,
            code: new.code,
            error: new.error,
            input_bytes: new.input_bytes,
            output: new.output,
            output_bytes: new.output_bytes,
            repeats: new.repeats,
        };
        match whole == *old {
            true => Self::Known,
            false => Self::Into(Box::new(whole), stored.origin),
        }
    }
}

/// Returns a call without a person's data.
fn erased(row: &CallRow) -> CallRow {
    CallRow {
        user: None,
        user_trust: Default::default(),
        session: None,
        run: None,
        step: None,
        trace: None,
        error: None,
        input: None,
        output: None,
        details: CallDetails {
            parent: None,
            user_source: None,
            ..row.details.clone()
        },
        ..row.clone()
    }
}
