//! The store in a PostgreSQL database, in the schema `kb`, shared by any number of gateways.
//!
//! Connections come from two small pools, so that slow reads do not delay writes. Every statement
//! has a deadline, here and on the server. A connection that did not end its work cleanly is
//! closed, never reused. Entry point: `PostgresStore::open`.

pub(crate) mod import;
pub(crate) mod migrate;
mod pool;
#[cfg(test)]
mod tests;

use std::fmt;

use self::pool::{Connector, Pool};
pub(crate) use self::pool::{Lent, within};
use crate::config::PostgresUrl;
use crate::error::StoreError;

/// The clock that all gateways on a database share.
pub(crate) const CLOCK: &str =
    "SELECT CAST(extract(epoch FROM pg_catalog.clock_timestamp()) * 1000 AS BIGINT)";

/// Disables the server's own timeout until the transaction ends.
pub(crate) const PATIENT: &str = "SELECT set_config('statement_timeout', '0', true), \
     set_config('idle_in_transaction_session_timeout', '0', true)";

/// The most connections for writing; transactions wait for each other anyway.
const WRITERS: usize = 4;
/// The most connections for reading.
const READERS: usize = 4;

/// An open PostgreSQL database.
pub(crate) struct PostgresStore {
    connector: Connector,
    writers: Pool,
    readers: Pool,
}

impl PostgresStore {
    /// Connects, and creates or migrates the schema if needed.
    pub(crate) async fn open(url: &PostgresUrl) -> Result<Self, StoreError> {
        let connector = Connector::new(url)?;
        let mut connection = connector.connect().await?;
        migrate::prepare(&mut connection, connector.name(), migrate::MIGRATIONS).await?;
        let writers = Pool::new(connector.clone(), WRITERS);
        writers.put(connection);
        Ok(Self {
            readers: Pool::new(connector.clone(), READERS),
            connector,
            writers,
        })
    }

    /// Connects and disconnects, as a test.
    pub(crate) async fn reach(url: &PostgresUrl) -> Result<(), StoreError> {
        Connector::new(url)?.connect().await.map(drop)
    }

    /// Returns the address, without its password.
    pub(crate) fn name(&self) -> &str {
        self.connector.name()
    }

    /// Borrows a connection for reading.
    pub(crate) async fn reader(&self, what: &'static str) -> Result<Lent<'_>, StoreError> {
        self.readers.take(what).await
    }

    /// Borrows a connection for writing.
    pub(crate) async fn writer(&self, what: &'static str) -> Result<Lent<'_>, StoreError> {
        self.writers.take(what).await
    }

    /// Waits for running operations and disconnects; later ones are refused.
    pub(crate) async fn close(&self) {
        self.readers.close().await;
        self.writers.close().await;
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
