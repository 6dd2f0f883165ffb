//! What is to be sent next: the calls that the blocks of this gateway's chain name, in order, and
//! the acts that were done on it. Entry points: [`Feed::next`], [`Feed::done`], [`Feed::rewind`].

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use gantry_model::id::CallId;
use gantry_store::{ActOutcome, BlockKind, CallStatus, ExportedBlock, Store, StoreError, unix_ms};
use tokio::time::Instant;

use super::cursor::Cursor;
use super::record::Record;

/// How many events are sent at once.
pub(super) const AT_ONCE: usize = 256;
/// How many blocks are read at once.
const BLOCKS: u32 = 8;
/// How often acts are looked for.
const ACTS_EVERY: Duration = Duration::from_secs(1);
/// How many acts after the cursor are listed.
const ACTS_LISTED: u32 = 1000;
/// After this time an act is sent although it has not ended.
const LONGEST_ACT: Duration = Duration::from_secs(3600);
/// How long an act may take to become visible after one with a higher number.
const LATE_ACT: Duration = Duration::from_secs(10);
/// A row is not dropped for its age before, so a block without rows until then had others' in it.
const YOUNGEST_DROPPED_MS: u64 = 86_400_000;

/// Events that are sent together.
pub(super) struct Chunk {
    pub(super) records: Vec<Record>,
    until: Until,
}

/// What was delivered with a chunk.
enum Until {
    /// So many entries of the first block.
    Entries(usize),
    /// These acts.
    Acts(Vec<u64>),
}

/// Where the export is.
pub(super) struct Feed {
    store: Store,
    gateway: String,
    block: u64,
    hash: [u8; 32],
    /// The blocks after that, as far as they were read.
    blocks: VecDeque<ExportedBlock>,
    /// How many entries of the first of them were delivered.
    entries: usize,
    acts: Acts,
    chunk: Option<Chunk>,
    /// Rows that were gone before they could be sent.
    pub(super) dropped: u64,
}

impl Feed {
    pub(super) fn new(store: Store, gateway: String, cursor: Cursor, newest_act: u64) -> Self {
        Self {
            store,
            gateway,
            block: cursor.block,
            hash: cursor.hash,
            blocks: VecDeque::new(),
            entries: 0,
            acts: Acts::new(cursor.act, newest_act),
            chunk: None,
            dropped: 0,
        }
    }

    /// Returns how far everything was delivered.
    pub(super) fn cursor(&self) -> Cursor {
        Cursor {
            block: self.block,
            hash: self.hash,
            act: self.acts.after,
        }
    }

    /// Continues after a cursor: what was delivered since then is sent again.
    pub(super) fn rewind(&mut self, cursor: Cursor) {
        (self.block, self.hash) = (cursor.block, cursor.hash);
        self.blocks.clear();
        self.entries = 0;
        self.acts.rewind(cursor.act);
        self.chunk = None;
    }

    /// Returns the next events, the same ones until they are done; `is_last` looks for acts at once.
    pub(super) async fn next(&mut self, is_last: bool) -> Result<Option<&Chunk>, StoreError> {
        if self.chunk.is_none() {
            self.chunk = self.read(is_last).await?;
        }
        Ok(self.chunk.as_ref())
    }

    async fn read(&mut self, is_last: bool) -> Result<Option<Chunk>, StoreError> {
        let due = self.acts.due(&self.store, is_last).await?;
        if !due.is_empty() {
            let rows = self.store.acts_with(&due).await?;
            let gateway = &self.gateway;
            let records = rows.iter().map(|row| Record::of_act(gateway, row));
            return Ok(Some(Chunk {
                records: records.collect(),
                until: Until::Acts(due),
            }));
        }
        loop {
            if self.blocks.is_empty() {
                self.blocks = self.store.exported_blocks(self.block, BLOCKS).await?.into();
            }
            let Some(block) = self.blocks.front() else {
                return Ok(None);
            };
            let number = block.number;
            let ids: Vec<CallId> = match block.kind {
                BlockKind::Import => {
                    let rest = block.entries.iter().skip(self.entries).take(AT_ONCE);
                    rest.map(|entry| entry.id).collect()
                }
                BlockKind::Begin
                | BlockKind::Retention
                | BlockKind::Erasure
                | BlockKind::BeginActs
                | BlockKind::Act => Vec::new(),
            };
            if ids.is_empty() {
                let age_ms = unix_ms().saturating_sub(block.at_ms);
                let was_emptied = block.kind == BlockKind::Import && block.entries.is_empty();
                if was_emptied && age_ms > YOUNGEST_DROPPED_MS {
                    self.dropped += block.count;
                }
                self.leave_block();
                continue;
            }
            let records = self.calls(number, &ids).await?;
            if records.is_empty() {
                self.advance(ids.len());
                continue;
            }
            let until = Until::Entries(ids.len());
            return Ok(Some(Chunk { records, until }));
        }
    }

    /// Returns the events of the calls whose rows a block covers.
    async fn calls(&mut self, block: u64, ids: &[CallId]) -> Result<Vec<Record>, StoreError> {
        let own = self.store.chain_origin().gateway;
        let found = self.store.stored_calls(ids).await?;
        let mut found: HashMap<CallId, _> =
            found.into_iter().map(|call| (call.row.id, call)).collect();
        let mut records = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(call) = found.remove(id) else {
                self.dropped += 1;
                continue;
            };
            // A row that was replaced is sent with the block that covers it now.
            let is_covered = call.block == Some(block) && call.origin.gateway == own;
            if is_covered && call.row.status != CallStatus::Running {
                records.push(Record::of_call(&self.gateway, &call.row));
            }
        }
        Ok(records)
    }

    /// Remembers that the last chunk was delivered.
    pub(super) fn done(&mut self) {
        match self.chunk.take().map(|chunk| chunk.until) {
            Some(Until::Entries(count)) => self.advance(count),
            Some(Until::Acts(ids)) => self.acts.delivered(ids),
            None => {}
        }
    }

    fn advance(&mut self, count: usize) {
        self.entries += count;
        let all = self
            .blocks
            .front()
            .map_or(0, |block| block.entries.len() as usize);
        if self.entries >= all {
            self.leave_block();
        }
    }

    fn leave_block(&mut self) {
        self.entries = 0;
        if let Some(block) = self.blocks.pop_front() {
            (self.block, self.hash) = (block.number, block.hash);
        }
    }
}

/// Which acts are to be sent. They are numbered as they begin and sent when they have ended, so some
/// with higher numbers are sent before others.
struct Acts {
    /// All up to this one were sent.
    after: u64,
    /// Further ones that were sent.
    sent: BTreeSet<u64>,
    /// The newest one of former starts: what has not ended then never will.
    former: u64,
    /// Acts that have not ended, and since when they are known.
    open: HashMap<u64, Instant>,
    /// Numbers of the newest act at earlier times.
    newest: VecDeque<(Instant, u64)>,
    asked: Option<Instant>,
}

impl Acts {
    fn new(after: u64, former: u64) -> Self {
        Self {
            after,
            sent: BTreeSet::new(),
            former,
            open: HashMap::new(),
            newest: VecDeque::new(),
            asked: None,
        }
    }

    fn rewind(&mut self, after: u64) {
        self.after = after;
        self.sent.clear();
        self.asked = None;
    }

    /// Returns the acts to send now.
    async fn due(&mut self, store: &Store, is_last: bool) -> Result<Vec<u64>, StoreError> {
        let now = Instant::now();
        let is_early = self.asked.is_some_and(|asked| now - asked < ACTS_EVERY);
        if is_early && !is_last {
            return Ok(Vec::new());
        }
        let newest = store.newest_act().await?;
        let listed = store.own_acts(self.after, ACTS_LISTED).await?;
        let is_full = listed.len() == ACTS_LISTED as usize;
        let (mut due, mut first_open) = (Vec::new(), None);
        for (id, outcome) in listed {
            if self.sent.contains(&id) {
                continue;
            }
            let has_ended = outcome != ActOutcome::Unfinished || id <= self.former;
            let since = *self.open.entry(id).or_insert(now);
            if has_ended || now - since >= LONGEST_ACT || (is_full && first_open.is_none()) {
                due.push(id);
            }
            if !has_ended {
                first_open.get_or_insert(id);
            }
            if due.len() == AT_ONCE {
                return Ok(due);
            }
        }
        if due.is_empty() {
            self.asked = Some(now);
            self.pass(first_open, newest, is_last, now);
        }
        Ok(due)
    }

    /// Advances over what was sent: not over an act that has not ended, and not over numbers that
    /// may still appear.
    fn pass(&mut self, first_open: Option<u64>, newest: u64, is_last: bool, now: Instant) {
        let mut settled = if is_last { newest } else { self.after };
        while let Some((seen, number)) = self.newest.front()
            && now - *seen >= LATE_ACT
        {
            settled = settled.max(*number);
            self.newest.pop_front();
        }
        if self.newest.back().is_none_or(|(_, known)| *known != newest) {
            self.newest.push_back((now, newest));
        }
        let most = first_open.map_or(u64::MAX, |open| open - 1);
        self.after = self.after.max(settled.min(most));
        self.sent = self.sent.split_off(&(self.after + 1));
        let after = self.after;
        self.open.retain(|id, _| *id > after);
    }

    fn delivered(&mut self, ids: Vec<u64>) {
        for id in &ids {
            self.open.remove(id);
        }
        self.sent.extend(ids);
    }
}
