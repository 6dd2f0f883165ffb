//! Each keyword of a schema: kept, translated, dropped because it constrains nothing, or removed
//! because it cannot be checked.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::references::Reference;
use super::{Cleaner, DEEPEST, Dialect, below, numbers};
use crate::schema::pattern::{PATTERN, name_pattern};
use crate::schema::{ecma, graph};

const KINDS: [&str; 7] = [
    "array", "boolean", "integer", "null", "number", "object", "string",
];

/// A schema whose keywords are being processed.
struct Place {
    path: String,
    depth: usize,
    /// It is inside a schema with its own `$id`, to which its references are relative.
    embedded: bool,
    /// Whether properties may belong to a part that was removed.
    is_open: bool,
}

impl Cleaner {
    /// Removes what cannot be checked from one schema.
    pub(super) fn schema(
        &mut self,
        schema: &mut Value,
        path: String,
        depth: usize,
        embedded: bool,
    ) {
        let Value::Object(members) = schema else {
            if !schema.is_boolean() {
                self.leave(&path, "it is not a schema".to_owned());
                self.tainted.insert(path);
                *schema = Value::Bool(true);
            }
            return;
        };
        if depth > DEEPEST - 4 {
            self.leave(&path, format!("it is nested deeper than {DEEPEST}"));
            self.tainted.insert(path);
            *schema = Value::Bool(true);
            return;
        }
        self.seen.insert(path.clone());
        let own = |id: &Value| id.as_str().is_some_and(|id| !id.starts_with('#'));
        let embedded = embedded || (!path.is_empty() && members.get("$id").is_some_and(own));
        let mut place = Place {
            path,
            depth,
            embedded,
            is_open: false,
        };
        if self.dialect == Dialect::Draft2020 {
            rename_items(members);
        }
        let nullable = members.get("nullable") == Some(&Value::Bool(true));
        let mut kept = Map::new();
        for (keyword, value) in std::mem::take(members) {
            // A keyword whose value is `null` counts as absent.
            if value.is_null() && keyword != "const" {
                continue;
            }
            if let Some(value) = self.keyword(&mut place, &mut kept, &keyword, value) {
                kept.insert(keyword, value);
            }
        }
        numbers::translate_exclusive(&mut kept);
        if nullable {
            allow_null(&mut kept);
        }
        if place.is_open {
            kept.shift_remove("additionalProperties");
            kept.shift_remove("unevaluatedProperties");
        }
        *schema = Value::Object(kept);
    }

    /// Removes a keyword and records why.
    fn drop_keyword(&mut self, place: &Place, keyword: &str, reason: String) -> Option<Value> {
        self.leave(&below(&place.path, keyword), reason);
        self.tainted.insert(place.path.clone());
        None
    }

    /// Returns the part of a keyword's value to keep; may add other keywords to `kept`.
    fn keyword(
        &mut self,
        place: &mut Place,
        kept: &mut Map<String, Value>,
        keyword: &str,
        mut value: Value,
    ) -> Option<Value> {
        match keyword {
            "title" | "description" | "$comment" | "default" | "examples" | "example"
            | "deprecated" | "readOnly" | "writeOnly" | "nullable" | "$vocabulary" | "$schema"
            | "contentSchema" | "discriminator" | "xml" | "externalDocs" => None,
            "contentEncoding" | "contentMediaType" => value.is_string().then_some(value),
            "type" => self.kinds(place, value),
            "required" => self.required(place, keyword, value),
            "enum" => self.options(place, value),
            "const" => match graph::check_depth(&value) {
                Ok(()) => Some(value),
                Err(reason) => self.drop_keyword(place, keyword, reason),
            },
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties"
            | "maxProperties" | "minContains" | "maxContains" => match numbers::count(&value) {
                Some(count) => Some(count),
                None => self.drop_keyword(place, keyword, "it is not a count".to_owned()),
            },
            "minimum" | "maximum" | "multipleOf" | "exclusiveMinimum" | "exclusiveMaximum" => {
                if numbers::is_bound(keyword, &value) {
                    Some(value)
                } else {
                    self.drop_keyword(place, keyword, "it is not a bound".to_owned())
                }
            }
            "uniqueItems" if value.is_boolean() => Some(value),
            "format" if value.is_string() => Some(value),
            "uniqueItems" => self.drop_keyword(place, keyword, "it is not a boolean".to_owned()),
            "format" => self.drop_keyword(place, keyword, "it is not a string".to_owned()),
            "pattern" => {
                self.pattern(place, kept, value);
                None
            }
            PATTERN => None,
            "properties" | "$defs" | "definitions" | "dependentSchemas" => {
                self.each_member(place, keyword, value)
            }
            "patternProperties" => self.pattern_properties(place, value),
            "dependencies" | "dependentRequired" => self.dependencies(place, keyword, value),
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => self.each_item(place, keyword, value),
            "items" if value.is_array() && self.dialect != Dialect::Draft2020 => {
                self.each_item(place, keyword, value)
            }
            "not"
            | "if"
            | "then"
            | "else"
            | "items"
            | "additionalItems"
            | "contains"
            | "propertyNames"
            | "additionalProperties"
            | "unevaluatedItems"
            | "unevaluatedProperties" => {
                if !value.is_object() && !value.is_boolean() {
                    return self.drop_keyword(place, keyword, "it is not a schema".to_owned());
                }
                self.inner(place, keyword, &mut value);
                Some(value)
            }
            "$ref" | "$dynamicRef" | "$recursiveRef" => self.reference(place, keyword, value),
            "$anchor" | "$dynamicAnchor" => {
                let name = value.as_str().filter(|name| is_anchor(name))?;
                self.anchors.insert(name.to_owned()).then_some(value)
            }
            "$recursiveAnchor" => value.is_boolean().then_some(value),
            "$id" | "id" => {
                let name = value.as_str()?.strip_prefix('#')?;
                if is_anchor(name) && self.anchors.insert(name.to_owned()) {
                    let (keyword, value) = match self.dialect {
                        Dialect::Draft7 => ("$id", format!("#{name}")),
                        Dialect::Draft2019 | Dialect::Draft2020 => ("$anchor", name.to_owned()),
                    };
                    kept.insert(keyword.to_owned(), Value::String(value));
                }
                None
            }
            // References may point to members of unknown keywords.
            _ => {
                let holds = value.is_object() || value.is_array();
                let is_fine = place.path.is_empty() && holds && graph::check_depth(&value).is_ok();
                is_fine.then_some(value)
            }
        }
    }

    fn inner(&mut self, place: &Place, step: &str, schema: &mut Value) {
        let path = below(&place.path, step);
        self.schema(schema, path, place.depth + 1, place.embedded);
    }

    fn kinds(&mut self, place: &Place, value: Value) -> Option<Value> {
        let list = if let Value::Array(list) = value {
            list
        } else {
            vec![value]
        };
        let mut kinds: Vec<String> = Vec::new();
        for kind in &list {
            let name = match kind {
                Value::Null => Some("null".to_owned()),
                Value::String(name) => Some(name.to_ascii_lowercase()),
                Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
            };
            match name.filter(|name| KINDS.contains(&name.as_str())) {
                Some(name) if kinds.contains(&name) => {}
                Some(name) => kinds.push(name),
                None => {
                    let reason = format!("`{kind}` is not a type");
                    return self.drop_keyword(place, "type", reason);
                }
            }
        }
        match kinds.len() {
            0 => self.drop_keyword(place, "type", "it names no type".to_owned()),
            1 => Some(Value::String(kinds.remove(0))),
            _ => Some(kinds.into()),
        }
    }

    /// Keeps the names of a list, without repetitions.
    fn required(&mut self, place: &Place, keyword: &str, value: Value) -> Option<Value> {
        // In draft 3, `required: false` on a property means that it is optional.
        if value == Value::Bool(false) {
            return None;
        }
        let Value::Array(names) = value else {
            return self.drop_keyword(place, keyword, "it is not a list of names".to_owned());
        };
        let mut seen = HashSet::new();
        let mut kept = Vec::new();
        for name in names {
            if !name.is_string() {
                let reason = format!("`{name}` is not a name");
                self.drop_keyword(place, keyword, reason);
            } else if seen.insert(name.clone()) {
                kept.push(name);
            }
        }
        (!kept.is_empty()).then_some(Value::Array(kept))
    }

    fn options(&mut self, place: &Place, value: Value) -> Option<Value> {
        if let Err(reason) = graph::check_depth(&value) {
            return self.drop_keyword(place, "enum", reason);
        }
        if let Value::Array(mut options) = value
            && !options.is_empty()
        {
            let mut seen = HashSet::new();
            options.retain(|option| seen.insert(option.to_string()));
            return Some(Value::Array(options));
        }
        self.drop_keyword(place, "enum", "it lists no values".to_owned())
    }

    /// Keeps a pattern under another keyword, so that the library does not parse it.
    fn pattern(&mut self, place: &Place, kept: &mut Map<String, Value>, value: Value) {
        let Some(text) = value.as_str() else {
            self.drop_keyword(place, "pattern", "it is not a string".to_owned());
            return;
        };
        match ecma::parse(text) {
            Ok(_) => drop(kept.insert(PATTERN.to_owned(), value)),
            Err(error) => drop(self.drop_keyword(place, "pattern", error.to_string())),
        }
    }

    /// Processes schemas in an object.
    fn each_member(&mut self, place: &mut Place, keyword: &str, value: Value) -> Option<Value> {
        let is_properties = keyword == "properties";
        // Some languages write an empty object as an empty array.
        if value.as_array().is_some_and(Vec::is_empty) {
            return None;
        }
        let Value::Object(mut members) = value else {
            place.is_open |= is_properties;
            return self.drop_keyword(place, keyword, "it is not an object".to_owned());
        };
        let path = below(&place.path, keyword);
        for (name, schema) in &mut members {
            self.schema(schema, below(&path, name), place.depth + 2, place.embedded);
        }
        Some(Value::Object(members))
    }

    fn pattern_properties(&mut self, place: &mut Place, value: Value) -> Option<Value> {
        let Value::Object(members) = value else {
            place.is_open = true;
            return self.drop_keyword(place, "patternProperties", "it is not an object".to_owned());
        };
        let path = below(&place.path, "patternProperties");
        let mut kept = Map::new();
        for (name, mut schema) in members {
            let translated = match name_pattern(&name) {
                Ok(Some(translated)) => Ok(translated),
                Ok(None) => Err("names are not matched against such a pattern".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            match translated {
                Ok(translated) => {
                    let place_of = below(&path, &translated);
                    self.schema(&mut schema, place_of, place.depth + 2, place.embedded);
                    kept.insert(translated, schema);
                }
                Err(reason) => {
                    self.leave(&below(&path, &name), reason);
                    self.tainted.insert(place.path.clone());
                    place.is_open = true;
                }
            }
        }
        Some(Value::Object(kept))
    }

    fn dependencies(&mut self, place: &Place, keyword: &str, value: Value) -> Option<Value> {
        let Value::Object(members) = value else {
            return self.drop_keyword(place, keyword, "it is not an object".to_owned());
        };
        let path = below(&place.path, keyword);
        let mut kept = Map::new();
        for (name, mut value) in members {
            let here = below(&path, &name);
            if value.is_array() {
                let names = self.required(place, &format!("{keyword}/{name}"), value);
                kept.extend(names.map(|names| (name, names)));
            } else if keyword == "dependencies" {
                self.schema(&mut value, here, place.depth + 2, place.embedded);
                kept.insert(name, value);
            } else {
                self.leave(&here, "it is not a list of names".to_owned());
                self.tainted.insert(place.path.clone());
            }
        }
        Some(Value::Object(kept))
    }

    /// Processes schemas in a list.
    fn each_item(&mut self, place: &Place, keyword: &str, value: Value) -> Option<Value> {
        let Value::Array(mut schemas) = value else {
            return self.drop_keyword(place, keyword, "it is not a list of schemas".to_owned());
        };
        if schemas.is_empty() && keyword != "items" {
            return self.drop_keyword(place, keyword, "it lists no schemas".to_owned());
        }
        let path = below(&place.path, keyword);
        for (index, schema) in schemas.iter_mut().enumerate() {
            let here = below(&path, &index.to_string());
            self.schema(schema, here, place.depth + 2, place.embedded);
        }
        Some(Value::Array(schemas))
    }

    fn reference(&mut self, place: &Place, keyword: &str, value: Value) -> Option<Value> {
        let is_known = match keyword {
            "$dynamicRef" => self.dialect == Dialect::Draft2020,
            "$recursiveRef" => self.dialect == Dialect::Draft2019,
            _ => true,
        };
        if !is_known {
            return None;
        }
        let target = self.target(&value, place.embedded);
        let (target, reason) = match target {
            Ok(target) => (target, None),
            // Removed together with what it may hide once all references are processed.
            Err(reason) => (String::new(), Some(reason)),
        };
        self.references.push(Reference {
            path: place.path.clone(),
            keyword: keyword.to_owned(),
            target: target.clone(),
            refused: reason,
        });
        Some(Value::String(target))
    }
}

/// Renames an array `items` to `prefixItems` as in 2020-12, unless an older dialect is declared.
fn rename_items(members: &mut Map<String, Value>) {
    let rest = members.shift_remove("additionalItems");
    let is_list = members.get("items").is_some_and(Value::is_array);
    if !is_list || members.contains_key("prefixItems") {
        return;
    }
    if let Some(first) = members.shift_remove("items")
        && first != Value::Array(Vec::new())
    {
        members.insert("prefixItems".to_owned(), first);
    }
    if let Some(rest) = rest {
        members.insert("items".to_owned(), rest);
    }
}

/// Allows `null` for `nullable: true` of OpenAPI 3.0.
fn allow_null(kept: &mut Map<String, Value>) {
    match kept.get_mut("type") {
        Some(Value::Array(kinds)) if !kinds.contains(&Value::from("null")) => {
            kinds.push(Value::from("null"));
        }
        Some(kind @ Value::String(_)) if kind != "null" => {
            *kind = Value::Array(vec![kind.take(), Value::from("null")]);
        }
        _ => {}
    }
    if let Some(Value::Array(options)) = kept.get_mut("enum")
        && !options.contains(&Value::Null)
    {
        options.push(Value::Null);
    }
}

fn is_anchor(name: &str) -> bool {
    let is_rest = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(is_rest)
}
