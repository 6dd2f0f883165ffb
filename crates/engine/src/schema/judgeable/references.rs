//! References of a schema: those that lead to a place in it are kept, and what they lead to is
//! looked at as well; all others are left out. Nothing is ever fetched.

use serde_json::Value;

use super::{Cleaner, Dialect, below};
use crate::schema::graph;

/// A reference that was met.
pub(super) struct Reference {
    /// The schema that holds it.
    pub(super) path: String,
    pub(super) keyword: String,
    /// What it leads to: `#` and a pointer or an anchor.
    pub(super) target: String,
    /// Why it cannot be followed, if that is known already.
    pub(super) refused: Option<String>,
}

impl Cleaner {
    /// Returns where in this schema a reference leads, or why that is elsewhere.
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

    /// Looks for what each reference leads to, and takes out those that lead nowhere.
    pub(super) fn follow(&mut self) {
        while let Some(reference) = self.references.pop() {
            if let Some(reason) = self.dead_end(&reference) {
                self.remove(&reference, reason);
            }
        }
    }

    /// Returns why a reference leads nowhere; what it leads to was looked at if it does.
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
        // A place that only references lead to; its own references are looked at later.
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
            // What a reference hid stays hidden.
            if dialect == Dialect::Draft7 {
                members.retain(|keyword, _| keyword == "$defs" || keyword == "definitions");
            }
        }
    }
}

/// Writes a reference as a URI: names of generic types, such as `List<Item>`, are no part of one.
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
