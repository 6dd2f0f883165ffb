//! What a file would run, in the words that a person is asked with: commands, and names of variables.
//!
//! Everything is shown as it is written, since who approves must see all of it. Entry point: [`asks`].

use super::{Entry, Settings};
use crate::config::document::{Node, Value};

/// Returns what a file would run, in a person's words: commands, and the names of variables.
pub(super) fn asks(entries: &[Entry], settings: &Settings) -> Vec<String> {
    let mut lines: Vec<String> = entries
        .iter()
        .map(|entry| format!("{}: {}", entry.name.escape_debug(), wish(&entry.node)))
        .collect();
    let said = settings.origins.iter();
    lines.extend(said.map(|(key, (_, written))| format!("[gateway] {key} = {written}")));
    lines
}

fn wish(node: &Node) -> String {
    let text = |path: &str| node.find(path).and_then(Node::as_text);
    if let Some(url) = text("url").or_else(|| text("httpUrl")) {
        return format!("connects to {}", url.escape_debug());
    }
    let mut words = vec![text("command").unwrap_or("(no command)").to_owned()];
    for word in node
        .find("args")
        .and_then(Node::as_list)
        .unwrap_or_default()
    {
        words.push(word.as_text().unwrap_or("…").to_owned());
    }
    let plain = |word: &String| {
        let odd = word.is_empty() || word.contains(|c: char| c.is_whitespace() || c.is_control());
        if odd {
            format!("'{}'", word.escape_debug())
        } else {
            word.escape_debug().to_string()
        }
    };
    let mut wish = format!(
        "runs {}",
        words.iter().map(plain).collect::<Vec<_>>().join(" ")
    );
    let env = node.find("env").and_then(Node::as_table);
    let names: Vec<&str> = env
        .into_iter()
        .flat_map(|table| table.members.iter().map(|member| member.key.as_str()))
        .collect();
    if !names.is_empty() {
        wish.push_str(&format!(", sets {}", names.join(", ").escape_debug()));
    }
    if let Some(cwd) = text("cwd") {
        wish.push_str(&format!(", in {}", cwd.escape_debug()));
    }
    for key in ["allow_shell", "allow_env"] {
        let allowed = node.find(key).map(|node| &node.value);
        if allowed.is_some_and(|value| !matches!(value, Value::Bool(false))) {
            wish.push_str(&format!(", with `{key}`"));
        }
    }
    wish
}
