//! The databases behind the store, as its methods use them: one statement at a time, or a
//! transaction.
//!
//! Only this module distinguishes the databases for the methods of `store`, which are written once.
//! `query` is a statement with its values, `row` a result row. Every operation has a description,
//! which its error shows. The databases' own futures are boxed: they are large, and a method holds
//! several. Entry points: [`Database::begin`], [`Database::rows`], [`Database::execute`].

pub(crate) mod query;
pub(crate) mod row;

use std::path::Path;
use std::time::Duration;

use sqlx::{Sqlite, SqliteConnection};
use sqlx_core::transaction::TransactionManager;

use self::query::Query;
use self::row::Row;
use crate::call::{CallRow, JournalPosition};
use crate::error::StoreError;
use crate::postgres::{self, PostgresStore};
use crate::sqlite::{self, SqliteStore};
use crate::store::Registered;

type SqliteTransactions = <Sqlite as sqlx::Database>::TransactionManager;

/// What a write survives once its method has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// The end of the process: for data that the journal or the next handshake restores.
    Process,
    /// A power loss: for changes by people.
    Power,
}

/// The database behind the store.
#[derive(Debug)]
pub(crate) enum Database {
    Sqlite(Box<SqliteStore>),
    Postgres(Box<PostgresStore>),
}

/// A connection that is borrowed for one method.
enum Lent<'a> {
    Reader(sqlite::Reader<'a>),
    Writer(sqlite::WriteTurn<'a>),
    Postgres(postgres::Lent<'a>),
}

/// The connection itself.
enum Connection<'l, 'a> {
    Sqlite(&'l mut SqliteConnection),
    Postgres(&'l mut postgres::Lent<'a>),
}

/// Several statements that take effect together. Dropped without `commit`, none of them does.
pub(crate) struct Transaction<'a> {
    database: &'a Database,
    what: &'static str,
    lent: Option<Lent<'a>>,
}

impl Database {
    /// Begins a transaction that writes. No other one of any gateway is under way at the same time, so
    /// that what it reads stays true until it commits.
    pub(crate) async fn begin(
        &self,
        what: &'static str,
        durability: Durability,
    ) -> Result<Transaction<'_>, StoreError> {
        let mut lent = self.writer(what, durability).await?;
        let begun = match lent.connection() {
            Ok(Connection::Sqlite(connection)) => {
                let begin = sqlx::SqlSafeStr::into_sql_str("BEGIN IMMEDIATE");
                SqliteTransactions::begin(connection, Some(begin)).await
            }
            Ok(Connection::Postgres(connection)) => Box::pin(connection.begin_alone()).await,
            Err(error) => Err(error),
        };
        self.begun(what, lent, begun)
    }

    /// Begins a transaction that writes rows of the audit: beside those of other gateways, unless `alone`.
    pub(crate) async fn begin_import(
        &self,
        what: &'static str,
        alone: bool,
    ) -> Result<Transaction<'_>, StoreError> {
        let Self::Postgres(store) = self else {
            return self.begin(what, Durability::Process).await;
        };
        let mut connection = Box::pin(store.writer(what)).await?;
        connection.may_take(postgres::import::LONGEST);
        let begun = match alone {
            true => Box::pin(connection.begin_alone()).await,
            false => Box::pin(connection.begin("BEGIN")).await,
        };
        self.begun(what, Lent::Postgres(connection), begun)
    }

    /// Begins a transaction whose reads are all of one moment.
    pub(crate) async fn snapshot(&self, what: &'static str) -> Result<Transaction<'_>, StoreError> {
        let mut lent = self.reader(what).await?;
        let begun = match lent.connection() {
            Ok(Connection::Sqlite(connection)) => SqliteTransactions::begin(connection, None).await,
            Ok(Connection::Postgres(connection)) => Box::pin(connection.begin_snapshot()).await,
            Err(error) => Err(error),
        };
        self.begun(what, lent, begun)
    }

    fn begun<'a>(
        &'a self,
        what: &'static str,
        lent: Lent<'a>,
        begun: Result<(), sqlx::Error>,
    ) -> Result<Transaction<'a>, StoreError> {
        begun.map_err(|error| self.failed(what, error))?;
        Ok(Transaction {
            database: self,
            what,
            lent: Some(lent),
        })
    }

    /// Runs one statement that writes and tells how many rows it touched.
    pub(crate) async fn execute(
        &self,
        what: &'static str,
        durability: Durability,
        query: Query<'_>,
    ) -> Result<u64, StoreError> {
        let mut lent = self.writer(what, durability).await?;
        let touched = lent.execute(&query).await;
        let touched = touched.map_err(|error| self.failed(what, error))?;
        lent.done();
        Ok(touched)
    }

    /// Runs one statement that reads and takes its rows apart.
    pub(crate) async fn rows<T>(
        &self,
        what: &'static str,
        query: Query<'_>,
        decode: impl Fn(&Row) -> Result<T, sqlx::Error>,
    ) -> Result<Vec<T>, StoreError> {
        let mut lent = self.reader(what).await?;
        let rows = lent.fetch(&query).await;
        let rows = rows.map_err(|error| self.failed(what, error))?;
        lent.done();
        let decoded = rows.iter().map(decode).collect::<Result<_, _>>();
        decoded.map_err(|error| self.failed(what, error))
    }

    /// Runs one statement that reads at most one row.
    pub(crate) async fn optional<T>(
        &self,
        what: &'static str,
        query: Query<'_>,
        decode: impl Fn(&Row) -> Result<T, sqlx::Error>,
    ) -> Result<Option<T>, StoreError> {
        let rows = self.rows(what, query, decode).await?;
        Ok(rows.into_iter().next())
    }

    /// Runs one statement that reads exactly one row.
    pub(crate) async fn one<T>(
        &self,
        what: &'static str,
        query: Query<'_>,
        decode: impl Fn(&Row) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let row = self.optional(what, query, decode).await?;
        row.ok_or_else(|| self.failed(what, sqlx::Error::RowNotFound))
    }

    /// Returns the database's file; a server has none.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(store) => Some(store.path()),
            Self::Postgres(_) => None,
        }
    }

    /// Returns whether the database is SQLite, for the few statements that only it supports.
    pub(crate) const fn is_sqlite(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    /// Closes it; later uses are refused.
    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(store) => store.close().await,
            Self::Postgres(store) => {
                store.close().await;
                Ok(())
            }
        }
    }

    /// Removes deleted data from the write-ahead log; on failure this is done later.
    pub(crate) async fn removed(&self) {
        match self {
            Self::Sqlite(store) => store.removed().await,
            // Vacuum and log are up to the server's administrator.
            Self::Postgres(_) => {}
        }
    }

    /// Classifies what the database reported.
    pub(crate) fn failed(&self, what: &'static str, source: sqlx::Error) -> StoreError {
        match self {
            Self::Sqlite(store) => store.failed(what, source),
            Self::Postgres(store) => StoreError::from_postgres(store.name(), what, source),
        }
    }

    async fn reader(&self, what: &'static str) -> Result<Lent<'_>, StoreError> {
        match self {
            Self::Sqlite(store) => Box::pin(store.reader(what)).await.map(Lent::Reader),
            Self::Postgres(store) => Box::pin(store.reader(what)).await.map(Lent::Postgres),
        }
    }

    async fn writer(
        &self,
        what: &'static str,
        durability: Durability,
    ) -> Result<Lent<'_>, StoreError> {
        match self {
            Self::Sqlite(store) => Box::pin(store.turn(what, durability))
                .await
                .map(Lent::Writer),
            // A commit has reached the server's disk.
            Self::Postgres(store) => Box::pin(store.writer(what)).await.map(Lent::Postgres),
        }
    }
}

impl<'a> Lent<'a> {
    fn connection(&mut self) -> Result<Connection<'_, 'a>, sqlx::Error> {
        Ok(match self {
            Self::Reader(reader) => Connection::Sqlite(reader.connection()),
            Self::Writer(turn) => {
                let connection = turn.connection().map_err(|_| sqlx::Error::PoolClosed)?;
                Connection::Sqlite(connection)
            }
            Self::Postgres(lent) => Connection::Postgres(lent),
        })
    }

    async fn execute(&mut self, query: &Query<'_>) -> Result<u64, sqlx::Error> {
        match self.connection()? {
            Connection::Sqlite(connection) => {
                let run = Box::pin(query.for_sqlite().execute(connection));
                Ok(run.await?.rows_affected())
            }
            Connection::Postgres(lent) => {
                let (connection, until) = lent.parts()?;
                let run = Box::pin(query.for_postgres().execute(connection));
                Ok(postgres::within(until, run).await?.rows_affected())
            }
        }
    }

    async fn fetch(&mut self, query: &Query<'_>) -> Result<Vec<Row>, sqlx::Error> {
        match self.connection()? {
            Connection::Sqlite(connection) => {
                let run = Box::pin(query.for_sqlite().fetch_all(connection));
                Ok(run.await?.into_iter().map(Row::Sqlite).collect())
            }
            Connection::Postgres(lent) => {
                let (connection, until) = lent.parts()?;
                let run = Box::pin(query.for_postgres().fetch_all(connection));
                let rows = postgres::within(until, run).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// Returns the connection: nothing is left open on it.
    fn done(self) {
        match self {
            Self::Reader(_) => {}
            Self::Writer(turn) => turn.done(),
            Self::Postgres(connection) => connection.done(),
        }
    }
}

impl Transaction<'_> {
    /// Returns whether the database is SQLite.
    pub(crate) const fn is_sqlite(&self) -> bool {
        self.database.is_sqlite()
    }

    /// Runs a statement and returns how many rows it affected.
    pub(crate) async fn execute(&mut self, query: Query<'_>) -> Result<u64, StoreError> {
        let touched = self.lent().execute(&query).await;
        touched.map_err(|error| self.failed(error))
    }

    /// Runs a statement and decodes its rows.
    pub(crate) async fn rows<T>(
        &mut self,
        query: Query<'_>,
        decode: impl Fn(&Row) -> Result<T, sqlx::Error>,
    ) -> Result<Vec<T>, StoreError> {
        let rows = self.lent().fetch(&query).await;
        let rows = rows.map_err(|error| self.failed(error))?;
        let decoded = rows.iter().map(decode).collect::<Result<_, _>>();
        decoded.map_err(|error| self.failed(error))
    }

    /// Runs a statement with at most one row.
    pub(crate) async fn optional<T>(
        &mut self,
        query: Query<'_>,
        decode: impl Fn(&Row) -> Result<T, sqlx::Error>,
    ) -> Result<Option<T>, StoreError> {
        let rows = self.rows(query, decode).await?;
        Ok(rows.into_iter().next())
    }

    /// Runs a statement with exactly one row.
    pub(crate) async fn one<T>(
        &mut self,
        query: Query<'_>,
        decode: impl Fn(&Row) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let row = self.optional(query, decode).await?;
        row.ok_or_else(|| self.failed(sqlx::Error::RowNotFound))
    }

    /// Writes rows of the audit that `block` covers, and the journal's position.
    pub(crate) async fn import_calls<T: AsRef<str> + Sync>(
        &mut self,
        gateway: Registered,
        rows: &[CallRow<T>],
        position: JournalPosition,
        block: Option<u64>,
    ) -> Result<(), StoreError> {
        let imported = match self.lent().connection() {
            Ok(Connection::Sqlite(connection)) => {
                let import = gateway.import_rows(connection, rows, position, block);
                Box::pin(import).await
            }
            Ok(Connection::Postgres(lent)) => match lent.parts() {
                Ok((connection, until)) => {
                    let import =
                        postgres::import::write(connection, gateway, rows, position, block);
                    Box::pin(postgres::within(until, import)).await
                }
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        imported.map_err(|error| self.failed(error))
    }

    /// Returns the time by the clock that all gateways on this database share.
    pub(crate) async fn now_ms(&mut self) -> Result<i64, StoreError> {
        match self.database {
            Database::Sqlite(_) => Ok(crate::clock::now_ms()),
            Database::Postgres(_) => {
                let now = query::query(postgres::CLOCK);
                self.one(now, |row| row::column(row, 0)).await
            }
        }
    }

    /// Sets a longer time limit for the following statements: for operations that an administrator
    /// waits for.
    pub(crate) async fn may_take_long(&mut self, longest: Duration) -> Result<(), StoreError> {
        let Lent::Postgres(connection) = self.lent() else {
            return Ok(());
        };
        connection.may_take(longest);
        self.execute(query::query(postgres::PATIENT)).await?;
        Ok(())
    }

    /// Commits the transaction.
    pub(crate) async fn commit(mut self) -> Result<(), StoreError> {
        let committed = match self.lent().connection() {
            Ok(Connection::Sqlite(connection)) => SqliteTransactions::commit(connection).await,
            Ok(Connection::Postgres(connection)) => Box::pin(connection.commit()).await,
            Err(error) => Err(error),
        };
        self.ended(committed)
    }

    /// Rolls the transaction back.
    pub(crate) async fn rollback(mut self) -> Result<(), StoreError> {
        let undone = match self.lent().connection() {
            Ok(Connection::Sqlite(connection)) => SqliteTransactions::rollback(connection).await,
            Ok(Connection::Postgres(connection)) => Box::pin(connection.rollback()).await,
            Err(error) => Err(error),
        };
        self.ended(undone)
    }

    fn ended(mut self, ended: Result<(), sqlx::Error>) -> Result<(), StoreError> {
        ended.map_err(|error| self.failed(error))?;
        if let Some(lent) = self.lent.take() {
            lent.done();
        }
        Ok(())
    }

    fn failed(&self, error: sqlx::Error) -> StoreError {
        self.database.failed(self.what, error)
    }
}

impl<'a> Transaction<'a> {
    fn lent(&mut self) -> &mut Lent<'a> {
        let lent = self.lent.as_mut();
        lent.expect("a transaction has its connection until it ends")
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if let Some(lent) = &mut self.lent
            && let Ok(Connection::Sqlite(connection)) = lent.connection()
        {
            SqliteTransactions::start_rollback(connection);
        }
    }
}
