//! The hash chain of the audit: writes calls together with the block that covers them, and reads the
//! chain back as of one moment. Statements are in `sql::chain` and `sql::calls`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gantry_model::id::CallId;

use super::Store;
use super::calls::{StoredCall, stored};
use crate::call::{CallRow, JournalPosition};
use crate::chain::{AuditKey, Block, ChainHead, Entries, Hash, Removed, SignedBlock};
use crate::config::StoreConfig;
use crate::database::query::{Query, query};
use crate::database::row::{Row, column, parsed, unsigned};
use crate::database::{Database, Durability, Transaction};
use crate::error::StoreError;
use crate::postgres::PostgresStore;
use crate::sql::{calls, chain as sql};
use crate::sqlite::SqliteStore;

/// The maximum number of ids in one statement.
const IDS: usize = 500;
/// The timeout of one statement of a snapshot.
const LONGEST: Duration = Duration::from_secs(600);

impl Store {
    /// Writes rows of the audit and the journal's position in one transaction, without a block, as
    /// releases before the chain did.
    ///
    /// Rows are merged by id: an end is never replaced by `running` or `unknown`, and importing the
    /// same rows again changes nothing.
    pub async fn import_calls<T: AsRef<str> + Sync>(
        &self,
        rows: &[CallRow<T>],
        position: JournalPosition,
    ) -> Result<(), StoreError> {
        const WHAT: &str = "import the journal";
        let mut transaction = self.database().begin_import(WHAT, false).await?;
        let gateway = self.shared.gateway;
        transaction
            .import_calls(gateway, rows, position, None)
            .await?;
        transaction.commit().await
    }

    /// Writes rows of the audit, the journal's position and the block that covers the rows in one
    /// transaction.
    pub async fn import_chained<T: AsRef<str> + Sync>(
        &self,
        rows: &[CallRow<T>],
        position: JournalPosition,
        (block, head): (&SignedBlock, &ChainHead),
    ) -> Result<(), StoreError> {
        const WHAT: &str = "import the journal";
        let alone = !block.block.removed.is_empty();
        let mut transaction = self.database().begin_import(WHAT, alone).await?;
        let number = Some(block.block.number);
        let gateway = self.shared.gateway;
        transaction
            .import_calls(gateway, rows, position, number)
            .await?;
        append(&mut transaction, block, head).await?;
        transaction.commit().await
    }

    /// Appends a block that covers no rows.
    pub async fn append_block(
        &self,
        block: &SignedBlock,
        head: &ChainHead,
    ) -> Result<(), StoreError> {
        const WHAT: &str = "append to the audit's chain";
        let mut transaction = self.database().begin(WHAT, Durability::Process).await?;
        append(&mut transaction, block, head).await?;
        transaction.commit().await
    }

    /// Deletes calls in the state that a block covers, and appends the block that records this.
    pub async fn drop_calls(
        &self,
        calls: &[(CallId, Option<u64>)],
        block: &SignedBlock,
        head: &ChainHead,
    ) -> Result<(), StoreError> {
        const WHAT: &str = "drop old calls";
        let mut transaction = self.database().begin(WHAT, Durability::Process).await?;
        for (covered_by, ids) in by_block(calls) {
            for some in ids.chunks(IDS) {
                let mut drop = query(sql::DROP).bind(covered_by);
                push_ids(drop.push(" AND "), some);
                transaction.execute(drop).await?;
            }
        }
        append(&mut transaction, block, head).await?;
        transaction.commit().await
    }

    /// Erases a person's data from calls in the state that a block covers, and appends the block
    /// that covers the remaining rows.
    pub async fn erase_calls(
        &self,
        calls: &[(CallId, Option<u64>)],
        block: &SignedBlock,
        head: &ChainHead,
    ) -> Result<(), StoreError> {
        const WHAT: &str = "erase a user's calls";
        let mut transaction = self.database().begin(WHAT, Durability::Power).await?;
        for (covered_by, ids) in by_block(calls) {
            for some in ids.chunks(IDS) {
                let mut erase = query(sql::ERASE)
                    .bind(covered_by)
                    .bind(false)
                    .bind(block.block.number)
                    .bind(self.number())
                    .bind(self.boot());
                push_ids(erase.push(" AND "), some);
                if transaction.execute(erase).await? != some.len() as u64 {
                    // Another gateway changed one meanwhile, so the block would be wrong.
                    return Err(StoreError::Busy { what: WHAT });
                }
            }
        }
        append(&mut transaction, block, head).await?;
        transaction.commit().await?;
        self.database().removed().await;
        Ok(())
    }

    /// Returns the end of this gateway's chain; `None` before the first block.
    pub async fn chain_head(&self) -> Result<Option<ChainHead>, StoreError> {
        const WHAT: &str = "read the end of the audit's chain";
        let last = query(sql::HEAD).bind(self.number());
        self.database().optional(WHAT, last, head).await
    }

    /// Stores the public key of this gateway's signatures.
    pub async fn put_audit_key(&self, id: &str, public: &[u8]) -> Result<(), StoreError> {
        const WHAT: &str = "make a key of the audit known";
        let put = query(sql::PUT_KEY)
            .bind(id)
            .bind(self.number())
            .bind(public);
        let put = self.database().execute(WHAT, Durability::Process, put);
        put.await.map(drop)
    }

    /// Returns the number of this gateway in its chain, and of its current start.
    pub fn chain_origin(&self) -> crate::chain::RowOrigin {
        crate::chain::RowOrigin {
            gateway: self.number(),
            boot: self.boot(),
        }
    }

    /// Returns the stored calls with these ids.
    pub async fn stored_calls(&self, ids: &[CallId]) -> Result<Vec<StoredCall>, StoreError> {
        const WHAT: &str = "look for calls";
        let mut found = Vec::new();
        for some in ids.chunks(IDS) {
            let mut wanted = query(calls::SELECT);
            push_ids(wanted.push(" WHERE "), some);
            found.extend(self.database().rows(WHAT, wanted, stored).await?);
        }
        Ok(found)
    }

    /// Returns some of the calls that earlier starts of this gateway left running.
    pub async fn left_running(&self, at_most: u32) -> Result<Vec<StoredCall>, StoreError> {
        const WHAT: &str = "list calls left running";
        let mut left = query(calls::SELECT);
        left.push(sql::LEFT_RUNNING);
        let left = left.bind(self.number()).bind(self.boot()).bind(at_most);
        self.database().rows(WHAT, left, stored).await
    }

    /// Returns the entries of a block; `None` if there is no such block.
    pub async fn block_entries(
        &self,
        gateway: i64,
        number: u64,
    ) -> Result<Option<Entries>, StoreError> {
        const WHAT: &str = "read a block of the audit's chain";
        let asked = query(sql::ENTRIES).bind(gateway).bind(number);
        let found = self
            .database()
            .optional(WHAT, asked, |row| Ok(Entries::from_bytes(column(row, 0)?)));
        found.await
    }

    /// Returns the newest call.
    pub async fn newest_call(&self) -> Result<Option<CallId>, StoreError> {
        const WHAT: &str = "read the newest call";
        let newest = query(sql::NEWEST);
        self.database()
            .optional(WHAT, newest, |row| parsed(row, 0))
            .await
    }

    /// Returns a snapshot of the audit, to be read as a whole.
    pub async fn audit_snapshot(&self) -> Result<AuditSnapshot<'_>, StoreError> {
        AuditSnapshot::of(self.database()).await
    }
}

/// A store without a running gateway: only its audit can be read.
#[derive(Debug)]
pub struct AuditFile {
    database: Database,
}

impl AuditFile {
    /// Opens an existing SQLite file or PostgreSQL database. One of an earlier release is migrated.
    pub async fn open(config: &StoreConfig) -> Result<Self, StoreError> {
        let database = match config {
            StoreConfig::Sqlite(path) if !path.exists() => {
                let what = format!("the database `{}`", path.display());
                return Err(StoreError::NotFound { what });
            }
            StoreConfig::Sqlite(path) => Database::Sqlite(Box::new(SqliteStore::open(path).await?)),
            StoreConfig::Postgres(url) => {
                Database::Postgres(Box::new(PostgresStore::open(url).await?))
            }
        };
        Ok(Self { database })
    }

    /// Returns a snapshot of the audit.
    pub async fn snapshot(&self) -> Result<AuditSnapshot<'_>, StoreError> {
        AuditSnapshot::of(&self.database).await
    }

    /// Closes it.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.database.close().await
    }
}

/// A snapshot of the audit, read in pieces.
pub struct AuditSnapshot<'a> {
    pub(super) transaction: Transaction<'a>,
}

/// A row of the audit as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundCall {
    /// A valid row.
    Whole(Box<StoredCall>),
    /// A row with values that no gateway writes, by its id.
    Unreadable(String),
}

impl<'a> AuditSnapshot<'a> {
    async fn of(database: &'a Database) -> Result<Self, StoreError> {
        let mut transaction = database.snapshot("read the audit").await?;
        transaction.may_take_long(LONGEST).await?;
        Ok(Self { transaction })
    }

    /// Returns the ends of all chains.
    pub async fn heads(&mut self) -> Result<Vec<ChainHead>, StoreError> {
        self.transaction.rows(query(sql::HEADS), head).await
    }

    /// Returns the numbers of all gateways that ever used the store.
    pub async fn gateways(&mut self) -> Result<Vec<i64>, StoreError> {
        let all = query(sql::GATEWAYS);
        self.transaction.rows(all, |row| column(row, 0)).await
    }

    /// Returns the stored public keys.
    pub async fn keys(&mut self) -> Result<Vec<AuditKey>, StoreError> {
        let keys = self.transaction.rows(query(sql::KEYS), |row| {
            Ok(AuditKey {
                id: column(row, 0)?,
                gateway: column(row, 1)?,
                public: column(row, 2)?,
            })
        });
        keys.await
    }

    /// Returns what is wrong in the tables of the audit and their indexes, in the database's words.
    /// Only SQLite can tell.
    pub async fn damaged_tables(&mut self) -> Result<Vec<String>, StoreError> {
        if !self.transaction.is_sqlite() {
            return Ok(Vec::new());
        }
        let all = query(sql::DAMAGED_SQLITE);
        self.transaction.rows(all, |row| column(row, 0)).await
    }

    /// Returns blocks of a chain from a number on, in order; an unreadable block is `None`.
    pub async fn blocks(
        &mut self,
        gateway: i64,
        from: u64,
        at_most: u32,
    ) -> Result<Vec<(u64, Option<SignedBlock>)>, StoreError> {
        let some = query(sql::BLOCKS_FROM)
            .bind(gateway)
            .bind(from)
            .bind(at_most);
        let blocks = self
            .transaction
            .rows(some, |row| Ok((unsigned(row, 1)?, block(row).ok())));
        blocks.await
    }

    /// Returns the entries of a block.
    pub async fn entries(
        &mut self,
        gateway: i64,
        number: u64,
    ) -> Result<Option<Entries>, StoreError> {
        let asked = query(sql::ENTRIES).bind(gateway).bind(number);
        let found = self
            .transaction
            .optional(asked, |row| Ok(Entries::from_bytes(column(row, 0)?)));
        found.await
    }

    /// Returns rows in the order of their ids, after `after`.
    pub async fn calls(&mut self, after: &str, at_most: u32) -> Result<Vec<FoundCall>, StoreError> {
        let mut some = query(calls::SELECT);
        some.push(sql::AFTER);
        let some = some.bind(after).bind(at_most);
        self.transaction.rows(some, found).await
    }
}

impl FoundCall {
    /// Returns the id as it is stored.
    pub fn id(&self) -> String {
        match self {
            Self::Whole(stored) => stored.row.id.to_string(),
            Self::Unreadable(id) => id.clone(),
        }
    }
}

/// The columns with numbers that are never negative.
const NUMBERS: [usize; 9] = [1, 15, 16, 17, 22, 24, 25, 38, 44];

fn found(row: &Row) -> Result<FoundCall, sqlx::Error> {
    let id: String = column(row, 0)?;
    let is_odd = |at: &usize| matches!(column::<Option<i64>>(row, *at), Ok(Some(..0)) | Err(_));
    // What is written otherwise is read as the same.
    let is_as_written = |stored: &StoredCall| {
        let server = stored.row.server_id.map(|id| id.to_string());
        let flag = column::<i64>(row, 26);
        stored.row.id.to_string() == id
            && matches!(column::<Option<String>>(row, 27), Ok(written) if written == server)
            && !matches!(flag, Ok(..0 | 2..))
    };
    match stored(row) {
        Ok(stored) if is_as_written(&stored) && !NUMBERS.iter().any(is_odd) => {
            Ok(FoundCall::Whole(Box::new(stored)))
        }
        Ok(_) | Err(_) => Ok(FoundCall::Unreadable(id)),
    }
}

/// Groups calls by the block that covers them.
fn by_block(calls: &[(CallId, Option<u64>)]) -> BTreeMap<Option<u64>, Vec<CallId>> {
    let mut blocks: BTreeMap<Option<u64>, Vec<CallId>> = BTreeMap::new();
    for (id, block) in calls {
        blocks.entry(*block).or_default().push(*id);
    }
    blocks
}

/// Adds the condition that a call has one of these ids.
fn push_ids(statement: &mut Query<'_>, ids: &[CallId]) {
    statement.push("id IN (");
    for (place, id) in ids.iter().enumerate() {
        if place > 0 {
            statement.push(", ");
        }
        statement.push_bind(id.to_string());
    }
    statement.push(")");
}

/// Writes a block and the end of the chain, and blanks the salts of the entries that it records as
/// removed.
pub(super) async fn append(
    transaction: &mut Transaction<'_>,
    block: &SignedBlock,
    head: &ChainHead,
) -> Result<(), StoreError> {
    for ((gateway, number), places) in block.block.removed.blocks() {
        blank(transaction, gateway, number, places).await?;
    }
    transaction.execute(put_block(block)).await?;
    let put = query(sql::PUT_HEAD)
        .bind(head.gateway)
        .bind(head.number)
        .bind(head.hash.as_slice())
        .bind(head.signature.as_slice());
    transaction.execute(put).await.map(drop)
}

async fn blank(
    transaction: &mut Transaction<'_>,
    gateway: i64,
    number: u64,
    places: &BTreeSet<u32>,
) -> Result<(), StoreError> {
    let asked = query(sql::ENTRIES).bind(gateway).bind(number);
    let found = transaction.optional(asked, |row| {
        Ok((Entries::from_bytes(column(row, 0)?), unsigned(row, 1)?))
    });
    let Some((mut entries, live)) = found.await? else {
        return Ok(());
    };
    // Another gateway may have dropped the same rows: each counts once.
    let blanked = places.iter().filter(|place| entries.blank(**place)).count();
    let live = live.saturating_sub(blanked as u64);
    if live == 0 {
        entries = Entries::default();
    }
    let put = query(sql::PUT_ENTRIES)
        .bind(gateway)
        .bind(number)
        .bind(entries.as_bytes())
        .bind(live);
    transaction.execute(put).await.map(drop)
}

fn put_block(signed: &SignedBlock) -> Query<'_> {
    let block = &signed.block;
    query(sql::PUT_BLOCK)
        .bind(block.gateway)
        .bind(block.number)
        .bind(block.previous.as_slice())
        .bind(block.at_ms)
        .bind(block.kind.as_str())
        .bind(block.note.as_str())
        .bind(block.count)
        .bind(signed.live)
        .bind(signed.entries.as_bytes())
        .bind(block.entries_hash.as_slice())
        .bind(block.removed.to_bytes())
        .bind(block.key_id.as_str())
        .bind(signed.hash.as_slice())
        .bind(signed.signature.as_slice())
}

fn block(row: &Row) -> Result<SignedBlock, sqlx::Error> {
    let removed: Vec<u8> = column(row, 9)?;
    let odd = || sqlx::Error::Decode("an audit block that no gateway wrote".into());
    Ok(SignedBlock {
        block: Block {
            gateway: column(row, 0)?,
            number: unsigned(row, 1)?,
            previous: hash(row, 2)?,
            at_ms: unsigned(row, 3)?,
            kind: parsed(row, 4)?,
            note: column(row, 5)?,
            count: crate::database::row::narrow(row, 6)?,
            entries_hash: hash(row, 8)?,
            removed: Removed::from_bytes(&removed).ok_or_else(odd)?,
            key_id: column(row, 10)?,
        },
        entries: Entries::from_bytes(column(row, 7)?),
        hash: hash(row, 11)?,
        signature: column(row, 12)?,
        live: crate::database::row::narrow(row, 13)?,
    })
}

fn head(row: &Row) -> Result<ChainHead, sqlx::Error> {
    Ok(ChainHead {
        gateway: column(row, 0)?,
        number: unsigned(row, 1)?,
        hash: hash(row, 2)?,
        signature: column(row, 3)?,
    })
}

pub(super) fn hash(row: &Row, index: usize) -> Result<Hash, sqlx::Error> {
    let bytes: Vec<u8> = column(row, index)?;
    let hash = bytes.try_into();
    hash.map_err(|_| sqlx::Error::Decode("a hash has 32 bytes".into()))
}
