//! YAML for the manifests of products: maps, lists and scalars of the core schema only. Anchors,
//! aliases, tags, merge keys, keys that are not texts and multiple documents are refused, so that a
//! short text cannot expand into a large document. fault G1

use std::path::Path;
use std::sync::Arc;

use saphyr_parser::{Event, Parser, ScalarStyle, Span as Marked, StrInput};

use super::{Member, Node, Span, Table, Value};
use crate::config::diagnostic::{Diagnostic, Kind};

/// The deepest nesting that is accepted.
const DEEPEST: usize = 32;
/// The maximum number of values that are accepted.
const MOST: usize = 50_000;

pub(super) fn parse(path: &Arc<Path>, text: &Arc<str>) -> Result<Node, Diagnostic> {
    let mut starts: Vec<usize> = text.char_indices().map(|(byte, _)| byte).collect();
    starts.push(text.len());
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
        path,
        text,
        starts,
        count: 0,
    };
    reader.document()
}

struct Reader<'t> {
    parser: Parser<'t, StrInput<'t>>,
    path: &'t Arc<Path>,
    text: &'t Arc<str>,
    /// The byte offset of each character.
    starts: Vec<usize>,
    count: usize,
}

impl<'t> Reader<'t> {
    fn document(&mut self) -> Result<Node, Diagnostic> {
        let mut root = None;
        loop {
            match self.event()? {
                (Event::StreamEnd, span) => {
                    return root
                        .ok_or_else(|| self.wrong(&span, "the file is empty", "write a map"));
                }
                (Event::Nothing | Event::StreamStart | Event::DocumentEnd, _) => {}
                (Event::DocumentStart(_), span) if root.is_some() => {
                    let said = "there is more than one document";
                    return Err(self.wrong(&span, said, "write one manifest per file"));
                }
                (Event::DocumentStart(_), _) => {
                    let (event, span) = self.event()?;
                    root = Some(self.node(event, span, 0)?);
                }
                (_, span) => {
                    return Err(self.wrong(&span, "this is not a document", "write a map"));
                }
            }
        }
    }

    fn event(&mut self) -> Result<(Event<'t>, Span), Diagnostic> {
        match self.parser.next() {
            Some(Ok((event, span))) => Ok((event, self.span(&span))),
            Some(Err(error)) => {
                let at = self.byte(error.marker().index());
                let said = format!("invalid YAML: {}", error.info());
                Err(self.wrong(
                    &(at..at),
                    &said,
                    "check the indentation and the quotes here",
                ))
            }
            None => {
                let end = self.text.len();
                Ok((Event::StreamEnd, end..end))
            }
        }
    }

    fn byte(&self, character: usize) -> usize {
        let last = self.text.len();
        self.starts.get(character).copied().unwrap_or(last)
    }

    fn span(&self, span: &Marked) -> Span {
        let (start, end) = (self.byte(span.start.index()), self.byte(span.end.index()));
        start..end.max(start)
    }

    fn wrong(&self, span: &Span, said: &str, help: &str) -> Diagnostic {
        Diagnostic::at(self.path, self.text, span.clone(), Kind::Syntax)
            .say(said.to_owned())
            .label("here")
            .help(help.to_owned())
    }

    fn node(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<Node, Diagnostic> {
        self.count += 1;
        if depth > DEEPEST || self.count > MOST {
            let said = "the file is nested too deeply, or has too many values";
            return Err(self.wrong(&span, said, "a manifest is a short list of servers"));
        }
        let plain = |is_plain: bool| match is_plain {
            true => Ok(()),
            false => Err(self.wrong(
                &span,
                "anchors, aliases and tags are not supported",
                "write the value itself, wherever it is needed",
            )),
        };
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                plain(anchor == 0 && tag.is_none())?;
                let value = match style {
                    ScalarStyle::Plain => scalar(&text),
                    ScalarStyle::SingleQuoted
                    | ScalarStyle::DoubleQuoted
                    | ScalarStyle::Literal
                    | ScalarStyle::Folded => Value::Text(text.into_owned()),
                };
                Ok(Node { span, value })
            }
            Event::SequenceStart(anchor, tag) => {
                plain(anchor == 0 && tag.is_none())?;
                self.list(span, depth)
            }
            Event::MappingStart(anchor, tag) => {
                plain(anchor == 0 && tag.is_none())?;
                self.table(span, depth)
            }
            Event::Alias(_) => plain(false).map(|()| Node {
                span: span.clone(),
                value: Value::Null,
            }),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => Err(self.wrong(&span, "a value is missing", "write a value")),
        }
    }

    fn list(&mut self, span: Span, depth: usize) -> Result<Node, Diagnostic> {
        let mut list = Vec::new();
        loop {
            match self.event()? {
                (Event::SequenceEnd, end) => {
                    let value = Value::List(list);
                    let span = span.start..end.end.max(span.end);
                    return Ok(Node { span, value });
                }
                (event, at) => list.push(self.node(event, at, depth + 1)?),
            }
        }
    }

    fn table(&mut self, span: Span, depth: usize) -> Result<Node, Diagnostic> {
        let mut table = Table::default();
        loop {
            let (event, at) = self.event()?;
            if event == Event::MappingEnd {
                let value = Value::Table(table);
                let span = span.start..at.end.max(span.end);
                return Ok(Node { span, value });
            }
            let key = self.node(event, at, depth + 1)?;
            let (Some(name), key_span) = (key.as_text().map(str::to_owned), key.span.clone())
            else {
                return Err(self.wrong(&key.span, "a key must be a text", "put it into quotes"));
            };
            if name == "<<" {
                let said = "merge keys are not supported";
                return Err(self.wrong(&key_span, said, "write the members themselves"));
            }
            if table.members.iter().any(|member| member.key == name) {
                let said = format!("`{name}` is there twice");
                return Err(self.wrong(&key_span, &said, "remove one of them"));
            }
            let (event, at) = self.event()?;
            let node = self.node(event, at, depth + 1)?;
            table.members.push(Member {
                key: name,
                key_span,
                node,
            });
        }
    }
}

/// Parses an unquoted scalar by the core schema of YAML 1.2; anything but a JSON number is a text.
fn scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        text if serde_json::from_str::<serde_json::Number>(text).is_ok() => {
            Value::Number(text.to_owned())
        }
        text => Value::Text(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Document, Syntax};

    fn read(text: &str) -> Result<Document, String> {
        let document = Document::parse(Path::new("a.yaml"), text.as_bytes(), Syntax::Yaml);
        document.map_err(|error| error.message().to_owned())
    }

    #[test]
    fn values_have_types_and_places() {
        let text = "name: süß\nmcp:\n  servers:\n    - {port: 80, on: yes, none: ~, text: '1'}\n";
        let document = read(text).unwrap();
        let servers = document
            .root
            .find("mcp")
            .and_then(|mcp| mcp.find("servers"));
        let entry = &servers.unwrap().as_list().unwrap()[0];
        let kind = |name: &str| entry.find(name).unwrap().kind();
        assert_eq!(kind("port"), "a number");
        // `yes` is a text since YAML 1.2.
        assert_eq!(kind("on"), "a text");
        assert_eq!((kind("none"), kind("text")), ("null", "a text"));
        let port = entry.find("port").unwrap();
        assert_eq!(&text[port.span.clone()], "80");
        assert_eq!(document.line(&port.span), 4);
    }

    // fault G1
    #[test]
    fn what_can_grow_or_surprise_is_refused() {
        let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n";
        let deep = "[".repeat(10_000);
        let wide = format!("a: [{}]", "1,".repeat(60_000));
        for (text, said) in [
            (bomb, "anchors, aliases"),
            ("a: *nobody\n", "invalid YAML"),
            ("a: !!str 1\n", "anchors, aliases"),
            ("a: 1\na: 2\n", "twice"),
            ("x: {<<: 1}\n", "merge keys"),
            ("? [1]\n: 2\n", "a key must be"),
            ("1: a\n", "a key must be"),
            ("a: 1\n---\nb: 2\n", "more than one"),
            ("a: [1\n", "invalid YAML"),
            ("", "empty"),
            (&deep, "invalid YAML"),
            (&wide, "too many"),
        ] {
            let refused = read(text).unwrap_err();
            let shown: String = text.chars().take(30).collect();
            assert!(refused.contains(said), "{shown:?}: {refused}");
        }
    }
}
