//! Remembered catalogs. Statements are in `sql::catalog`.
//!
//! Saving writes only what differs from what is known, so that a start that finds every server
//! unchanged writes nothing.

use std::collections::{HashMap, HashSet};

use gantry_model::id::ServerId;

use super::Store;
use crate::clock::now_ms;
use crate::database::query::query;
use crate::database::row::{Row, column, narrow, unsigned_option};
use crate::database::{Durability, Transaction};
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

impl Store {
    /// Remembers a server's catalog as a whole and returns its rows with their versions.
    ///
    /// The server must be registered. Of two rows with the same kind and name the first counts.
    /// What is not among the rows is gone, but its version goes on counting when it comes back.
    pub async fn save_catalog(
        &self,
        server: ServerId,
        spec_fingerprint: &str,
        hello: &str,
        rows: &[CatalogRow],
    ) -> Result<Vec<CatalogRow>, StoreError> {
        let id = server.to_string();
        let database = self.database();
        let mut transaction = database
            .begin("save a catalog", Durability::Process)
            .await?;
        let head = query(sql::PUT_HEAD)
            .bind(&id)
            .bind(spec_fingerprint)
            .bind(hello)
            .bind(now_ms());
        let head = transaction.execute(head).await;
        head.map_err(|error| error.or_not_found(|| format!("server `{server}`")))?;
        let saved = save_items(&mut transaction, &id, rows).await?;
        transaction.commit().await?;
        Ok(saved)
    }

    /// Returns the fingerprint, the hello and the rows that were saved last, by kind and position.
    pub async fn load_catalog(
        &self,
        server: ServerId,
    ) -> Result<Option<(String, String, Vec<CatalogRow>)>, StoreError> {
        let server = server.to_string();
        // One transaction, so that head and rows are of the same saving.
        let mut transaction = self.database().snapshot("load a catalog").await?;
        let head = query(sql::HEAD).bind(&server);
        let head = transaction.optional(head, |row| Ok((column(row, 0)?, column(row, 1)?)));
        let Some((fingerprint, hello)) = head.await? else {
            transaction.commit().await?;
            return Ok(None);
        };
        let items = query(sql::ITEMS).bind(&server);
        let items = transaction.rows(items, item).await?;
        transaction.commit().await?;
        Ok(Some((fingerprint, hello, items)))
    }
}

async fn save_items(
    transaction: &mut Transaction<'_>,
    server: &str,
    rows: &[CatalogRow],
) -> Result<Vec<CatalogRow>, StoreError> {
    let known = query(sql::KNOWN).bind(server);
    let known = transaction.rows(known, known_item).await?;
    let mut known: HashMap<_, _> = known.into_iter().collect();
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
            put_item(transaction, server, row, version, now).await?;
        }
        saved.push(CatalogRow {
            version,
            ..row.clone()
        });
    }
    known.retain(|_, item| !item.gone);
    for (kind, name) in known.keys() {
        let gone = query(sql::MARK_GONE)
            .bind(server)
            .bind(kind)
            .bind(name)
            .bind(now);
        transaction.execute(gone).await?;
    }
    if !known.is_empty() {
        let forget = query(sql::FORGET_GONE).bind(server);
        transaction.execute(forget).await?;
    }
    Ok(saved)
}

async fn put_item(
    transaction: &mut Transaction<'_>,
    server: &str,
    row: &CatalogRow,
    version: u32,
    now: i64,
) -> Result<(), StoreError> {
    let put = query(sql::PUT_ITEM)
        .bind(server)
        .bind(row.kind.as_str())
        .bind(row.name.as_str())
        .bind(row.position)
        .bind(row.definition.as_str())
        .bind(row.hash.as_str())
        .bind(version)
        .bind(now);
    transaction.execute(put).await.map(drop)
}

fn known_item(row: &Row) -> Result<((String, String), StoredItem), sqlx::Error> {
    let item = StoredItem {
        position: narrow(row, 2)?,
        hash: column(row, 3)?,
        version: narrow(row, 4)?,
        gone: unsigned_option(row, 5)?.is_some(),
    };
    Ok(((column(row, 0)?, column(row, 1)?), item))
}

fn item(row: &Row) -> Result<CatalogRow, sqlx::Error> {
    Ok(CatalogRow {
        kind: column(row, 0)?,
        name: column(row, 1)?,
        position: narrow(row, 2)?,
        definition: column(row, 3)?,
        hash: column(row, 4)?,
        version: narrow(row, 5)?,
    })
}
