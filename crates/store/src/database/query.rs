//! A statement with its bound values, written once for every database.
//!
//! Statements are those of `sql`, or text that is assembled from constant parts; values are added
//! by `bind` only. Entry point: [`query`].

use std::borrow::Cow;

use serde::Serialize;
use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgArguments, Postgres};
use sqlx::sqlite::{Sqlite, SqliteArguments};
use sqlx::types::Json;

/// Starts a statement.
pub(crate) const fn query<'q>(text: &'static str) -> Query<'q> {
    Query {
        text: Cow::Borrowed(text),
        values: Vec::new(),
    }
}

/// A statement and its values, in the order of `$1`, `$2` and so on.
#[derive(Debug, Clone)]
pub(crate) struct Query<'q> {
    text: Cow<'static, str>,
    values: Vec<Value<'q>>,
}

/// One value in the form of databases.
#[derive(Debug, Clone)]
pub(crate) enum Value<'q> {
    Text(Option<Cow<'q, str>>),
    Number(Option<i64>),
    Flag(Option<bool>),
    Bytes(Option<Cow<'q, [u8]>>),
    /// Text that is JSON: `jsonb` in PostgreSQL.
    Json(Option<String>),
}

/// A type that can be bound to a statement.
pub(crate) trait Bind<'q>: Sized {
    /// Returns the value, or a null of its type.
    fn value(this: Option<Self>) -> Value<'q>;
}

impl<'q> Query<'q> {
    /// Binds the next value.
    #[must_use]
    pub(crate) fn bind(mut self, value: impl Bind<'q>) -> Self {
        self.values.push(Bind::value(Some(value)));
        self
    }

    /// Adds text to the statement.
    pub(crate) fn push(&mut self, text: &str) -> &mut Self {
        self.text.to_mut().push_str(text);
        self
    }

    /// Adds a placeholder to the statement and binds its value.
    pub(crate) fn push_bind(&mut self, value: impl Bind<'q>) -> &mut Self {
        self.push_value(Bind::value(Some(value)))
    }

    /// Adds a placeholder to the statement and binds a converted value.
    pub(crate) fn push_value(&mut self, value: Value<'q>) -> &mut Self {
        self.values.push(value);
        let placeholder = format!("${}", self.values.len());
        self.push(&placeholder)
    }

    /// Returns the text of the statement.
    #[cfg(test)]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the `EXPLAIN` of the statement.
    #[cfg(test)]
    pub(crate) fn explained(self) -> Self {
        let text = Cow::Owned(format!("EXPLAIN {}", self.text));
        Self { text, ..self }
    }

    /// Returns the statement for SQLite.
    pub(super) fn for_sqlite(&self) -> sqlx::query::Query<'_, Sqlite, SqliteArguments> {
        let begun = match &self.text {
            Cow::Borrowed(text) => sqlx::query(*text),
            // Assembled for each call, so it is not cached as a prepared statement.
            Cow::Owned(text) => sqlx::query(AssertSqlSafe(text.as_str())).persistent(false),
        };
        self.values.iter().fold(begun, |query, value| match value {
            Value::Text(text) => query.bind(text.as_deref()),
            Value::Number(number) => query.bind(*number),
            Value::Flag(flag) => query.bind(*flag),
            Value::Bytes(bytes) => query.bind(bytes.as_deref()),
            Value::Json(text) => query.bind(text.as_deref()),
        })
    }

    /// Returns the statement for PostgreSQL.
    pub(crate) fn for_postgres(&self) -> sqlx::query::Query<'_, Postgres, PgArguments> {
        let begun = match &self.text {
            Cow::Borrowed(text) => sqlx::query(*text),
            Cow::Owned(text) => sqlx::query(AssertSqlSafe(text.as_str())).persistent(false),
        };
        self.values.iter().fold(begun, |query, value| match value {
            Value::Text(text) => query.bind(text.as_deref().map(without_nul)),
            Value::Number(number) => query.bind(*number),
            Value::Flag(flag) => query.bind(*flag),
            Value::Bytes(bytes) => query.bind(bytes.as_deref()),
            Value::Json(text) => query.bind(text.as_deref().map(RawJson)),
        })
    }
}

/// Returns the text for PostgreSQL: it does not support NUL in texts, and a NUL from a caller must
/// not prevent the audit row.
pub(crate) fn without_nul(text: &str) -> Cow<'_, str> {
    match text.contains('\0') {
        true => Cow::Owned(text.replace('\0', "\u{2400}")),
        false => Cow::Borrowed(text),
    }
}

/// JSON as text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawJson<'q>(pub(crate) &'q str);

impl sqlx::Type<Postgres> for RawJson<'_> {
    fn type_info() -> sqlx::postgres::PgTypeInfo {
        <Json<()> as sqlx::Type<Postgres>>::type_info()
    }
}

impl sqlx::postgres::PgHasArrayType for RawJson<'_> {
    fn array_type_info() -> sqlx::postgres::PgTypeInfo {
        <Json<()> as sqlx::postgres::PgHasArrayType>::array_type_info()
    }
}

impl<'q> sqlx::Encode<'q, Postgres> for RawJson<'q> {
    fn encode_by_ref(
        &self,
        buffer: &mut sqlx::postgres::PgArgumentBuffer,
    ) -> Result<sqlx::encode::IsNull, sqlx::error::BoxDynError> {
        // The version of the binary form of `jsonb`, then the text.
        buffer.push(1);
        // JSON can contain a NUL only as an escape, which `jsonb` refuses.
        match self.0.contains("\\u0000") {
            true => buffer.extend(without_nul_escapes(self.0).as_bytes()),
            false => buffer.extend(self.0.as_bytes()),
        }
        Ok(sqlx::encode::IsNull::No)
    }
}

/// Replaces escaped NULs, but not a backslash that is followed by the text `u0000`.
fn without_nul_escapes(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let replaced = escape.starts_with("\\u0000");
        // An escape is a backslash and one character of ASCII, whatever follows.
        let length = if replaced { 6 } else { escape.len().min(2) };
        out.push_str(if replaced {
            "\u{2400}"
        } else {
            &escape[..length]
        });
        rest = &escape[length..];
    }
    out.push_str(rest);
    out
}

impl<'q> Bind<'q> for &'q str {
    fn value(this: Option<Self>) -> Value<'q> {
        Value::Text(this.map(Cow::Borrowed))
    }
}

impl<'q> Bind<'q> for &'q String {
    fn value(this: Option<Self>) -> Value<'q> {
        Value::Text(this.map(|text| Cow::Borrowed(text.as_str())))
    }
}

impl<'q> Bind<'q> for String {
    fn value(this: Option<Self>) -> Value<'q> {
        Value::Text(this.map(Cow::Owned))
    }
}

impl<'q> Bind<'q> for i64 {
    fn value(this: Option<Self>) -> Value<'q> {
        Value::Number(this)
    }
}

/// Saturates: a duration of 300,000 years must not lose an audit row.
impl<'q> Bind<'q> for u64 {
    fn value(this: Option<Self>) -> Value<'q> {
        Value::Number(this.map(super::row::signed))
    }
}

impl<'q> Bind<'q> for u32 {
    fn value(this: Option<Self>) -> Value<'q> {
        Value::Number(this.map(i64::from))
    }
}

impl<'q> Bind<'q> for u16 {
    fn value(this: Option<Self>) -> Value<'q> {
        Value::Number(this.map(i64::from))
    }
}

impl<'q> Bind<'q> for bool {
    fn value(this: Option<Self>) -> Value<'q> {
        Value::Flag(this)
    }
}

impl<'q> Bind<'q> for &'q [u8] {
    fn value(this: Option<Self>) -> Value<'q> {
        Value::Bytes(this.map(Cow::Borrowed))
    }
}

impl<'q> Bind<'q> for Vec<u8> {
    fn value(this: Option<Self>) -> Value<'q> {
        Value::Bytes(this.map(Cow::Owned))
    }
}

impl<'q> Bind<'q> for &'q Vec<u8> {
    fn value(this: Option<Self>) -> Value<'q> {
        Value::Bytes(this.map(|bytes| Cow::Borrowed(bytes.as_slice())))
    }
}

impl<'q, T: Serialize> Bind<'q> for Json<T> {
    fn value(this: Option<Self>) -> Value<'q> {
        Value::Json(this.map(|Self(value)| {
            serde_json::to_string(&value).expect("rows hold what can be written as JSON")
        }))
    }
}

impl<'q, T: Bind<'q>> Bind<'q> for Option<T> {
    fn value(this: Option<Self>) -> Value<'q> {
        T::value(this.flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_count_up() {
        let mut query = query("SELECT 1 WHERE a = $1").bind("x");
        query.push(" AND b = ").push_bind(7_u32);
        assert_eq!(query.text(), "SELECT 1 WHERE a = $1 AND b = $2");
    }

    #[test]
    fn only_nul_is_replaced() {
        assert_eq!(without_nul("a\0b"), "a\u{2400}b");
        for (json, expected) in [
            (r#"{"a":"x\u0000y"}"#, "{\"a\":\"x\u{2400}y\"}"),
            (r#"{"a":"x\\u0000y"}"#, r#"{"a":"x\\u0000y"}"#),
            (
                r#"{"a":"\\\u0000\"\u0001"}"#,
                "{\"a\":\"\\\\\u{2400}\\\"\\u0001\"}",
            ),
        ] {
            assert_eq!(without_nul_escapes(json), expected);
        }
    }
}
