//! Converts JSON values to TOML and back. A value that TOML cannot express is written as JSON text,
//! under a name with a suffix.

use serde_json::{Map, Number, Value};
use toml_edit::{Array, InlineTable, Item, Table, TableLike, Value as Toml};

/// The suffix of a name whose value is JSON text.
const AS_TEXT: &str = "#json";

/// Writes members into a table, in order.
pub(super) fn fill(table: &mut Table, members: &Map<String, Value>) {
    for (key, value) in members {
        match to_toml(value).filter(|_| !key.ends_with(AS_TEXT)) {
            Some(value) => table.insert(key, Item::Value(value)),
            None => {
                let text = Toml::from(value.to_string());
                table.insert(&format!("{key}{AS_TEXT}"), Item::Value(text))
            }
        };
    }
}

/// Reads what [`fill`] wrote.
pub(super) fn read(table: &dyn TableLike) -> Map<String, Value> {
    let members = table.iter().filter_map(|(key, item)| {
        let value = to_json(item)?;
        let text = key.strip_suffix(AS_TEXT).zip(value.as_str());
        let inner = text.and_then(|(key, text)| Some((key, serde_json::from_str(text).ok()?)));
        Some(match inner {
            Some((key, value)) => (key.to_owned(), value),
            None => (key.to_owned(), value),
        })
    });
    members.collect()
}

/// Returns `None` for values that TOML cannot express: `null`, and numbers that are too large.
pub(super) fn to_toml(value: &Value) -> Option<Toml> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(flag) => Toml::from(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(number) => Toml::from(number),
            None if number.is_f64() => Toml::from(number.as_f64()?),
            None => return None,
        },
        Value::String(text) => Toml::from(text.as_str()),
        Value::Array(values) => {
            let values: Option<Array> = values.iter().map(to_toml).collect();
            Toml::Array(values?)
        }
        Value::Object(members) => {
            let mut table = InlineTable::new();
            for (key, value) in members {
                table.insert(key, to_toml(value)?);
            }
            Toml::InlineTable(table)
        }
    })
}

/// Returns `None` for a missing item.
pub(super) fn to_json(item: &Item) -> Option<Value> {
    Some(match item {
        Item::None => return None,
        Item::Value(value) => value_to_json(value),
        Item::Table(table) => Value::Object(table_to_json(table)),
        Item::ArrayOfTables(tables) => {
            let tables = tables
                .iter()
                .map(|table| Value::Object(table_to_json(table)));
            Value::Array(tables.collect())
        }
    })
}

fn table_to_json(table: &dyn TableLike) -> Map<String, Value> {
    let members = table.iter();
    members
        .filter_map(|(key, item)| Some((key.to_owned(), to_json(item)?)))
        .collect()
}

fn value_to_json(value: &Toml) -> Value {
    match value {
        Toml::String(text) => Value::from(text.value().as_str()),
        Toml::Integer(number) => Value::from(*number.value()),
        Toml::Float(number) => Number::from_f64(*number.value()).map_or(Value::Null, Value::Number),
        Toml::Boolean(flag) => Value::from(*flag.value()),
        Toml::Datetime(time) => Value::from(time.value().to_string()),
        Toml::Array(values) => values.iter().map(value_to_json).collect(),
        Toml::InlineTable(table) => Value::Object(table_to_json(table)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_value_comes_back() {
        let members = json!({
            "text": "a\n\"b\" 'c' é", "flag": true, "number": -5, "half": 0.5, "whole": 2.0,
            "none": null, "big": 18_446_744_073_709_551_615_u64,
            "list": [1, "a", [true], {"b": {}}], "with none": {"a": [null]}, "": {"x.y": "z"},
            "odd#json": "no JSON",
        });
        let members = members.as_object().unwrap();
        let mut document = toml_edit::DocumentMut::new();
        fill(document.as_table_mut(), members);
        let document: toml_edit::DocumentMut = document.to_string().parse().unwrap();
        assert_eq!(read(document.as_table()), *members);
    }
}
