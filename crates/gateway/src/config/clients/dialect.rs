//! Converts a client's server entry to the common form, the members of a `[servers.NAME]` table of
//! `gantry.toml`, and back.
//!
//! Whatever that form cannot express is kept next to it, so that `restore(normalise(entry))` equals
//! `entry`. Entry points: [`Dialect::normalise`] and [`Dialect::restore`].

mod variables;

use std::time::Duration;

use gantry_model::spec::period;
use serde_json::{Map, Value, json};

use variables::{braced, dollared};

/// The members of the common form, in the order in which they are written.
pub const MEMBERS: [&str; 10] = [
    "type", "command", "args", "env", "cwd", "url", "headers", "timeout", "disabled", "tools",
];

/// The kept member that lists what the export must leave out.
const ABSENT: &str = "#absent";

/// The transport names of the common form.
const STREAMABLE: &str = "streamable-http";
const SSE: &str = "sse";

/// The format of one client's entries.
#[derive(Debug, Clone, Copy)]
pub struct Dialect {
    /// The unit of `timeout`.
    pub timeout: Unit,
    /// The `type` of a command, if required.
    pub stdio_type: Option<&'static str>,
    /// The `type` of streamable HTTP.
    pub streamable: &'static str,
    /// The meaning of a URL without a `type`.
    pub untyped: Untyped,
    /// The member that implies streamable HTTP.
    pub http_member: Option<&'static str>,
    /// How tools are left out.
    pub tools: Tools,
    /// Whether variables may be written `$NAME`.
    pub dollar: bool,
}

/// The unit of `timeout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// There is no such member.
    Unknown,
    /// Milliseconds.
    Milliseconds,
    /// Milliseconds; values below a second are ignored.
    LongMilliseconds,
    /// Seconds.
    Seconds,
}

/// The meaning of a URL without a `type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Untyped {
    /// Streamable HTTP is tried, then SSE.
    Either,
    /// SSE.
    Sse,
}

/// How tools are disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tools {
    /// Not in its file.
    Unknown,
    /// By lists of names.
    Lists {
        /// The member with enabled tools.
        include: Option<&'static str>,
        /// The member with disabled tools.
        exclude: &'static str,
    },
    /// `tools` lists the enabled tools, `*` for all.
    Allowed,
    /// `tools` lists names with a policy; `always_deny` disables.
    Policies,
}

/// An entry in the common form.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Normal {
    /// The members of its `[servers.NAME]` table.
    pub members: Map<String, Value>,
    /// Members that only its client knows, and what the export needs.
    pub kept: Map<String, Value>,
}

impl Normal {
    /// Returns the members that have no effect here.
    pub fn without_effect(&self) -> Vec<&str> {
        let effective = [
            "envFile",
            "headersHelper",
            "sandboxEnabled",
            "sandbox",
            "oauth",
            "auth",
        ];
        let kept = self.kept.keys().map(String::as_str);
        kept.filter(|key| effective.contains(key)).collect()
    }
}

/// Why an entry cannot be imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` must be {wanted}")]
pub struct EntryFault {
    /// The member.
    pub field: String,
    /// What it must be.
    pub wanted: &'static str,
}

impl Dialect {
    /// Converts an entry to the common form.
    pub fn normalise(&self, entry: &Value) -> Result<Normal, EntryFault> {
        let entry = entry
            .as_object()
            .ok_or_else(|| wrong("the entry", "an object"))?;
        let reader = Reader {
            dialect: self,
            entry,
        };
        let mut members = Map::new();
        match reader.address()? {
            Some((kind, url)) => {
                if let Some(kind) = kind {
                    members.insert("type".to_owned(), Value::from(kind));
                }
                members.insert("url".to_owned(), Value::from(url));
                reader.texts_by_name("headers", &mut members)?;
            }
            None => {
                let command = reader.text("command")?;
                let command = command.ok_or_else(|| wrong("command", "the program to run"))?;
                members.insert("command".to_owned(), Value::from(command));
                reader.list("args", &mut members)?;
                reader.texts_by_name("env", &mut members)?;
                if let Some(cwd) = reader.text("cwd")? {
                    members.insert("cwd".to_owned(), Value::from(cwd));
                }
            }
        }
        if let Some(timeout) = reader.timeout() {
            members.insert("timeout".to_owned(), Value::from(period::show(timeout)));
        }
        if reader.is_off() {
            members.insert("disabled".to_owned(), Value::Bool(true));
        }
        if let Some(tools) = reader.tools() {
            members.insert("tools".to_owned(), tools);
        }
        let kept = self.difference(entry, &members);
        Ok(Normal { members, kept })
    }

    /// Returns what [`Self::restore`] needs in addition to the common form.
    fn difference(
        &self,
        entry: &Map<String, Value>,
        members: &Map<String, Value>,
    ) -> Map<String, Value> {
        let plain = self.written(members);
        let mut kept: Map<String, Value> = entry
            .iter()
            .filter(|(key, value)| plain.get(*key) != Some(value))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let absent: Vec<&String> = plain
            .keys()
            .filter(|key| !entry.contains_key(*key))
            .collect();
        if !absent.is_empty() {
            kept.insert(ABSENT.to_owned(), json!(absent));
        }
        kept
    }

    /// Writes an entry in the client's format; kept members take precedence.
    pub fn restore(&self, normal: &Normal) -> Map<String, Value> {
        let mut entry = self.written(&normal.members);
        for (key, value) in &normal.kept {
            if key == ABSENT
                && let Some(absent) = value.as_array()
            {
                for name in absent.iter().filter_map(Value::as_str) {
                    entry.shift_remove(name);
                }
            } else {
                entry.insert(key.clone(), value.clone());
            }
        }
        entry
    }

    /// Writes the common form in this dialect.
    fn written(&self, members: &Map<String, Value>) -> Map<String, Value> {
        let mut entry = Map::new();
        let mut put = |key: &str, value: Value| {
            entry.insert(key.to_owned(), value);
        };
        for (key, value) in members {
            match (key.as_str(), value) {
                ("type", Value::String(kind))
                    if kind == STREAMABLE && self.http_member.is_none() =>
                {
                    put("type", Value::from(self.streamable));
                }
                ("type", Value::String(kind)) if kind == SSE && self.untyped == Untyped::Either => {
                    put("type", Value::from(SSE));
                }
                ("type", _) => {}
                ("command", _) => {
                    if let Some(kind) = self.stdio_type {
                        put("type", Value::from(kind));
                    }
                    put("command", self.spelled(value));
                }
                ("url", _) => {
                    let streamable =
                        members.get("type").and_then(Value::as_str) == Some(STREAMABLE);
                    let member = self.http_member.filter(|_| streamable);
                    put(member.unwrap_or("url"), self.spelled(value));
                }
                ("timeout", Value::String(text)) => {
                    let number = period::parse(text).and_then(|time| self.timeout.number(time));
                    if let Some(number) = number {
                        put("timeout", number);
                    }
                }
                ("tools", Value::Object(tools)) => self.put_tools(tools, &mut put),
                _ => put(key, self.spelled(value)),
            }
        }
        if self.tools == Tools::Allowed && !entry.contains_key("tools") {
            entry.insert("tools".to_owned(), json!(["*"]));
        }
        entry
    }

    fn put_tools(&self, tools: &Map<String, Value>, put: &mut impl FnMut(&str, Value)) {
        let (included, excluded) = (tools.get("include"), tools.get("exclude"));
        match self.tools {
            Tools::Unknown => {}
            Tools::Lists { include, exclude } => {
                if let (Some(member), Some(names)) = (include, included) {
                    put(member, names.clone());
                }
                if let Some(names) = excluded {
                    put(exclude, names.clone());
                }
            }
            Tools::Allowed => {
                if let Some(names) = included {
                    put("tools", names.clone());
                }
            }
            Tools::Policies => {
                let names = excluded.and_then(Value::as_array).into_iter().flatten();
                let denied = names.map(|name| json!({"name": name, "policy": "always_deny"}));
                put("tools", denied.collect());
            }
        }
    }

    /// Writes variables in the client's syntax, recursively.
    fn spelled(&self, value: &Value) -> Value {
        match value {
            Value::String(text) if self.dollar => Value::from(dollared(text)),
            Value::Array(values) => values.iter().map(|value| self.spelled(value)).collect(),
            Value::Object(members) => {
                let members = members.iter();
                members
                    .map(|(key, value)| (key.clone(), self.spelled(value)))
                    .collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        }
    }
}

impl Unit {
    fn time(self, number: u64) -> Option<Duration> {
        match self {
            Self::Unknown => None,
            Self::Milliseconds => Some(Duration::from_millis(number)),
            Self::LongMilliseconds => (number >= 1000).then(|| Duration::from_millis(number)),
            Self::Seconds => Some(Duration::from_secs(number)),
        }
    }

    fn number(self, time: Duration) -> Option<Value> {
        match self {
            Self::Unknown => None,
            Self::Milliseconds | Self::LongMilliseconds => {
                u64::try_from(time.as_millis()).ok().map(Value::from)
            }
            Self::Seconds => Some(match time.subsec_millis() {
                0 => Value::from(time.as_secs()),
                _ => Value::from(time.as_secs_f64()),
            }),
        }
    }
}

struct Reader<'a> {
    dialect: &'a Dialect,
    entry: &'a Map<String, Value>,
}

impl Reader<'_> {
    /// Returns a member, unless it is `null`.
    fn get(&self, field: &str) -> Option<&Value> {
        self.entry.get(field).filter(|value| !value.is_null())
    }

    fn text(&self, field: &str) -> Result<Option<String>, EntryFault> {
        match self.get(field) {
            None => Ok(None),
            Some(value) => {
                let text = value.as_str().ok_or_else(|| wrong(field, "a text"))?;
                Ok(Some(self.plain(text)))
            }
        }
    }

    fn plain(&self, text: &str) -> String {
        if self.dialect.dollar {
            braced(text)
        } else {
            text.to_owned()
        }
    }

    /// Returns the transport and the URL; nothing for a command.
    fn address(&self) -> Result<Option<(Option<&'static str>, String)>, EntryFault> {
        let kind = match self.text("type")? {
            Some(kind) => Some(kind),
            None => self.text("transportType")?,
        };
        let known = match kind.as_deref() {
            None => None,
            Some("stdio" | "local") => return Ok(None),
            Some("sse") => Some(SSE),
            Some("http" | "streamableHttp" | STREAMABLE | "streamable_http") => Some(STREAMABLE),
            Some(_) => return Err(wrong("type", "`stdio`, `http` or `sse`")),
        };
        let direct = match self.dialect.http_member {
            Some(member) => self.text(member)?,
            None => None,
        };
        match (direct, self.text("url")?) {
            (Some(url), _) => Ok(Some((Some(STREAMABLE), url))),
            (None, Some(url)) => {
                let untyped = match self.dialect.untyped {
                    Untyped::Either => None,
                    Untyped::Sse => Some(SSE),
                };
                Ok(Some((known.or(untyped), url)))
            }
            (None, None) if known.is_some() => Err(wrong("url", "the server's address")),
            (None, None) => Ok(None),
        }
    }

    fn list(&self, field: &str, members: &mut Map<String, Value>) -> Result<(), EntryFault> {
        let Some(value) = self.get(field) else {
            return Ok(());
        };
        let wanted = || wrong(field, "a list of texts");
        let values = value.as_array().ok_or_else(wanted)?;
        let texts = values
            .iter()
            .map(|value| value.as_str().map(|text| self.plain(text)));
        let texts: Option<Vec<String>> = texts.collect();
        members.insert(field.to_owned(), json!(texts.ok_or_else(wanted)?));
        Ok(())
    }

    /// Numbers and booleans become text, as in an environment.
    fn texts_by_name(
        &self,
        field: &str,
        members: &mut Map<String, Value>,
    ) -> Result<(), EntryFault> {
        let Some(value) = self.get(field) else {
            return Ok(());
        };
        let pairs = value
            .as_object()
            .ok_or_else(|| wrong(field, "an object of texts"))?;
        let mut texts = Map::new();
        for (name, value) in pairs {
            let text = match value {
                Value::String(text) => self.plain(text),
                Value::Number(_) | Value::Bool(_) => value.to_string(),
                Value::Null | Value::Array(_) | Value::Object(_) => {
                    return Err(wrong(&format!("{field}.{name}"), "a text"));
                }
            };
            texts.insert(name.clone(), Value::from(text));
        }
        members.insert(field.to_owned(), Value::Object(texts));
        Ok(())
    }

    fn timeout(&self) -> Option<Duration> {
        let number = self.get("timeout")?.as_u64().filter(|number| *number > 0)?;
        self.dialect.timeout.time(number)
    }

    fn is_off(&self) -> bool {
        self.get("disabled") == Some(&Value::Bool(true))
            || self.get("enabled") == Some(&Value::Bool(false))
    }

    fn tools(&self) -> Option<Value> {
        let names = |member: &str| {
            let values = self.get(member)?.as_array()?;
            let names: Option<Vec<&str>> = values.iter().map(Value::as_str).collect();
            names.filter(|names| !names.is_empty())
        };
        let mut tools = Map::new();
        let mut put = |key: &str, names: Option<Vec<&str>>| {
            if let Some(names) = names {
                tools.insert(key.to_owned(), json!(names));
            }
        };
        match self.dialect.tools {
            Tools::Unknown => {}
            Tools::Lists { include, exclude } => {
                put("include", include.and_then(names));
                put("exclude", names(exclude));
            }
            Tools::Allowed => put(
                "include",
                names("tools").filter(|names| !names.contains(&"*")),
            ),
            Tools::Policies => {
                let policies = self.get("tools").and_then(Value::as_array);
                let denied = policies.into_iter().flatten();
                let denied = denied.filter(|tool| tool["policy"] == "always_deny");
                let names: Vec<&str> = denied.filter_map(|tool| tool["name"].as_str()).collect();
                put("exclude", Some(names).filter(|names| !names.is_empty()));
            }
        }
        (!tools.is_empty()).then_some(Value::Object(tools))
    }
}

fn wrong(field: &str, wanted: &'static str) -> EntryFault {
    EntryFault {
        field: field.escape_debug().to_string(),
        wanted,
    }
}

#[cfg(test)]
mod tests;
