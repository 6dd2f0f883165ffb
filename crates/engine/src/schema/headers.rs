//! The annotation `x-mcp-header`, by which a client of the stateless era mirrors an argument into a
//! header. One invalid annotation makes conforming clients drop the whole tool, so the gateway
//! drops it first and reports why. The gateway's own clients need not mirror anything: it reads
//! only the body, and writes the headers that a server expects.

use std::borrow::Cow;
use std::collections::HashSet;

use gantry_model::jsonrpc::{Raw, RawBuf, RawKind};
use serde_json::{Map, Value};

const ANNOTATION: &str = "x-mcp-header";

/// Returns whether a schema may contain annotations. A keyword may be written with escapes.
pub(super) fn are_in(schema: Raw<'_>) -> bool {
    schema.text().contains(ANNOTATION) || schema.text().contains("\\u")
}

/// Checks every annotation in an arguments schema.
pub(super) fn check(schema: &Value) -> Result<(), &'static str> {
    let Some(schema) = schema.as_object() else {
        return Ok(());
    };
    check_schema(schema, Reach::Root, &mut HashSet::new())
}

/// The path by which a subschema is reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Root,
    /// Through `properties` only.
    Property,
    /// Through any other keyword.
    Other,
}

fn check_schema(
    schema: &Map<String, Value>,
    reach: Reach,
    names: &mut HashSet<String>,
) -> Result<(), &'static str> {
    if let Some(name) = schema.get(ANNOTATION) {
        let name = name.as_str().ok_or("it is not a string")?;
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err("it is not a header name");
        }
        if reach != Reach::Property {
            return Err("it is not on a property");
        }
        let kind = schema.get("type").and_then(Value::as_str);
        if !matches!(kind, Some("string" | "integer" | "boolean")) {
            return Err("its property is not a string, integer or boolean");
        }
        if !names.insert(name.to_ascii_lowercase()) {
            return Err("two properties use the same header");
        }
    }
    for (keyword, value) in schema {
        match keyword.as_str() {
            "enum" | "const" | "default" | "examples" => {}
            "properties" => {
                let below = if reach == Reach::Other {
                    Reach::Other
                } else {
                    Reach::Property
                };
                check_each(value, below, names)?;
            }
            "patternProperties" | "$defs" | "definitions" | "dependentSchemas" | "dependencies" => {
                check_each(value, Reach::Other, names)?
            }
            _ => check_value(value, names)?,
        }
    }
    Ok(())
}

/// Returns the headers (names and values) that mirror these arguments.
pub(crate) fn mirrored(schema: Raw<'_>, arguments: Raw<'_>) -> Vec<(Box<str>, Box<str>)> {
    let mut found = Vec::new();
    if schema.text().contains(ANNOTATION) {
        mirror(schema, arguments, &mut found);
    }
    found
}

fn mirror(schema: Raw<'_>, value: Raw<'_>, found: &mut Vec<(Box<str>, Box<str>)>) {
    let properties = schema.get("properties").into_iter().flat_map(Raw::members);
    for property in properties {
        let name = property.key.string();
        let Some(value) = name.and_then(|name| value.get(&name)) else {
            continue;
        };
        if let Some(header) = property.value.get(ANNOTATION).and_then(Raw::string) {
            let text = match value.kind() {
                RawKind::String => value.string(),
                RawKind::Number | RawKind::Boolean => Some(Cow::Borrowed(value.text())),
                RawKind::Object | RawKind::Array | RawKind::Null => None,
            };
            if let Some(text) = text {
                found.push((header.into(), text.into()));
            }
        } else if value.is_object() {
            mirror(property.value, value, found);
        }
    }
}

/// Returns a schema without its annotations; `None` if it has none.
pub(crate) fn without_headers(schema: Option<Raw<'_>>) -> Option<RawBuf> {
    let raw = schema.filter(|schema| schema.text().contains(ANNOTATION))?;
    let mut schema: Value = raw.deserialize().ok()?;
    strip(&mut schema);
    RawBuf::serialize(&schema).ok()
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(schema) => {
            schema.shift_remove(ANNOTATION);
            for (keyword, value) in schema {
                match keyword.as_str() {
                    "enum" | "const" | "default" | "examples" => {}
                    "properties" | "patternProperties" | "$defs" | "definitions"
                    | "dependentSchemas" | "dependencies" => {
                        let schemas = value.as_object_mut();
                        schemas
                            .into_iter()
                            .flat_map(Map::values_mut)
                            .for_each(strip);
                    }
                    _ => strip(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn check_each(
    schemas: &Value,
    reach: Reach,
    names: &mut HashSet<String>,
) -> Result<(), &'static str> {
    for schema in schemas.as_object().into_iter().flat_map(Map::values) {
        if let Value::Object(schema) = schema {
            check_schema(schema, reach, names)?;
        }
    }
    Ok(())
}

fn check_value(value: &Value, names: &mut HashSet<String>) -> Result<(), &'static str> {
    match value {
        Value::Object(schema) => check_schema(schema, Reach::Other, names),
        Value::Array(items) => items.iter().try_for_each(|item| check_value(item, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// Whether this byte may occur in a token of RFC 9110 §5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotated_arguments_are_repeated_and_no_others() {
        let schema = r#"{"type":"object","properties":{
            "region":{"type":"string","x-mcp-header":"Region"},
            "count":{"type":"integer","x-mcp-header":"Count"},
            "plain":{"type":"string"},
            "deep":{"type":"object","properties":{"flag":{"type":"boolean","x-mcp-header":"Flag"}}}}}"#;
        let arguments = r#"{"region":"eu \u00fc","plain":"x","deep":{"flag":true},"count":null}"#;
        let found = mirrored(Raw::trusted(schema), Raw::trusted(arguments));
        let expected: Vec<(Box<str>, Box<str>)> = vec![
            ("Region".into(), "eu ü".into()),
            ("Flag".into(), "true".into()),
        ];
        assert_eq!(found, expected);
        assert_eq!(
            mirrored(Raw::EMPTY_OBJECT, Raw::trusted(arguments)),
            Vec::new()
        );
    }
}
