//! The one write connection, and the bounded queue in front of it.
//!
//! A turn is taken for one method and ends with `done`. A turn that ends otherwise (an error, a
//! caller that left) leaves the writer suspect: the next turn rolls back, and takes a new connection
//! if it must. So a full disk heals by itself. Writes of administrators wait for their turn for
//! seconds, and only for a moment after a failed write; other writes wait as long as their caller
//! does.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::{Mutex, MutexGuard, Semaphore, SemaphorePermit, watch};
use tokio::time::timeout;

use super::connection::Connector;
use crate::database::Durability;
use crate::error::StoreError;

/// How many writes may wait or be under way at once.
const QUEUE: usize = 256;

/// How long a write that somebody waits for stands in the queue: a slow disk is waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The same after a write that failed: the database is full or locked, and waiting helps nobody.
const LONGEST_WAIT_AFTER_FAILURE: Duration = Duration::from_millis(750);

/// The queue and the connection.
pub(crate) struct Writer {
    connector: Connector,
    places: Semaphore,
    slot: Mutex<Slot>,
    /// The file is no longer where it was: what is written now is lost when the process ends.
    gone: AtomicBool,
    /// The disk did not confirm a write: the kernel may have dropped it and what came before, so nothing
    /// is written any more.
    unconfirmed: watch::Sender<bool>,
    /// Whether the last turn failed.
    failed: AtomicBool,
}

struct Slot {
    connection: Option<SqliteConnection>,
    /// What the connection is set to, if that is known.
    durability: Option<Durability>,
    /// Whether the last turn ended without `done`.
    suspect: bool,
    /// Whether the store is closed for good.
    closed: bool,
}

/// The right to write, for one method.
pub(crate) struct WriteTurn<'a> {
    what: &'static str,
    connector: &'a Connector,
    slot: MutexGuard<'a, Slot>,
    failed: &'a AtomicBool,
    _place: SemaphorePermit<'a>,
}

impl Writer {
    /// Takes the connection over.
    pub(crate) fn new(connector: Connector, connection: SqliteConnection) -> Self {
        let durability = Some(Durability::Process);
        let slot = Slot {
            connection: Some(connection),
            durability,
            suspect: false,
            closed: false,
        };
        Self {
            connector,
            places: Semaphore::new(QUEUE),
            slot: Mutex::new(slot),
            gone: AtomicBool::new(false),
            unconfirmed: watch::Sender::new(false),
            failed: AtomicBool::new(false),
        }
    }

    /// Refuses every turn while the file is not where it was.
    pub(crate) fn set_gone(&self, gone: bool) {
        self.gone.store(gone, Ordering::Release);
    }

    /// Refuses every turn from now on: the disk did not confirm a write.
    pub(crate) fn set_unconfirmed(&self) {
        self.unconfirmed.send_replace(true);
    }

    /// Waits until the disk has not confirmed a write.
    pub(crate) async fn unconfirmed(&self) {
        let mut seen = self.unconfirmed.subscribe();
        // The sender lives as long as this.
        seen.wait_for(|unconfirmed| *unconfirmed).await.ok();
    }

    /// Waits for the turn to write; `Busy` when too many wait, or the store is closed.
    pub(crate) async fn turn(
        &self,
        what: &'static str,
        durability: Durability,
    ) -> Result<WriteTurn<'_>, StoreError> {
        let busy = || StoreError::Busy { what };
        if self.gone.load(Ordering::Acquire) {
            let path = self.connector.path().to_owned();
            return Err(StoreError::Gone { path });
        }
        if *self.unconfirmed.borrow() {
            let path = self.connector.path().to_owned();
            let source = io::Error::other("it did not confirm an earlier write");
            let source = source.into();
            return Err(StoreError::Disk { path, source });
        }
        let place = self.places.try_acquire().map_err(|_| busy())?;
        let slot = match durability {
            Durability::Process => self.slot.lock().await,
            Durability::Power => timeout(self.longest_wait(), self.slot.lock())
                .await
                .map_err(|_| busy())?,
        };
        if slot.closed {
            return Err(busy());
        }
        let mut turn = WriteTurn {
            what,
            connector: &self.connector,
            slot,
            failed: &self.failed,
            _place: place,
        };
        let mended = turn.mend().await;
        turn.slot.suspect = true;
        mended?;
        turn.set(durability).await?;
        Ok(turn)
    }

    fn longest_wait(&self) -> Duration {
        match self.failed.load(Ordering::Relaxed) {
            true => LONGEST_WAIT_AFTER_FAILURE,
            false => LONGEST_WAIT,
        }
    }

    /// Waits for the writes under way and closes the connection; later turns are refused.
    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        self.places.close();
        let mut slot = self.slot.lock().await;
        slot.closed = true;
        if let Some(connection) = slot.connection.take() {
            connection.close().await.map_err(|error| {
                StoreError::from_sqlite(self.connector.path(), "close the file", error)
            })?;
        }
        Ok(())
    }
}

impl Drop for WriteTurn<'_> {
    fn drop(&mut self) {
        self.failed.store(self.slot.suspect, Ordering::Relaxed);
    }
}

impl WriteTurn<'_> {
    /// Returns what statements run on outside of a transaction.
    pub(crate) fn connection(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        let what = self.what;
        self.slot
            .connection
            .as_mut()
            .ok_or(StoreError::Busy { what })
    }

    /// Ends the turn: nothing is left open.
    pub(crate) fn done(mut self) {
        self.slot.suspect = false;
    }

    /// Makes sure that nothing of a broken turn is left.
    async fn mend(&mut self) -> Result<(), StoreError> {
        if self.slot.suspect {
            self.slot.durability = None;
            if let Some(connection) = &mut self.slot.connection {
                // The ping answers after a rollback that is still queued. SQLite rolls some
                // failures back by itself, after which the driver counts a transaction for ever.
                let answers = connection.ping().await.is_ok();
                if !answers || connection.is_in_transaction() {
                    self.slot.connection = None;
                }
            }
        }
        if self.slot.connection.is_none() {
            self.slot.connection = Some(self.connector.writer().await?);
            self.slot.durability = Some(Durability::Process);
        }
        Ok(())
    }

    /// Sets what the next transaction survives.
    async fn set(&mut self, durability: Durability) -> Result<(), StoreError> {
        if self.slot.durability == Some(durability) {
            return Ok(());
        }
        let (what, path) = (self.what, self.connector.path());
        let pragma = match durability {
            Durability::Process => "PRAGMA kb.synchronous = NORMAL",
            Durability::Power => "PRAGMA kb.synchronous = FULL",
        };
        self.slot.durability = None;
        let connection = self.connection()?;
        let set = sqlx::query(pragma).execute(connection).await;
        set.map_err(|error| StoreError::from_sqlite(path, what, error))?;
        self.slot.durability = Some(durability);
        Ok(())
    }
}
