//! The store's interface: one method per query, whatever the database.
//!
//! `Store` is a cheap clone. Methods happen as a whole or not at all; none waits without a bound. They
//! are in the files below, one per noun, and run the statements of `sql` through `database`. What is
//! specific to a database is in `sqlite` and `postgres`.

pub(crate) mod acts;
mod agents;
pub(crate) mod calls;
mod catalog;
pub(crate) mod chain;
mod events;
pub(crate) mod export;
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

/// A handle on the store.
#[derive(Clone, Debug)]
pub struct Store {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    database: Database,
    /// The writing gateway.
    gateway: Registered,
}

impl Store {
    /// Opens the store for a gateway, creating or migrating it if needed.
    ///
    /// A SQLite file and its folder are private to their owner. An older file is copied before it
    /// is migrated. A damaged file is refused and left unchanged. A PostgreSQL database must exist;
    /// its schema `kb` is created.
    pub async fn open(config: &StoreConfig, gateway: &Gateway) -> Result<Self, StoreError> {
        let database = match config {
            StoreConfig::Sqlite(path) => Database::Sqlite(Box::new(SqliteStore::open(path).await?)),
            StoreConfig::Postgres(url) => {
                Database::Postgres(Box::new(PostgresStore::open(url).await?))
            }
        };
        Self::over(database, gateway).await
    }

    /// Checks whether the database can be reached; a file always can.
    pub async fn reach(config: &StoreConfig) -> Result<(), StoreError> {
        match config {
            StoreConfig::Sqlite(_) => Ok(()),
            StoreConfig::Postgres(url) => PostgresStore::reach(url).await,
        }
    }

    /// Returns whether gateways on other machines may use the store, so that each may lose its
    /// connection alone.
    pub fn is_remote(&self) -> bool {
        !self.database().is_sqlite()
    }

    /// Registers the gateway in an open database.
    pub(crate) async fn over(database: Database, gateway: &Gateway) -> Result<Self, StoreError> {
        let gateway = gateways::register(&database, gateway).await?;
        let shared = Arc::new(Shared { database, gateway });
        Ok(Self { shared })
    }

    /// Finishes running operations, records that this gateway has stopped, writes everything to the
    /// file and closes it.
    ///
    /// Later uses of any clone return `Busy`.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.stopped().await;
        self.database().close().await
    }

    /// Makes everything written so far survive a power loss.
    ///
    /// Servers, keys, grants and administrative acts do so when their method returns; audit rows,
    /// events, catalogs and leases survive only the end of the process. On PostgreSQL everything
    /// survives, as far as its administrator has configured it.
    pub async fn sync(&self) -> Result<(), StoreError> {
        match self.database() {
            Database::Sqlite(store) => store.sync().await,
            Database::Postgres(_) => Ok(()),
        }
    }

    /// Checks whether rows could be written now, as far as locks and known damage are concerned,
    /// and whether they would be found after a kill.
    pub async fn probe_write(&self) -> Result<(), StoreError> {
        const WHAT: &str = "take the right to write";
        let transaction = self.database().begin(WHAT, Durability::Process).await?;
        transaction.rollback().await?;
        match self.database() {
            Database::Sqlite(store) => {
                store.check_intact()?;
                store.check_log().await
            }
            Database::Postgres(_) => Ok(()),
        }
    }

    /// Refuses every write while the file is missing: it would be lost with the process.
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

    /// Removes deleted data from the write-ahead log, too; returns whether nothing of it is left.
    ///
    /// Methods that delete secrets already do so, unless there is an active reader. PostgreSQL
    /// overwrites deleted data when it vacuums, and keeps its log as configured by its
    /// administrator.
    pub async fn scrub(&self) -> Result<bool, StoreError> {
        match self.database() {
            Database::Sqlite(store) => store.scrub().await,
            Database::Postgres(_) => Ok(true),
        }
    }

    /// Rewrites the database file, so that no page has anything left that an earlier release removed or replaced;
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

    /// Returns the number of this gateway in rows.
    fn number(&self) -> i64 {
        self.shared.gateway.number
    }

    /// Returns the number of this start of the gateway.
    fn boot(&self) -> i64 {
        self.shared.gateway.boot
    }
}
