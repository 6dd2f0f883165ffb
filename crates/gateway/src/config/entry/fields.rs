//! Typed access to a table's members; a wrong value becomes a diagnostic at its position.
//!
//! Members are named by their path, such as `limits.cpu`. A getter returns `None` for a missing or
//! wrong value; [`Diagnostics`] has the errors. Entry point: [`Fields::value`].

use std::collections::BTreeMap;
use std::time::Duration;

use gantry_model::secret::{Template, hide_arguments};
use gantry_model::spec::options::Kind as Form;
use gantry_model::spec::{OutputCheck, period, size};
use serde_json::{Value as Json, json};

use super::diagnostics::{Diagnostics, shown};
use super::{Fill, OF_CLIENTS, Owner, nearest};
use crate::config::diagnostic::Kind;
use crate::config::document::{Member, Node, Syntax, Value};
use crate::config::expand::{Missing, Secrets, Values, expand};

/// The members of one table of an entry.
pub(in crate::config) struct Fields<'t, 'd> {
    pub(in crate::config) diagnostics: &'t mut Diagnostics<'d>,
    root: &'t Node,
    prefix: String,
    pub(in crate::config) fill: Fill<'t>,
}

impl<'t, 'd> Fields<'t, 'd> {
    pub(in crate::config) fn new(
        diagnostics: &'t mut Diagnostics<'d>,
        root: &'t Node,
        prefix: &str,
        fill: Fill<'t>,
    ) -> Self {
        Self {
            diagnostics,
            root,
            prefix: prefix.to_owned(),
            fill,
        }
    }

    /// Checks member names against the known paths. An unknown one is an error in Gantry's own
    /// file, and a warning in a client's.
    pub(in crate::config) fn known(&mut self, known: &[&'static str]) {
        let Some(table) = self.root.as_table() else {
            return;
        };
        for member in &table.members {
            let key = member.key.as_str();
            let is_top = self.prefix.is_empty();
            // Kept by imports for the export.
            let kept = is_top
                && self.diagnostics.owner != Owner::Api
                && (key.starts_with("x-") || key.starts_with("x_"));
            if known.contains(&key) || kept {
                continue;
            }
            let below = known.iter();
            let below = below.filter_map(|path| path.strip_prefix(key)?.strip_prefix('.'));
            let below: Vec<&'static str> = below.collect();
            match below.as_slice() {
                [] => self.unknown(member, known),
                below => self.known_below(member, below),
            }
        }
    }

    fn known_below(&mut self, member: &'t Member, known: &[&'static str]) {
        let owner = self.diagnostics.owner;
        let field = self.field(&member.key);
        match &member.node.value {
            Value::Table(_) => {
                Fields::new(self.diagnostics, &member.node, &field, self.fill).known(known);
            }
            Value::Null if owner == Owner::Api => {}
            // Some clients have their own list of that name, about permissions.
            Value::List(_) if owner == Owner::Client && field == "tools" => {}
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) => {
                let help = format!("known keys are {}", listed(&heads(known)));
                self.diagnostics
                    .wrong(&member.node, &field, "a table", &help);
            }
        }
    }

    fn unknown(&mut self, member: &Member, known: &[&'static str]) {
        let known = heads(known);
        let field = self.field(&member.key);
        let near = nearest(&member.key, &known);
        // Clients have no members of their own inside Gantry's tables.
        if self.diagnostics.owner == Owner::Client && self.prefix.is_empty() {
            if OF_CLIENTS.contains(&member.key.as_str()) {
                return;
            }
            let meant = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            let field = field.escape_debug();
            let what = format!("`{field}` is not known and has no effect{meant}");
            self.diagnostics.warn(&member.key_span, &what);
            return;
        }
        let diagnostic = self
            .diagnostics
            .diagnostic(&member.key_span, Kind::UnknownKey)
            .say(format!("`{}` is not known", field.escape_debug()))
            .label("not known here");
        self.diagnostics.push(match near {
            Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
            None => diagnostic.help(format!("known are {}", listed(&known))),
        });
    }

    fn field(&self, key: &str) -> String {
        match self.prefix.as_str() {
            "" => key.to_owned(),
            prefix => format!("{prefix}.{key}"),
        }
    }

    pub(in crate::config) fn has(&self, key: &str) -> bool {
        self.node(key).is_some()
    }

    /// Returns a value by its path; over REST `null` means absent.
    pub(in crate::config) fn node(&self, key: &str) -> Option<&'t Node> {
        let node = self.root.find(key)?;
        let is_nothing = self.diagnostics.owner == Owner::Api && matches!(node.value, Value::Null);
        (!is_nothing).then_some(node)
    }

    /// Returns an option's value in the form of the spec.
    pub(in crate::config) fn value(&mut self, form: Form, key: &str) -> Option<Json> {
        let node = self.node(key)?;
        let value = match form {
            Form::Flag => self.flag(key)?.into(),
            Form::Text => self.plain(key)?.into(),
            Form::Template | Form::Secret => self.text(key)?.into(),
            Form::Texts => self.names(key)?.into(),
            Form::Templates => self.texts(key)?.into(),
            Form::Pairs => json!(self.pairs(key)?),
            Form::Choice(names) => self.word(key, names)?.into(),
            Form::WordOrTexts(names) => match node.as_list() {
                Some(_) => self.names(key)?.into(),
                None => self.word(key, names)?.into(),
            },
            Form::Period(_) => {
                let time = self.period(node, &self.field(key))?;
                period::show(time).into()
            }
            Form::Periods => {
                let list = self.list(node, key)?;
                let field = self.field(key);
                let times = list.iter().enumerate().map(|(index, node)| {
                    let time = self.period(node, &format!("{field}[{index}]"))?;
                    Some(period::show(time))
                });
                let times: Vec<Option<String>> = times.collect();
                times.into_iter().collect::<Option<Vec<String>>>()?.into()
            }
            Form::Tools => self.tools(node, key)?,
            Form::Whole(..) | Form::Cores(..) | Form::Size(..) => match number(form, node) {
                Some(number) => number,
                None => {
                    self.out_of_range(node, key, form);
                    return None;
                }
            },
        };
        // REST values are checked with the whole spec, which has its own error codes.
        if self.diagnostics.owner != Owner::Api && !form.allows(&value) {
            self.out_of_range(node, key, form);
            return None;
        }
        Some(value)
    }

    /// Returns the settings of single tools, by their own names. row 3.4
    fn tools(&mut self, node: &'t Node, key: &str) -> Option<Json> {
        let field = self.field(key);
        let Some(table) = node.as_table() else {
            let help = "write a table for each tool, by its own name";
            self.diagnostics.wrong(node, &field, "a table", help);
            return None;
        };
        let mut settings = serde_json::Map::new();
        for member in &table.members {
            let name = format!("{field}.{}", member.key);
            if member.node.as_table().is_none() {
                let help = "known keys are `timeout`, `idempotent`, `output_check`";
                self.diagnostics.wrong(&member.node, &name, "a table", help);
            }
            let mut tool = Fields::new(self.diagnostics, &member.node, &name, self.fill);
            tool.known(&["timeout", "idempotent", "output_check"]);
            let mut said = serde_json::Map::new();
            for (key, form) in [
                ("timeout", Form::Period(Duration::from_millis(1))),
                ("idempotent", Form::Flag),
                ("output_check", Form::Choice(OutputCheck::NAMES)),
            ] {
                if let Some(value) = tool.value(form, key) {
                    said.insert(key.to_owned(), value);
                }
            }
            settings.insert(member.key.clone(), said.into());
        }
        Some(settings.into())
    }

    pub(in crate::config) fn flag(&mut self, key: &str) -> Option<bool> {
        let node = self.node(key)?;
        if let Value::Bool(flag) = node.value {
            return Some(flag);
        }
        let field = self.field(key);
        let help = "write it without quotes";
        self.diagnostics
            .wrong(node, &field, "`true` or `false`", help);
        None
    }

    /// Returns a text without expansion.
    pub(in crate::config) fn plain(&mut self, key: &str) -> Option<String> {
        let node = self.node(key)?;
        if let Some(text) = node.as_text() {
            return Some(text.to_owned());
        }
        let field = self.field(key);
        self.diagnostics
            .wrong(node, &field, "a text", "put it into double quotes");
        None
    }

    /// Returns an expanded text.
    fn text(&mut self, key: &str) -> Option<String> {
        let (node, field) = (self.node(key)?, self.field(key));
        self.filled(node, &field)
    }

    fn filled(&mut self, node: &Node, field: &str) -> Option<String> {
        let Some(text) = node.as_text() else {
            self.diagnostics
                .wrong(node, field, "a text", "put it into double quotes");
            return None;
        };
        let Fill::From(values) = self.fill else {
            return Some(text.to_owned());
        };
        let private = ["env.", "environment.", "headers."];
        let private = private.iter().any(|table| field.starts_with(table));
        let (key, field) = (field, shown(field));
        // Secrets are allowed only in values of the environment and of headers.
        let secrets = match private {
            true => values.secrets,
            false => Secrets::None,
        };
        match expand(text, Values { secrets, ..values }) {
            Ok(filled) => {
                if let Some(template) = Template::at(&filled.text, &filled.secrets)
                    && let Some((_, name)) = key.split_once('.')
                {
                    let place = self.diagnostics.document.shown_place(&node.span);
                    self.diagnostics.places.insert(name.to_owned(), place);
                    self.diagnostics.templates.insert(name.to_owned(), template);
                }
                if filled.text != text {
                    self.diagnostics
                        .written
                        .insert(key.to_owned(), text.to_owned());
                }
                self.diagnostics.variables.extend(filled.variables);
                self.diagnostics.inputs.extend(filled.inputs);
                for odd in &filled.odd {
                    let odd = if private { "${…}" } else { odd };
                    let odd = odd.escape_debug();
                    let what =
                        format!("`{odd}` in {field} is not a variable and is kept as written");
                    self.diagnostics.warn(&node.span, &what);
                }
                Some(filled.text)
            }
            Err(missing) => {
                let (said, help) = match &missing {
                    Missing::Variable { name } => (
                        format!("{field} uses the variable `{name}`, which is not set"),
                        format!("set `{name}` before `gantry up`, or write `${{{name}:-default}}`"),
                    ),
                    Missing::Input { id } => (
                        format!(
                            "{field} needs the input `{id}` and there is no terminal to ask on"
                        ),
                        "start `gantry up` on a terminal, or use a variable such as `${NAME}`"
                            .to_owned(),
                    ),
                };
                let diagnostic = self.diagnostics.diagnostic(&node.span, Kind::Variable);
                self.diagnostics
                    .push(diagnostic.say(said).label("used here").help(help));
                None
            }
        }
    }

    /// Returns a list of expanded texts.
    fn texts(&mut self, key: &str) -> Option<Vec<String>> {
        let node = self.node(key)?;
        let list = self.list(node, key)?;
        let field = self.field(key);
        let texts: Vec<Option<String>> = list
            .iter()
            .enumerate()
            .map(|(index, node)| self.filled(node, &format!("{field}[{index}]")))
            .collect();
        texts.into_iter().collect()
    }

    /// Returns a list of texts without expansion.
    pub(in crate::config) fn names(&mut self, key: &str) -> Option<Vec<String>> {
        let node = self.node(key)?;
        let list = self.list(node, key)?;
        let mut names = Vec::new();
        for (index, node) in list.iter().enumerate() {
            match node.as_text() {
                Some(text) => names.push(text.to_owned()),
                None => {
                    let field = format!("{}[{index}]", self.field(key));
                    let help = "put it into double quotes";
                    self.diagnostics.wrong(node, &field, "a text", help);
                    return None;
                }
            }
        }
        Some(names)
    }

    fn list(&mut self, node: &'t Node, key: &str) -> Option<&'t [Node]> {
        if let Some(list) = node.as_list() {
            return Some(list);
        }
        let help = match node.as_text() {
            Some(text) => {
                let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
                let words: Vec<String> = hide_arguments(&words, "…")
                    .iter()
                    .map(|word| format!("\"{}\"", word.escape_debug()))
                    .collect();
                self.assigned(key, &format!("[{}]", words.join(", ")))
            }
            None => self.assigned(key, "[\"…\"]"),
        };
        let (field, help) = (self.field(key), format!("write `{help}`"));
        self.diagnostics
            .wrong(node, &field, "a list of texts", &help);
        None
    }

    /// Returns how a key with a value is written in this syntax.
    fn assigned(&self, key: &str, value: &str) -> String {
        match Syntax::of(&self.diagnostics.document.path) {
            Syntax::Toml => format!("{key} = {value}"),
            Syntax::Json => format!("\"{key}\": {value}"),
            Syntax::Yaml => format!("{key}: {value}"),
        }
    }

    /// Returns named, expanded texts.
    fn pairs(&mut self, key: &str) -> Option<BTreeMap<String, String>> {
        let node = self.node(key)?;
        let field = self.field(key);
        let Some(table) = node.as_table() else {
            let help = format!("write `{}`", self.assigned(key, "{…}"));
            self.diagnostics
                .wrong(node, &field, "a table of texts", &help);
            return None;
        };
        let pairs: Vec<Option<(String, String)>> = table
            .members
            .iter()
            .map(|member| {
                let value = self.filled(&member.node, &format!("{field}.{}", member.key))?;
                Some((member.key.clone(), value))
            })
            .collect();
        pairs.into_iter().collect()
    }

    /// Returns one of a few words.
    fn word(&mut self, key: &str, names: &[&'static str]) -> Option<&'static str> {
        let node = self.node(key)?;
        let written = match node.as_text() {
            Some("http" | "streamableHttp" | "streamable_http") => Some("streamable-http"),
            written => written,
        };
        if let Some(found) = names.iter().find(|name| Some(**name) == written) {
            return Some(found);
        }
        let field = self.field(key);
        let near = written.and_then(|text| nearest(text, names));
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("write one of {}", listed(names)),
        };
        let diagnostic = self.diagnostics.diagnostic(&node.span, Kind::Value);
        self.diagnostics.push(
            diagnostic
                .say(format!(
                    "{} must be one of {}",
                    shown(&field),
                    listed(names)
                ))
                .label("not one of them")
                .help(help)
                .show_value(),
        );
        None
    }

    fn out_of_range(&mut self, node: &Node, key: &str, form: Form) {
        let field = self.field(key);
        let allowed = form.allowed();
        let kinds = [
            (matches!(form, Form::Size(..)), "a size such as `512M`"),
            (matches!(form, Form::Cores(..)), "a number"),
            (matches!(form, Form::Whole(..)), "a whole number"),
        ];
        let wanted = kinds.into_iter().find(|(is, _)| *is);
        let wanted = wanted.map_or("a time", |(_, wanted)| wanted);
        let diagnostic = self.diagnostics.diagnostic(&node.span, Kind::Value);
        self.diagnostics.push(
            diagnostic
                .say(format!("{} must be {wanted}, {allowed}", shown(&field)))
                .label("out of range, or no such value")
                .help(format!("allowed is {allowed}"))
                .show_value(),
        );
    }

    /// Returns a duration; numbers are milliseconds as in clients, texts have a unit.
    fn period(&mut self, node: &Node, field: &str) -> Option<Duration> {
        let time = match &node.value {
            Value::Number(text) => text.parse().ok().map(Duration::from_millis),
            Value::Text(text) => period::parse(text),
            Value::Null | Value::Bool(_) | Value::List(_) | Value::Table(_) => None,
        };
        if time.is_none() {
            let diagnostic = self.diagnostics.diagnostic(&node.span, Kind::Value);
            self.diagnostics.push(
                diagnostic
                    .say(format!("{} must be a time", shown(field)))
                    .label("no time")
                    .help("write milliseconds, or a text such as `500ms`, `30s` or `2m`")
                    .show_value(),
            );
        }
        time
    }
}

/// Reads a number, without checking its range.
fn number(form: Form, node: &Node) -> Option<Json> {
    match (form, &node.value) {
        (Form::Size(..), Value::Number(text) | Value::Text(text)) => {
            size::parse(text).map(Json::from)
        }
        // As other tools write it: `"cpu": "0.5"`.
        (Form::Cores(..), Value::Number(text) | Value::Text(text)) => {
            let number = text.trim().parse::<f64>().ok()?;
            serde_json::Number::from_f64(number).map(Json::Number)
        }
        (_, Value::Number(text)) => text.parse::<u64>().ok().map(Json::from),
        _ => None,
    }
}

/// Returns the first part of each path, once.
fn heads(paths: &[&'static str]) -> Vec<&'static str> {
    let mut heads: Vec<&'static str> = Vec::new();
    for path in paths {
        let head = path.split('.').next().unwrap_or(path);
        if !heads.contains(&head) {
            heads.push(head);
        }
    }
    heads
}

fn listed(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
