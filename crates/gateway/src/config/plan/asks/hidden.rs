//! A part of a file without what may be secret, for what is remembered of an approval: each such value is
//! replaced by a short hash, so that a change of it is still seen.
//!
//! Equal values stay equal, and different ones stay different. Entry point: [`hide`].

use gantry_model::secret::{hide_arguments, is_credential, looks_secret};

use crate::config::approval::Digest;
use crate::config::clients::hide::{ADDRESSES, HIDDEN, PRIVATE, url};
use crate::config::document::{Member, Node, Table, Value};

/// A longer text is remembered by its hash.
const LONGEST: usize = 1024;
/// How many digits of a hash stand for a value.
const DIGITS: usize = 16;

/// What becomes of the texts at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Plain,
    Private,
    Address,
}

impl Place {
    fn under(self, name: &str) -> Self {
        if self == Self::Private || PRIVATE.contains(&name) || is_credential(name) {
            Self::Private
        } else if ADDRESSES.contains(&name) || name == "proxy" {
            Self::Address
        } else {
            Self::Plain
        }
    }
}

/// Returns a copy of a value in which nothing secret stands.
pub(super) fn hide(node: &Node) -> Node {
    hidden(node, Place::Plain)
}

fn hidden(node: &Node, place: Place) -> Node {
    let value = match &node.value {
        Value::Text(text) => Value::Text(hidden_text(text, place)),
        Value::Number(text) if place == Place::Private => Value::Text(stand_in(text)),
        Value::List(list) => {
            let words: Option<Vec<String>> = list
                .iter()
                .map(|node| node.as_text().map(str::to_owned))
                .collect();
            let list = match words.filter(|_| place == Place::Plain) {
                Some(words) => hidden_words(list, &words),
                None => list.iter().map(|inner| hidden(inner, place)).collect(),
            };
            Value::List(list)
        }
        Value::Table(table) => Value::Table(Table {
            members: table
                .members
                .iter()
                .map(|member| below(member, place))
                .collect(),
        }),
        value @ (Value::Null | Value::Bool(_) | Value::Number(_)) => value.clone(),
    };
    Node {
        span: node.span.clone(),
        value,
    }
}

fn below(member: &Member, place: Place) -> Member {
    Member {
        key: member.key.clone(),
        key_span: member.key_span.clone(),
        node: hidden(&member.node, place.under(&member.key)),
    }
}

/// Hides what seems secret among words that belong together, such as `--token x`.
fn hidden_words(list: &[Node], words: &[String]) -> Vec<Node> {
    let shown = hide_arguments(words, HIDDEN);
    let pairs = list.iter().zip(words).zip(shown);
    pairs
        .map(|((node, word), shown)| Node {
            span: node.span.clone(),
            value: Value::Text(match shown == *word {
                true => hidden_text(word, Place::Plain),
                false => format!("{shown}{}", hash(word)),
            }),
        })
        .collect()
}

fn hidden_text(text: &str, place: Place) -> String {
    match place {
        // A mere reference tells nothing; what stands in the place of a missing variable may.
        Place::Private if text.contains("${") && !text.contains(":-") && !looks_secret(text) => {
            text.to_owned()
        }
        Place::Private => stand_in(text),
        Place::Address => match url(text) {
            shown if shown == text => text.to_owned(),
            shown => format!("{shown} {}", hash(text)),
        },
        Place::Plain if text.len() > LONGEST || looks_secret(text) => stand_in(text),
        Place::Plain => text.to_owned(),
    }
}

fn stand_in(text: &str) -> String {
    format!("{HIDDEN}{}", hash(text))
}

fn hash(text: &str) -> String {
    let digest = Digest::of(text.as_bytes());
    format!("sha256:{}", &digest.as_str()[..DIGITS])
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::document::{Document, Syntax};

    fn kept(text: &str) -> String {
        let document = Document::parse(Path::new("a.json"), text.as_bytes(), Syntax::Json);
        hide(&document.unwrap().root).to_json().to_string()
    }

    #[test]
    fn what_may_be_secret_is_remembered_by_a_hash() {
        let secrets = [
            r#"{"env": {"A": "s3cr3t-value"}}"#,
            r#"{"headers": {"Authorization": "Bearer s3cr3t-value"}}"#,
            r#"{"auth": {"client_secret": "${X:-s3cr3t-value}"}}"#,
            r#"{"args": ["--token", "s3cr3t-value"]}"#,
            r#"{"args": ["--api-key=s3cr3t-value"]}"#,
            r#"{"url": "https://me:s3cr3t-value@example.com/?k=s3cr3t-value"}"#,
            r#"{"proxy": "http://me:s3cr3t-value@example.com"}"#,
            r#"{"x": {"password": "s3cr3t-value"}}"#,
        ];
        for text in secrets {
            let shown = kept(text);
            assert!(!shown.contains("s3cr3t-value"), "{shown}");
            assert_ne!(shown, kept(&text.replace("s3cr3t-value", "s3cr3t-other")));
            assert_eq!(shown, kept(text));
        }
    }

    #[test]
    fn everything_else_is_remembered_as_it_is() {
        let text = r#"{"command":"npx","args":["-y","files","."],"env":{"T":"${TOKEN}"},"timeout":60000,"url":"https://example.com/mcp"}"#;
        assert_eq!(kept(text), text);
    }
}
