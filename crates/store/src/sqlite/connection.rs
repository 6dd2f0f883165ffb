//! Creates connections to the file: main is a private memory database, the file is attached as
//! `kb`, so that the same qualified names work here and on PostgreSQL.
//!
//! A connection never creates a file: only `migrate::create` does, so a lost file is never replaced
//! by an empty one. Caches are small, because the gateway is.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};

use crate::error::StoreError;

/// Sets up the writer: the write-ahead log is truncated after a burst, and deleted data is
/// overwritten.
const WRITER: &str = "ATTACH $1 AS kb; PRAGMA kb.journal_mode = WAL; PRAGMA kb.synchronous = NORMAL; \
     PRAGMA kb.secure_delete = ON; \
     PRAGMA kb.journal_size_limit = 16777216; PRAGMA kb.cache_size = -2000; \
     PRAGMA kb.mmap_size = 0; PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON; \
     PRAGMA trusted_schema = OFF";

/// Sets up the creation of a new file: nothing is synced until the complete file is moved into
/// place.
const MAKER: &str = "ATTACH $1 AS kb; PRAGMA kb.journal_mode = WAL; PRAGMA kb.synchronous = OFF; \
     PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF";

/// Sets up a reader, which cannot write.
const READER: &str = "ATTACH $1 AS kb; PRAGMA kb.cache_size = -1000; PRAGMA kb.mmap_size = 0; \
     PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF; \
     PRAGMA query_only = ON";

/// Creates connections to one file.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    path: PathBuf,
    text: String,
    busy_timeout: Duration,
}

impl Connector {
    /// Takes an absolute path, which must be UTF-8 because SQLite requires it.
    pub(crate) fn new(path: &Path, busy_timeout: Duration) -> Result<Self, StoreError> {
        let text = path
            .to_str()
            .ok_or_else(|| StoreError::open(path, "its name is not UTF-8"))?;
        Ok(Self {
            path: path.to_owned(),
            text: text.to_owned(),
            busy_timeout,
        })
    }

    /// Returns a connector with another busy timeout.
    pub(crate) fn with_busy_timeout(self, busy_timeout: Duration) -> Self {
        Self {
            busy_timeout,
            ..self
        }
    }

    /// Sets the normal busy timeout on a connection that was opened with a longer one.
    pub(crate) async fn settle(&self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        let pragma = format!("PRAGMA busy_timeout = {}", self.busy_timeout.as_millis());
        let set = sqlx::query(sqlx::AssertSqlSafe(pragma)).persistent(false);
        let set = set.execute(connection).await;
        set.map(drop)
            .map_err(|error| StoreError::from_sqlite(&self.path, "open the file", error))
    }

    /// Returns the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the connection for writing.
    pub(crate) async fn writer(&self) -> Result<SqliteConnection, StoreError> {
        self.connect(WRITER, 32).await
    }

    /// Opens the connection that fills a new file before it is moved into place.
    pub(crate) async fn maker(&self) -> Result<SqliteConnection, StoreError> {
        self.connect(MAKER, 8).await
    }

    /// Opens a connection for reading.
    pub(crate) async fn reader(&self) -> Result<SqliteConnection, StoreError> {
        self.connect(READER, 16).await
    }

    async fn connect(
        &self,
        setup: &'static str,
        statements: usize,
    ) -> Result<SqliteConnection, StoreError> {
        let options = SqliteConnectOptions::new()
            .filename(":memory:")
            .foreign_keys(true)
            .busy_timeout(self.busy_timeout)
            .statement_cache_capacity(statements)
            .thread_name(|id| format!("store-{id}"))
            .disable_statement_logging();
        let failed = |error| {
            let error = StoreError::from_sqlite(&self.path, "open the file", error);
            if let StoreError::Query { source, .. } = error {
                return StoreError::open(&self.path, source);
            }
            error
        };
        let mut connection = options.connect().await.map_err(failed)?;
        let attach = sqlx::query(setup)
            .bind(self.text.as_str())
            .persistent(false);
        let ready = attach.execute(&mut connection).await;
        if let Err(error) = ready {
            // Releases the file before the caller examines or moves it.
            connection.close_hard().await.map_err(failed)?;
            return Err(failed(error));
        }
        Ok(connection)
    }
}
