//! The schema of the file: created, checked, refused if newer, migrated if older.
//!
//! A warm start runs one query and no migration. SQLite's migrations take no lock of their own, so a
//! lock file does. A new database is created under another name and moved into place when it is
//! complete; an older one is copied first, and each step is one transaction, so that a killed
//! migration leaves either schema.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use gantry_model::hex::hex;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection, Row, SqlStr};

use super::connection::Connector;
use super::file;
use crate::error::StoreError;

/// Version, name and statements of each migration. Listed explicitly: the macro that reads the
/// folder would compile SQLite a second time, for the compiler itself.
const MIGRATIONS: [(i64, &str, &str); 21] = [
    (
        1,
        "first",
        include_str!("../../migrations/sqlite/0001_first.sql"),
    ),
    (
        2,
        "agents",
        include_str!("../../migrations/sqlite/0002_agents.sql"),
    ),
    (
        3,
        "user trust",
        include_str!("../../migrations/sqlite/0003_user_trust.sql"),
    ),
    (
        4,
        "journal chain",
        include_str!("../../migrations/sqlite/0004_journal_chain.sql"),
    ),
    (
        5,
        "acts",
        include_str!("../../migrations/sqlite/0005_acts.sql"),
    ),
    (
        6,
        "gateways",
        include_str!("../../migrations/sqlite/0006_gateways.sql"),
    ),
    (
        7,
        "act project",
        include_str!("../../migrations/sqlite/0007_act_project.sql"),
    ),
    (
        8,
        "hosting",
        include_str!("../../migrations/sqlite/0008_hosting.sql"),
    ),
    (
        9,
        "secrets",
        include_str!("../../migrations/sqlite/0009_secrets.sql"),
    ),
    (
        10,
        "projects",
        include_str!("../../migrations/sqlite/0010_projects.sql"),
    ),
    (
        14,
        "id ranges",
        include_str!("../../migrations/sqlite/0014_id_ranges.sql"),
    ),
    (
        15,
        "call details",
        include_str!("../../migrations/sqlite/0015_call_details.sql"),
    ),
    (
        16,
        "audit chain",
        include_str!("../../migrations/sqlite/0016_audit_chain.sql"),
    ),
    (
        18,
        "grants",
        include_str!("../../migrations/sqlite/0018_grants.sql"),
    ),
    (
        20,
        "tool versions",
        include_str!("../../migrations/sqlite/0020_tool_versions.sql"),
    ),
    (
        22,
        "keys",
        include_str!("../../migrations/sqlite/0022_keys.sql"),
    ),
    (
        24,
        "suspension role",
        include_str!("../../migrations/sqlite/0024_suspension_role.sql"),
    ),
    (
        25,
        "call filters",
        include_str!("../../migrations/sqlite/0025_call_filters.sql"),
    ),
    (
        26,
        "act chain",
        include_str!("../../migrations/sqlite/0026_act_chain.sql"),
    ),
    (
        27,
        "call indexes",
        include_str!("../../migrations/sqlite/0027_call_indexes.sql"),
    ),
    (
        28,
        "audit keys",
        include_str!("../../migrations/sqlite/0028_audit_keys.sql"),
    ),
];

/// The schema after all migrations. Written by the test that compares it with them.
const SCHEMA: &str = include_str!("../../migrations/sqlite_schema.sql");

/// `GANT` in the header of every database of Gantry, set by the first migration.
const APPLICATION_ID: i64 = 0x4741_4e54;

/// Two rows: the application id, and the schema version.
const VERSION: &str = "PRAGMA kb.application_id; \
     SELECT coalesce(max(version), 0) FROM kb._sqlx_migrations";

/// How long to wait for another process that creates or migrates the file.
const PATIENCE: Duration = Duration::from_secs(30);

/// Checks small tables that must be intact before anything is served; the audit is too long for it.
const CHECK: &str = "SELECT quick_check FROM pragma_quick_check('projects', 'kb') \
     UNION ALL SELECT quick_check FROM pragma_quick_check('agents', 'kb') \
     UNION ALL SELECT quick_check FROM pragma_quick_check('project_mcp_servers', 'kb') \
     UNION ALL SELECT quick_check FROM pragma_quick_check('mcp_bindings', 'kb') \
     UNION ALL SELECT quick_check FROM pragma_quick_check('mcp_api_keys', 'kb') \
     UNION ALL SELECT quick_check FROM pragma_quick_check('mcp_secrets', 'kb') \
     UNION ALL SELECT quick_check FROM pragma_quick_check('mcp_gateways', 'kb') \
     UNION ALL SELECT quick_check FROM pragma_quick_check('mcp_journal_position', 'kb') \
     UNION ALL SELECT quick_check FROM pragma_quick_check('mcp_journal_damage', 'kb')";

/// Returns the migrations that this Gantry knows.
pub(crate) fn known() -> Migrator {
    let written = MIGRATIONS.map(|(version, name, sql)| {
        let sql = SqlStr::from_static(sql);
        Migration::new(version, name.into(), MigrationType::Simple, sql, false)
    });
    with_table(written.into())
}

/// Combines migrations with the table that records them.
pub(crate) fn with_table(migrations: Vec<Migration>) -> Migrator {
    let mut migrator = Migrator::with_migrations(migrations);
    migrator.dangerous_set_table_name("kb._sqlx_migrations");
    migrator
}

/// Creates the file, unless another process does so first.
pub(crate) async fn create(
    path: &Path,
    migrator: &Migrator,
    busy_timeout: Duration,
) -> Result<(), StoreError> {
    let _lock = lock(path).await?;
    if file::look(path)? == file::FileState::File {
        return Ok(());
    }
    let unfinished = file::beside(path, ".new");
    let failed = |error: std::io::Error| StoreError::open(path, error);
    file::remove_unfinished(&unfinished).map_err(failed)?;
    drop(file::make(&unfinished).map_err(failed)?);
    let mut connection = Connector::new(&unfinished, busy_timeout)?.maker().await?;
    let checksums = |migrator: &Migrator| -> Vec<_> {
        let each = migrator.iter();
        each.map(|migration| migration.checksum.clone()).collect()
    };
    if checksums(migrator) == checksums(&known()) {
        fill(&mut connection, path, migrator).await?;
    } else {
        run(&mut connection, path, migrator).await?;
    }
    let closed = connection.close().await;
    closed.map_err(|error| StoreError::from_sqlite(path, "make the file", error))?;
    file::put_in_place(&unfinished, path).map_err(failed)
}

/// Returns the file's schema if it is older; refuses a newer one and other programs' files.
pub(crate) async fn older(
    connection: &mut SqliteConnection,
    path: &Path,
    migrator: &Migrator,
) -> Result<Option<i64>, StoreError> {
    let stranger = || StoreError::corrupt(path, "it is not a Gantry database");
    let failed = |error| {
        let error = StoreError::from_sqlite(path, "read its schema", error);
        // The migrations table is missing.
        let absent = matches!(
            &error,
            StoreError::Query {
                source: sqlx::Error::Database(_),
                ..
            }
        );
        if absent { stranger() } else { error }
    };
    let rows = sqlx::query(VERSION)
        .persistent(false)
        .fetch_all(connection)
        .await;
    let rows = rows.map_err(failed)?;
    let [id, found] = rows.as_slice() else {
        return Err(stranger());
    };
    let id: i64 = id.try_get(0).map_err(failed)?;
    let found: i64 = found.try_get(0).map_err(failed)?;
    if id != APPLICATION_ID {
        return Err(stranger());
    }
    let known = migrator
        .iter()
        .map(|migration| migration.version)
        .max()
        .unwrap_or(0);
    match found {
        _ if found > known => Err(StoreError::Newer { found, known }),
        _ if found < known => Ok(Some(found)),
        _ => Ok(None),
    }
}

/// Copies and migrates the file, unless another process does so first.
pub(crate) async fn upgrade(
    connection: &mut SqliteConnection,
    path: &Path,
    migrator: &Migrator,
    found: i64,
) -> Result<(), StoreError> {
    let _lock = lock(path).await?;
    if older(connection, path, migrator).await? != Some(found) {
        return Ok(());
    }
    back_up(connection, path, found).await?;
    run(connection, path, migrator).await?;
    tracing::info!(file = %path.display(), from = found, "the database has a new schema");
    Ok(())
}

/// Checks the tables that cannot be restored.
pub(crate) async fn check(
    connection: &mut SqliteConnection,
    path: &Path,
) -> Result<(), StoreError> {
    let failed = |error| StoreError::from_sqlite(path, "check its tables", error);
    let rows = sqlx::query(CHECK)
        .persistent(false)
        .fetch_all(connection)
        .await
        .map_err(failed)?;
    for row in rows {
        let said: String = row.try_get(0).map_err(failed)?;
        if said != "ok" {
            return Err(StoreError::corrupt(path, said));
        }
    }
    Ok(())
}

/// Creates the tables of a new file at once, and records the migrations.
async fn fill(
    connection: &mut SqliteConnection,
    path: &Path,
    migrator: &Migrator,
) -> Result<(), StoreError> {
    let failed = |error| StoreError::from_sqlite(path, "make its tables", error);
    let mut statements = format!("BEGIN;\n{SCHEMA}");
    for Migration {
        version,
        description,
        checksum,
        ..
    } in migrator.iter()
    {
        let checksum = hex(checksum);
        statements += &format!(
            "INSERT INTO kb._sqlx_migrations (version, description, success, checksum, execution_time) \
             VALUES ({version}, '{description}', TRUE, x'{checksum}', 0);\n"
        );
    }
    statements += "COMMIT;";
    let made = sqlx::raw_sql(AssertSqlSafe(statements))
        .execute(connection)
        .await;
    made.map(drop).map_err(failed)
}

async fn run(
    connection: &mut SqliteConnection,
    path: &Path,
    migrator: &Migrator,
) -> Result<(), StoreError> {
    let failed = |error| StoreError::from_sqlite(path, "bring its schema forward", error);
    // A referenced table is rebuilt by dropping it, which must not delete the referring rows.
    // https://www.sqlite.org/lang_altertable.html#otheralter
    // Sorting millions of rows for an index takes room on disk, not in memory.
    let off = sqlx::raw_sql("PRAGMA foreign_keys = OFF; PRAGMA temp_store = FILE");
    off.execute(&mut *connection).await.map_err(failed)?;
    let ran = migrator.run_direct(None, &mut *connection, false).await;
    let on = sqlx::raw_sql("PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY");
    on.execute(connection).await.map_err(failed)?;
    match ran {
        Ok(()) => Ok(()),
        Err(MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)) => {
            Err(failed(error))
        }
        Err(error) => Err(StoreError::open(path, error)),
    }
}

async fn back_up(
    connection: &mut SqliteConnection,
    path: &Path,
    found: i64,
) -> Result<(), StoreError> {
    let backup = file::backup_of(path, found);
    let unfinished = file::beside(&backup, ".new");
    let failed = |error: std::io::Error| StoreError::open(&backup, error);
    file::remove_unfinished(&unfinished).map_err(failed)?;
    drop(file::make(&unfinished).map_err(failed)?);
    let text = unfinished
        .to_str()
        .ok_or_else(|| StoreError::open(path, "its name is not UTF-8"))?;
    let copy = sqlx::query("VACUUM kb INTO $1")
        .bind(text)
        .persistent(false)
        .execute(connection);
    copy.await
        .map_err(|error| StoreError::from_sqlite(path, "make a copy first", error))?;
    file::put_in_place(&unfinished, &backup).map_err(failed)?;
    tracing::info!(copy = %backup.display(), "copied the database before changing its schema");
    Ok(())
}

/// Takes the lock for creating and migrating; released when the returned file is dropped.
async fn lock(path: &Path) -> Result<File, StoreError> {
    let name = file::beside(path, ".lock");
    let failed = |error: std::io::Error| StoreError::open(path, error);
    if std::fs::symlink_metadata(&name).is_ok_and(|metadata| !metadata.is_file()) {
        let reason = format!("`{}` is not a regular file", name.display());
        return Err(StoreError::open(path, reason));
    }
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    let mut lock = options.open(&name).map_err(failed)?;
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        match lock.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if tokio::time::Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                lock.read_to_string(&mut holder).map_err(failed)?;
                let holder = format!("process {}", holder.trim());
                return Err(StoreError::Locked {
                    database: path.display().to_string(),
                    holder,
                });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
    lock.set_len(0).map_err(failed)?;
    write!(lock, "{}", std::process::id()).map_err(failed)?;
    Ok(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything in a file: statements first, then rows.
    async fn content(path: &Path) -> Vec<String> {
        let connector = Connector::new(path, Duration::from_secs(5)).unwrap();
        let mut connection = connector.writer().await.unwrap();
        let statements = "SELECT coalesce(sql, name) FROM kb.sqlite_master ORDER BY rowid";
        let rows = sqlx::query(statements).fetch_all(&mut connection).await;
        let mut all: Vec<String> = rows.unwrap().iter().map(|row| row.get(0)).collect();
        let tables = "SELECT name FROM kb.sqlite_master WHERE type = 'table' ORDER BY rowid";
        for table in sqlx::query(tables)
            .fetch_all(&mut connection)
            .await
            .unwrap()
        {
            let table: String = table.get(0);
            let rows = match table.as_str() {
                "_sqlx_migrations" => {
                    "SELECT json_array(version, description, hex(checksum)) FROM kb._sqlx_migrations"
                        .to_owned()
                }
                table => format!("SELECT '{table} has ' || count(*) FROM kb.{table}"),
            };
            let rows = sqlx::query(AssertSqlSafe(rows))
                .fetch_all(&mut connection)
                .await;
            all.extend(rows.unwrap().iter().map(|row| row.get::<String, _>(0)));
        }
        let id = sqlx::query("PRAGMA kb.application_id")
            .fetch_one(&mut connection)
            .await;
        all.push(id.unwrap().get::<i64, _>(0).to_string());
        all
    }

    /// Makes a file at once or step by step; returns what is in it.
    async fn made(at_once: bool) -> Result<Vec<String>, StoreError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gantry.db");
        drop(file::make(&path).unwrap());
        let connector = Connector::new(&path, Duration::from_secs(5)).unwrap();
        let mut connection = connector.maker().await.unwrap();
        match at_once {
            true => fill(&mut connection, &path, &known()).await?,
            false => run(&mut connection, &path, &known()).await?,
        }
        connection.close().await.unwrap();
        Ok(content(&path).await)
    }

    // fault D5: a new file is what an old one becomes.
    #[tokio::test]
    async fn the_committed_schema_is_what_the_migrations_make() {
        let stepwise = made(false).await.unwrap();
        if made(true).await.ok().as_ref() != Some(&stepwise) {
            let mut text =
                "-- What the migrations make of an empty file. Generated: `just gen`.\n".to_owned();
            text += &format!("PRAGMA kb.application_id = {APPLICATION_ID};\n");
            for statement in stepwise.iter().filter(|line| line.starts_with("CREATE ")) {
                let end = ["TABLE ", "UNIQUE INDEX ", "INDEX ", "VIEW ", "TRIGGER "]
                    .iter()
                    .find_map(|kind| {
                        statement
                            .strip_prefix(&format!("CREATE {kind}"))
                            .map(|_| kind.len())
                    })
                    .expect("one of these kinds");
                let (kind, rest) = statement.split_at("CREATE ".len() + end);
                text += &format!("{kind}kb.{rest};\n");
            }
            let out = concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../target/sqlite_schema.sql"
            );
            std::fs::write(out, text).unwrap();
            panic!("migrations/sqlite_schema.sql is out of date: `just gen` writes it");
        }
    }

    #[test]
    fn every_file_of_the_folder_is_a_migration() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/sqlite");
        let files = std::fs::read_dir(folder).unwrap();
        let mut files: Vec<String> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let written = MIGRATIONS
            .map(|(version, name, _)| format!("{version:04}_{}.sql", name.replace(' ', "_")));
        assert_eq!(files, written);
        assert_eq!(known().iter().count(), written.len());
    }
}
