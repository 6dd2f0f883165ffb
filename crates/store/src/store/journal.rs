//! The journal's chain and its damage. Statements are in `sql::journal`.

use super::Store;
use crate::call::JournalPosition;
use crate::database::Durability;
use crate::database::query::query;
use crate::database::row::{Row, column, parsed, unsigned, unsigned_option};
use crate::error::StoreError;
use crate::journal::{JournalDamage, JournalRun, JournalState};
use crate::sql::journal as sql;

impl Store {
    /// Returns the state of the journal.
    pub async fn journal_state(&self) -> Result<JournalState, StoreError> {
        const WHAT: &str = "read the journal's state";
        let known = query(sql::STATE).bind(self.number());
        let known = self.database().optional(WHAT, known, state).await?;
        Ok(known.unwrap_or_default())
    }

    /// Records the start of a journal run; `position` is used only if there is none.
    pub async fn begin_journal_run(
        &self,
        identity: u32,
        run: JournalRun,
        position: JournalPosition,
    ) -> Result<(), StoreError> {
        const WHAT: &str = "begin a run of the journal";
        let begin = query(sql::BEGIN_RUN)
            .bind(self.number())
            .bind(self.boot())
            .bind(position.segment)
            .bind(position.offset)
            .bind(identity)
            .bind(run.segment)
            .bind(run.calls);
        let begun = self.database().execute(WHAT, Durability::Process, begin);
        begun.await.map(drop)
    }

    /// Records that the journal ended empty, and where the next one starts.
    pub async fn end_journal_run(&self, position: JournalPosition) -> Result<(), StoreError> {
        const WHAT: &str = "end a run of the journal";
        let end = query(sql::END_RUN)
            .bind(self.number())
            .bind(self.boot())
            .bind(position.segment)
            .bind(position.offset);
        let ended = self.database().execute(WHAT, Durability::Process, end);
        ended.await.map(drop)
    }

    /// Records damage of the journal; known damage is unchanged.
    pub async fn put_journal_damage(&self, damage: &[JournalDamage]) -> Result<(), StoreError> {
        const WHAT: &str = "write down damage of the journal";
        let mut transaction = self.database().begin(WHAT, Durability::Power).await?;
        for one in damage {
            let put = query(sql::PUT_DAMAGE)
                .bind(self.number())
                .bind(one.segment)
                .bind(one.kind.as_str())
                .bind(one.at_ms)
                .bind(one.calls)
                .bind(one.file.as_deref());
            transaction.execute(put).await?;
        }
        transaction.commit().await
    }

    /// Returns the unacknowledged damage of the journal, oldest first.
    pub async fn journal_damage(&self) -> Result<Vec<JournalDamage>, StoreError> {
        const WHAT: &str = "list damage of the journal";
        let open = query(sql::OPEN_DAMAGE).bind(self.number());
        self.database().rows(WHAT, open, damage).await
    }

    /// Acknowledges all damage of the journal and returns how much there was.
    pub async fn acknowledge_journal_damage(
        &self,
        by: &str,
        at_ms: u64,
    ) -> Result<u64, StoreError> {
        const WHAT: &str = "acknowledge damage of the journal";
        let acknowledge = query(sql::ACKNOWLEDGE)
            .bind(self.number())
            .bind(at_ms)
            .bind(by);
        let database = self.database();
        database.execute(WHAT, Durability::Power, acknowledge).await
    }

    /// Counts the rows whose `seq` is at least `first` and below `end`.
    pub async fn count_rows_between(&self, first: u64, end: u64) -> Result<u64, StoreError> {
        const WHAT: &str = "count the rows of a segment";
        let count = query(sql::ROWS_BETWEEN)
            .bind(self.number())
            .bind(first)
            .bind(end);
        let counted = self.database().one(WHAT, count, |row| unsigned(row, 0));
        counted.await
    }
}

fn state(row: &Row) -> Result<JournalState, sqlx::Error> {
    let position = JournalPosition {
        segment: unsigned(row, 0)?,
        offset: unsigned(row, 1)?,
    };
    let identity = unsigned_option(row, 2)?;
    let run = match (unsigned_option(row, 3)?, unsigned_option(row, 4)?) {
        (Some(segment), Some(calls)) => Some(JournalRun { segment, calls }),
        _ => None,
    };
    Ok(JournalState {
        position: Some(position),
        identity: identity.and_then(|identity| u32::try_from(identity).ok()),
        run,
    })
}

fn damage(row: &Row) -> Result<JournalDamage, sqlx::Error> {
    Ok(JournalDamage {
        segment: unsigned(row, 0)?,
        kind: parsed(row, 1)?,
        at_ms: unsigned(row, 2)?,
        calls: unsigned_option(row, 3)?,
        file: column(row, 4)?,
    })
}
