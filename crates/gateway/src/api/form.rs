//! Times and sizes as people write them in bodies: `30s` or 30000, `512M` or 536870912.

use std::time::Duration;

use gantry_model::spec::{period, size};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

/// A duration: `500ms`, `30s`, `2m`, `1h`, or a number of milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Period(#[serde(with = "period")] pub(super) Duration);

impl Period {
    /// Returns the whole milliseconds of it.
    pub(super) fn milliseconds(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A size: `512M`, `1G`, or a number of bytes. Units are powers of 1024.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Size(pub(super) u64);

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "a size is expected, such as `512M`, `1G` or a number of bytes"
        )]
        enum Written {
            Bytes(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Bytes(bytes) => Ok(Self(bytes)),
            Written::Text(text) => size::parse(&text).map(Self).ok_or_else(|| {
                let text: String = text.chars().take(32).collect();
                let what = format!("`{text}` is no size; write for example `512M`, `1G` or bytes");
                serde::de::Error::custom(what)
            }),
        }
    }
}

impl PartialSchema for Period {
    fn schema() -> RefOr<Schema> {
        let what = "A duration: `500ms`, `30s`, `2m`, `1h`, or a number of milliseconds.";
        number_or_text(what, "^[0-9]{1,12}(ms|s|m|min|h)?$", "30s")
    }
}

impl ToSchema for Period {}

impl PartialSchema for Size {
    fn schema() -> RefOr<Schema> {
        let what = "A size: `512M`, `1G`, or a number of bytes. Units are powers of 1024.";
        number_or_text(what, "^[0-9]{1,6}[KMGkmg]?(i?[Bb])?$", "512M")
    }
}

impl ToSchema for Size {}

fn number_or_text(what: &str, pattern: &str, example: &str) -> RefOr<Schema> {
    let number = ObjectBuilder::new()
        .schema_type(SchemaType::Type(Type::Integer))
        .minimum(Some(0));
    let text = ObjectBuilder::new()
        .schema_type(SchemaType::Type(Type::String))
        .pattern(Some(pattern));
    let either = OneOfBuilder::new().item(number).item(text);
    let either = either
        .description(Some(what))
        .examples([serde_json::Value::from(example)]);
    RefOr::T(Schema::OneOf(either.build()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_out_is_read_again() {
        let period = Period(Duration::from_millis(1500));
        let text = serde_json::to_string(&period).unwrap();
        assert_eq!(serde_json::from_str::<Period>(&text).unwrap(), period);
        let text = serde_json::to_string(&Size(3)).unwrap();
        assert_eq!(serde_json::from_str::<Size>(&text).unwrap(), Size(3));
    }
}
