//! Hides values in a text before it is shown: `env`, `headers`, and credentials by name. Layout and
//! comments are kept, so that two versions can be compared.
//!
//! Entry points: [`json`], [`toml`] and [`arguments`].

use std::path::Path;

use gantry_model::secret::{hide_arguments, is_credential};

use crate::config::document::{Document, Node, Span, Syntax, Value};

/// The replacement of a hidden value.
pub const HIDDEN: &str = "…";

/// Members whose values are private.
const PRIVATE: [&str; 5] = ["env", "environment", "headers", "auth", "oauth"];

/// Members with URLs that may contain credentials.
const ADDRESSES: [&str; 4] = ["url", "httpUrl", "serverUrl", "proxy"];

/// Hides values in JSON with comments; an invalid text is hidden entirely.
pub fn json(text: &str) -> String {
    hide(text, Syntax::Json)
}

/// Hides values in TOML; an invalid text is hidden entirely.
pub fn toml(text: &str) -> String {
    hide(text, Syntax::Toml)
}

fn hide(text: &str, syntax: Syntax) -> String {
    if text.trim().is_empty() {
        return text.to_owned();
    }
    let Ok(document) = Document::parse(Path::new(""), text.as_bytes(), syntax) else {
        return HIDDEN.to_owned();
    };
    let mut hidden = Vec::new();
    find(&document.root, Visibility::Shown, &mut hidden);
    // TOML tables may be read in another order than written.
    hidden.sort_by_key(|(span, _)| span.start);
    let mut shown = document.text.to_string();
    for (span, word) in hidden.into_iter().rev() {
        shown.replace_range(span, &serde_json::Value::from(word).to_string());
    }
    shown
}

/// Hides secrets in a command's arguments: `--token=x`, `--api-key x`.
pub fn arguments(arguments: &[String]) -> Vec<String> {
    hide_arguments(arguments, HIDDEN)
}

/// Hides credentials, query and fragment of a URL.
pub fn url(url: &str) -> String {
    let place = url.find(['?', '#']).map_or(url, |end| &url[..end]);
    let place = match (place.find("://"), place.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => {
            format!("{}{HIDDEN}{}", &place[..scheme + 3], &place[at..])
        }
        _ => place.to_owned(),
    };
    if place.len() < url.len() && url.contains('?') {
        format!("{place}?{HIDDEN}")
    } else {
        place
    }
}

/// How texts at a path are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Visibility {
    Shown,
    Hidden,
    Arguments,
    Address,
}

impl Visibility {
    /// Returns how the texts of a member are shown.
    pub(in crate::config) fn under(self, name: &str) -> Self {
        if self == Self::Hidden || PRIVATE.contains(&name) || is_credential(name) {
            Self::Hidden
        } else if name == "args" {
            Self::Arguments
        } else if ADDRESSES.contains(&name) {
            Self::Address
        } else {
            Self::Shown
        }
    }

    fn replaced(self, texts: &[String]) -> Vec<String> {
        match self {
            Self::Shown => texts.to_vec(),
            Self::Hidden => vec![HIDDEN.to_owned(); texts.len()],
            Self::Arguments => arguments(texts),
            Self::Address => texts.iter().map(|text| url(text)).collect(),
        }
    }
}

/// Finds the texts to hide, each with its replacement.
fn find(node: &Node, seen: Visibility, hidden: &mut Vec<(Span, String)>) {
    let nodes = match &node.value {
        Value::Table(table) => {
            for member in &table.members {
                // Embedded JSON text may contain anything.
                let seen = match member.key.ends_with("#json") {
                    true => Visibility::Hidden,
                    false => seen.under(&member.key),
                };
                find(&member.node, seen, hidden);
            }
            return;
        }
        Value::List(nodes) => nodes.as_slice(),
        Value::Text(_) => std::slice::from_ref(node),
        Value::Null | Value::Bool(_) | Value::Number(_) => return,
    };
    let texts = nodes
        .iter()
        .filter_map(|node| Some((node, node.as_text()?.to_owned())));
    let (texts, words): (Vec<&Node>, Vec<String>) = texts.unzip();
    for ((text, word), shown) in texts.iter().zip(&words).zip(seen.replaced(&words)) {
        if *word != shown {
            hidden.push((text.span.clone(), shown));
        }
    }
    for nested in nodes.iter().filter(|node| node.as_text().is_none()) {
        find(nested, seen, hidden);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_variables_headers_and_credentials_are_not_shown() {
        let text = r#"{
  // why
  "mcpServers": {
    "a": {"command": "x", "args": ["--token", "s3", "--api-key=s4", "-y", "plain"],
          "env": {"A": "s1", "B": "s2"}, "headers": {"Authorization": "Bearer s5"}, },
  },
  "url": "https://x/mcp?k=s7", "proxy": "http://me:s8@p:1", "primaryApiKey": "s6", "theme": "dark"
}"#;
        let shown = json(text);
        for secret in ["s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8"] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
        for kept in [
            "// why",
            "\"A\"",
            "\"theme\": \"dark\"",
            "\"plain\"",
            "\"-y\"",
            "\"--api-key=…\"",
        ] {
            assert!(shown.contains(kept), "{kept} not in {shown}");
        }
        assert_eq!(json("{"), HIDDEN);
    }

    #[test]
    fn the_same_holds_for_toml() {
        let text = "# why\n[servers.a]\ncommand = \"x\"\nargs = [\"--token=s1\", \"y\"]\n\
            env = { A = \"s2\" } # end\n[servers.a.headers]\nX = \"s3\"\n[servers.a.x-cursor]\n\"auth\" = { CLIENT_SECRET = \"s4\" }\n\"n#json\" = '{\"x\":\"s5\"}'\n";
        let shown = toml(text);
        for secret in ["s1", "s2", "s3", "s4", "s5"] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
        assert!(
            shown.contains("# why") && shown.contains("env = { A = \"…\" } # end"),
            "{shown}"
        );
        assert_eq!(shown.lines().count(), text.lines().count());
    }

    #[test]
    fn urls_show_their_place_only() {
        assert_eq!(
            url("https://u:p@example.com/mcp?key=s#x"),
            "https://…@example.com/mcp?…"
        );
        assert_eq!(url("http://127.0.0.1:1/mcp"), "http://127.0.0.1:1/mcp");
    }
}
