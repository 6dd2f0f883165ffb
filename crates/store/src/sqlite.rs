//! The store in a SQLite file, attached as `kb`, with one writer that all writes queue for and two
//! readers that are opened when first needed.
//!
//! Never holds a transaction across a caller's wait, never spawns a task. Entry point:
//! `SqliteStore::open`; the nouns are in the files below, each an `impl SqliteStore`.

mod acts;
mod agents;
mod calls;
mod catalog;
mod connection;
mod events;
mod file;
mod gateways;
mod grants;
mod hosting;
mod import;
mod journal;
mod keys;
mod leases;
mod migrate;
mod readers;
mod secrets;
mod servers;
mod settings;
#[cfg(test)]
mod tests;
mod value;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Sqlite, Transaction};

use self::connection::Connector;
pub(crate) use self::file::newest_backup;
use self::gateways::Registered;
use self::readers::Readers;
use self::writer::{Durability, WriteTurn, Writer};
use crate::error::StoreError;
use crate::gateway::Gateway;

/// How long opening waits for another process that holds the file: one that is closing it, say.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a statement waits for another process that holds the file. Short: an administrator
/// waits for it, and the journal keeps what the import could not store.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);

/// An open SQLite file.
pub(crate) struct SqliteStore {
    path: PathBuf,
    writer: Writer,
    readers: Readers,
    busy_timeout: Duration,
    /// Whether the write-ahead log may still have what was removed.
    unscrubbed: AtomicBool,
    /// Who writes.
    gateway: Registered,
}

impl SqliteStore {
    /// Opens the file at `path`, making or migrating it first if needed.
    pub(crate) async fn open(path: &Path, gateway: &Gateway) -> Result<Self, StoreError> {
        Self::open_with(path, gateway, &migrate::known(), OPEN_TIMEOUT).await
    }

    /// Opens with migrations and a patience that tests choose.
    async fn open_with(
        path: &Path,
        gateway: &Gateway,
        migrator: &Migrator,
        open_timeout: Duration,
    ) -> Result<Self, StoreError> {
        let path = std::path::absolute(path).map_err(|error| StoreError::open(path, error))?;
        let connector = Connector::new(&path, open_timeout)?;
        file::prepare_folder(&path)?;
        if file::look(&path)? == file::FileState::Missing {
            migrate::create(&path, migrator, open_timeout).await?;
        }
        let mut connection = connector.writer().await?;
        if let Some(found) = migrate::older(&mut connection, &path, migrator).await? {
            migrate::upgrade(&mut connection, &path, migrator, found).await?;
        }
        migrate::check(&mut connection, &path).await?;
        let connector = connector.with_busy_timeout(open_timeout.min(BUSY_TIMEOUT));
        connector.settle(&mut connection).await?;
        let gateway = gateways::register(&mut connection, &path, gateway).await?;
        let writer = Writer::new(connector.clone(), connection);
        Ok(Self {
            path,
            writer,
            readers: Readers::new(connector),
            busy_timeout: open_timeout.min(BUSY_TIMEOUT),
            unscrubbed: AtomicBool::new(false),
            gateway,
        })
    }

    /// Returns the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Lets go of the file; the last connection imports the write-ahead log into it.
    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        self.stopped().await;
        self.readers.close().await?;
        self.writer.close().await
    }

    /// Forces the write-ahead log to the disk.
    pub(crate) async fn sync(&self) -> Result<(), StoreError> {
        const WHAT: &str = "write everything to the disk";
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let checkpoint =
            sqlx::query("PRAGMA kb.wal_checkpoint(FULL)").fetch_one(turn.connection()?);
        let row = checkpoint.await.map_err(|error| self.failed(WHAT, error))?;
        let busy: i64 = value::column(&row, 0).map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        match busy {
            0 => Ok(()),
            _ => Err(StoreError::Locked {
                path: self.path.clone(),
                holder: "a reader of the file".to_owned(),
            }),
        }
    }

    /// Empties the write-ahead log if it may have what was removed; tells whether nothing is left.
    ///
    /// A reader that is at work keeps it from that; whoever asks again later succeeds.
    pub(crate) async fn scrub(&self) -> Result<bool, StoreError> {
        const WHAT: &str = "empty the write-ahead log";
        if !self.unscrubbed.load(Ordering::Acquire) {
            return Ok(true);
        }
        let mut turn = self.writer.turn(WHAT, Durability::Process).await?;
        // What is removed from here on is not waited for by this checkpoint.
        self.unscrubbed.store(false, Ordering::Release);
        let emptied = self.empty_log(&mut turn).await;
        if !matches!(emptied, Ok(true)) {
            self.unscrubbed.store(true, Ordering::Release);
        }
        let emptied = emptied.map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        Ok(emptied)
    }

    async fn empty_log(&self, turn: &mut WriteTurn<'_>) -> Result<bool, sqlx::Error> {
        let connection = turn.connection().map_err(|_| sqlx::Error::PoolClosed)?;
        // The turn is not held for a reader that takes its time.
        let hurry = sqlx::query("PRAGMA busy_timeout = 50");
        hurry.execute(&mut *connection).await?;
        let checkpoint = sqlx::query("PRAGMA kb.wal_checkpoint(TRUNCATE)");
        let emptied = checkpoint.fetch_one(&mut *connection).await;
        let patience = format!("PRAGMA busy_timeout = {}", self.busy_timeout.as_millis());
        let restore = sqlx::query(AssertSqlSafe(patience)).persistent(false);
        restore.execute(&mut *connection).await?;
        let busy: i64 = value::column(&emptied?, 0)?;
        Ok(busy == 0)
    }

    /// Empties the log right after something secret was removed; what fails is done later.
    async fn removed(&self) {
        self.unscrubbed.store(true, Ordering::Release);
        if let Err(error) = self.scrub().await {
            tracing::debug!(%error, "the write-ahead log is emptied later");
        }
    }

    /// Ends a transaction so that all of it holds.
    async fn commit(
        &self,
        what: &'static str,
        transaction: Transaction<'_, Sqlite>,
    ) -> Result<(), StoreError> {
        let committed = transaction.commit().await;
        committed.map_err(|error| self.failed(what, error))
    }

    /// Takes the rows of an answer apart.
    fn decoded<T>(
        &self,
        what: &'static str,
        rows: Result<Vec<SqliteRow>, sqlx::Error>,
        decode: impl Fn(&SqliteRow) -> Result<T, sqlx::Error>,
    ) -> Result<Vec<T>, StoreError> {
        rows.and_then(|rows| rows.iter().map(decode).collect())
            .map_err(|error| self.failed(what, error))
    }

    /// Classifies what SQLite reported.
    fn failed(&self, what: &'static str, source: sqlx::Error) -> StoreError {
        StoreError::from_sqlite(&self.path, what, source)
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Returns the time of day as rows carry it.
fn now_ms() -> i64 {
    i64::try_from(crate::unix_ms()).unwrap_or(i64::MAX)
}
