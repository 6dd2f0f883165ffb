//! Conversions between our values and the database's: unsigned numbers, ids and names.
//!
//! A number that does not fit becomes the nearest that does: a duration of 300,000 years is no reason
//! to lose an audit row. A text that cannot be parsed is an error, never a default.

use sqlx::sqlite::SqliteRow;
use sqlx::{ColumnIndex, Decode, Row, Sqlite, Type};

/// Returns the number as the database has it.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the optional number as the database has it.
pub(crate) fn signed_option(number: Option<u64>) -> Option<i64> {
    number.map(signed)
}

/// Reads a column.
pub(crate) fn column<'r, T, I>(row: &'r SqliteRow, index: I) -> Result<T, sqlx::Error>
where
    T: Decode<'r, Sqlite> + Type<Sqlite>,
    I: ColumnIndex<SqliteRow>,
{
    row.try_get(index)
}

/// Reads a column that holds a number of ours.
pub(crate) fn unsigned<I: ColumnIndex<SqliteRow>>(
    row: &SqliteRow,
    index: I,
) -> Result<u64, sqlx::Error> {
    let number: i64 = row.try_get(index)?;
    Ok(u64::try_from(number).unwrap_or(0))
}

/// Reads a column that may hold a number of ours.
pub(crate) fn unsigned_option<I: ColumnIndex<SqliteRow>>(
    row: &SqliteRow,
    index: I,
) -> Result<Option<u64>, sqlx::Error> {
    let number: Option<i64> = row.try_get(index)?;
    Ok(number.map(|number| u64::try_from(number).unwrap_or(0)))
}

/// Reads a column that holds a text of ours and parses it.
pub(crate) fn parsed<T>(row: &SqliteRow, index: usize) -> Result<T, sqlx::Error>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    let text: &str = row.try_get(index)?;
    text.parse()
        .map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

/// Makes the error of a word that is none of ours.
pub(crate) fn unexpected(what: &'static str, word: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("`{word}` is no {what}").into())
}
