//! Which schemas OpenAI accepts with `strict: true`: those that leave nothing open.
//!
//! Only decides and never changes a schema: a property that is optional for the server must stay
//! optional for the model.

use crate::jsonrpc::{Raw, RawKind};

/// The deepest nesting that strict schemas may have.
const DEEPEST: usize = 10;
/// The maximum number of properties in all.
const MOST_PROPERTIES: usize = 5000;

/// The keywords of a strict schema that need no further check.
const PLAIN: [&str; 16] = [
    "$ref",
    "$schema",
    "const",
    "description",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxItems",
    "maximum",
    "minItems",
    "minimum",
    "multipleOf",
    "pattern",
    "title",
    "type",
];

/// Returns whether an arguments schema can be sent with `strict: true`.
pub(super) fn qualifies(schema: Raw<'_>) -> bool {
    let is_object = schema
        .get("type")
        .is_some_and(|kind| kind.is_string("object"));
    let mut properties = 0;
    is_object
        && schema.get("anyOf").is_none()
        && is_closed(schema, 0, &mut properties)
        && properties <= MOST_PROPERTIES
}

fn is_closed(schema: Raw<'_>, depth: usize, properties: &mut usize) -> bool {
    if !schema.is_object() || depth > DEEPEST {
        return false;
    }
    let mut closed = |schema| is_closed(schema, depth + 1, properties);
    let mut seen_properties = None;
    for member in schema.members() {
        let value = member.value;
        let fits = if member.is("properties") {
            seen_properties = Some(value);
            value.is_object() && value.members().all(|property| closed(property.value))
        } else if member.is("$defs") {
            value.is_object() && value.members().all(|definition| closed(definition.value))
        } else if member.is("items") {
            closed(value)
        } else if member.is("anyOf") {
            value.kind() == RawKind::Array && value.items().all(&mut closed)
        } else if member.is("additionalProperties") {
            value.boolean() == Some(false)
        } else if member.is("required") {
            true
        } else {
            PLAIN.into_iter().any(|known| member.is(known))
        };
        if !fits {
            return false;
        }
    }
    *properties += seen_properties.map_or(0, |known| known.members().count());
    // A schema without constraints accepts anything.
    let says_something = ["type", "$ref", "enum", "const", "anyOf"]
        .into_iter()
        .any(|key| schema.get(key).is_some());
    says_something && (!may_be_object(schema) || is_exact(schema, seen_properties))
}

fn may_be_object(schema: Raw<'_>) -> bool {
    schema.get("type").is_some_and(|kind| {
        kind.is_string("object") || kind.items().any(|one| one.is_string("object"))
    })
}

/// Returns whether an object's schema lists and requires every property.
fn is_exact(schema: Raw<'_>, properties: Option<Raw<'_>>) -> bool {
    let (Some(properties), Some(required)) = (properties, schema.get("required")) else {
        return false;
    };
    let demanded: Vec<_> = required.items().filter_map(Raw::string).collect();
    schema.get("additionalProperties").is_some()
        && properties.members().all(|property| {
            let name = property.key.string().unwrap_or_default();
            demanded.contains(&name)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_schemas_that_leave_nothing_open_qualify() {
        let strict = r##"{"type":"object","properties":{"a":{"type":"string"},"b":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/p"}]},
            "c":{"type":"array","items":{"enum":[1,2]}}},"required":["a","b","c"],"additionalProperties":false,
            "$defs":{"p":{"type":"object","properties":{},"required":[],"additionalProperties":false}}}"##;
        assert!(qualifies(Raw::trusted(strict)));
        for open in [
            r#"{"type":"object"}"#,
            r#"{"type":"object","properties":{},"required":[]}"#,
            r#"{"type":"object","properties":{},"required":[],"additionalProperties":true}"#,
            r#"{"type":"object","properties":{"a":{"type":"string"}},"required":[],"additionalProperties":false}"#,
            r#"{"type":"object","properties":{"a":{}},"required":["a"],"additionalProperties":false}"#,
            r#"{"type":"object","properties":{"a":{"type":"object"}},"required":["a"],"additionalProperties":false}"#,
            r#"{"type":"object","properties":{"a":{"type":["object","null"]}},"required":["a"],"additionalProperties":false}"#,
            r#"{"type":"object","properties":{"a":{"type":"string","default":"x"}},"required":["a"],"additionalProperties":false}"#,
            r#"{"type":"object","properties":{},"required":[],"additionalProperties":false,"anyOf":[]}"#,
            r#"{"type":"object","properties":{},"required":[],"additionalProperties":false,"if":{}}"#,
        ] {
            assert!(!qualifies(Raw::trusted(open)), "{open}");
        }
        let mut deep = r#"{"type":"string"}"#.to_owned();
        for _ in 0..12 {
            deep = format!(
                r#"{{"type":"object","properties":{{"a":{deep}}},"required":["a"],"additionalProperties":false}}"#
            );
        }
        assert!(!qualifies(Raw::trusted(&deep)));
    }
}
