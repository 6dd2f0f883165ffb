//! Rows of any database, and conversions of values.
//!
//! A number that does not fit is saturated. A text that cannot be parsed is an error, never a
//! default.

use sqlx::postgres::{PgRow, Postgres};
use sqlx::sqlite::{Sqlite, SqliteRow};
use sqlx::{Decode, Row as _, Type};

/// One result row.
pub(crate) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// Returns the number as a signed integer, as databases store it.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Reads a column.
pub(crate) fn column<'r, T>(row: &'r Row, index: usize) -> Result<T, sqlx::Error>
where
    T: Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, Postgres> + Type<Postgres>,
{
    match row {
        Row::Sqlite(row) => row.try_get(index),
        Row::Postgres(row) => row.try_get(index),
    }
}

/// Reads an unsigned number.
pub(crate) fn unsigned(row: &Row, index: usize) -> Result<u64, sqlx::Error> {
    let number: i64 = column(row, index)?;
    Ok(u64::try_from(number).unwrap_or(0))
}

/// Reads an optional unsigned number.
pub(crate) fn unsigned_option(row: &Row, index: usize) -> Result<Option<u64>, sqlx::Error> {
    let number: Option<i64> = column(row, index)?;
    Ok(number.map(|number| u64::try_from(number).unwrap_or(0)))
}

/// Reads a small number.
pub(crate) fn narrow<T: TryFrom<i64>>(row: &Row, index: usize) -> Result<T, sqlx::Error> {
    let number: i64 = column(row, index)?;
    T::try_from(number).map_err(|_| unexpected("number of that kind", &number.to_string()))
}

/// Reads an optional small number.
pub(crate) fn narrow_option<T: TryFrom<i64>>(
    row: &Row,
    index: usize,
) -> Result<Option<T>, sqlx::Error> {
    let number: Option<i64> = column(row, index)?;
    number.map(|_| narrow(row, index)).transpose()
}

/// Reads a text and parses it.
pub(crate) fn parsed<T>(row: &Row, index: usize) -> Result<T, sqlx::Error>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    let text: &str = column(row, index)?;
    text.parse()
        .map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

/// Reads an optional text and parses it.
pub(crate) fn parsed_option<T>(row: &Row, index: usize) -> Result<Option<T>, sqlx::Error>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    let text: Option<&str> = column(row, index)?;
    text.map(|_| parsed(row, index)).transpose()
}

/// Returns the error of an unexpected word.
pub(crate) fn unexpected(what: &'static str, word: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("`{word}` is no {what}").into())
}
