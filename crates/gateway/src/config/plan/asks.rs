//! The approval prompt for a part of a file: the command or URL, every member as written, and where
//! each variable goes.
//!
//! Lists the members that are in the file rather than known keys, so none can be missed. Control
//! and invisible characters are escaped. Each line has a second form for storage, without secrets
//! (`hidden`). Entry points: [`of_entry`] and [`of_gateway`].

mod hidden;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use gantry_model::naming::is_invisible;

use super::Entry;
use crate::config::approval::Digest;
use crate::config::document::{Node, Value};
use crate::config::entry::remote::URLS;
use crate::config::entry::{self, texts};
use crate::config::expand::{Reference, Values, references};
use crate::config::settings;

/// The prompt for a part of a file.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// A line for each server and setting; details are indented.
    pub(super) lines: Vec<Line>,
    /// The variables that would be read.
    pub(super) variables: BTreeSet<String>,
}

/// One line of the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// The form for display.
    pub(super) shown: String,
    /// The form for storage, without secrets.
    pub(super) kept: String,
}

/// Returns the prompt for an entry.
pub(super) fn of_entry(
    entry: &Entry,
    files: &BTreeMap<PathBuf, Option<Digest>>,
    values: Values<'_>,
) -> Asked {
    let named = entry::files(entry, values);
    let named: Vec<(PathBuf, Option<&Option<Digest>>)> = named
        .into_iter()
        .map(|path| {
            let digest = files.get(&path);
            (path, digest)
        })
        .collect();
    let mut variables = BTreeSet::new();
    let shown = entry_lines(entry, &entry.node, &named, &mut variables);
    let kept = entry_lines(
        entry,
        &hidden::hide(&entry.node),
        &named,
        &mut BTreeSet::new(),
    );
    Asked {
        lines: paired(shown, kept),
        variables,
    }
}

/// Returns the prompt for `[gateway]`, with the files that it names.
pub(super) fn of_gateway(gateway: &Node, files: &BTreeMap<PathBuf, Option<Digest>>) -> Asked {
    let lines = |node: &Node| {
        let mut settings = Vec::new();
        leaves("", node, &mut settings);
        let settings = settings.into_iter();
        let settings = settings.filter(|(key, _)| !key.is_empty());
        let settings = settings.map(|(key, value)| format!("[gateway] {} = {value}", shown(&key)));
        settings.collect()
    };
    let mut lines = paired(lines(gateway), lines(&hidden::hide(gateway)));
    let mut variables = BTreeSet::new();
    let read = settings::variables(gateway).map(|(key, name)| {
        variables.insert(name.to_owned());
        let name = shown(name);
        format!("reads from your environment: {name} → used in `{key}`")
    });
    let named = files
        .iter()
        .map(|(path, digest)| content(path, Some(digest)));
    let details: Vec<String> = named.chain(read).collect();
    lines.extend(details.into_iter().map(|detail| {
        let shown = format!("[gateway] {detail}");
        let kept = shown.clone();
        Line { shown, kept }
    }));
    Asked { lines, variables }
}

/// Formats a stored line for display.
pub(super) fn shown_again(kept: &str) -> String {
    hidden::short(kept)
}

/// Pairs both forms. Hiding keeps equal values equal and different ones different, so both forms
/// have the same number of lines.
fn paired(shown: Vec<String>, kept: Vec<String>) -> Vec<Line> {
    let lines = shown.into_iter().zip(kept);
    lines.map(|(shown, kept)| Line { shown, kept }).collect()
}

/// Returns the lines of an entry, with the values of `node`: the original or the hidden ones.
fn entry_lines(
    entry: &Entry,
    node: &Node,
    files: &[(PathBuf, Option<&Option<Digest>>)],
    variables: &mut BTreeSet<String>,
) -> Vec<String> {
    let (head, told) = headline(node);
    let mut lines = vec![format!("{}: {head}", shown(&entry.name))];
    let mut members = Vec::new();
    leaves("", node, &mut members);
    let members = members
        .into_iter()
        .filter(|(path, _)| !told.contains(&path.as_str()));
    lines.extend(members.map(|(path, value)| format!("  {} = {value}", shown(&path))));
    for (path, digest) in files {
        lines.push(format!("  {}", content(path, *digest)));
    }
    let mut told = BTreeSet::new();
    for (path, text) in texts(entry) {
        for reference in references(&text) {
            let line = match reference {
                Reference::Variable { name, .. } => {
                    variables.insert(name.to_owned());
                    format!("reads from your environment: {name}")
                }
                Reference::Input(id) => format!("asks you for: {}", shown(id)),
                Reference::Folder
                | Reference::FolderName
                | Reference::Home
                | Reference::Separator => continue,
            };
            let line = format!("  {line} → {}", destination(node, &path));
            if told.insert(line.clone()) {
                lines.push(line);
            }
        }
    }
    lines
}

fn text<'n>(node: &'n Node, path: &str) -> Option<&'n str> {
    node.find(path).and_then(Node::as_text)
}

/// Returns the command or URL of an entry, and the members it fully covers.
fn headline(node: &Node) -> (String, Vec<&'static str>) {
    let mut told = Vec::new();
    let mut parts = Vec::new();
    if let Some(command) = text(node, "command") {
        told.push("command");
        let mut words = vec![word(command)];
        let args = node.find("args").and_then(Node::as_list);
        let texts: Option<Vec<&str>> =
            args.and_then(|args| args.iter().map(Node::as_text).collect());
        if let Some(texts) = texts {
            told.push("args");
            words.extend(texts.into_iter().map(word));
        }
        parts.push(format!("runs {}", words.join(" ")));
        let env = node.find("env").and_then(Node::as_table);
        let names: Vec<String> = env
            .into_iter()
            .flat_map(|table| table.members.iter().map(|member| shown(&member.key)))
            .collect();
        if !names.is_empty() {
            parts.push(format!("sets {}", names.join(", ")));
        }
        if let Some(cwd) = text(node, "cwd") {
            told.push("cwd");
            parts.push(format!("in {}", word(cwd)));
        }
    }
    if let Some(image) = text(node, "image") {
        told.push("image");
        parts.push(format!("runs the image {}", shown(image)));
    }
    for key in URLS {
        if let Some(url) = text(node, key) {
            told.push(key);
            parts.push(format!("connects to {}", shown(url)));
        }
    }
    if parts.is_empty() {
        parts.push("names neither a command nor an image nor a URL".to_owned());
    }
    (parts.join(", "), told)
}

/// Returns the path and the value of every member, each in one line; a list of plain values counts as one value.
fn leaves(path: &str, node: &Node, found: &mut Vec<(String, String)>) {
    let below = |key: &str| match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    };
    match &node.value {
        Value::Table(table) if !table.members.is_empty() => {
            for member in &table.members {
                leaves(&below(&member.key), &member.node, found);
            }
        }
        Value::List(list) if list.iter().any(|node| plain(node).is_none()) => {
            for (index, node) in list.iter().enumerate() {
                leaves(&format!("{path}[{index}]"), node, found);
            }
        }
        Value::List(list) => {
            let values: Vec<String> = list.iter().filter_map(plain).collect();
            found.push((path.to_owned(), format!("[{}]", values.join(", "))));
        }
        Value::Table(_) => found.push((path.to_owned(), "{}".to_owned())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {
            let value = plain(node).unwrap_or_default();
            found.push((path.to_owned(), value));
        }
    }
}

/// Formats a value without members.
fn plain(node: &Node) -> Option<String> {
    match &node.value {
        Value::Null => Some("null".to_owned()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(text) => Some(shown(text)),
        Value::Text(text) => Some(format!("\"{}\"", shown(text))),
        Value::List(_) | Value::Table(_) => None,
    }
}

/// Describes where a member's value goes.
fn destination(node: &Node, path: &str) -> String {
    let of = |key: &str| text(node, key).map(shown);
    let url = URLS.into_iter().find_map(of);
    let command = of("command").or_else(|| of("image"));
    let there = match (&url, &command) {
        (Some(url), _) => format!("to {url}"),
        (None, Some(command)) => format!("to {command}"),
        (None, None) => return "not used: the entry has no command, image or URL".to_owned(),
    };
    let via = match (&url, of("proxy")) {
        (Some(_), Some(proxy)) => format!(" via proxy {proxy}"),
        _ => String::new(),
    };
    let (table, key) = path.split_once('.').unwrap_or((path, ""));
    let key = shown(key);
    match table {
        "headers" => format!("sent as header {key} {there}{via}"),
        "env" | "environment" => format!("given as variable {key} {there}"),
        "auth" => format!("sent as {key} when signing in {there}{via}"),
        "proxy" => format!("sent to the proxy {}", of("proxy").unwrap_or_default()),
        _ if URLS.contains(&table) => format!("sent as part of the URL {there}{via}"),
        _ if table.starts_with("args[") => format!("given as argument {there}"),
        _ => format!("used in `{}`", shown(path)),
    }
}

/// Describes the approved content of a named file.
fn content(path: &Path, digest: Option<&Option<Digest>>) -> String {
    let path = shown(&path.to_string_lossy());
    match digest {
        Some(Some(digest)) => format!("names the file {path}, sha256 {}", digest.as_str()),
        Some(None) | None => format!("names the file {path}, which cannot be read now"),
    }
}

/// Returns a word of a command line, quoted if necessary.
fn word(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "_@%+=:./-".contains(letter);
    let shown = shown(word);
    if !word.is_empty() && shown == word && word.chars().all(is_plain) {
        shown
    } else {
        format!("'{shown}'")
    }
}

/// Escapes everything but visible characters and plain blanks: control characters, direction marks,
/// other blanks, invisible letters, and letters that pass for those of ASCII.
fn shown(text: &str) -> String {
    let is_url = text.contains("://");
    let mut shown = String::with_capacity(text.len());
    for word in text.split_inclusive(|letter: char| !letter.is_alphanumeric()) {
        let is_ascii_word = word.contains(|letter: char| letter.is_ascii_alphabetic());
        for letter in word.chars() {
            let is_disguised = match resemblance(letter) {
                Resemblance::Always => true,
                Resemblance::AmongAscii => is_ascii_word || is_url,
                Resemblance::Never => is_url && !letter.is_ascii(),
            };
            if is_invisible(letter) || is_disguised {
                shown.extend(letter.escape_unicode());
            } else {
                shown.extend(letter.escape_debug());
            }
        }
    }
    shown
}

/// When a letter is taken for a letter of ASCII.
enum Resemblance {
    /// It is another form of one.
    Always,
    /// In a word with letters of ASCII.
    AmongAscii,
    Never,
}

fn resemblance(letter: char) -> Resemblance {
    match letter {
        // Letterlike, enclosed, full-width and mathematical forms.
        '\u{2100}'..='\u{214f}'
        | '\u{2460}'..='\u{24ff}'
        | '\u{ff10}'..='\u{ff19}'
        | '\u{ff21}'..='\u{ff3a}'
        | '\u{ff41}'..='\u{ff5a}'
        | '\u{1d400}'..='\u{1d7ff}' => Resemblance::Always,
        // Phonetic letters, Greek, Cyrillic, Armenian, Cherokee, Coptic, Lisu.
        '\u{250}'..='\u{2af}'
        | '\u{370}'..='\u{58f}'
        | '\u{13a0}'..='\u{13ff}'
        | '\u{1c80}'..='\u{1c8f}'
        | '\u{1f00}'..='\u{1fff}'
        | '\u{2c80}'..='\u{2cff}'
        | '\u{a4d0}'..='\u{a4ff}'
        | '\u{a640}'..='\u{a69f}'
        | '\u{ab70}'..='\u{abbf}' => Resemblance::AmongAscii,
        _ => Resemblance::Never,
    }
}

#[cfg(test)]
mod tests;
