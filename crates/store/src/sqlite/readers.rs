//! Two read connections, opened on demand and kept.
//!
//! A reader is borrowed for one query and returned when dropped. The number of waiting queries is
//! bounded; callers bring their own deadlines.

use parking_lot::Mutex;
use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::connection::Connector;
use crate::error::StoreError;

const MOST: u32 = 2;

/// How many queries may wait or run at once.
const QUEUE: usize = 256;

/// The readers of one file.
pub(crate) struct Readers {
    connector: Connector,
    idle: Mutex<Vec<SqliteConnection>>,
    places: Semaphore,
    permits: Semaphore,
}

/// A borrowed reader.
pub(crate) struct Reader<'a> {
    readers: &'a Readers,
    connection: Option<SqliteConnection>,
    _place: SemaphorePermit<'a>,
    _permit: SemaphorePermit<'a>,
}

impl Readers {
    /// Creates the pool; opens nothing yet.
    pub(crate) fn new(connector: Connector) -> Self {
        Self {
            connector,
            idle: Mutex::new(Vec::new()),
            places: Semaphore::new(QUEUE),
            permits: Semaphore::new(MOST as usize),
        }
    }

    /// Borrows a reader; `Busy` if too many wait or the store is closed.
    pub(crate) async fn take(&self, what: &'static str) -> Result<Reader<'_>, StoreError> {
        let busy = || StoreError::Busy { what };
        let place = self.places.try_acquire().map_err(|_| busy())?;
        let permit = self.permits.acquire().await.map_err(|_| busy())?;
        let idle = self.idle.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.connector.reader().await?,
        };
        Ok(Reader {
            readers: self,
            connection: Some(connection),
            _place: place,
            _permit: permit,
        })
    }

    /// Waits for borrowed readers and closes all; later uses are refused.
    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        self.places.close();
        let all = self.permits.acquire_many(MOST).await;
        self.permits.close();
        let connections = std::mem::take(&mut *self.idle.lock());
        drop(all);
        for connection in connections {
            connection.close().await.map_err(|error| {
                StoreError::from_sqlite(self.connector.path(), "close a reader", error)
            })?;
        }
        Ok(())
    }
}

impl Reader<'_> {
    /// Returns the connection.
    pub(crate) fn connection(&mut self) -> &mut SqliteConnection {
        self.connection
            .as_mut()
            .expect("a reader has its connection until it is dropped")
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take()
            && !self.readers.permits.is_closed()
        {
            self.readers.idle.lock().push(connection);
        }
    }
}
