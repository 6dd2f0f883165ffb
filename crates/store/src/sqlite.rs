//! The store in a SQLite file, attached as `kb`, with one writer and a queue for it, and two
//! readers that are opened on demand.
//!
//! Never holds a transaction while a caller waits, never spawns a task. Entry point:
//! `SqliteStore::open`; `database` runs the statements.

mod connection;
mod file;
mod import;
pub(crate) mod migrate;
mod readers;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::{AssertSqlSafe, Row};

use self::connection::Connector;
pub(crate) use self::file::newest_backup;
pub(crate) use self::readers::Reader;
use self::readers::Readers;
pub(crate) use self::writer::WriteTurn;
use self::writer::Writer;
use crate::database::Durability;
use crate::error::StoreError;

/// How long opening waits for another process that holds the file, such as one that is closing it.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a statement waits for another process that holds the file. Short: an administrator
/// waits for it, and the journal keeps rows that could not be imported.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);

/// The largest file that is rewritten beside a gateway that starts.
const REWRITTEN: i64 = 256 << 20;

/// An open SQLite file.
pub(crate) struct SqliteStore {
    path: PathBuf,
    writer: Writer,
    readers: Readers,
    busy_timeout: Duration,
    /// Whether the write-ahead log may still contain deleted data.
    unscrubbed: AtomicBool,
    /// What SQLite first reported as damaged.
    damage: OnceLock<String>,
}

impl SqliteStore {
    /// Opens the file at `path`, creating or migrating it if needed.
    pub(crate) async fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, &migrate::known(), OPEN_TIMEOUT).await
    }

    /// Opens with the migrations and the timeout of a test.
    async fn open_with(
        path: &Path,
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
        let writer = Writer::new(connector.clone(), connection);
        Ok(Self {
            path,
            writer,
            readers: Readers::new(connector),
            busy_timeout: open_timeout.min(BUSY_TIMEOUT),
            unscrubbed: AtomicBool::new(false),
            damage: OnceLock::new(),
        })
    }

    /// Returns the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the size of the file and its log. Opens neither.
    pub(crate) fn file_bytes(&self) -> u64 {
        let parts = [self.path.clone(), file::beside(&self.path, "-wal")];
        let lengths = parts.iter().filter_map(|part| std::fs::metadata(part).ok());
        lengths.map(|file| file.len()).sum()
    }

    /// Returns an error if a statement has found the file damaged.
    pub(crate) fn check_intact(&self) -> Result<(), StoreError> {
        match self.damage.get() {
            Some(reason) => Err(StoreError::corrupt(&self.path, reason)),
            None => Ok(()),
        }
    }

    /// Checks that the write-ahead log is there, which it is while a connection is open. If somebody
    /// removed it, everything goes into the file itself: nothing else survives the process.
    pub(crate) async fn check_log(&self) -> Result<(), StoreError> {
        let log = file::beside(&self.path, "-wal");
        let found = std::fs::symlink_metadata(&log);
        if !found.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            return Ok(());
        }
        self.sync().await?;
        Err(StoreError::Gone { path: log })
    }

    /// Borrows a connection for reading.
    pub(crate) async fn reader(&self, what: &'static str) -> Result<Reader<'_>, StoreError> {
        self.readers.take(what).await
    }

    /// Waits for the writer.
    pub(crate) async fn turn(
        &self,
        what: &'static str,
        durability: Durability,
    ) -> Result<WriteTurn<'_>, StoreError> {
        self.writer.turn(what, durability).await
    }

    /// Refuses every write while the file is missing.
    pub(crate) fn set_gone(&self, gone: bool) {
        self.writer.set_gone(gone);
    }

    /// Waits until the disk has not confirmed a write; none is tried after.
    pub(crate) async fn unconfirmed(&self) {
        self.writer.unconfirmed().await;
    }

    /// Closes the file; the last connection checkpoints the write-ahead log.
    pub(crate) async fn close(&self) -> Result<(), StoreError> {
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
        let busy: i64 = row.try_get(0).map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        match busy {
            0 => Ok(()),
            _ => Err(StoreError::Locked {
                database: self.path.display().to_string(),
                holder: "a reader of the file".to_owned(),
            }),
        }
    }

    /// Empties the write-ahead log if it may contain deleted data; returns whether nothing is left.
    ///
    /// An active reader prevents that; a later call succeeds.
    pub(crate) async fn scrub(&self) -> Result<bool, StoreError> {
        const WHAT: &str = "empty the write-ahead log";
        if !self.unscrubbed.load(Ordering::Acquire) {
            return Ok(true);
        }
        let mut turn = self.writer.turn(WHAT, Durability::Process).await?;
        // Data deleted from here on is not covered by this checkpoint.
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
        // The writer is not blocked by a slow reader.
        let hurry = sqlx::query("PRAGMA busy_timeout = 50");
        hurry.execute(&mut *connection).await?;
        let checkpoint = sqlx::query("PRAGMA kb.wal_checkpoint(TRUNCATE)");
        let emptied = checkpoint.fetch_one(&mut *connection).await;
        let patience = format!("PRAGMA busy_timeout = {}", self.busy_timeout.as_millis());
        let restore = sqlx::query(AssertSqlSafe(patience)).persistent(false);
        restore.execute(&mut *connection).await?;
        let busy: i64 = emptied?.try_get(0)?;
        Ok(busy == 0)
    }

    /// Empties the log right after a secret was deleted; on failure this is done later.
    pub(crate) async fn removed(&self) {
        self.unscrubbed.store(true, Ordering::Release);
        if let Err(error) = self.scrub().await {
            tracing::debug!(%error, "the write-ahead log is emptied later");
        }
    }

    /// Rewrites the file, without what pages that are free, or partly so, have left of former values;
    /// false if it is too large for that. What an earlier release removed was not overwritten.
    pub(crate) async fn rewrite(&self) -> Result<bool, StoreError> {
        const WHAT: &str = "rewrite the file";
        let mut turn = self.writer.turn(WHAT, Durability::Power).await?;
        let rewritten = async {
            let connection = turn.connection().map_err(|_| sqlx::Error::PoolClosed)?;
            let mut bytes: i64 = 1;
            for pragma in ["PRAGMA kb.page_count", "PRAGMA kb.page_size"] {
                let row = sqlx::query(pragma).fetch_one(&mut *connection).await?;
                bytes = bytes.saturating_mul(row.try_get::<i64, _>(0)?);
            }
            if bytes > REWRITTEN {
                return Ok::<bool, sqlx::Error>(false);
            }
            let vacuum = sqlx::query("VACUUM kb").persistent(false);
            vacuum.execute(&mut *connection).await?;
            Ok(true)
        };
        let rewritten = rewritten.await;
        let rewritten = rewritten.map_err(|error| self.failed(WHAT, error))?;
        turn.done();
        // The log has the pages as they were.
        self.removed().await;
        Ok(rewritten)
    }

    /// Classifies what SQLite reported. fault F3
    pub(crate) fn failed(&self, what: &'static str, source: sqlx::Error) -> StoreError {
        if StoreError::is_unconfirmed(&source) {
            tracing::error!(error = %source, "the disk did not confirm the database");
            self.writer.set_unconfirmed();
        }
        let error = StoreError::from_sqlite(&self.path, what, source);
        if let StoreError::Corrupt { reason, .. } = &error {
            self.damage.get_or_init(|| reason.clone());
        }
        self.writer
            .set_held(matches!(error, StoreError::Locked { .. }));
        error
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}
