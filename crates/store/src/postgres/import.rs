//! Imports the journal's rows into the audit, together with the position they were read up to.
//!
//! A batch goes as one array per column, which costs one round trip and one plan however many rows there
//! are. A call that is in a batch twice (begun and ended) is written in two rounds, because one statement
//! may touch a row only once. Entry point: `write`.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::postgres::{PgArguments, Postgres};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::call::{CallRow, Check, ErrorKind, JournalPosition, UserSource};
use crate::database::query::{Bind, RawJson, Value, without_nul};
use crate::sql::calls as sql;
use crate::store::Registered;

/// Rows per statement.
const MANY: usize = 512;
/// Time limit of a batch: the journal keeps rows that are not imported, and no caller waits.
pub(crate) const LONGEST: Duration = Duration::from_secs(20);

/// Writes rows and the position; `block` covers them.
pub(crate) async fn write<T: AsRef<str> + Sync>(
    connection: &mut PgConnection,
    gateway: Registered,
    rows: &[CallRow<T>],
    position: JournalPosition,
    block: Option<u64>,
) -> Result<(), sqlx::Error> {
    for round in rounds(rows) {
        for chunk in round.chunks(MANY) {
            let cells: Vec<_> = chunk.iter().map(|row| cells(row, gateway, block)).collect();
            let statement = statement(&cells[0]);
            // Its text is always the same, so it is prepared once.
            let query = sqlx::query(AssertSqlSafe(statement.as_str()));
            bound(query, &cells).execute(&mut *connection).await?;
        }
    }
    let put = sqlx::query(sql::PUT_POSITION)
        .bind(gateway.number)
        .bind(gateway.boot)
        .bind(crate::database::row::signed(position.segment))
        .bind(crate::database::row::signed(position.offset));
    put.execute(connection).await.map(drop)
}

/// Splits rows so that no round has two rows of the same call; later rows are in later rounds.
fn rounds<T>(rows: &[CallRow<T>]) -> Vec<Vec<&CallRow<T>>> {
    let mut seen = HashMap::with_capacity(rows.len());
    let mut rounds: Vec<Vec<&CallRow<T>>> = Vec::new();
    for row in rows {
        let times: &mut usize = seen.entry(row.id).or_default();
        if rounds.len() == *times {
            rounds.push(Vec::new());
        }
        rounds[*times].push(row);
        *times += 1;
    }
    rounds
}

/// Returns the columns of a row in the order of `sql::IMPORT_HEAD`.
fn cells<T: AsRef<str>>(
    row: &CallRow<T>,
    gateway: Registered,
    block: Option<u64>,
) -> [Value<'_>; sql::COLUMNS] {
    let details = &row.details;
    [
        Bind::value(Some(row.id.to_string())),
        Bind::value(Some(row.seq)),
        text(&row.project),
        text(&row.agent),
        text(&row.key),
        optional(&row.user),
        optional(&row.session),
        optional(&row.run),
        optional(&row.step),
        optional(&row.trace),
        text(&row.surface),
        text(&row.server),
        text(&row.method),
        text(&row.tool),
        optional(&row.schema_version),
        Bind::value(Some(row.started_ms)),
        Bind::value(Some(row.ended_ms)),
        Bind::value(Some(row.duration_us)),
        Bind::value(Some(row.status.as_str())),
        optional(&row.code),
        optional(&row.error),
        optional(&row.input),
        Bind::value(Some(row.input_bytes)),
        optional(&row.output),
        Bind::value(Some(row.output_bytes)),
        Bind::value(Some(row.repeats)),
        Bind::value(Some(row.user_trust.is_trusted())),
        Bind::value(row.server_id.map(|id| id.to_string())),
        Bind::value(Some(gateway.number)),
        Bind::value(Some(gateway.boot)),
        Bind::value(details.phases.auth_us.map(u64::from)),
        Bind::value(details.phases.grant_us.map(u64::from)),
        Bind::value(details.phases.schema_us.map(u64::from)),
        Bind::value(details.phases.queue_us.map(u64::from)),
        Bind::value(details.phases.server_us.map(u64::from)),
        Bind::value(details.phases.output_us.map(u64::from)),
        Bind::value(details.attempts.map(u64::from)),
        Bind::value(details.input_check.map(Check::as_str)),
        Bind::value(details.output_check.map(Check::as_str)),
        Bind::value(details.error_kind.map(ErrorKind::as_str)),
        Bind::value(details.policy_revision),
        optional(&details.grant),
        optional(&details.parent),
        Bind::value(details.user_source.map(UserSource::as_str)),
        Bind::value(block),
    ]
}

fn text<T: AsRef<str>>(text: &T) -> Value<'_> {
    Bind::value(Some(text.as_ref()))
}

fn optional<T: AsRef<str>>(text: &Option<T>) -> Value<'_> {
    Bind::value(text.as_ref().map(AsRef::as_ref))
}

/// Returns the statement that imports rows with columns of these kinds.
fn statement(kinds: &[Value<'_>; sql::COLUMNS]) -> String {
    let array = |(at, kind): (usize, &Value<'_>)| {
        let kind = match kind {
            Value::Text(_) => "text",
            Value::Number(_) => "bigint",
            Value::Flag(_) => "boolean",
            Value::Bytes(_) => "bytea",
            Value::Json(_) => "jsonb",
        };
        format!("${}::{kind}[]", at + 1)
    };
    let arrays: Vec<String> = kinds.iter().enumerate().map(array).collect();
    let (head, arrays, tail) = (sql::IMPORT_HEAD, arrays.join(", "), sql::IMPORT_TAIL);
    format!("{head}SELECT * FROM unnest({arrays}){tail}")
}

/// Binds each column of all rows as one array.
fn bound<'q>(
    mut query: Query<'q, Postgres, PgArguments>,
    rows: &[[Value<'_>; sql::COLUMNS]],
) -> Query<'q, Postgres, PgArguments> {
    for column in 0..sql::COLUMNS {
        let cells = rows.iter().map(|row| &row[column]);
        query = match &rows[0][column] {
            Value::Text(_) => query.bind(array(cells, |cell| {
                let Value::Text(text) = cell else {
                    return None;
                };
                text.as_deref().map(without_nul)
            })),
            Value::Number(_) => query.bind(array(cells, |cell| {
                let Value::Number(number) = cell else {
                    return None;
                };
                *number
            })),
            Value::Flag(_) => query.bind(array(cells, |cell| {
                let Value::Flag(flag) = cell else {
                    return None;
                };
                *flag
            })),
            Value::Bytes(_) => query.bind(array(cells, |cell| {
                let Value::Bytes(bytes) = cell else {
                    return None;
                };
                bytes.as_deref()
            })),
            Value::Json(_) => query.bind(array(cells, |cell| {
                let Value::Json(text) = cell else {
                    return None;
                };
                text.as_deref().map(RawJson)
            })),
        };
    }
    query
}

fn array<'c, T>(
    cells: impl Iterator<Item = &'c Value<'c>>,
    of: impl Fn(&'c Value<'c>) -> Option<T>,
) -> Vec<Option<T>> {
    cells.map(of).collect()
}

/// Returns the statement for any row.
#[cfg(test)]
pub(super) fn example() -> String {
    let row = CallRow::of_id(gantry_model::id::CallId::from_bits(1));
    let gateway = Registered {
        id: gantry_model::id::GatewayId::from_random(1),
        number: 1,
        boot: 1,
        since: tokio::time::Instant::now(),
        ahead_ms: 0,
    };
    statement(&cells(&row, gateway, None))
}
