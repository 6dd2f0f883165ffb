//! A parsed configuration file, JSON with comments, TOML or YAML, with the position of each value.
//!
//! Knows no keys and expands no variables. Entry points: [`Document::read`] for a file,
//! [`Document::parse`] for its text.

pub(super) mod json;
mod toml;
mod yaml;

use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use gantry_model::jsonrpc::pointer_step;

use super::diagnostic::{Diagnostic, Kind};

/// Maximum size of a file.
pub const LONGEST_BYTES: u64 = 4 << 20;

/// A range of bytes in a file.
pub type Span = Range<usize>;

/// A file and its parsed content.
#[derive(Debug, Clone)]
pub struct Document {
    /// The file.
    pub path: Arc<Path>,
    /// Its whole text.
    pub text: Arc<str>,
    /// The parsed content.
    pub root: Node,
}

/// The syntax of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// JSON, with comments and trailing commas.
    Json,
    /// TOML.
    Toml,
    /// YAML, for manifests only.
    Yaml,
}

/// A value and its position.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its position.
    pub span: Span,
    /// The value itself.
    pub value: Value,
}

/// A value as written.
#[derive(Debug, Clone)]
pub enum Value {
    /// `null`, in JSON only.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as written.
    Number(String),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// Named values, in the file's order; JSON may have duplicate names.
    Table(Table),
}

/// Named values, in the file's order.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// The members, including duplicates.
    pub members: Vec<Member>,
}

/// A named value.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its name.
    pub key: String,
    /// The position of the name.
    pub key_span: Span,
    /// Its value.
    pub node: Node,
}

impl Syntax {
    /// Returns the syntax of a file by its name: TOML if it ends so, else JSON.
    pub fn of(path: &Path) -> Self {
        match path.extension() {
            Some(extension) if extension == "toml" => Self::Toml,
            _ => Self::Json,
        }
    }
}

impl Document {
    /// Reads and parses a file.
    pub fn read(path: &Path, syntax: Syntax) -> Result<Self, Diagnostic> {
        Self::parse(path, &read_text(path)?, syntax)
    }

    /// Parses a file's text.
    pub fn parse(path: &Path, text: &[u8], syntax: Syntax) -> Result<Self, Diagnostic> {
        let path: Arc<Path> = Arc::from(path);
        let text = match std::str::from_utf8(text) {
            Ok(text) => Arc::from(text.strip_prefix('\u{feff}').unwrap_or(text)),
            Err(error) => {
                let good = String::from_utf8_lossy(&text[..error.valid_up_to()]).into_owned();
                let end = good.len();
                return Err(
                    Diagnostic::at(&path, &Arc::from(good), end..end, Kind::Syntax)
                        .say("the file is not UTF-8")
                        .label("up to here it is")
                        .help("save the file as UTF-8"),
                );
            }
        };
        let root = match syntax {
            Syntax::Json => json::parse(&path, &text)?,
            Syntax::Toml => toml::parse(&path, &text)?,
            Syntax::Yaml => yaml::parse(&path, &text)?,
        };
        Ok(Self { path, text, root })
    }

    /// Creates a diagnostic at a position of this file.
    pub fn diagnostic(&self, span: &Span, kind: Kind) -> Diagnostic {
        Diagnostic::at(&self.path, &self.text, span.clone(), kind)
    }

    /// Returns the JSON pointer (RFC 6901) of the value or member at a position.
    pub fn pointer(&self, span: &Span) -> Option<String> {
        fn below(node: &Node, span: &Span) -> Option<String> {
            let of = |part: &str, node: &Node| Some(format!("/{part}{}", below(node, span)?));
            match &node.value {
                _ if node.span == *span => Some(String::new()),
                Value::List(list) => {
                    let mut list = list.iter().enumerate();
                    list.find_map(|(index, node)| of(&index.to_string(), node))
                }
                Value::Table(table) => table.members.iter().find_map(|member| {
                    let key = pointer_step(&member.key);
                    match member.key_span == *span {
                        true => Some(format!("/{key}")),
                        false => of(&key, &member.node),
                    }
                }),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => None,
            }
        }
        below(&self.root, span)
    }

    /// Returns a position as `FILE:LINE:COLUMN`.
    pub fn shown_place(&self, span: &Span) -> String {
        let (line, column) = place(&self.text, span.start);
        format!("{}:{line}:{column}", self.path.display())
    }

    /// Returns the line of a position, from 1.
    pub fn line(&self, span: &Span) -> usize {
        place(&self.text, span.start).0
    }
}

/// Reads a whole file, up to the maximum size.
pub fn read_text(path: &Path) -> Result<Vec<u8>, Diagnostic> {
    let failed = |error: std::io::Error| {
        Diagnostic::of_file(path, Kind::Read)
            .say("the configuration file cannot be read")
            .because(error)
    };
    // Opening a pipe would block, and a device is endless.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Diagnostic::of_file(path, Kind::Read)
            .say("the configuration file is not a regular file")
            .help("name a regular file"));
    }
    let mut text = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(LONGEST_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > LONGEST_BYTES {
        let most = LONGEST_BYTES >> 20;
        return Err(Diagnostic::of_file(path, Kind::TooLong)
            .say(format!("the configuration file is longer than {most} MiB"))
            .help("name a file that contains servers and little else"));
    }
    Ok(text)
}

/// Returns line and column of a byte, both from 1; columns count characters.
pub fn place(text: &str, byte: usize) -> (usize, usize) {
    let mut end = byte.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

impl Node {
    /// Returns the text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Table(_) => {
                None
            }
        }
    }

    /// Returns the members, if it is a table.
    pub fn as_table(&self) -> Option<&Table> {
        match &self.value {
            Value::Table(table) => Some(table),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Text(_) => {
                None
            }
        }
    }

    /// Returns the entries, if it is a list.
    pub fn as_list(&self) -> Option<&[Self]> {
        match &self.value {
            Value::List(list) => Some(list),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Table(_) | Value::Text(_) => {
                None
            }
        }
    }

    /// Returns the type of the value for display.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "null",
            Value::Bool(_) => "`true` or `false`",
            Value::Number(_) => "a number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    /// Finds a nested value by its path, such as `limits.cpu` or `args[2]`.
    pub fn find(&self, path: &str) -> Option<&Self> {
        let mut node = self;
        for step in path.split('.') {
            let (key, indexes) = match step.split_once('[') {
                Some((key, indexes)) => (key, Some(indexes)),
                None => (step, None),
            };
            node = &node.as_table()?.get(key)?.node;
            if let Some(index) = indexes {
                let index: usize = index.trim_end_matches(']').parse().ok()?;
                node = node.as_list()?.get(index)?;
            }
        }
        Some(node)
    }

    /// Returns the second position of a duplicate name, at any depth.
    pub fn repeated(&self) -> Option<&Member> {
        match &self.value {
            Value::Table(table) => table.repeated(),
            Value::List(list) => list.iter().find_map(Self::repeated),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => None,
        }
    }

    /// Returns the value as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(flag) => (*flag).into(),
            Value::Number(text) => number(text),
            Value::Text(text) => text.as_str().into(),
            Value::List(list) => list.iter().map(Self::to_json).collect(),
            Value::Table(table) => {
                let pairs = table.members.iter();
                let pairs = pairs.map(|member| (member.key.clone(), member.node.to_json()));
                serde_json::Value::Object(pairs.collect())
            }
        }
    }
}

/// Numbers that JSON cannot represent stay text.
fn number(text: &str) -> serde_json::Value {
    let whole = text.parse::<i64>().map(Into::into).ok();
    let positive = || text.parse::<u64>().map(Into::into).ok();
    let real = || {
        let real = text.parse::<f64>().ok()?;
        serde_json::Number::from_f64(real).map(serde_json::Value::Number)
    };
    whole
        .or_else(positive)
        .or_else(real)
        .unwrap_or_else(|| text.into())
}

impl Table {
    /// Returns a member by name; the last one of duplicates.
    pub fn get(&self, key: &str) -> Option<&Member> {
        self.members.iter().rfind(|member| member.key == key)
    }

    fn repeated(&self) -> Option<&Member> {
        let mut seen = std::collections::HashSet::new();
        let second = self
            .members
            .iter()
            .find(|member| !seen.insert(member.key.as_str()));
        second.or_else(|| {
            self.members
                .iter()
                .find_map(|member| member.node.repeated())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Document {
        Document::parse(Path::new("a.json"), text.as_bytes(), Syntax::Json).unwrap()
    }

    fn toml(text: &str) -> Document {
        Document::parse(Path::new("a.toml"), text.as_bytes(), Syntax::Toml).unwrap()
    }

    #[test]
    fn both_syntaxes_say_the_same_with_places() {
        let one = json("// x\n{\"a\": {\"b\": [1, \"two\",], /* y */ \"c\": true}}");
        let two = toml("# x\n[a]\nb = [1, \"two\"]\nc = true\n");
        assert_eq!(one.root.to_json(), two.root.to_json());
        for document in [&one, &two] {
            let node = document.root.find("a.b[1]").unwrap();
            assert_eq!(&document.text[node.span.clone()], "\"two\"");
        }
        assert_eq!(two.line(&two.root.find("a.c").unwrap().span), 4);
    }

    #[test]
    fn a_name_that_stands_twice_is_found_at_any_depth() {
        let document = json(r#"{"a": {"x": [{"k": 1, "k": 2}]}}"#);
        let second = document.root.repeated().unwrap();
        assert_eq!((second.key.as_str(), second.key_span.start), ("k", 22));
        assert!(
            json(r#"{"a": {"k": 1}, "b": {"k": 1}}"#)
                .root
                .repeated()
                .is_none()
        );
    }

    #[test]
    fn places_count_characters() {
        assert_eq!(place("é\nää{", 7), (2, 3));
        assert_eq!(place("", 9), (1, 1));
    }
}
