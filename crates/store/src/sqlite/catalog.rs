//! Remembered catalogs. Statements are in `sql::catalog`.
//!
//! Saving writes only what differs from what is known, so that a start that finds every server
//! unchanged writes nothing.

use std::collections::{HashMap, HashSet};

use gantry_model::id::ServerId;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::value::{column, unsigned_option};
use super::writer::Durability;
use super::{SqliteStore, now_ms};
use crate::error::StoreError;
use crate::row::CatalogRow;
use crate::sql::catalog as sql;

/// What is known of one item before a catalog is saved.
struct StoredItem {
    position: u32,
    hash: String,
    version: u32,
    gone: bool,
}

impl SqliteStore {
    pub(crate) async fn save_catalog(
        &self,
        server: ServerId,
        spec_fingerprint: &str,
        hello: &str,
        rows: &[CatalogRow],
    ) -> Result<Vec<CatalogRow>, StoreError> {
        const WHAT: &str = "save a catalog";
        let id = server.to_string();
        let mut turn = self.writer.turn(WHAT, Durability::Process).await?;
        let mut transaction = turn.begin().await?;
        let head = sqlx::query(sql::PUT_HEAD)
            .bind(&id)
            .bind(spec_fingerprint)
            .bind(hello);
        let head = head.bind(now_ms()).execute(&mut *transaction).await;
        head.map_err(|error| match error.as_database_error() {
            Some(foreign) if foreign.is_foreign_key_violation() => StoreError::NotFound {
                what: format!("server `{server}`"),
            },
            _ => self.failed(WHAT, error),
        })?;
        let saved = save_items(&mut transaction, &id, rows).await;
        let saved = saved.map_err(|error| self.failed(WHAT, error))?;
        self.commit(WHAT, transaction).await?;
        turn.done();
        Ok(saved)
    }

    pub(crate) async fn load_catalog(
        &self,
        server: ServerId,
    ) -> Result<Option<(String, String, Vec<CatalogRow>)>, StoreError> {
        const WHAT: &str = "load a catalog";
        let mut reader = self.readers.take(WHAT).await?;
        let loaded = load(reader.connection(), &server.to_string()).await;
        loaded.map_err(|error| self.failed(WHAT, error))
    }
}

async fn save_items(
    connection: &mut SqliteConnection,
    server: &str,
    rows: &[CatalogRow],
) -> Result<Vec<CatalogRow>, sqlx::Error> {
    let mut known = HashMap::new();
    for row in sqlx::query(sql::KNOWN)
        .bind(server)
        .fetch_all(&mut *connection)
        .await?
    {
        let key: (String, String) = (column(&row, 0)?, column(&row, 1)?);
        known.insert(key, known_item(&row)?);
    }
    let now = now_ms();
    let mut saved = Vec::with_capacity(rows.len());
    let mut seen = HashSet::with_capacity(rows.len());
    for row in rows {
        let key = (row.kind.clone(), row.name.clone());
        let before = known.remove(&key);
        if !seen.insert(key) {
            continue;
        }
        let version = match &before {
            None => 1,
            Some(before) if before.hash == row.hash => before.version,
            Some(before) => before.version.saturating_add(1),
        };
        let same = before.is_some_and(|before| {
            before.version == version && before.position == row.position && !before.gone
        });
        if !same {
            put_item(connection, server, row, version, now).await?;
        }
        saved.push(CatalogRow {
            version,
            ..row.clone()
        });
    }
    known.retain(|_, item| !item.gone);
    for (kind, name) in known.keys() {
        let gone = sqlx::query(sql::MARK_GONE)
            .bind(server)
            .bind(kind)
            .bind(name)
            .bind(now);
        gone.execute(&mut *connection).await?;
    }
    if !known.is_empty() {
        sqlx::query(sql::FORGET_GONE)
            .bind(server)
            .execute(connection)
            .await?;
    }
    Ok(saved)
}

async fn put_item(
    connection: &mut SqliteConnection,
    server: &str,
    row: &CatalogRow,
    version: u32,
    now: i64,
) -> Result<(), sqlx::Error> {
    let put = sqlx::query(sql::PUT_ITEM)
        .bind(server)
        .bind(row.kind.as_str())
        .bind(row.name.as_str())
        .bind(i64::from(row.position))
        .bind(row.definition.as_str())
        .bind(row.hash.as_str())
        .bind(i64::from(version))
        .bind(now);
    put.execute(connection).await.map(drop)
}

async fn load(
    connection: &mut SqliteConnection,
    server: &str,
) -> Result<Option<(String, String, Vec<CatalogRow>)>, sqlx::Error> {
    // One transaction, so that head and rows are of the same saving.
    let mut transaction = sqlx::Connection::begin(connection).await?;
    let head = sqlx::query(sql::HEAD)
        .bind(server)
        .fetch_optional(&mut *transaction)
        .await?;
    let Some(head) = head else { return Ok(None) };
    let rows = sqlx::query(sql::ITEMS)
        .bind(server)
        .fetch_all(&mut *transaction)
        .await?;
    transaction.commit().await?;
    let rows = rows.iter().map(item).collect::<Result<_, _>>()?;
    Ok(Some((column(&head, 0)?, column(&head, 1)?, rows)))
}

fn known_item(row: &SqliteRow) -> Result<StoredItem, sqlx::Error> {
    Ok(StoredItem {
        position: column(row, 2)?,
        hash: column(row, 3)?,
        version: column(row, 4)?,
        gone: unsigned_option(row, 5)?.is_some(),
    })
}

fn item(row: &SqliteRow) -> Result<CatalogRow, sqlx::Error> {
    Ok(CatalogRow {
        kind: column(row, 0)?,
        name: column(row, 1)?,
        position: column(row, 2)?,
        definition: column(row, 3)?,
        hash: column(row, 4)?,
        version: column(row, 5)?,
    })
}
