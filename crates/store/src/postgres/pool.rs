//! Connections to one database: created on demand, borrowed for one method, and reused.
//!
//! sqlx's own pool retries a refused connection until its timeout and then reports only the
//! timeout; this one fails immediately, with the reason. An idle connection is pinged first. If a
//! method ends without `done` (an error, a deadline, a cancelled caller), its connection is closed.
//! Entry point: [`Pool::take`].

use std::str::FromStr;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::postgres::{PgConnectOptions, PgConnection, Postgres};
use sqlx::{ConnectOptions, Connection, Executor, SqlSafeStr};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout, timeout_at};

use crate::config::PostgresUrl;
use crate::error::StoreError;

type Transactions = <Postgres as sqlx::Database>::TransactionManager;

/// Time limit of connecting.
const CONNECT: Duration = Duration::from_secs(3);
/// How long one method may use a connection.
const LONGEST_USE: Duration = Duration::from_secs(5);
/// How long to wait for a connection in use.
const LONGEST_WAIT: Duration = Duration::from_secs(3);
/// After this idle time a connection is pinged before use.
const TRUSTED: Duration = Duration::from_millis(500);
/// Time limit of the ping.
const PING: Duration = Duration::from_secs(1);
/// The maximum age of a connection: names and certificates change.
const OLDEST: Duration = Duration::from_secs(30 * 60);
/// How many methods may wait for or use a connection at once.
const QUEUE: usize = 256;

/// The settings of every connection. The server ends abandoned statements, and a transaction whose
/// gateway was stopped delays others for seconds only.
const SETUP: &str = "SET statement_timeout = 10000; SET lock_timeout = 4000; \
     SET idle_in_transaction_session_timeout = 4000; SET search_path = pg_catalog; \
     SET default_transaction_isolation = 'read committed'";

/// Write transactions are serialized, as in SQLite, by an advisory lock: `GANT` and a number.
const BEGIN_ALONE: &str = "BEGIN; SELECT pg_catalog.pg_advisory_xact_lock(1195462228, 1)";
const BEGIN_SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Creates connections to one database.
#[derive(Clone)]
pub(super) struct Connector {
    options: PgConnectOptions,
    name: String,
}

impl Connector {
    /// Parses the URL.
    pub(super) fn new(url: &PostgresUrl) -> Result<Self, StoreError> {
        let name = url.to_string();
        let options = PgConnectOptions::from_str(url.as_str());
        let options = options.map_err(|source| StoreError::Refused {
            database: name.clone(),
            source,
        })?;
        let options = options
            .application_name("gantry")
            .statement_cache_capacity(64)
            .disable_statement_logging();
        Ok(Self { options, name })
    }

    /// Returns the address, without its password.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Connects.
    pub(super) async fn connect(&self) -> Result<PgConnection, StoreError> {
        const WHAT: &str = "accept a connection";
        let connect = async {
            let mut connection = self.options.connect().await?;
            connection.execute(SETUP).await?;
            Ok(connection)
        };
        let connected = within(Instant::now() + CONNECT, connect).await;
        // A failure to connect is not a slow statement.
        connected.map_err(|error| match matches!(error, sqlx::Error::Io(_)) {
            true => StoreError::Unreachable {
                database: self.name.clone(),
                source: error,
            },
            false => StoreError::from_postgres(&self.name, WHAT, error),
        })
    }
}

/// Idle connections, and a limit of connections in use.
pub(super) struct Pool {
    connector: Connector,
    most: u32,
    idle: Mutex<Vec<Idle>>,
    places: Semaphore,
    permits: Semaphore,
}

struct Idle {
    connection: PgConnection,
    made: Instant,
    used: Instant,
}

/// A borrowed connection, and its deadline.
pub(crate) struct Lent<'a> {
    pool: &'a Pool,
    connection: Option<PgConnection>,
    made: Instant,
    until: Instant,
    _place: SemaphorePermit<'a>,
    _permit: SemaphorePermit<'a>,
}

impl Pool {
    /// Creates an empty pool.
    pub(super) fn new(connector: Connector, most: usize) -> Self {
        Self {
            connector,
            most: u32::try_from(most).unwrap_or(1),
            idle: Mutex::new(Vec::new()),
            places: Semaphore::new(QUEUE),
            permits: Semaphore::new(most),
        }
    }

    /// Adds an idle connection.
    pub(super) fn put(&self, connection: PgConnection) {
        let (made, used) = (Instant::now(), Instant::now());
        self.idle.lock().push(Idle {
            connection,
            made,
            used,
        });
    }

    /// Borrows a connection; `Busy` if too many wait, all stay in use, or the store is closed.
    pub(super) async fn take(&self, what: &'static str) -> Result<Lent<'_>, StoreError> {
        let busy = || StoreError::Busy { what };
        let place = self.places.try_acquire().map_err(|_| busy())?;
        let permit = timeout(LONGEST_WAIT, self.permits.acquire()).await;
        let permit = permit.map_err(|_| busy())?.map_err(|_| busy())?;
        let (connection, made) = match self.idle().await {
            Some(known) => known,
            None => (self.connector.connect().await?, Instant::now()),
        };
        Ok(Lent {
            pool: self,
            connection: Some(connection),
            made,
            until: Instant::now() + LONGEST_USE,
            _place: place,
            _permit: permit,
        })
    }

    /// Returns an idle connection that responds. If one does not, the others are not tried: the
    /// server was restarted, or is unreachable.
    async fn idle(&self) -> Option<(PgConnection, Instant)> {
        let newest = self.idle.lock().pop();
        let Idle {
            mut connection,
            made,
            used,
        } = newest?;
        let answers = match made.elapsed() < OLDEST {
            false => false,
            true if used.elapsed() < TRUSTED => true,
            true => matches!(timeout(PING, connection.ping()).await, Ok(Ok(()))),
        };
        if answers {
            return Some((connection, made));
        }
        let suspects = std::mem::take(&mut *self.idle.lock());
        drop(suspects);
        None
    }

    /// Waits for borrowed connections and closes all; later uses are refused.
    pub(super) async fn close(&self) {
        self.places.close();
        let all = self.permits.acquire_many(self.most).await;
        self.permits.close();
        let idle = std::mem::take(&mut *self.idle.lock());
        drop(all);
        for idle in idle {
            // An unresponsive server notices by itself.
            let closed = timeout(PING, idle.connection.close()).await;
            drop(closed);
        }
    }
}

impl Lent<'_> {
    /// Extends the deadline, for a batch.
    pub(crate) fn may_take(&mut self, time: Duration) {
        self.until = Instant::now() + time;
    }

    /// Returns the connection and its deadline.
    pub(crate) fn parts(&mut self) -> Result<(&mut PgConnection, Instant), sqlx::Error> {
        let connection = self.connection.as_mut().ok_or(sqlx::Error::PoolClosed)?;
        Ok((connection, self.until))
    }

    /// Starts a write transaction, which waits for all others.
    pub(crate) async fn begin_alone(&mut self) -> Result<(), sqlx::Error> {
        self.begin(BEGIN_ALONE).await
    }

    /// Starts a transaction that reads a snapshot.
    pub(crate) async fn begin_snapshot(&mut self) -> Result<(), sqlx::Error> {
        self.begin(BEGIN_SNAPSHOT).await
    }

    /// Begins a transaction.
    pub(crate) async fn begin(&mut self, statement: &'static str) -> Result<(), sqlx::Error> {
        let (connection, until) = self.parts()?;
        let begin = Transactions::begin(connection, Some(statement.into_sql_str()));
        within(until, begin).await
    }

    /// Commits the transaction.
    pub(crate) async fn commit(&mut self) -> Result<(), sqlx::Error> {
        let (connection, until) = self.parts()?;
        within(until, Transactions::commit(connection)).await
    }

    /// Rolls the transaction back.
    pub(crate) async fn rollback(&mut self) -> Result<(), sqlx::Error> {
        let (connection, until) = self.parts()?;
        within(until, Transactions::rollback(connection)).await
    }

    /// Returns the connection: nothing is left open on it.
    pub(crate) fn done(mut self) {
        if let Some(connection) = self.connection.take()
            && !self.pool.permits.is_closed()
        {
            let (made, used) = (self.made, Instant::now());
            self.pool.idle.lock().push(Idle {
                connection,
                made,
                used,
            });
        }
    }
}

/// Waits for the database, but no longer than `until`.
pub(crate) async fn within<T>(
    until: Instant,
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let late = || sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
    timeout_at(until, work).await.map_err(|_| late())?
}
