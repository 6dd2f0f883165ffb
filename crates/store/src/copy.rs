//! Copies everything from one database into another, empty one: from SQLite to PostgreSQL and back.
//!
//! Tables and columns are read from PostgreSQL's own catalog, so that none is forgotten. The source
//! is read as one snapshot; the target gets all of it or nothing, and the same number of rows in
//! each table. Sealed values are copied unchanged. Entry point: [`Store::copy`].

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::config::StoreConfig;
use crate::database::query::{Query, Value, query};
use crate::database::row::{Row, column, unsigned};
use crate::database::{Database, Durability, Transaction};
use crate::error::StoreError;
use crate::postgres::PostgresStore;
use crate::sql::copy as sql;
use crate::sqlite::SqliteStore;
use crate::store::Store;

/// The maximum number of rows that are read and written at once.
const ROWS: usize = 500;
/// The maximum number of values of one statement, in both databases.
const VALUES: usize = 30_000;
/// Time limit of each statement.
const LONGEST: Duration = Duration::from_secs(600);
/// Triggers change this table while the others are written, so it is copied last.
const REVISIONS: &str = "mcp_revisions";
/// What the copy is called in errors.
const WHAT: &str = "copy a table";

/// One table that was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedTable {
    /// Its name, without the schema.
    pub name: String,
    /// How many rows it has.
    pub rows: u64,
}

/// One table: its columns, and the indexes of its primary key columns.
struct Table {
    name: String,
    columns: Vec<Column>,
    key: Vec<usize>,
}

struct Column {
    name: String,
    kind: Kind,
    counts_up: bool,
}

/// The type of a column in PostgreSQL; SQLite has an equivalent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Flag,
    Bytes,
    Json,
}

impl Store {
    /// Copies a store into an empty one and returns the copied tables, in order. One of them is
    /// SQLite, the other PostgreSQL.
    ///
    /// Refuses a source that a gateway uses, unless `is_used` allows it: rows written after the
    /// copy began are not copied.
    pub async fn copy(
        from: &StoreConfig,
        to: &StoreConfig,
        is_used: bool,
    ) -> Result<Vec<CopiedTable>, StoreError> {
        if let StoreConfig::Sqlite(path) = from
            && !path.exists()
        {
            let what = format!("the database `{}`", path.display());
            return Err(StoreError::NotFound { what });
        }
        let made = match to {
            StoreConfig::Sqlite(file) => Some(file).filter(|file| !file.exists()),
            StoreConfig::Postgres(_) => None,
        };
        let (source, target) = match (from, to) {
            (StoreConfig::Sqlite(file), StoreConfig::Postgres(url)) => (
                Database::Sqlite(Box::new(SqliteStore::open(file).await?)),
                Database::Postgres(Box::new(PostgresStore::open(url).await?)),
            ),
            (StoreConfig::Postgres(url), StoreConfig::Sqlite(file)) => (
                Database::Postgres(Box::new(PostgresStore::open(url).await?)),
                Database::Sqlite(Box::new(SqliteStore::open(file).await?)),
            ),
            _ => {
                let reason = "one of them must be a SQLite file, the other a PostgreSQL database";
                return Err(StoreError::Copy {
                    reason: reason.to_owned(),
                });
            }
        };
        let copied = copy(&source, &target, is_used).await;
        for database in [&source, &target] {
            database.close().await?;
        }
        if let (Err(_), Some(file)) = (&copied, made) {
            // It is empty, and we made it; what else it needed went when it was closed.
            drop(std::fs::remove_file(file));
        }
        copied
    }
}

async fn copy(
    source: &Database,
    target: &Database,
    is_used: bool,
) -> Result<Vec<CopiedTable>, StoreError> {
    let catalog = if source.is_sqlite() { target } else { source };
    let tables = tables(catalog).await?;
    let running = query(sql::RUNNING);
    let running = source.one(WHAT, running, |row| unsigned(row, 0)).await?;
    if running > 0 && !is_used {
        return Err(StoreError::InUse { gateways: running });
    }
    let mut reading = source.snapshot(WHAT).await?;
    let mut writing = target.begin(WHAT, Durability::Power).await?;
    for transaction in [&mut reading, &mut writing] {
        transaction.may_take_long(LONGEST).await?;
    }
    for table in &tables {
        if count(&mut writing, table).await? > 0 && table.name != REVISIONS {
            let what = format!("the table `kb.{}` of the target", table.name);
            return Err(StoreError::NotEmpty { what });
        }
    }
    let mut copied = Vec::with_capacity(tables.len());
    for table in &tables {
        if table.name == REVISIONS {
            writing.execute(query(sql::FORGET_REVISIONS)).await?;
        }
        copy_table(&mut reading, &mut writing, table).await?;
        let (there, here) = (
            count(&mut reading, table).await?,
            count(&mut writing, table).await?,
        );
        if there != here {
            let reason = format!("`kb.{}` has {there} rows, its copy {here}", table.name);
            return Err(StoreError::Copy { reason });
        }
        if !target.is_sqlite() {
            count_on(&mut writing, table).await?;
        }
        let (name, rows) = (table.name.clone(), here);
        copied.push(CopiedTable { name, rows });
    }
    writing.commit().await?;
    reading.rollback().await?;
    Ok(copied)
}

/// Returns all tables, each after those that it refers to.
async fn tables(catalog: &Database) -> Result<Vec<Table>, StoreError> {
    let columns = catalog.rows(WHAT, query(sql::COLUMNS), |row| {
        let name: String = column(row, 0)?;
        let counts_up: String = column(row, 3)?;
        let kind: &str = column(row, 2)?;
        let kind = Kind::of(kind)
            .ok_or_else(|| crate::database::row::unexpected("type that can be copied", kind))?;
        let column = Column {
            name: column(row, 1)?,
            kind,
            counts_up: counts_up == "YES",
        };
        Ok((name, column))
    });
    let mut tables: BTreeMap<String, Table> = BTreeMap::new();
    for (name, column) in columns.await? {
        let table = tables.entry(name.clone()).or_insert_with(|| Table {
            name,
            columns: Vec::new(),
            key: Vec::new(),
        });
        table.columns.push(column);
    }
    let pair = |row: &Row| Ok((column::<String>(row, 0)?, column::<String>(row, 1)?));
    for (name, key) in catalog.rows(WHAT, query(sql::KEYS), pair).await? {
        let Some(table) = tables.get_mut(&name) else {
            continue;
        };
        let place = table.columns.iter().position(|column| column.name == key);
        table.key.extend(place);
    }
    let references = catalog.rows(WHAT, query(sql::REFERENCES), pair).await?;
    Ok(in_order(tables, &references))
}

/// Sorts tables so that each comes after those that it refers to, and the revisions last.
fn in_order(mut tables: BTreeMap<String, Table>, references: &[(String, String)]) -> Vec<Table> {
    let mut ordered = Vec::with_capacity(tables.len());
    let revisions = tables.remove(REVISIONS);
    while !tables.is_empty() {
        let waits = |name: &str| {
            references
                .iter()
                .any(|(from, to)| from == name && to != name && tables.contains_key(to))
        };
        let free: BTreeSet<String> = tables.keys().filter(|name| !waits(name)).cloned().collect();
        // A cycle cannot be sorted; PostgreSQL then reports the missing reference.
        let next = match free.is_empty() {
            true => tables.keys().cloned().collect(),
            false => free,
        };
        ordered.extend(next.iter().filter_map(|name| tables.remove(name)));
    }
    ordered.extend(revisions);
    ordered
}

async fn count(transaction: &mut Transaction<'_>, table: &Table) -> Result<u64, StoreError> {
    let mut count = query("SELECT count(*) FROM kb.");
    count.push(&table.name);
    transaction.one(count, |row| unsigned(row, 0)).await
}

async fn copy_table(
    reading: &mut Transaction<'_>,
    writing: &mut Transaction<'_>,
    table: &Table,
) -> Result<(), StoreError> {
    let at_once = ROWS.min(VALUES / table.columns.len().max(1));
    let mut last: Option<Vec<Value<'static>>> = None;
    loop {
        let page = page(table, last.as_deref(), at_once);
        let rows = reading.rows(page, |row| values(table, row)).await?;
        let Some(end) = rows.last() else {
            return Ok(());
        };
        let key = table.key.iter().map(|place| end[*place].clone());
        last = Some(key.collect());
        let is_last = rows.len() < at_once;
        writing.execute(insert(table, rows)).await?;
        if is_last {
            return Ok(());
        }
    }
}

/// Returns the query for the next rows after a key, in the order of keys.
fn page(table: &Table, after: Option<&[Value<'static>]>, limit: usize) -> Query<'static> {
    let mut page = query("SELECT ");
    for (place, column) in table.columns.iter().enumerate() {
        page.push(if place == 0 { "" } else { ", " });
        match matches!(column.kind, Kind::Json) {
            true => page.push(&format!("CAST({} AS TEXT)", column.name)),
            false => page.push(&column.name),
        };
    }
    page.push(" FROM kb.").push(&table.name);
    let names = table.key.iter().map(|place| &*table.columns[*place].name);
    let names = names.collect::<Vec<_>>().join(", ");
    if let Some(after) = after {
        page.push(" WHERE (").push(&names).push(") > (");
        push_values(&mut page, after.iter().cloned());
        page.push(")");
    }
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    page.push(" ORDER BY ").push(&names).push(" LIMIT ");
    page.push_bind(limit);
    page
}

fn insert(table: &Table, rows: Vec<Vec<Value<'static>>>) -> Query<'static> {
    let mut insert = query("INSERT INTO kb.");
    let names = table.columns.iter().map(|column| &*column.name);
    let names = names.collect::<Vec<_>>().join(", ");
    insert.push(&table.name).push(" (").push(&names);
    insert.push(") VALUES ");
    for (place, row) in rows.into_iter().enumerate() {
        insert.push(if place == 0 { "(" } else { ", (" });
        push_values(&mut insert, row.into_iter());
        insert.push(")");
    }
    insert
}

fn push_values(query: &mut Query<'static>, values: impl Iterator<Item = Value<'static>>) {
    for (place, value) in values.enumerate() {
        query.push(if place == 0 { "" } else { ", " });
        query.push_value(value);
    }
}

fn values(table: &Table, row: &Row) -> Result<Vec<Value<'static>>, sqlx::Error> {
    let value = |(place, column_of): (usize, &Column)| {
        Ok(match column_of.kind {
            Kind::Text => Value::Text(column::<Option<String>>(row, place)?.map(Cow::Owned)),
            Kind::Json => Value::Json(column(row, place)?),
            Kind::Number => Value::Number(column(row, place)?),
            Kind::Flag => Value::Flag(column(row, place)?),
            Kind::Bytes => Value::Bytes(column::<Option<Vec<u8>>>(row, place)?.map(Cow::Owned)),
        })
    };
    table.columns.iter().enumerate().map(value).collect()
}

/// Advances the sequences of the database beyond the copied numbers.
async fn count_on(writing: &mut Transaction<'_>, table: &Table) -> Result<(), StoreError> {
    for Column { name, .. } in table.columns.iter().filter(|column| column.counts_up) {
        let table = &table.name;
        let mut set = query("SELECT setval(pg_get_serial_sequence('kb.");
        set.push(table).push("', '").push(name).push("'), ");
        set.push("(SELECT coalesce(max(").push(name);
        set.push("), 0) + 1 FROM kb.").push(table).push("), false)");
        writing.one(set, |_| Ok(())).await?;
    }
    Ok(())
}

impl Kind {
    fn of(name: &str) -> Option<Self> {
        match name {
            "text" => Some(Self::Text),
            "int8" => Some(Self::Number),
            "bool" => Some(Self::Flag),
            "bytea" => Some(Self::Bytes),
            "jsonb" => Some(Self::Json),
            _ => None,
        }
    }
}
