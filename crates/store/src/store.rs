//! The store's interface: one method per query, whatever the database.
//!
//! `Store` is a cheap clone. Methods happen as a whole or not at all; none waits without a bound. They
//! are in the files below, one per noun, and run the statements of `sql` through `database`. What is
//! specific to a database is in `sqlite` and `postgres`.

mod acts;
mod agents;
pub(crate) mod calls;
mod catalog;
pub(crate) mod chain;
mod events;
mod gateways;
mod grants;
mod holds;
mod hosting;
mod journal;
mod keys;
mod leases;
mod pins;
mod products;
mod projects;
mod secrets;
mod servers;
mod settings;

use std::path::Path;
use std::sync::Arc;

use gantry_model::id::GatewayId;

pub(crate) use self::gateways::Registered;
use crate::config::StoreConfig;
use crate::database::{Database, Durability};
use crate::error::StoreError;
use crate::gateway::Gateway;
use crate::postgres::PostgresStore;
use crate::sqlite::SqliteStore;

/// A handle on everything that Gantry remembers.
#[derive(Clone, Debug)]
pub struct Store {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    database: Database,
    /// Who writes.
    gateway: Registered,
}

impl Store {
    /// Opens the store for a gateway, making or migrating it first if needed.
    ///
    /// A SQLite file and its folder are made for their owner only. A copy is made before an older file
    /// is migrated. A damaged file is refused and left as it is. A PostgreSQL database must be there; its
    /// schema `kb` is made.
    pub async fn open(config: &StoreConfig, gateway: &Gateway) -> Result<Self, StoreError> {
        let database = match config {
            StoreConfig::Sqlite(path) => Database::Sqlite(Box::new(SqliteStore::open(path).await?)),
            StoreConfig::Postgres(url) => {
                Database::Postgres(Box::new(PostgresStore::open(url).await?))
            }
        };
        Self::over(database, gateway).await
    }

    /// Tells whether the database can be reached at all; a file always can.
    pub async fn reach(config: &StoreConfig) -> Result<(), StoreError> {
        match config {
            StoreConfig::Sqlite(_) => Ok(()),
            StoreConfig::Postgres(url) => PostgresStore::reach(url).await,
        }
    }

    /// Tells whether gateways of other machines may use the store, so that each may lose it alone.
    pub fn is_remote(&self) -> bool {
        !self.database().is_sqlite()
    }

    /// Registers the gateway in a database that is open.
    pub(crate) async fn over(database: Database, gateway: &Gateway) -> Result<Self, StoreError> {
        let gateway = gateways::register(&database, gateway).await?;
        let shared = Arc::new(Shared { database, gateway });
        Ok(Self { shared })
    }

    /// Finishes what is under way, tells other gateways that this one stopped, writes everything
    /// into the file and lets go of it.
    ///
    /// Every later use of any clone answers `Busy`.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.stopped().await;
        self.database().close().await
    }

    /// Makes everything written so far survive the loss of power.
    ///
    /// Servers, keys, grants and administrators' acts do so already when their method returns;
    /// audit rows, events, catalogs and leases survive the end of the process only. On PostgreSQL
    /// everything does, as far as its administrator has it so.
    pub async fn sync(&self) -> Result<(), StoreError> {
        match self.database() {
            Database::Sqlite(store) => store.sync().await,
            Database::Postgres(_) => Ok(()),
        }
    }

    /// Tells whether rows could be written now, as far as locks are concerned.
    pub async fn probe_write(&self) -> Result<(), StoreError> {
        const WHAT: &str = "take the right to write";
        let transaction = self.database().begin(WHAT, Durability::Process).await?;
        transaction.rollback().await
    }

    /// Refuses every write while the file is not where it was: it would be lost with the process.
    pub fn set_gone(&self, gone: bool) {
        match self.database() {
            Database::Sqlite(store) => store.set_gone(gone),
            Database::Postgres(_) => {}
        }
    }

    /// Waits until the disk has not confirmed a write to the database's file: what was written before it
    /// may be lost, and nothing is written any more. Never returns for a server, whose disk is its own.
    pub async fn unconfirmed(&self) {
        match self.database() {
            Database::Sqlite(store) => store.unconfirmed().await,
            Database::Postgres(_) => std::future::pending().await,
        }
    }

    /// Returns the gateway that opened the store.
    pub fn gateway(&self) -> GatewayId {
        self.shared.gateway.id
    }

    /// Returns the database's file; a server has none.
    pub fn file(&self) -> Option<&Path> {
        self.database().file()
    }

    /// Takes what was removed out of the log of writes, too; tells whether nothing is left of it.
    ///
    /// Methods that remove secrets do so already, unless somebody reads at that moment. PostgreSQL
    /// overwrites what was removed when it vacuums, and keeps its log as its administrator has it.
    pub async fn scrub(&self) -> Result<bool, StoreError> {
        match self.database() {
            Database::Sqlite(store) => store.scrub().await,
            Database::Postgres(_) => Ok(true),
        }
    }

    /// Writes a file anew, so that no page has anything left that an earlier release removed or replaced;
    /// false if the file is too large for that, or there is none.
    pub async fn rewrite(&self) -> Result<bool, StoreError> {
        match self.database() {
            Database::Sqlite(store) => store.rewrite().await,
            Database::Postgres(_) => Ok(false),
        }
    }

    pub(crate) fn database(&self) -> &Database {
        &self.shared.database
    }

    /// Returns what stands for this gateway in rows.
    fn number(&self) -> i64 {
        self.shared.gateway.number
    }

    /// Returns which start of this gateway it is.
    fn boot(&self) -> i64 {
        self.shared.gateway.boot
    }
}
