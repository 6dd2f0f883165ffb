//! What an export of the audit reads: the blocks that this gateway appended, in order, and the acts
//! that were done on it. Statements are in `sql::chain` and `sql::acts`.

use super::Store;
use super::acts::act;
use crate::act::{ActOutcome, ActRow};
use crate::chain::{BlockKind, Entries, Hash};
use crate::database::query::query;
use crate::database::row::{Row, column, parsed, unsigned};
use crate::error::StoreError;
use crate::sql::{acts, chain as sql};

/// A block as an export needs it, without what is only verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedBlock {
    /// Its number.
    pub number: u64,
    /// When it was appended.
    pub at_ms: u64,
    /// Why it was appended.
    pub kind: BlockKind,
    /// How many rows it covered.
    pub count: u64,
    /// Its hash.
    pub hash: Hash,
    /// The rows that it covered; empty once none of them is there.
    pub entries: Entries,
}

impl Store {
    /// Returns the blocks of this gateway after a number, in order.
    pub async fn exported_blocks(
        &self,
        after: u64,
        at_most: u32,
    ) -> Result<Vec<ExportedBlock>, StoreError> {
        const WHAT: &str = "read blocks of the audit's chain";
        let next = query(sql::EXPORTED)
            .bind(self.number())
            .bind(after)
            .bind(at_most);
        self.database().rows(WHAT, next, exported).await
    }

    /// Returns how many rows the blocks of this gateway after a number cover.
    pub async fn rows_after_block(&self, after: u64) -> Result<u64, StoreError> {
        const WHAT: &str = "count rows of the audit's chain";
        let count = query(sql::ROWS_AFTER).bind(self.number()).bind(after);
        self.database()
            .one(WHAT, count, |row| unsigned(row, 0))
            .await
    }

    /// Returns the hash of a block of this gateway; `None` if there is no such block.
    pub async fn block_hash(&self, number: u64) -> Result<Option<Hash>, StoreError> {
        const WHAT: &str = "read a block of the audit's chain";
        let asked = query(sql::HASH).bind(self.number()).bind(number);
        let found = self
            .database()
            .optional(WHAT, asked, |row| super::chain::hash(row, 0));
        found.await
    }

    /// Returns the number of the newest act, of any gateway; zero if there is none.
    pub async fn newest_act(&self) -> Result<u64, StoreError> {
        const WHAT: &str = "read the newest administrative act";
        let newest = query(acts::NEWEST);
        self.database()
            .one(WHAT, newest, |row| unsigned(row, 0))
            .await
    }

    /// Returns the numbers and outcomes of the acts of this gateway after a number, in order.
    pub async fn own_acts(
        &self,
        after: u64,
        at_most: u32,
    ) -> Result<Vec<(u64, ActOutcome)>, StoreError> {
        const WHAT: &str = "list administrative acts";
        let next = query(acts::OWN)
            .bind(self.number())
            .bind(after)
            .bind(at_most);
        let listed = self
            .database()
            .rows(WHAT, next, |row| Ok((unsigned(row, 0)?, parsed(row, 1)?)));
        listed.await
    }

    /// Returns the acts with these numbers, in order.
    pub async fn acts_with(&self, ids: &[u64]) -> Result<Vec<ActRow>, StoreError> {
        let mut wanted = query(acts::SELECT);
        wanted.push(" WHERE id IN (");
        for (place, id) in ids.iter().enumerate() {
            if place > 0 {
                wanted.push(", ");
            }
            wanted.push_bind(*id);
        }
        wanted.push(") ORDER BY id");
        let database = self.database();
        database.rows("list administrative acts", wanted, act).await
    }
}

fn exported(row: &Row) -> Result<ExportedBlock, sqlx::Error> {
    Ok(ExportedBlock {
        number: unsigned(row, 0)?,
        at_ms: unsigned(row, 1)?,
        kind: parsed(row, 2)?,
        count: unsigned(row, 3)?,
        hash: super::chain::hash(row, 4)?,
        entries: Entries::from_bytes(column(row, 5)?),
    })
}
