//! The journal's chain and its damage. Statements are in `sql::journal`.

use sqlx::sqlite::SqliteRow;

use super::SqliteStore;
use super::value::{column, parsed, signed, signed_option, unsigned, unsigned_option};
use super::writer::Durability;
use crate::call::JournalPosition;
use crate::error::StoreError;
use crate::journal::{JournalDamage, JournalRun, JournalState};
use crate::sql::journal as sql;

impl SqliteStore {
    pub(crate) async fn journal_state(&self) -> Result<JournalState, StoreError> {
        const WHAT: &str = "read the journal's state";
        let mut reader = self.readers.take(WHAT).await?;
        let row = sqlx::query(sql::STATE)
            .bind(self.number())
            .fetch_optional(reader.connection())
            .await;
        let state = row.and_then(|row| row.as_ref().map(state).transpose());
        let state = state.map_err(|error| self.failed(WHAT, error))?;
        Ok(state.unwrap_or_default())
    }

    pub(crate) async fn begin_journal_run(
        &self,
        identity: u32,
        run: JournalRun,
        position: JournalPosition,
    ) -> Result<(), StoreError> {
        const WHAT: &str = "begin a run of the journal";
        let mut turn = self.writer.turn(WHAT, Durability::Process).await?;
        let begin = sqlx::query(sql::BEGIN_RUN)
            .bind(self.number())
            .bind(self.boot())
            .bind(signed(position.segment))
            .bind(signed(position.offset))
            .bind(i64::from(identity))
            .bind(signed(run.segment))
            .bind(signed(run.calls))
            .execute(turn.connection()?)
            .await;
        begin.map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        Ok(())
    }

    pub(crate) async fn end_journal_run(
        &self,
        position: JournalPosition,
    ) -> Result<(), StoreError> {
        const WHAT: &str = "end a run of the journal";
        let mut turn = self.writer.turn(WHAT, Durability::Process).await?;
        let end = sqlx::query(sql::END_RUN)
            .bind(self.number())
            .bind(self.boot())
            .bind(signed(position.segment))
            .bind(signed(position.offset))
            .execute(turn.connection()?)
            .await;
        end.map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        Ok(())
    }

    pub(crate) async fn put_journal_damage(
        &self,
        damage: &[JournalDamage],
    ) -> Result<(), StoreError> {
        const WHAT: &str = "write down damage of the journal";
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let mut transaction = turn.begin().await?;
        for one in damage {
            let put = sqlx::query(sql::PUT_DAMAGE)
                .bind(self.number())
                .bind(signed(one.segment))
                .bind(one.kind.as_str())
                .bind(signed(one.at_ms))
                .bind(signed_option(one.calls))
                .bind(one.file.as_deref())
                .execute(&mut *transaction)
                .await;
            put.map_err(|error| self.failed(WHAT, error))?;
        }
        self.commit(WHAT, transaction).await?;
        turn.done();
        Ok(())
    }

    pub(crate) async fn journal_damage(&self) -> Result<Vec<JournalDamage>, StoreError> {
        const WHAT: &str = "list damage of the journal";
        let mut reader = self.readers.take(WHAT).await?;
        let rows = sqlx::query(sql::OPEN_DAMAGE)
            .bind(self.number())
            .fetch_all(reader.connection())
            .await;
        self.decoded(WHAT, rows, damage)
    }

    pub(crate) async fn acknowledge_journal_damage(
        &self,
        by: &str,
        at_ms: u64,
    ) -> Result<u64, StoreError> {
        const WHAT: &str = "acknowledge damage of the journal";
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let acknowledge = sqlx::query(sql::ACKNOWLEDGE)
            .bind(self.number())
            .bind(signed(at_ms))
            .bind(by);
        let done = acknowledge.execute(turn.connection()?).await;
        let done = done.map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        Ok(done.rows_affected())
    }

    pub(crate) async fn count_rows_between(&self, first: u64, end: u64) -> Result<u64, StoreError> {
        const WHAT: &str = "count the rows of a segment";
        let mut reader = self.readers.take(WHAT).await?;
        let count = sqlx::query(sql::ROWS_BETWEEN)
            .bind(self.number())
            .bind(signed(first))
            .bind(signed(end));
        let row = count.fetch_one(reader.connection()).await;
        let counted = row.and_then(|row| unsigned(&row, 0));
        counted.map_err(|error| self.failed(WHAT, error))
    }

    /// Refuses every write while the file is not where it was.
    pub(crate) fn set_gone(&self, gone: bool) {
        self.writer.set_gone(gone);
    }

    /// Takes the right to write, and gives it back.
    pub(crate) async fn probe_write(&self) -> Result<(), StoreError> {
        const WHAT: &str = "take the right to write";
        let mut turn = self.writer.turn(WHAT, Durability::Process).await?;
        let transaction = turn.begin().await?;
        let rolled_back = transaction.rollback().await;
        rolled_back.map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        Ok(())
    }
}

fn state(row: &SqliteRow) -> Result<JournalState, sqlx::Error> {
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

fn damage(row: &SqliteRow) -> Result<JournalDamage, sqlx::Error> {
    Ok(JournalDamage {
        segment: unsigned(row, 0)?,
        kind: parsed(row, 1)?,
        at_ms: unsigned(row, 2)?,
        calls: unsigned_option(row, 3)?,
        file: column(row, 4)?,
    })
}
