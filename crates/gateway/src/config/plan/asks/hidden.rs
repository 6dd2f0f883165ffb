//! A part of a file without secrets, as stored with an approval: each secret is replaced by its
//! hash, so that a change is still detected.
//!
//! Equal values stay equal and different ones different: the whole hash is kept, and no plain text
//! can look like one. Users see the first digits. Entry points: [`hide`], [`short`].

use gantry_model::secret::{hide_arguments, looks_secret};

use crate::config::approval::Digest;
use crate::config::clients::hide::{HIDDEN, Visibility, url};
use crate::config::document::{Member, Node, Table, Value};
use crate::config::expand::{Reference, references};

/// Longer texts are stored by their hash.
const LONGEST: usize = 1024;
/// The prefix of a hash.
const SHA256: &str = "sha256:";
/// How many digits a hash has.
const DIGITS: usize = 64;
/// How many digits are shown.
const SHOWN: usize = 16;

/// Returns a copy of a value without secrets.
pub(super) fn hide(node: &Node) -> Node {
    hidden(node, Visibility::Shown)
}

fn hidden(node: &Node, place: Visibility) -> Node {
    let value = match &node.value {
        Value::Text(text) => Value::Text(hidden_text(text, place)),
        Value::Number(text) if place == Visibility::Hidden => {
            Value::Text(stand_in(&format!("number\0{text}")))
        }
        Value::List(list) => {
            let words: Option<Vec<String>> = list
                .iter()
                .map(|node| node.as_text().map(str::to_owned))
                .collect();
            let list = match words.filter(|_| is_plain(place)) {
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

/// Returns whether only what looks secret is replaced.
fn is_plain(place: Visibility) -> bool {
    matches!(place, Visibility::Shown | Visibility::Arguments)
}

fn below(member: &Member, place: Visibility) -> Member {
    Member {
        key: member.key.clone(),
        key_span: member.key_span.clone(),
        node: hidden(&member.node, place.under(&member.key)),
    }
}

/// Hides secrets among related words, such as `--token x`.
fn hidden_words(list: &[Node], words: &[String]) -> Vec<Node> {
    let shown = hide_arguments(words, HIDDEN);
    let pairs = list.iter().zip(words).zip(shown);
    pairs
        .map(|((node, word), shown)| Node {
            span: node.span.clone(),
            value: Value::Text(match shown == *word {
                // A variable's default may be a secret.
                true if word.contains("${") && word.contains(":-") => stand_in(word),
                true => hidden_text(word, Visibility::Shown),
                false if word.contains(HIDDEN) => stand_in(word),
                false => format!("{}{}", shown.trim_end_matches(HIDDEN), stand_in(word)),
            }),
        })
        .collect()
}

fn hidden_text(text: &str, place: Visibility) -> String {
    match place {
        // A plain reference reveals nothing.
        Visibility::Hidden if is_only_references(text) && !looks_secret(text) => text.to_owned(),
        Visibility::Hidden => stand_in(text),
        // A text that looks hidden must not pass as hidden.
        Visibility::Address | Visibility::Shown | Visibility::Arguments
            if text.contains(HIDDEN) =>
        {
            stand_in(text)
        }
        Visibility::Address => match url(text) {
            shown if shown == text => text.to_owned(),
            shown => format!("{shown} {}", stand_in(text)),
        },
        Visibility::Shown | Visibility::Arguments if text.len() > LONGEST || looks_secret(text) => {
            stand_in(text)
        }
        Visibility::Shown | Visibility::Arguments => text.to_owned(),
    }
}

/// Returns whether a text consists only of references, without defaults.
fn is_only_references(text: &str) -> bool {
    let mut rest = text;
    while let Some(end) = rest.find('}').filter(|_| rest.starts_with("${")) {
        let (reference, after) = rest.split_at(end + 1);
        match references(reference).as_slice() {
            []
            | [
                Reference::Variable {
                    default: Some(_), ..
                },
            ] => return false,
            _ => rest = after,
        }
    }
    rest.is_empty() && !text.is_empty()
}

fn stand_in(text: &str) -> String {
    let digest = Digest::of(text.as_bytes());
    format!("{HIDDEN}{SHA256}{}", digest.as_str())
}

/// Shortens the hashes in a stored line for display.
pub(super) fn short(line: &str) -> String {
    let mark = format!("{HIDDEN}{SHA256}");
    let mut parts = line.split(mark.as_str());
    let mut short = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        short.push_str(&mark);
        let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
        match digits >= DIGITS {
            true => short.extend([&part[..SHOWN], &part[DIGITS..]]),
            false => short.push_str(part),
        }
    }
    short
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
            r#"{"env": {"A": "s3cr3t-value${X}"}}"#,
            r#"{"env": {"A": "${X}s3cr3t-value${Y}"}}"#,
            r#"{"headers": {"Authorization": "Bearer ${X} s3cr3t-value"}}"#,
            r#"{"args": ["--token", "${X:-s3cr3t-value}"]}"#,
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

    // First hour 1: what was approved with one value must not be shown as unchanged with another.
    #[test]
    fn no_text_passes_for_the_hash_of_another() {
        let digest = Digest::of(b"s3cr3t-value");
        let whole = kept(r#"{"env": {"A": "s3cr3t-value"}}"#);
        assert!(whole.contains(digest.as_str()), "the whole hash: {whole}");
        for text in [
            format!("…sha256:{}", digest.as_str()),
            format!("https://x.example/… …sha256:{}", digest.as_str()),
            "…".to_owned(),
        ] {
            for member in ["x", "url", "proxy", "env"] {
                let kept = kept(&format!(r#"{{"{member}": "{text}"}}"#));
                assert!(!kept.contains(&text) || text == "…", "{kept}");
                assert!(kept.contains("\"…sha256:"), "{kept}");
            }
            let kept = kept(&format!(r#"{{"args": ["{text}", "--token=…"]}}"#));
            assert_eq!(kept.matches("sha256:").count(), 2, "{kept}");
            assert!(!kept.contains("--token=…\""), "{kept}");
        }
        let (number, text) = (kept(r#"{"env": {"A": 5}}"#), kept(r#"{"env": {"A": "5"}}"#));
        assert_ne!(number, text);
    }

    #[test]
    fn a_person_is_shown_the_beginning_of_a_hash() {
        let digest = Digest::of(b"x");
        let digest = digest.as_str();
        let line = format!("a = \"…sha256:{digest}\", b = \"…sha256:{digest}\"");
        let begin = &digest[..SHOWN];
        assert_eq!(
            short(&line),
            format!("a = \"…sha256:{begin}\", b = \"…sha256:{begin}\"")
        );
        // An image's digest is not a hidden value.
        for line in [
            format!("runs docker run i@sha256:{digest}"),
            "…sha256:é".to_owned(),
        ] {
            assert_eq!(short(&line), line);
        }
    }
}
