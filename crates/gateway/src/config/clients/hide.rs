//! Takes values out of a text that is shown to a person: what stands in `env` and `headers`, and what
//! a name tells to be a credential. Layout and comments stay, so that two versions can be compared.
//!
//! Entry points: [`json`], [`toml`] and [`arguments`].

use gantry_model::secret::{hide_arguments, is_credential};
use jsonc_parser::cst::{CstContainerNode, CstNode, CstRootNode};
use toml_edit::{DocumentMut, Formatted, Item, TableLike, Value};

use crate::config::document::json::options;

/// What stands in the place of something hidden.
pub const HIDDEN: &str = "…";

/// Members whose values are nobody's business.
pub(in crate::config) const PRIVATE: [&str; 4] = ["env", "headers", "auth", "oauth"];

/// Members whose values may carry credentials beside a place.
pub(in crate::config) const ADDRESSES: [&str; 3] = ["url", "httpUrl", "serverUrl"];

/// Hides values in JSON with comments; a text that is none is hidden as a whole.
pub fn json(text: &str) -> String {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match CstRootNode::parse(text, &options()) {
        Ok(root) => {
            if let Some(value) = root.value() {
                hide_node(&value, Seen::Shown);
            }
            root.to_string()
        }
        Err(_) => HIDDEN.to_owned(),
    }
}

/// Hides values in TOML; a text that is none is hidden as a whole.
pub fn toml(text: &str) -> String {
    match text.parse::<DocumentMut>() {
        Ok(mut document) => {
            hide_table(document.as_table_mut(), Seen::Shown);
            document.to_string()
        }
        Err(_) => HIDDEN.to_owned(),
    }
}

/// Hides what seems secret among a command's arguments: `--token=x`, `--api-key x`.
pub fn arguments(arguments: &[String]) -> Vec<String> {
    hide_arguments(arguments, HIDDEN)
}

/// Hides what a URL carries beside its place.
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

/// What becomes of texts at a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Shown,
    Hidden,
    Arguments,
    Address,
}

impl Seen {
    fn under(self, name: &str) -> Self {
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

fn hide_node(node: &CstNode, seen: Seen) {
    if let Some(text) = node.as_string_lit() {
        let word = text.decoded_value().unwrap_or_default();
        let shown = seen.replaced(std::slice::from_ref(&word)).concat();
        if shown != word {
            text.set_raw_value(serde_json::Value::from(shown).to_string());
        }
        return;
    }
    let Some(container) = node
        .as_object()
        .map(CstContainerNode::Object)
        .or_else(|| node.as_array().map(CstContainerNode::Array))
    else {
        return;
    };
    match container {
        CstContainerNode::Object(object) => {
            for member in object.properties() {
                let name = member.decoded_name().unwrap_or_default();
                if let Some(value) = member.value() {
                    hide_node(&value, seen.under(&name));
                }
            }
        }
        CstContainerNode::Array(array) => {
            let elements = array.elements();
            let texts: Vec<_> = elements.iter().filter_map(CstNode::as_string_lit).collect();
            let words: Vec<String> = texts
                .iter()
                .map(|text| text.decoded_value().unwrap_or_default())
                .collect();
            for (text, (word, shown)) in texts.iter().zip(words.iter().zip(seen.replaced(&words))) {
                if *word != shown {
                    text.set_raw_value(format!("{}", serde_json::Value::from(shown)));
                }
            }
            let nested = elements
                .iter()
                .filter(|element| element.as_string_lit().is_none());
            nested.for_each(|element| hide_node(element, seen));
        }
        CstContainerNode::Root(_) | CstContainerNode::ObjectProp(_) => {}
    }
}

fn hide_table(table: &mut dyn TableLike, seen: Seen) {
    for (name, item) in table.iter_mut() {
        // What was kept as JSON text is as private as anything in it could be.
        let seen = if name.get().ends_with("#json") {
            Seen::Hidden
        } else {
            seen.under(name.get())
        };
        match item {
            Item::Value(value) => hide_value(value, seen),
            Item::Table(table) => hide_table(table, seen),
            Item::ArrayOfTables(tables) => {
                tables.iter_mut().for_each(|table| hide_table(table, seen))
            }
            Item::None => {}
        }
    }
}

fn hide_value(value: &mut Value, seen: Seen) {
    match value {
        Value::String(text) => {
            let word = text.value().clone();
            let shown = seen.replaced(std::slice::from_ref(&word)).concat();
            if shown != word {
                put(text, shown);
            }
        }
        Value::Array(array) => {
            let words: Vec<String> = array
                .iter()
                .filter_map(|value| value.as_str().map(str::to_owned))
                .collect();
            let mut shown = seen.replaced(&words).into_iter();
            for value in array.iter_mut() {
                let Value::String(text) = value else {
                    hide_value(value, seen);
                    continue;
                };
                let word = shown.next().unwrap_or_else(|| HIDDEN.to_owned());
                if *text.value() != word {
                    put(text, word);
                }
            }
        }
        Value::InlineTable(table) => hide_table(table, seen),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {}
    }
}

/// Replaces a text and leaves what stands around it.
fn put(text: &mut Formatted<String>, shown: String) {
    let decor = text.decor().clone();
    *text = Formatted::new(shown);
    *text.decor_mut() = decor;
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
  "url": "https://x/mcp?k=s7", "primaryApiKey": "s6", "theme": "dark"
}"#;
        let shown = json(text);
        for secret in ["s1", "s2", "s3", "s4", "s5", "s6", "s7"] {
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
