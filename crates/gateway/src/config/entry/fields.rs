//! Typed reading of one table's members; what does not fit becomes a mistake at its place.
//!
//! A getter returns nothing both for what is not there and for what is wrong; whether something was
//! wrong is in [`Told`].

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use gantry_model::secret::hide_arguments;
use gantry_model::spec::{period, size};

use super::told::{Told, shown};
use super::{Fill, OF_CLIENTS, Owner, nearest};
use crate::config::document::{Member, Node, Syntax, Table, Value};
use crate::config::expand::{Missing, expand};
use crate::config::mistake::Kind;

/// The members of one table of an entry.
pub(in crate::config) struct Fields<'t, 'd> {
    pub(in crate::config) told: &'t mut Told<'d>,
    table: &'t Table,
    prefix: String,
    pub(in crate::config) fill: Fill<'t>,
}

impl<'t, 'd> Fields<'t, 'd> {
    pub(in crate::config) fn new(
        told: &'t mut Told<'d>,
        table: &'t Table,
        prefix: &str,
        fill: Fill<'t>,
    ) -> Self {
        Self {
            told,
            table,
            prefix: prefix.to_owned(),
            fill,
        }
    }

    /// Judges the names of the members: unknown ones are mistakes in our own file.
    pub(in crate::config) fn known(&mut self, known: &[&'static str]) {
        let client = self.told.owner == Owner::Client;
        for Member { key, key_span, .. } in &self.table.members {
            // What an import keeps for the way back.
            let kept = self.prefix.is_empty() && (key.starts_with("x-") || key.starts_with("x_"));
            if known.contains(&key.as_str()) || kept {
                continue;
            }
            let field = self.field(key);
            let near = nearest(key, known);
            // Inside our own tables a client has nothing of its own.
            if client && self.prefix.is_empty() {
                if OF_CLIENTS.contains(&key.as_str()) {
                    continue;
                }
                let meant =
                    near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                let field = field.escape_debug();
                let what = format!("`{field}` is not known and has no effect{meant}");
                self.told.warn(key_span, &what);
                continue;
            }
            let mistake = self
                .told
                .mistake(key_span, Kind::UnknownKey)
                .say(format!("`{}` is not known", field.escape_debug()))
                .label("not known here");
            self.told.push(match near {
                Some(near) => mistake.help(format!("did you mean `{near}`?")),
                None => mistake.help(format!("known are {}", listed(known))),
            });
        }
    }

    fn field(&self, key: &str) -> String {
        match self.prefix.as_str() {
            "" => key.to_owned(),
            prefix => format!("{prefix}.{key}"),
        }
    }

    pub(in crate::config) fn has(&self, key: &str) -> bool {
        self.table.get(key).is_some()
    }

    pub(in crate::config) fn node(&self, key: &str) -> Option<&'t Node> {
        self.table.get(key).map(|member| &member.node)
    }

    /// Returns the members of a table below.
    pub(in crate::config) fn below(
        &mut self,
        key: &str,
        known: &[&'static str],
    ) -> Option<Fields<'_, 'd>> {
        let (node, field) = (self.node(key)?, self.field(key));
        let Some(table) = node.as_table() else {
            let help = format!("known keys are {}", listed(known));
            self.told.wrong(node, &field, "a table", &help);
            return None;
        };
        let mut fields = Fields::new(self.told, table, &field, self.fill);
        fields.known(known);
        Some(fields)
    }

    pub(in crate::config) fn flag(&mut self, key: &str) -> Option<bool> {
        let node = self.node(key)?;
        if let Value::Bool(flag) = node.value {
            return Some(flag);
        }
        let field = self.field(key);
        let help = "write it without quotes";
        self.told.wrong(node, &field, "`true` or `false`", help);
        None
    }

    /// Returns a text without looking for variables.
    pub(in crate::config) fn plain(&mut self, key: &str) -> Option<String> {
        let node = self.node(key)?;
        if let Some(text) = node.as_text() {
            return Some(text.to_owned());
        }
        let field = self.field(key);
        self.told
            .wrong(node, &field, "a text", "put it into double quotes");
        None
    }

    /// Returns a text with its variables filled.
    pub(in crate::config) fn text(&mut self, key: &str) -> Option<String> {
        let (node, field) = (self.node(key)?, self.field(key));
        self.filled(node, &field)
    }

    fn filled(&mut self, node: &Node, field: &str) -> Option<String> {
        let Some(text) = node.as_text() else {
            self.told
                .wrong(node, field, "a text", "put it into double quotes");
            return None;
        };
        let Fill::From(values) = self.fill else {
            return Some(text.to_owned());
        };
        let private = field.starts_with("env.") || field.starts_with("headers.");
        let (key, field) = (field, shown(field));
        match expand(text, values) {
            Ok(filled) => {
                if filled.text != text {
                    self.told.written.insert(key.to_owned(), text.to_owned());
                }
                self.told.variables.extend(filled.variables);
                self.told.inputs.extend(filled.inputs);
                for odd in &filled.odd {
                    let odd = if private { "${…}" } else { odd };
                    let odd = odd.escape_debug();
                    let what = format!("`{odd}` in {field} is no variable and stays as it is");
                    self.told.warn(&node.span, &what);
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
                        format!("{field} needs the input `{id}`, and nobody was there to ask"),
                        "start `gantry up` on a terminal, or use a variable such as `${NAME}`"
                            .to_owned(),
                    ),
                };
                let mistake = self.told.mistake(&node.span, Kind::Variable);
                self.told
                    .push(mistake.say(said).label("used here").help(help));
                None
            }
        }
    }

    /// Returns a list of texts with their variables filled; an empty one if there is none.
    pub(in crate::config) fn texts(&mut self, key: &str) -> Option<Vec<String>> {
        let Some(node) = self.node(key) else {
            return Some(Vec::new());
        };
        let list = self.list(node, key)?;
        let field = self.field(key);
        let texts: Vec<Option<String>> = list
            .iter()
            .enumerate()
            .map(|(index, node)| self.filled(node, &format!("{field}[{index}]")))
            .collect();
        texts.into_iter().collect()
    }

    /// Returns a list of texts as they are.
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
                    self.told.wrong(node, &field, "a text", help);
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
        self.told.wrong(node, &field, "a list of texts", &help);
        None
    }

    /// Returns how a key with a value is written in this file.
    fn assigned(&self, key: &str, value: &str) -> String {
        match Syntax::of(&self.told.document.path) {
            Syntax::Toml => format!("{key} = {value}"),
            Syntax::Json => format!("\"{key}\": {value}"),
        }
    }

    /// Returns named texts with their variables filled.
    pub(in crate::config) fn pairs(&mut self, key: &str) -> Option<BTreeMap<String, String>> {
        let Some(node) = self.node(key) else {
            return Some(BTreeMap::new());
        };
        let field = self.field(key);
        let Some(table) = node.as_table() else {
            let help = format!("write `{}`", self.assigned(key, "{…}"));
            self.told.wrong(node, &field, "a table of texts", &help);
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

    /// Returns one of a few values.
    pub(in crate::config) fn choice<T: Copy>(
        &mut self,
        key: &str,
        choices: &[(&'static str, T)],
    ) -> Option<T> {
        let node = self.node(key)?;
        let names: Vec<&'static str> = choices.iter().map(|(name, _)| *name).collect();
        let written = node.as_text();
        if let Some(found) = choices.iter().find(|(name, _)| Some(*name) == written) {
            return Some(found.1);
        }
        self.no_choice(key, node, &names);
        None
    }

    /// Returns what `type` or `transport` says.
    pub(in crate::config) fn kind(&mut self, types: &[&'static str]) -> Option<&'static str> {
        for key in ["type", "transport"] {
            let Some(node) = self.node(key) else { continue };
            let written = node.as_text();
            match types.iter().find(|name| Some(**name) == written) {
                Some(name) => return Some(name),
                None => self.no_choice(key, node, types),
            }
        }
        None
    }

    fn no_choice(&mut self, key: &str, node: &Node, names: &[&'static str]) {
        let field = self.field(key);
        let near = node.as_text().and_then(|text| nearest(text, names));
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("write one of {}", listed(names)),
        };
        let mistake = self.told.mistake(&node.span, Kind::Value);
        self.told.push(
            mistake
                .say(format!(
                    "{} must be one of {}",
                    shown(&field),
                    listed(names)
                ))
                .label("not one of them")
                .help(help),
        );
    }

    /// Returns a whole number within its range.
    pub(in crate::config) fn whole(
        &mut self,
        key: &str,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        let node = self.node(key)?;
        let number = match &node.value {
            Value::Number(text) => text.parse().ok().filter(|number| range.contains(number)),
            Value::Null | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Table(_) => {
                None
            }
        };
        if number.is_none() {
            let allowed = format!("{} to {}", grouped(*range.start()), grouped(*range.end()));
            self.out_of_range(node, key, "a whole number", &allowed);
        }
        number
    }

    /// Returns a real number; the model checks its range.
    pub(in crate::config) fn real(&mut self, key: &str, allowed: &str) -> Option<f64> {
        let node = self.node(key)?;
        let number = match &node.value {
            Value::Number(text) => text.parse::<f64>().ok().filter(|number| number.is_finite()),
            Value::Null | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Table(_) => {
                None
            }
        };
        let number = number.filter(|number| *number > 0.0);
        if number.is_none() {
            self.out_of_range(node, key, "a number", allowed);
        }
        number
    }

    /// Returns a number of bytes: `512M`, or a plain number.
    pub(in crate::config) fn bytes(&mut self, key: &str, allowed: &str) -> Option<u64> {
        let node = self.node(key)?;
        let bytes = match &node.value {
            Value::Number(text) | Value::Text(text) => size::parse(text),
            Value::Null | Value::Bool(_) | Value::List(_) | Value::Table(_) => None,
        };
        let bytes = bytes.filter(|bytes| (4 << 20..=1 << 46).contains(bytes));
        if bytes.is_none() {
            self.out_of_range(node, key, "a size such as `512M`", allowed);
        }
        bytes
    }

    fn out_of_range(&mut self, node: &Node, key: &str, wanted: &str, allowed: &str) {
        let field = self.field(key);
        let mistake = self.told.mistake(&node.span, Kind::Value);
        self.told.push(
            mistake
                .say(format!("{} must be {wanted}, {allowed}", shown(&field)))
                .label("out of range, or no such value")
                .help(format!("allowed is {allowed}")),
        );
    }

    /// Returns a time; clients write milliseconds, a text carries its unit.
    pub(in crate::config) fn period(&mut self, key: &str) -> Option<Duration> {
        let node = self.node(key)?;
        let period = read_period(node);
        if period.is_none() {
            self.no_period(node, key);
        }
        period
    }

    /// Returns a list of times.
    pub(in crate::config) fn periods(&mut self, key: &str) -> Option<Vec<Duration>> {
        let node = self.node(key)?;
        let periods: Option<Vec<Duration>> = node.as_list()?.iter().map(read_period).collect();
        if periods.is_none() {
            self.no_period(node, key);
        }
        periods
    }

    fn no_period(&mut self, node: &Node, key: &str) {
        let field = self.field(key);
        let mistake = self.told.mistake(&node.span, Kind::Value);
        self.told.push(
            mistake
                .say(format!("{} must be a time", shown(&field)))
                .label("no time")
                .help("write milliseconds, or a text such as `500ms`, `30s` or `2m`"),
        );
    }
}

fn read_period(node: &Node) -> Option<Duration> {
    match &node.value {
        Value::Number(text) => text.parse().ok().map(Duration::from_millis),
        Value::Text(text) => period::parse(text),
        Value::Null | Value::Bool(_) | Value::List(_) | Value::Table(_) => None,
    }
}

fn listed(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// Writes a number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
