//! Rows of any database, and conversions between our values and theirs.
//!
//! A number that does not fit becomes the nearest that does. A text that cannot be parsed is an error,
//! never a default.

use sqlx::postgres::{PgRow, Postgres};
use sqlx::sqlite::{Sqlite, SqliteRow};
use sqlx::{Decode, Row as _, Type};

/// One row of an answer.
pub(crate) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// Returns the number as databases have it.
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

/// Reads a column that holds a number of ours.
pub(crate) fn unsigned(row: &Row, index: usize) -> Result<u64, sqlx::Error> {
    let number: i64 = column(row, index)?;
    Ok(u64::try_from(number).unwrap_or(0))
}

/// Reads a column that may hold a number of ours.
pub(crate) fn unsigned_option(row: &Row, index: usize) -> Result<Option<u64>, sqlx::Error> {
    let number: Option<i64> = column(row, index)?;
    Ok(number.map(|number| u64::try_from(number).unwrap_or(0)))
}

/// Reads a column that holds a small number of ours.
pub(crate) fn narrow<T: TryFrom<i64>>(row: &Row, index: usize) -> Result<T, sqlx::Error> {
    let number: i64 = column(row, index)?;
    T::try_from(number).map_err(|_| unexpected("number of that kind", &number.to_string()))
}

/// Reads a column that may hold a small number of ours.
pub(crate) fn narrow_option<T: TryFrom<i64>>(
    row: &Row,
    index: usize,
) -> Result<Option<T>, sqlx::Error> {
    let number: Option<i64> = column(row, index)?;
    number.map(|_| narrow(row, index)).transpose()
}

/// Reads a column that holds a text of ours and parses it.
pub(crate) fn parsed<T>(row: &Row, index: usize) -> Result<T, sqlx::Error>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    let text: &str = column(row, index)?;
    text.parse()
        .map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

/// Reads a column that may hold a text of ours and parses it.
pub(crate) fn parsed_option<T>(row: &Row, index: usize) -> Result<Option<T>, sqlx::Error>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    let text: Option<&str> = column(row, index)?;
    text.map(|_| parsed(row, index)).transpose()
}

/// Makes the error of a word that is none of ours.
pub(crate) fn unexpected(what: &'static str, word: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("`{word}` is no {what}").into())
}
