//! References of a schema: those to a part of the same schema are kept, and their targets are
//! processed as well; all others are removed. Nothing is ever fetched.

use serde_json::Value;

use super::{Cleaner, Dialect, below};
use crate::schema::graph;

/// A reference found in the schema.
pub(super) struct Reference {
    /// The path of the schema that contains it.
    pub(super) path: String,
    pub(super) keyword: String,
    /// Its target: `#` and a pointer or an anchor.
    pub(super) target: String,
    /// Why it cannot be followed, if that is already known.
    pub(super) refused: Option<String>,
}

impl Cleaner {
    /// Returns the target of a reference in this schema, or why it points elsewhere.
    pub(super) fn target(&self, value: &Value, embedded: bool) -> Result<String, String> {
        let Some(text) = value.as_str() else {
            return Err("it is not a reference".to_owned());
        };
        if embedded {
            let reason = "it lies in a schema with an address of its own";
            return Err(reason.to_owned());
        }
        let own = (!self.id.is_empty())
            .then(|| text.strip_prefix(self.id.as_str()))
            .flatten();
        match own.unwrap_or(text) {
            "" => Ok("#".to_owned()),
            local if local.starts_with('#') => Ok(escaped(local)),
            _ => Err(format!("it refers to another document: `{text}`")),
        }
    }

    /// Resolves all references and removes those without a target.
    pub(super) fn follow(&mut self) {
        while let Some(reference) = self.references.pop() {
            if let Some(reason) = self.dead_end(&reference) {
                self.remove(&reference, reason);
            }
        }
    }

    /// Returns why a reference cannot be resolved; processes its target if it can.
    fn dead_end(&mut self, reference: &Reference) -> Option<String> {
        if let Some(reason) = &reference.refused {
            return Some(reason.clone());
        }
        let missing = || format!("it refers to `{}`, which is not there", reference.target);
        let fragment = graph::unescape(reference.target.trim_start_matches('#'));
        if !fragment.is_empty() && !fragment.starts_with('/') {
            return (!self.anchors.contains(&fragment)).then(missing);
        }
        if self.seen.contains(&fragment) {
            return None;
        }
        let Some(target) = self.schema.pointer_mut(&fragment) else {
            return Some(missing());
        };
        if !target.is_object() {
            return (!target.is_boolean()).then(missing);
        }
        // Only references lead to this part; its own references are resolved later.
        let mut schema = target.take();
        let depth = fragment.matches('/').count();
        self.schema(&mut schema, fragment.clone(), depth, false);
        if let Some(target) = self.schema.pointer_mut(&fragment) {
            *target = schema;
        }
        None
    }

    fn remove(&mut self, reference: &Reference, reason: String) {
        self.leave(&below(&reference.path, &reference.keyword), reason);
        self.tainted.insert(reference.path.clone());
        let dialect = self.dialect;
        if let Some(Value::Object(members)) = self.schema.pointer_mut(&reference.path) {
            members.shift_remove(&reference.keyword);
            // Keywords that a reference hid stay hidden.
            if dialect == Dialect::Draft7 {
                members.retain(|keyword, _| keyword == "$defs" || keyword == "definitions");
            }
        }
    }
}

/// Escapes a reference as a URI: names of generic types, such as `List<Item>`, contain characters
/// that a URI may not.
fn escaped(reference: &str) -> String {
    let mut out = String::with_capacity(reference.len());
    for character in reference.chars() {
        if character.is_ascii_graphic() && !"\"<>\\^`{|}".contains(character) {
            out.push(character);
            continue;
        }
        let mut bytes = [0; 4];
        for byte in character.encode_utf8(&mut bytes).bytes() {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
