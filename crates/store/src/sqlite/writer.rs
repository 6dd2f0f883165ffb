//! The one write connection, and the bounded queue in front of it.
//!
//! A turn is taken for one method and ends with `done`. A turn that ends otherwise (an error, a
//! cancelled caller) marks the writer as suspect: the next turn rolls back, and opens a new
//! connection if necessary. So the store recovers from a full disk by itself. Administrative writes
//! wait for seconds in the queue, and only for a moment after a failed write; other writes wait as
//! long as their caller does.

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

/// How many writes may wait or run at once.
const QUEUE: usize = 256;

/// How long a write with a waiting caller stays in the queue: long enough for a slow disk.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The same after a failed write: the database is full or locked, and waiting does not help.
const LONGEST_WAIT_AFTER_FAILURE: Duration = Duration::from_millis(750);

/// The queue and the connection.
pub(crate) struct Writer {
    connector: Connector,
    places: Semaphore,
    slot: Mutex<Slot>,
    /// Whether the file is missing: writes would be lost when the process ends.
    gone: AtomicBool,
    /// The disk did not confirm a write: the kernel may have dropped it and what came before, so nothing
    /// is written any more.
    unconfirmed: watch::Sender<bool>,
    /// Whether the last turn failed.
    failed: AtomicBool,
    /// Whether the last failure was that another process holds the file.
    held: AtomicBool,
}

struct Slot {
    connection: Option<SqliteConnection>,
    /// The current setting of the connection, if known.
    durability: Option<Durability>,
    /// Whether the last turn ended without `done`.
    suspect: bool,
    /// Whether the store is permanently closed.
    closed: bool,
}

/// The exclusive right to write, for one method.
pub(crate) struct WriteTurn<'a> {
    what: &'static str,
    connector: &'a Connector,
    slot: MutexGuard<'a, Slot>,
    failed: &'a AtomicBool,
    held: &'a AtomicBool,
    _place: SemaphorePermit<'a>,
}

impl Writer {
    /// Takes over the connection.
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
            held: AtomicBool::new(false),
        }
    }

    /// Notes whether another process holds the file: the error of a wait for a turn says so.
    pub(crate) fn set_held(&self, is_held: bool) {
        self.held.store(is_held, Ordering::Relaxed);
    }

    /// Refuses every turn while the file is missing.
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

    /// Waits for the writer; `Busy` when too many wait, or the store is closed.
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
                .map_err(|_| self.waited(what))?,
        };
        if slot.closed {
            return Err(busy());
        }
        let mut turn = WriteTurn {
            what,
            connector: &self.connector,
            slot,
            failed: &self.failed,
            held: &self.held,
            _place: place,
        };
        let mended = turn.mend().await;
        turn.slot.suspect = true;
        if matches!(mended, Err(StoreError::Locked { .. })) {
            self.set_held(true);
        }
        mended?;
        turn.set(durability).await?;
        Ok(turn)
    }

    /// Returns why the turn did not come in time.
    fn waited(&self, what: &'static str) -> StoreError {
        match self.held.load(Ordering::Relaxed) {
            true => StoreError::Locked {
                database: self.connector.path().display().to_string(),
                holder: "another process".to_owned(),
            },
            false => StoreError::Busy { what },
        }
    }

    fn longest_wait(&self) -> Duration {
        match self.failed.load(Ordering::Relaxed) {
            true => LONGEST_WAIT_AFTER_FAILURE,
            false => LONGEST_WAIT,
        }
    }

    /// Waits for running writes and closes the connection; later turns are refused.
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
    /// Returns the connection for statements outside of a transaction.
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
        self.held.store(false, Ordering::Relaxed);
    }

    /// Cleans up after a turn that did not end normally.
    async fn mend(&mut self) -> Result<(), StoreError> {
        if self.slot.suspect {
            self.slot.durability = None;
            if let Some(connection) = &mut self.slot.connection {
                // The ping runs after a rollback that is still queued. SQLite rolls back some
                // failures by itself; the driver would then count a transaction forever.
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

    /// Sets the durability of the next transaction.
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
