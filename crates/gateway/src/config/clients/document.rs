//! Edits a client's file, JSON with comments: servers are read, and one entry is set or removed
//! with every other byte unchanged.
//!
//! A file in which a name on the path to the servers is duplicated is refused, since it is unclear
//! which one the client reads. Entry point: [`Document::parse`].

use std::path::{Path, PathBuf};

use jsonc_parser::ast;
use jsonc_parser::common::Ranged as _;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use jsonc_parser::{CollectOptions, parse_to_ast};
use serde_json::{Map, Number, Value};

use crate::config::document::json::options;

use super::ClientError;

/// The UTF-8 byte order mark of some editors.
const MARK: char = '\u{feff}';

/// A readable file.
#[derive(Debug)]
pub struct Document {
    path: PathBuf,
    text: String,
    value: Value,
}

impl Document {
    /// Reads a text; an empty one is an empty object.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ClientError> {
        let wrong = |byte, detail: String| ClientError::at(path, text, byte, detail);
        let plain = text.strip_prefix(MARK).unwrap_or(text);
        let shift = text.len() - plain.len();
        let parsed = parse_to_ast(plain, &CollectOptions::default(), &options())
            .map_err(|error| wrong(shift + error.range().start, said(&error)))?;
        let value = match parsed.value {
            None => Value::Object(Map::new()),
            Some(value) => {
                plain_value(&value).map_err(|fault| wrong(shift + fault.byte, fault.detail))?
            }
        };
        if !value.is_object() {
            return Err(wrong(shift, "an object was expected".to_owned()));
        }
        Ok(Self {
            path: path.to_owned(),
            text: text.to_owned(),
            value,
        })
    }

    /// Returns the whole file as a value.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Returns the servers at a path of members, in order; none if the path does not exist.
    pub fn servers(&self, at: &[String]) -> Vec<(&str, &Value)> {
        let mut place = &self.value;
        for member in at {
            match place.get(member) {
                Some(next) => place = next,
                None => return Vec::new(),
            }
        }
        let members = place.as_object().into_iter().flatten();
        members
            .map(|(name, entry)| (name.as_str(), entry))
            .collect()
    }

    /// Returns the text with these members set for a server; its other members are kept, except
    /// obsolete ones of `ours`.
    pub fn set(
        &self,
        at: &[String],
        name: &str,
        members: &Map<String, Value>,
        ours: &[&str],
    ) -> Result<String, ClientError> {
        self.edit(|root| {
            let mut place = root;
            for member in at {
                place = place.object_value_or_create(member)?;
            }
            let known = place.get(name).and_then(|known| known.object_value());
            match known {
                None => {
                    let value = Value::Object(members.clone());
                    match place.get(name) {
                        Some(known) => known.set_value(input(&value)),
                        None => drop(place.append(name, input(&value))),
                    }
                }
                Some(entry) => merge(&entry, members, ours),
            }
            Some(())
        })
    }

    /// Returns the text without a server.
    pub fn remove(&self, at: &[String], name: &str) -> Result<String, ClientError> {
        self.edit(|root| {
            let mut place = Some(root);
            for member in at {
                place = place.and_then(|place| place.object_value(member));
            }
            if let Some(known) = place.and_then(|place| place.get(name)) {
                known.remove();
            }
            Some(())
        })
    }

    fn edit(&self, change: impl FnOnce(CstObject) -> Option<()>) -> Result<String, ClientError> {
        let plain = self.text.strip_prefix(MARK).unwrap_or(&self.text);
        let root = CstRootNode::parse(plain, &options()).map_err(|error| {
            ClientError::at(&self.path, &self.text, error.range().start, said(&error))
        })?;
        let fits = root.object_value_or_create().and_then(change);
        fits.ok_or_else(|| {
            let detail = "the path to the servers is not an object";
            ClientError::at(&self.path, &self.text, 0, detail)
        })?;
        let mut text = root.to_string();
        if plain.trim().is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        if plain.len() < self.text.len() {
            text.insert(0, MARK);
        }
        Ok(text)
    }
}

/// Sets members one by one, so that surrounding comments are kept.
fn merge(entry: &CstObject, members: &Map<String, Value>, ours: &[&str]) {
    for member in ours.iter().filter(|member| !members.contains_key(**member)) {
        if let Some(known) = entry.get(member) {
            known.remove();
        }
    }
    for (member, value) in members {
        match entry.get(member) {
            None => drop(entry.append(member, input(value))),
            Some(known) => {
                let old = known.value().map(|node| node.to_string());
                let old = old.and_then(|text| serde_json::from_str::<Value>(&text).ok());
                if old.as_ref() != Some(value) {
                    known.set_value(input(value));
                }
            }
        }
    }
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(flag) => CstInputValue::Bool(*flag),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(values) => CstInputValue::Array(values.iter().map(input).collect()),
        Value::Object(members) => {
            let members = members.iter();
            CstInputValue::Object(
                members
                    .map(|(key, value)| (key.clone(), input(value)))
                    .collect(),
            )
        }
    }
}

/// The parser's message in our style, without its position.
fn said(error: &jsonc_parser::errors::ParseError) -> String {
    let text = error.kind().to_string();
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => text,
    }
}

struct Fault {
    byte: usize,
    detail: String,
}

fn plain_value(value: &ast::Value<'_>) -> Result<Value, Fault> {
    Ok(match value {
        ast::Value::NullKeyword(_) => Value::Null,
        ast::Value::BooleanLit(flag) => Value::Bool(flag.value),
        ast::Value::StringLit(text) => Value::from(text.value.as_ref()),
        ast::Value::NumberLit(number) => {
            let read: Result<Number, _> = serde_json::from_str(number.value);
            Value::Number(read.map_err(|_| Fault {
                byte: number.range.start,
                detail: "this number cannot be read".to_owned(),
            })?)
        }
        ast::Value::Array(array) => {
            let values = array.elements.iter().map(plain_value);
            Value::Array(values.collect::<Result<_, _>>()?)
        }
        ast::Value::Object(object) => {
            let mut members = Map::new();
            for member in &object.properties {
                let name = member.name.as_str();
                if members.contains_key(name) {
                    return Err(Fault {
                        byte: member.name.range().start,
                        detail: format!("`{}` is defined twice", name.escape_debug()),
                    });
                }
                members.insert(name.to_owned(), plain_value(&member.value)?);
            }
            Value::Object(members)
        }
    })
}

#[cfg(test)]
mod tests;
