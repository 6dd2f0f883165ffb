//! Durations in request bodies: `30s` or 30000.

use std::time::Duration;

use gantry_model::spec::period;
use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

/// A duration: `500ms`, `30s`, `2m`, `1h`, or a number of milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Period(#[serde(with = "period")] pub(super) Duration);

impl Period {
    /// Returns it in whole milliseconds.
    pub(super) fn milliseconds(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

impl PartialSchema for Period {
    fn schema() -> RefOr<Schema> {
        let what = "A duration: `500ms`, `30s`, `2m`, `1h`, or a number of milliseconds.";
        number_or_text(what, "^[0-9]{1,12}(ms|s|m|min|h)?$", "30s")
    }
}

impl ToSchema for Period {}

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
    }
}
