//! JSON with comments and trailing commas, as clients accept it; nothing looser.

use std::path::Path;
use std::sync::Arc;

use jsonc_parser::ast;
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::{Member, Node, Table, Value};
use crate::config::diagnostic::{Diagnostic, Kind};

/// Returns the parser options: comments and trailing commas.
pub(in crate::config) fn options() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

pub(super) fn parse(path: &Arc<Path>, text: &Arc<str>) -> Result<Node, Diagnostic> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options());
    let parsed = parsed.map_err(|error| {
        let range = error.range();
        let (said, help) = words(error.kind());
        Diagnostic::at(path, text, range.start..range.end, Kind::Syntax)
            .say(format!("invalid JSON: {said}"))
            .label("here")
            .help(help)
    })?;
    match parsed.value {
        Some(value) => Ok(node(&value)),
        None => Err(Diagnostic::at(path, text, 0..0, Kind::Syntax)
            .say("the file is empty")
            .help("write `{\"mcpServers\": {}}`, or remove the file")),
    }
}

/// Returns the message in lower case, and a hint.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "another's list of errors, of which few have an advice of their own"
)]
fn words(kind: &ParseErrorKind) -> (String, &'static str) {
    let mut said = kind.to_string();
    if let Some(first) = said.get(..1) {
        said = format!("{}{}", first.to_lowercase(), &said[1..]);
    }
    let help = match kind {
        ParseErrorKind::UnterminatedObject => "close the object with `}`",
        ParseErrorKind::UnterminatedArray => "close the list with `]`",
        ParseErrorKind::UnterminatedCommentBlock => "close the comment with `*/`",
        ParseErrorKind::ExpectedComma => "put a `,` before it",
        ParseErrorKind::ExpectedColonAfterObjectKey => "put a `:` between name and value",
        ParseErrorKind::ExpectedStringObjectProperty
        | ParseErrorKind::SingleQuotedStringsNotAllowed
        | ParseErrorKind::UnexpectedWord => "put texts and names into double quotes",
        ParseErrorKind::MultipleRootJsonValues => "keep one `{…}` and remove the rest",
        _ => "write JSON; comments and trailing commas are fine",
    };
    (said, help)
}

fn node(value: &ast::Value<'_>) -> Node {
    let (range, value) = match value {
        ast::Value::StringLit(text) => (text.range, Value::Text(text.value.to_string())),
        ast::Value::NumberLit(number) => (number.range, Value::Number(number.value.to_owned())),
        ast::Value::BooleanLit(flag) => (flag.range, Value::Bool(flag.value)),
        ast::Value::NullKeyword(null) => (null.range, Value::Null),
        ast::Value::Array(list) => (
            list.range,
            Value::List(list.elements.iter().map(node).collect()),
        ),
        ast::Value::Object(object) => {
            let members = object.properties.iter().map(|property| {
                let range = match &property.name {
                    ast::ObjectPropName::String(text) => text.range,
                    ast::ObjectPropName::Word(word) => word.range,
                };
                Member {
                    key: property.name.as_str().to_owned(),
                    key_span: range.start..range.end,
                    node: node(&property.value),
                }
            });
            let members = members.collect();
            (object.range, Value::Table(Table { members }))
        }
    };
    Node {
        span: range.start..range.end,
        value,
    }
}
