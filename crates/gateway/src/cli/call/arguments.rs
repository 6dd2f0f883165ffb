//! Parses a tool's arguments from the command line, typed by the tool's schema.
//!
//! `--name value`, `--name=value`, `--flag`, `--no-flag`, repeated flags for lists, dots for
//! nesting, and `name=value`. Hyphens, underscores and capitals in names are interchangeable.
//! Validation is left to the gateway. Entry point: [`Tokens::read`].

use std::time::Duration;

use gantry_model::spec::period;
use serde_json::{Map, Value};

use crate::config::diagnostic::meant;

use super::super::failure::{Exit, Failure};

/// Maximum nesting of arguments on a command line.
pub(super) const DEPTH: usize = 4;

/// Our own flags, allowed after the tool unless it has an argument of that name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::cli) struct Own {
    /// Print JSON.
    pub(in crate::cli) json: bool,
    /// Do not wait.
    pub(in crate::cli) later: bool,
    /// How long the call may take.
    pub(in crate::cli) timeout: Option<Duration>,
    /// All arguments at once.
    pub(in crate::cli) json_args: Option<String>,
    /// Show the tool's help.
    pub(in crate::cli) help: bool,
}

/// The parsed words.
#[derive(Debug, Default)]
pub(in crate::cli) struct Parsed {
    /// The tool's arguments.
    pub(in crate::cli) arguments: Map<String, Value>,
    /// Our own flags.
    pub(in crate::cli) own: Own,
}

/// A word, or a flag whose value is not known yet.
#[derive(Debug)]
enum Token {
    Flag(String, Option<String>),
    Text(String),
}

/// The words after the tool.
#[derive(Debug)]
pub(in crate::cli) struct Tokens(Vec<Token>);

impl Tokens {
    /// Splits the words; `-` alone is not a flag.
    pub(in crate::cli) fn of(words: &[String]) -> Result<Self, Failure> {
        let word = |word: &String| match word.strip_prefix("--") {
            Some("") => Err(usage(format!("`{word}` names no argument"))),
            Some(flag) => Ok(match flag.split_once('=') {
                Some((name, value)) => Token::Flag(name.to_owned(), Some(value.to_owned())),
                None => Token::Flag(flag.to_owned(), None),
            }),
            None if word == "-h" => Ok(Token::Flag("help".to_owned(), None)),
            None => Ok(Token::Text(word.clone())),
        };
        words.iter().map(word).collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether there is none.
    pub(in crate::cli) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Parses the words by a schema; an empty one allows everything.
    pub(in crate::cli) fn read(self, schema: &Value) -> Result<Parsed, Failure> {
        let mut parsed = Parsed::default();
        let mut words = self.0.into_iter().peekable();
        while let Some(word) = words.next() {
            let (name, given) = match word {
                Token::Text(pair) => {
                    parsed.pair(schema, &pair)?;
                    continue;
                }
                Token::Flag(name, given) => (name, given),
            };
            let mut value = |what: &str| match (given.clone(), words.peek()) {
                (Some(value), _) => Ok(value),
                (None, Some(Token::Text(_))) => match words.next() {
                    Some(Token::Text(value)) => Ok(value),
                    _ => Err(usage(format!("`--{name}` needs {what}"))),
                },
                (None, _) => Err(usage(format!("`--{name}` needs {what}"))),
            };
            if let Some(found) = lookup(schema, &name) {
                let text = match (kind(&found.schema), &given) {
                    (Kind::Boolean, None) => "true".to_owned(),
                    (kind, _) => value(kind.named())?,
                };
                let typed = convert(&found.schema, &text).map_err(|expected| {
                    usage(format!("`--{name}` takes {expected}, not `{text}`"))
                })?;
                put(&mut parsed.arguments, &found, typed);
                continue;
            }
            let negated = name
                .strip_prefix("no-")
                .and_then(|name| lookup(schema, name));
            if let Some(found) = negated.filter(|found| kind(&found.schema) == Kind::Boolean) {
                put(&mut parsed.arguments, &found, Value::Bool(false));
                continue;
            }
            match name.as_str() {
                "help" => parsed.own.help = true,
                "json" | "raw" => parsed.own.json = true,
                "async" => parsed.own.later = true,
                "json-args" => parsed.own.json_args = Some(value("a JSON object")?),
                "timeout" => {
                    let text = value("a time")?;
                    let time = period::parse(&text).ok_or_else(|| {
                        usage(format!(
                            "`--timeout` takes a time such as `10s`, not `{text}`"
                        ))
                    })?;
                    parsed.own.timeout = Some(time);
                }
                _ if properties(schema).is_empty() => {
                    let text = given.clone().map_or_else(|| value("a value"), Ok)?;
                    parsed.arguments.insert(name, free(&text));
                }
                _ => return Err(unknown(schema, &name)),
            }
        }
        Ok(parsed)
    }
}

impl Parsed {
    /// Parses `name=value`; a mismatch is passed as text and reported by the gateway.
    fn pair(&mut self, schema: &Value, pair: &str) -> Result<(), Failure> {
        let (name, text) = pair.split_once('=').ok_or_else(|| {
            usage(format!("`{pair}` is not an argument"))
                .hint("write `--name value` or `name=value`")
        })?;
        match lookup(schema, name) {
            Some(found) => {
                let value = convert(&found.schema, text).unwrap_or_else(|_| text.into());
                put(&mut self.arguments, &found, value);
            }
            None => {
                self.arguments.insert(name.to_owned(), free(text));
            }
        }
        Ok(())
    }
}

/// Returns whether a tool has an argument of this name, in any spelling.
pub(in crate::cli) fn has_argument(schema: &Value, name: &str) -> bool {
    lookup(schema, name).is_some()
}

fn usage(message: String) -> Failure {
    Failure::new(Exit::Usage, message)
}

/// An argument and its path in the schema.
struct Found {
    path: Vec<String>,
    schema: Value,
}

/// What an argument takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Integer,
    Number,
    Boolean,
    List,
    Object,
    Any,
}

impl Kind {
    /// Returns its type for display.
    pub(super) fn named(self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::Integer => "an integer",
            Self::Number => "a number",
            Self::Boolean => "`true` or `false`",
            Self::List => "a value",
            Self::Object => "a JSON object",
            Self::Any => "a value",
        }
    }
}

/// Returns the type of a schema; the first non-null of several.
pub(super) fn kind(schema: &Value) -> Kind {
    let named = match schema.get("type") {
        Some(Value::String(name)) => Some(name.as_str()),
        Some(Value::Array(names)) => {
            let mut names = names.iter().filter_map(Value::as_str);
            names.find(|name| *name != "null")
        }
        _ => None,
    };
    let or_null = || {
        let choices = schema
            .get("anyOf")
            .or_else(|| schema.get("oneOf"))?
            .as_array()?;
        let mut kinds = choices
            .iter()
            .filter(|choice| choice["type"] != "null")
            .map(kind);
        kinds.next().filter(|_| kinds.next().is_none())
    };
    match named {
        Some("string") => Kind::Text,
        Some("integer") => Kind::Integer,
        Some("number") => Kind::Number,
        Some("boolean") => Kind::Boolean,
        Some("array") => Kind::List,
        Some("object") => Kind::Object,
        _ => or_null().unwrap_or(Kind::Any),
    }
}

/// Returns a schema's members.
pub(super) fn properties(schema: &Value) -> Vec<(&String, &Value)> {
    let members = schema.get("properties").and_then(Value::as_object);
    members.into_iter().flatten().collect()
}

/// Follows one local reference.
pub(super) fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let pointer = schema.get("$ref").and_then(Value::as_str);
    let pointer = pointer.and_then(|text| text.strip_prefix('#'));
    pointer
        .and_then(|pointer| root.pointer(pointer))
        .unwrap_or(schema)
}

/// Finds an argument by exact name, by any spelling, or by its parts.
fn lookup(schema: &Value, name: &str) -> Option<Found> {
    let mut path = Vec::new();
    let mut here = schema;
    let mut rest = name;
    for _ in 0..DEPTH {
        let members = properties(here);
        let find = |wanted: &str| {
            let exact = members.iter().find(|(name, _)| *name == wanted);
            exact.or_else(|| {
                members
                    .iter()
                    .find(|(name, _)| plain(name) == plain(wanted))
            })
        };
        if let Some((name, found)) = find(rest) {
            path.push((*name).clone());
            let schema = resolved(schema, found).clone();
            return Some(Found { path, schema });
        }
        let (first, after) = rest.split_once('.')?;
        let (name, found) = find(first)?;
        path.push((*name).clone());
        (here, rest) = (resolved(schema, found), after);
    }
    None
}

/// Normalises the spelling of a name.
fn plain(name: &str) -> String {
    let letters = name.chars().filter(|letter| !matches!(letter, '-' | '_'));
    letters.flat_map(char::to_lowercase).collect()
}

/// Converts a text to the schema's type, or returns what is expected.
fn convert(schema: &Value, text: &str) -> Result<Value, String> {
    let kind = kind(schema);
    let json = || serde_json::from_str::<Value>(text).ok();
    let fitting = |is: fn(&Value) -> bool| json().filter(is).ok_or_else(|| kind.named().to_owned());
    match kind {
        Kind::Text => {
            let choices = schema.get("enum").and_then(Value::as_array);
            let choices: Vec<&str> = choices
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            match choices.is_empty() || choices.contains(&text) {
                true => Ok(text.into()),
                false => Err(format!("one of `{}`", choices.join("`, `"))),
            }
        }
        Kind::Integer => fitting(|value| value.is_i64() || value.is_u64()),
        Kind::Number => fitting(Value::is_number),
        Kind::Boolean => fitting(Value::is_boolean),
        Kind::Object => fitting(Value::is_object),
        Kind::List => match json().filter(Value::is_array) {
            Some(list) => Ok(list),
            None => convert(schema.get("items").unwrap_or(&Value::Null), text)
                .map(|one| Value::Array(vec![one])),
        },
        Kind::Any => Ok(free(text)),
    }
}

/// Parses JSON, or keeps the text.
fn free(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

/// Sets a value at its path; appends to an existing list.
fn put(arguments: &mut Map<String, Value>, found: &Found, value: Value) {
    let Some((last, parents)) = found.path.split_last() else {
        return;
    };
    let mut here = arguments;
    for parent in parents {
        let place = here
            .entry(parent.clone())
            .or_insert_with(|| Value::Object(Map::new()));
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        here = place.as_object_mut().expect("it was just made one");
    }
    match (here.get_mut(last), value) {
        (Some(Value::Array(there)), Value::Array(more)) => there.extend(more),
        (_, value) => {
            here.insert(last.clone(), value);
        }
    }
}

fn unknown(schema: &Value, name: &str) -> Failure {
    let failure = usage(format!("the tool has no argument `--{name}`"));
    let names = properties(schema)
        .into_iter()
        .map(|(name, _)| name.as_str());
    match meant(name, names) {
        Some(known) => failure.hint(format!("did you mean `--{known}`?")),
        None => failure.hint("`gantry call TOOL --help` shows what it takes"),
    }
}

#[cfg(test)]
mod tests;
