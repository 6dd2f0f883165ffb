//! TOML, the form of Gantry's own file.

use std::path::Path;
use std::sync::Arc;

use toml_edit::{Item, Key, TableLike};

use super::{Member, Node, Span, Table, Value};
use crate::config::diagnostic::{Diagnostic, Kind};

pub(super) fn parse(path: &Arc<Path>, text: &Arc<str>) -> Result<Node, Diagnostic> {
    let document = toml_edit::Document::parse(text.as_ref()).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        let said = error.message().lines().collect::<Vec<_>>().join(", ");
        Diagnostic::at(path, text, span, Kind::Syntax)
            .say(format!("invalid TOML: {said}"))
            .label("here")
            .help("write `key = value` lines under `[servers.NAME]` or `[gateway]`")
    })?;
    Ok(Node {
        span: 0..text.len(),
        value: Value::Table(table(document.as_table(), &(0..0))),
    })
}

/// Implicit tables have no position; their key's is used.
fn table(table: &dyn TableLike, around: &Span) -> Table {
    let members = table.iter().filter_map(|(name, _)| {
        let (key, item) = table.get_key_value(name)?;
        Some(member(key, item, around))
    });
    Table {
        members: members.collect(),
    }
}

fn member(key: &Key, item: &Item, around: &Span) -> Member {
    let key_span = key.span().or_else(|| item.span());
    let key_span = key_span.unwrap_or_else(|| around.clone());
    Member {
        key: key.get().to_owned(),
        node: node(item, &key_span),
        key_span,
    }
}

fn node(item: &Item, around: &Span) -> Node {
    let span = item.span().unwrap_or_else(|| around.clone());
    let value = match item {
        Item::None => Value::Null,
        Item::Value(written) => return value(written, around),
        Item::Table(inner) => Value::Table(table(inner, &span)),
        Item::ArrayOfTables(list) => {
            let nodes = list.iter().map(|inner| {
                let span = inner.span().unwrap_or_else(|| span.clone());
                Node {
                    value: Value::Table(table(inner, &span)),
                    span,
                }
            });
            Value::List(nodes.collect())
        }
    };
    Node { span, value }
}

fn value(written: &toml_edit::Value, around: &Span) -> Node {
    let span = written.span().unwrap_or_else(|| around.clone());
    let value = match written {
        toml_edit::Value::String(text) => Value::Text(text.value().clone()),
        toml_edit::Value::Integer(number) => Value::Number(number.value().to_string()),
        toml_edit::Value::Float(number) => Value::Number(number.value().to_string()),
        toml_edit::Value::Boolean(flag) => Value::Bool(*flag.value()),
        toml_edit::Value::Datetime(moment) => Value::Text(moment.value().to_string()),
        toml_edit::Value::Array(list) => {
            Value::List(list.iter().map(|inner| value(inner, &span)).collect())
        }
        toml_edit::Value::InlineTable(inner) => Value::Table(table(inner, &span)),
    };
    Node { span, value }
}
