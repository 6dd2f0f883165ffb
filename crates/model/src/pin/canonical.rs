//! The canonical form of a definition: members sorted, no white space, strings written in one way,
//! numbers as they were. Two definitions with the same form mean the same to every reader, so that a
//! server that writes its members in another order has not changed. Entry point: [`canonical`].

use sha2::{Digest, Sha256};

use crate::hex::hex;
use crate::jsonrpc::{Raw, RawKind, quote_into};

/// What of a definition is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it.
    Everything,
    /// A definition without its texts for people and models.
    Definition,
    /// Its annotations without their title.
    Annotations,
    /// The arguments of a prompt, a list, without their texts.
    Arguments,
    /// A JSON Schema without its texts.
    Schema,
    /// Schemas by name, as `properties` has them.
    NamedSchemas,
}

/// Returns the canonical form of a definition.
pub fn canonical(raw: Raw<'_>) -> String {
    written(raw, Part::Everything)
}

/// Returns the SHA-256 of the canonical form, in hexadecimal.
pub fn content_hash(raw: Raw<'_>) -> String {
    hash_of(&canonical(raw))
}

/// Returns the SHA-256 of a definition that is in its canonical form already.
pub fn hash_of(canonical: &str) -> String {
    hex(&Sha256::digest(canonical.as_bytes()))
}

/// Returns the canonical form without the texts, in which only text may differ.
pub(super) fn without_texts(raw: Raw<'_>) -> String {
    written(raw, Part::Definition)
}

fn written(raw: Raw<'_>, part: Part) -> String {
    let mut out = Vec::with_capacity(raw.text().len());
    write(raw, part, &mut out);
    String::from_utf8(out).expect("JSON text is written from strings")
}

fn write(raw: Raw<'_>, part: Part, out: &mut Vec<u8>) {
    match raw.kind() {
        RawKind::Object => {
            let members = raw.members().map(|member| {
                let key = member.key.string().unwrap_or_default();
                (key, member.value)
            });
            let mut members: Vec<_> = members.filter(|(key, _)| !is_text(part, key)).collect();
            members.sort_by(|(one, _), (other, _)| one.cmp(other));
            out.push(b'{');
            for (at, (key, value)) in members.into_iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                quote_into(out, &key);
                out.push(b':');
                write(value, inside(part, &key), out);
            }
            out.push(b'}');
        }
        RawKind::Array => {
            out.push(b'[');
            for (at, item) in raw.items().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write(item, part, out);
            }
            out.push(b']');
        }
        RawKind::String => match raw.string() {
            Some(text) => quote_into(out, &text),
            None => out.extend_from_slice(raw.text().as_bytes()),
        },
        RawKind::Number | RawKind::Boolean | RawKind::Null => {
            out.extend_from_slice(raw.text().as_bytes());
        }
    }
}

/// Returns whether a member is text for people and models.
fn is_text(part: Part, key: &str) -> bool {
    match part {
        Part::Everything | Part::NamedSchemas => false,
        Part::Definition => matches!(key, "title" | "description" | "icons"),
        Part::Annotations => key == "title",
        Part::Arguments => matches!(key, "title" | "description"),
        Part::Schema => matches!(key, "title" | "description" | "$comment" | "examples"),
    }
}

/// Returns what a member of this name holds.
fn inside(part: Part, key: &str) -> Part {
    match (part, key) {
        (Part::Definition, "annotations") => Part::Annotations,
        (Part::Definition, "arguments") => Part::Arguments,
        (Part::Definition, "inputSchema" | "outputSchema") | (Part::NamedSchemas, _) => {
            Part::Schema
        }
        (
            Part::Schema,
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
        ) => Part::NamedSchemas,
        (
            Part::Schema,
            "items"
            | "prefixItems"
            | "additionalItems"
            | "additionalProperties"
            | "contains"
            | "propertyNames"
            | "unevaluatedItems"
            | "unevaluatedProperties"
            | "not"
            | "if"
            | "then"
            | "else"
            | "allOf"
            | "anyOf"
            | "oneOf",
        ) => Part::Schema,
        _ => Part::Everything,
    }
}
