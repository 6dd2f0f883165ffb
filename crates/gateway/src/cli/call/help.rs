//! `gantry call TOOL --help`: the tool's arguments, from its schema.

use serde_json::Value;

use super::super::format::{text, wrap};
use super::super::screen::Screen;
use super::arguments::{DEPTH, Kind, kind, properties, resolved};

/// The width of help without a terminal.
const WIDTH: usize = 100;

/// Prints what the tool is for and every argument of it.
pub(in crate::cli) fn show(tool: &Value, screen: &Screen) {
    let width = screen.width().min(WIDTH);
    let description = Screen::safe(&text(tool, "/definition/description"));
    for line in description.lines() {
        wrap(line, width).iter().for_each(|line| screen.line(line));
    }
    let name = text(tool, "/name");
    let nothing = Value::Null;
    let schema = tool.pointer("/definition/inputSchema").unwrap_or(&nothing);
    let mut rows = Vec::new();
    collect(schema, schema, "", 0, &mut rows);
    if !description.is_empty() {
        screen.line("");
    }
    let required = rows
        .iter()
        .filter(|row| row.required)
        .map(|row| row.flag.as_str());
    let mut usage = format!("gantry call {name}");
    for flag in required {
        usage.push(' ');
        usage.push_str(flag);
    }
    if rows.iter().any(|row| !row.required) {
        usage.push_str(" [ARGUMENTS]");
    }
    screen.line(&format!(
        "{} {}",
        screen.strong("Usage:"),
        Screen::safe(&usage)
    ));
    if rows.is_empty() {
        screen.line("\nIt takes no arguments.");
        return;
    }
    screen.line("");
    screen.line(&screen.strong("Arguments:"));
    for row in rows {
        screen.line(&format!("  {}", screen.strong(&Screen::safe(&row.flag))));
        for line in wrap(
            &Screen::safe(&row.about).replace('\n', " "),
            width.saturating_sub(10),
        ) {
            if !line.is_empty() {
                screen.line(&format!("          {line}"));
            }
        }
    }
}

struct Row {
    flag: String,
    about: String,
    required: bool,
}

fn collect(root: &Value, schema: &Value, before: &str, depth: usize, rows: &mut Vec<Row>) {
    let required = schema.get("required").and_then(Value::as_array);
    let is_required =
        |name: &str| required.is_some_and(|names| names.iter().any(|known| known == name));
    for (name, member) in properties(schema) {
        let member = resolved(root, member);
        let path = format!("{before}{name}");
        if depth + 1 < DEPTH && !properties(member).is_empty() {
            collect(root, member, &format!("{path}."), depth + 1, rows);
            continue;
        }
        let flag = match placeholder(member) {
            Some(value) => format!("--{path} <{value}>"),
            None => format!("--{path}"),
        };
        let required = is_required(name) && depth == 0;
        rows.push(Row {
            flag,
            about: about(member, is_required(name)),
            required,
        });
    }
}

fn placeholder(schema: &Value) -> Option<&'static str> {
    match kind(schema) {
        Kind::Text => Some("TEXT"),
        Kind::Integer => Some("INTEGER"),
        Kind::Number => Some("NUMBER"),
        Kind::Boolean => None,
        Kind::List if kind(schema.get("items").unwrap_or(&Value::Null)) == Kind::Text => {
            Some("TEXT")
        }
        Kind::List => Some("VALUE"),
        Kind::Object => Some("JSON"),
        Kind::Any => Some("VALUE"),
    }
}

/// Returns the description of an argument.
fn about(schema: &Value, required: bool) -> String {
    let mut parts = Vec::new();
    let description = text(schema, "/description");
    if !description.is_empty() {
        parts.push(description);
    }
    let choices = schema.get("enum").and_then(Value::as_array);
    let choices: Vec<String> = choices
        .into_iter()
        .flatten()
        .map(|one| text(one, ""))
        .collect();
    if !choices.is_empty() {
        parts.push(format!("[one of: {}]", choices.join(", ")));
    }
    if kind(schema) == Kind::List {
        parts.push("[may be given several times]".to_owned());
    }
    if let Some(default) = schema.get("default") {
        parts.push(format!("[default: {}]", text(default, "")));
    }
    if required {
        parts.push("[required]".to_owned());
    }
    parts.join(" ")
}
