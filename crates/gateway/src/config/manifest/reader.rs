//! Reads the members of a JSON object, and records all errors with their position. Texts with
//! control characters are errors everywhere. Entry point: [`Reader`].

use std::collections::BTreeSet;
use std::fmt;

use gantry_model::naming::is_unprintable;
use serde_json::{Map, Value};

/// The longest text, in bytes.
const LONGEST: usize = 4096;
/// The maximum number of items of a list or table.
const MOST: usize = 200;

/// An error in a manifest, and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The member, such as `packages[0].identifier`.
    pub at: String,
    /// The error.
    pub why: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at.as_str() {
            "" => f.write_str(&self.why),
            at => write!(f, "`{at}` {}", self.why),
        }
    }
}

impl Wrong {
    pub(super) fn new(at: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            at: at.into(),
            why: why.into(),
        }
    }
}

/// The results of reading.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) wrong: Vec<Wrong>,
    /// Members that were not read.
    pub(super) unknown: Vec<String>,
}

/// The members of one object.
pub(super) struct Reader<'v, 'f> {
    members: &'v Map<String, Value>,
    pub(super) at: String,
    pub(super) findings: &'f mut Findings,
    known: BTreeSet<&'static str>,
}

impl<'v, 'f> Reader<'v, 'f> {
    /// Starts reading an object; `None` if the value is not an object.
    pub(super) fn new(value: &'v Value, at: &str, findings: &'f mut Findings) -> Option<Self> {
        let Some(members) = value.as_object() else {
            findings.wrong.push(Wrong::new(at, "must be an object"));
            return None;
        };
        Some(Self {
            members,
            at: at.to_owned(),
            findings,
            known: BTreeSet::new(),
        })
    }

    fn place(&self, name: &str) -> String {
        match self.at.as_str() {
            "" => name.to_owned(),
            at => format!("{at}.{name}"),
        }
    }

    /// Records an error in a member.
    pub(super) fn wrong(&mut self, name: &str, why: impl Into<String>) {
        let at = self.place(name);
        self.findings.wrong.push(Wrong::new(at, why));
    }

    /// Returns a member unchanged; `null` counts as absent.
    pub(super) fn member(&mut self, name: &'static str) -> Option<&'v Value> {
        self.known.insert(name);
        self.members.get(name).filter(|value| !value.is_null())
    }

    /// Returns a single-line text.
    pub(super) fn text(&mut self, name: &'static str) -> Option<String> {
        let text = self.any_text(name)?;
        if text.chars().any(is_unprintable) {
            self.wrong(name, "has control or invisible characters");
            return None;
        }
        Some(text)
    }

    /// Returns a text for display, without characters that are unsafe on a terminal.
    pub(super) fn prose(&mut self, name: &'static str) -> Option<String> {
        let text = self.any_text(name)?;
        let plain: String = text
            .chars()
            .map(|c| if c.is_whitespace() { ' ' } else { c })
            .filter(|c| !is_unprintable(*c))
            .collect();
        Some(plain.trim().to_owned())
    }

    fn any_text(&mut self, name: &'static str) -> Option<String> {
        match self.member(name)?.as_str() {
            Some(text) if text.len() <= LONGEST => Some(text.to_owned()),
            Some(_) => {
                self.wrong(name, format!("is over {LONGEST} bytes long"));
                None
            }
            None => {
                self.wrong(name, "must be a text");
                None
            }
        }
    }

    /// Returns a required text.
    pub(super) fn required(&mut self, name: &'static str) -> Option<String> {
        if self.member(name).is_none() {
            self.wrong(name, "is missing");
            return None;
        }
        self.text(name)
    }

    /// Returns a flag; false if absent.
    pub(super) fn flag(&mut self, name: &'static str) -> bool {
        match self.member(name) {
            None => false,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                self.wrong(name, "must be `true` or `false`");
                false
            }
        }
    }

    /// Returns the items of a list, each with its path.
    pub(super) fn list(&mut self, name: &'static str) -> Vec<(String, &'v Value)> {
        let at = self.place(name);
        match self.member(name) {
            None => Vec::new(),
            Some(Value::Array(items)) if items.len() <= MOST => {
                let items = items.iter().enumerate();
                items
                    .map(|(index, item)| (format!("{at}[{index}]"), item))
                    .collect()
            }
            Some(Value::Array(_)) => {
                self.wrong(name, format!("has more than {MOST} items"));
                Vec::new()
            }
            Some(_) => {
                self.wrong(name, "must be a list");
                Vec::new()
            }
        }
    }

    /// Returns the members of a table, each with its name and path.
    pub(super) fn table(&mut self, name: &'static str) -> Vec<(String, String, &'v Value)> {
        let at = self.place(name);
        match self.member(name) {
            None => Vec::new(),
            Some(Value::Object(members)) if members.len() <= MOST => members
                .iter()
                .map(|(key, value)| (key.clone(), format!("{at}.{key}"), value))
                .collect(),
            Some(Value::Object(_)) => {
                self.wrong(name, format!("has more than {MOST} members"));
                Vec::new()
            }
            Some(_) => {
                self.wrong(name, "must be an object");
                Vec::new()
            }
        }
    }

    /// Ends the object: unread members are recorded.
    pub(super) fn end(self) {
        let unknown = self.members.keys();
        let unknown = unknown.filter(|name| !self.known.contains(name.as_str()));
        let unknown: Vec<String> = unknown.map(|name| self.place(name)).collect();
        self.findings.unknown.extend(unknown);
    }
}
