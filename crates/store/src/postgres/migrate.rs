//! The schema of the database: created, refused if newer, migrated if older.
//!
//! The numbers are those of SQLite's migrations; PostgreSQL starts with schema 8. All steps of one
//! start are one transaction under an advisory lock: two gateways that start at once wait for each
//! other, and a killed one leaves the schema unchanged. A warm start runs one query.

use std::time::Duration;

use sqlx::migrate::{Migration, MigrationType};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Executor, Row, SqlStr};
use tokio::time::Instant;

use super::within;
use crate::error::StoreError;

/// A migration: its version, name and statements.
pub(crate) type Step = (i64, &'static str, &'static str);

/// Every migration, in order.
pub(crate) const MIGRATIONS: &[Step] = &[
    (
        8,
        "first",
        include_str!("../../migrations/postgres/0008_first.sql"),
    ),
    (
        9,
        "secrets",
        include_str!("../../migrations/postgres/0009_secrets.sql"),
    ),
    (
        10,
        "projects",
        include_str!("../../migrations/postgres/0010_projects.sql"),
    ),
    (
        14,
        "id ranges",
        include_str!("../../migrations/postgres/0014_id_ranges.sql"),
    ),
    (
        15,
        "call details",
        include_str!("../../migrations/postgres/0015_call_details.sql"),
    ),
    (
        16,
        "audit chain",
        include_str!("../../migrations/postgres/0016_audit_chain.sql"),
    ),
    (
        18,
        "grants",
        include_str!("../../migrations/postgres/0018_grants.sql"),
    ),
    (
        20,
        "tool versions",
        include_str!("../../migrations/postgres/0020_tool_versions.sql"),
    ),
    (
        22,
        "keys",
        include_str!("../../migrations/postgres/0022_keys.sql"),
    ),
    (
        24,
        "suspension role",
        include_str!("../../migrations/postgres/0024_suspension_role.sql"),
    ),
    (
        25,
        "call filters",
        include_str!("../../migrations/postgres/0025_call_filters.sql"),
    ),
    (
        26,
        "act chain",
        include_str!("../../migrations/postgres/0026_act_chain.sql"),
    ),
    (
        27,
        "call indexes",
        include_str!("../../migrations/postgres/0027_call_indexes.sql"),
    ),
    (
        28,
        "audit keys",
        include_str!("../../migrations/postgres/0028_audit_keys.sql"),
    ),
];

/// Reads whether the schema exists, how many tables it has, and whether the migrations table is
/// among them.
const STATE: &str = "SELECT to_regnamespace('kb') IS NOT NULL, \
     (SELECT count(*) FROM pg_catalog.pg_class AS class \
     JOIN pg_catalog.pg_namespace AS space ON space.oid = class.relnamespace \
     WHERE space.nspname = 'kb' AND class.relkind IN ('r', 'p', 'v')), \
     to_regclass('kb._sqlx_migrations') IS NOT NULL";

const VERSION: &str = "SELECT coalesce(max(version), 0) FROM kb._sqlx_migrations";

const TABLE: &str = "CREATE TABLE kb._sqlx_migrations (version BIGINT PRIMARY KEY, \
     description TEXT COLLATE \"C\" NOT NULL, installed_on TIMESTAMPTZ NOT NULL DEFAULT now(), \
     success BOOLEAN NOT NULL, checksum BYTEA NOT NULL, execution_time BIGINT NOT NULL)";

const RECORD: &str = "INSERT INTO kb._sqlx_migrations \
     (version, description, success, checksum, execution_time) VALUES ($1, $2, TRUE, $3, $4)";

/// One gateway at a time; migrations may take long, and so may waiting for them.
const LOCK: &str = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; \
     SET LOCAL idle_in_transaction_session_timeout = 60000; \
     SELECT pg_catalog.pg_advisory_xact_lock(1195462228, 0)";

/// Time limit for migrating, or for waiting for another gateway that migrates.
const PATIENCE: Duration = Duration::from_secs(600);

/// Brings the schema to the newest version; refuses one that is newer or of another program.
pub(crate) async fn prepare(
    connection: &mut PgConnection,
    name: &str,
    steps: &[Step],
) -> Result<(), StoreError> {
    const WHAT: &str = "bring its schema forward";
    let failed = |error| StoreError::from_postgres(name, WHAT, error);
    let until = Instant::now() + Duration::from_secs(5);
    let found = within(until, version(connection)).await.map_err(failed)?;
    let newest = steps.iter().map(|(version, _, _)| *version).max();
    let newest = newest.unwrap_or(0);
    match found {
        Found::Stranger => return Err(stranger(name)),
        Found::Version(found) if found > newest => {
            return Err(StoreError::Newer {
                found,
                known: newest,
            });
        }
        Found::Version(found) if found == newest => return Ok(()),
        Found::Version(_) | Found::Nothing { .. } => {}
    }
    let until = Instant::now() + PATIENCE;
    let ran = within(until, run(connection, steps)).await;
    match ran.map_err(failed)? {
        Some(from) => {
            tracing::info!(
                database = name,
                from,
                to = newest,
                "the database has a new schema"
            );
            Ok(())
        }
        // Another gateway was faster, and may be a newer version.
        None => Box::pin(prepare(connection, name, steps)).await,
    }
}

/// The state of the database.
enum Found {
    /// No table of Gantry, possibly not even the schema.
    Nothing {
        has_schema: bool,
    },
    /// Tables of another program.
    Stranger,
    Version(i64),
}

async fn version(connection: &mut PgConnection) -> Result<Found, sqlx::Error> {
    let state = sqlx::query(STATE).persistent(false);
    let state = state.fetch_one(&mut *connection).await?;
    let has_schema: bool = state.try_get(0)?;
    let tables: i64 = state.try_get(1)?;
    let is_ours: bool = state.try_get(2)?;
    if !is_ours {
        return Ok(match tables {
            0 => Found::Nothing { has_schema },
            _ => Found::Stranger,
        });
    }
    let version = sqlx::query(VERSION).persistent(false);
    let version = version.fetch_one(connection).await?;
    Ok(Found::Version(version.try_get(0)?))
}

/// Runs the missing steps; `None` if there are none.
async fn run(connection: &mut PgConnection, steps: &[Step]) -> Result<Option<i64>, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    transaction.execute(LOCK).await?;
    let newest = steps.last().map_or(0, |(version, _, _)| *version);
    let from = match version(&mut transaction).await? {
        Found::Version(found) if found >= newest => return Ok(None),
        Found::Version(found) => found,
        Found::Stranger => return Ok(None),
        Found::Nothing { has_schema } => {
            if !has_schema {
                transaction.execute("CREATE SCHEMA kb").await?;
            }
            transaction.execute(TABLE).await?;
            0
        }
    };
    for (number, name, sql) in steps.iter().filter(|(version, _, _)| *version > from) {
        let start = Instant::now();
        sqlx::raw_sql(AssertSqlSafe(*sql))
            .execute(&mut *transaction)
            .await?;
        let sql = SqlStr::from_static(sql);
        let kind = MigrationType::Simple;
        let migration = Migration::new(*number, (*name).into(), kind, sql, false);
        let took = i64::try_from(start.elapsed().as_nanos()).unwrap_or(i64::MAX);
        let record = sqlx::query(RECORD)
            .bind(*number)
            .bind(*name)
            .bind(migration.checksum.as_ref())
            .bind(took)
            .persistent(false);
        record.execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    Ok(Some(from))
}

fn stranger(name: &str) -> StoreError {
    StoreError::Foreign {
        database: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_a_migration() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/postgres");
        let files = std::fs::read_dir(folder).unwrap();
        let mut files: Vec<String> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let written: Vec<String> = MIGRATIONS
            .iter()
            .map(|(version, name, _)| format!("{version:04}_{}.sql", name.replace(' ', "_")))
            .collect();
        assert_eq!(files, written);
    }

    #[test]
    fn numbers_are_those_of_sqlite() {
        let sqlite = crate::sqlite::migrate::known();
        let sqlite: Vec<i64> = sqlite.iter().map(|step| step.version).collect();
        let ours: Vec<i64> = MIGRATIONS.iter().map(|(version, _, _)| *version).collect();
        assert_eq!(
            sqlite[7..],
            ours,
            "a migration is written for both databases"
        );
    }
}
