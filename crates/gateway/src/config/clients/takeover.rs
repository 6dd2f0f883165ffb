//! Merges a client's servers into `gantry.toml`, keeping its comments and order, and exports them
//! in any client's format.
//!
//! Members that only the client knows go into `[servers.NAME.x-CLIENT]`, which only the export
//! reads. Entry point: [`Takeover::parse`].

use std::path::{Path, PathBuf};

use gantry_model::id::ServerName;
use serde_json::{Map, Value};
use toml_edit::{DocumentMut, Item, Table, TableLike};

use super::dialect::{MEMBERS, Normal};
use super::toml::{fill, read, to_json, to_toml};
use super::{Client, ClientError};

/// The kept member with the client's own name of a server, if it is invalid here.
const NAME: &str = "#name";

/// What to do with a differing server of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Differing {
    /// Keep it.
    Keep,
    /// Replace it by the client's.
    Replace,
}

/// The result for one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// It is new.
    Added,
    /// It replaced another of its name.
    Replaced,
    /// It existed already; members of this client were added.
    Noted,
    /// It was there already.
    Same,
    /// Another of its name exists, and was kept.
    Kept,
}

impl Done {
    /// Returns its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Replaced => "replaced",
            Self::Noted => "completed",
            Self::Same => "unchanged",
            Self::Kept => "kept",
        }
    }
}

/// A `gantry.toml` that servers are merged into.
#[derive(Debug)]
pub struct Takeover {
    path: PathBuf,
    document: DocumentMut,
}

impl Takeover {
    /// Reads the file's text; an empty one is a new file.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ClientError> {
        let document = text.parse::<DocumentMut>().map_err(|error| {
            let byte = error.span().map_or(0, |span| span.start);
            let detail = error
                .message()
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned();
            ClientError::at(path, text, byte, detail)
        })?;
        Ok(Self {
            path: path.to_owned(),
            document,
        })
    }

    /// Returns the text as it is now.
    pub fn text(&self) -> String {
        self.document.to_string()
    }

    /// Returns the names of all servers.
    pub fn names(&self) -> Vec<String> {
        let servers = self.document.get("servers").and_then(Item::as_table_like);
        let servers = servers.into_iter().flat_map(|servers| servers.iter());
        servers.map(|(name, _)| name.to_owned()).collect()
    }

    /// Merges one server, named `original` by its client.
    pub fn take(
        &mut self,
        client: &Client,
        name: &ServerName,
        original: &str,
        normal: &Normal,
        differing: Differing,
    ) -> Result<Done, ClientError> {
        let mut kept = normal.kept.clone();
        if original != name.as_str() {
            kept.insert(NAME.to_owned(), Value::from(original));
        }
        let wrong = ClientError::Kind {
            path: self.path.clone(),
            found: "a file whose `servers` are not tables",
        };
        let servers = self.document.entry("servers").or_insert_with(|| {
            let mut servers = Table::new();
            servers.set_implicit(true);
            Item::Table(servers)
        });
        let Some(servers) = servers.as_table_mut() else {
            return Err(wrong);
        };
        let Some(known) = servers.get_mut(name.as_str()) else {
            let mut table = Table::new();
            write(&mut table, &normal.members);
            note(&mut table, client, &kept);
            servers.insert(name.as_str(), Item::Table(table));
            return Ok(Done::Added);
        };
        let Some(known) = known.as_table_mut() else {
            return Err(wrong);
        };
        let same_members = members(known) == normal.members;
        let known_kept = known.get(&client.table()).and_then(Item::as_table_like);
        let known_kept = known_kept.map(read);
        Ok(match (same_members, known_kept, differing) {
            (true, Some(known_kept), _) if known_kept == kept => Done::Same,
            (true, None, _) if kept.is_empty() => Done::Same,
            (true, None, _) | (true, Some(_), Differing::Replace) => {
                note(known, client, &kept);
                Done::Noted
            }
            (false, _, Differing::Replace) => {
                write(known, &normal.members);
                note(known, client, &kept);
                Done::Replaced
            }
            (_, _, Differing::Keep) => Done::Kept,
        })
    }

    /// Keeps the `inputs` of a client's file, each id once.
    pub fn take_inputs(&mut self, client: &Client, inputs: &[Value]) {
        let table = self.document.entry(&client.table()).or_insert_with(|| {
            let mut table = Table::new();
            table.set_implicit(false);
            Item::Table(table)
        });
        let Some(table) = table.as_table_like_mut() else {
            return;
        };
        let known = table.get("inputs").and_then(to_json);
        let mut all = known
            .and_then(|known| known.as_array().cloned())
            .unwrap_or_default();
        let count = all.len();
        for input in inputs {
            if !all.iter().any(|known| known.get("id") == input.get("id")) {
                all.push(input.clone());
            }
        }
        if all.len() > count
            && let Some(value) = to_toml(&Value::Array(all))
        {
            table.insert("inputs", Item::Value(value));
        }
    }

    /// Returns all servers in this client's format, and its `inputs`.
    pub fn back(&self, client: &Client) -> Map<String, Value> {
        let servers = self.document.get("servers").and_then(Item::as_table_like);
        let servers = servers.into_iter().flat_map(|servers| servers.iter());
        let mut entries = Map::new();
        for (name, item) in servers {
            let Some(table) = item.as_table_like() else {
                continue;
            };
            let kept = table.get(&client.table()).and_then(Item::as_table_like);
            let mut normal = Normal {
                members: members(table),
                kept: kept.map(read).unwrap_or_default(),
            };
            let original = normal.kept.shift_remove(NAME);
            let original = original.as_ref().and_then(Value::as_str).unwrap_or(name);
            let entry = client.dialect.restore(&normal);
            entries.insert(original.to_owned(), Value::Object(entry));
        }
        let mut file = Map::new();
        let inputs = self.document.get(&client.table());
        let inputs = inputs.and_then(|table| to_json(table.get("inputs")?));
        if let Some(inputs) = inputs {
            file.insert("inputs".to_owned(), inputs);
        }
        file.insert(client.root.to_owned(), Value::Object(entries));
        file
    }
}

/// Returns the common members of a server.
fn members(table: &dyn TableLike) -> Map<String, Value> {
    let members = MEMBERS.iter();
    members
        .filter_map(|member| Some(((*member).to_owned(), to_json(table.get(member)?)?)))
        .collect()
}

/// The members of an image, which no client has: written if an entry became one.
const OF_IMAGES: [&str; 8] = [
    "image",
    "entrypoint",
    "user",
    "volumes",
    "network",
    "pull",
    "limits",
    "port",
];

/// Writes the common members; Gantry's own are kept, but for those of an image that are given.
fn write(table: &mut Table, members: &Map<String, Value>) {
    for member in MEMBERS.into_iter().chain(OF_IMAGES) {
        let Some(value) = members.get(member) else {
            if MEMBERS.contains(&member) {
                table.remove(member);
            }
            continue;
        };
        if table.get(member).and_then(to_json).as_ref() == Some(value) {
            continue;
        }
        // Variables get one line each.
        let item = match value.as_object().filter(|inner| !inner.is_empty()) {
            Some(inner) => {
                let mut inner_table = Table::new();
                fill(&mut inner_table, inner);
                Some(Item::Table(inner_table))
            }
            None => to_toml(value).map(Item::Value),
        };
        if let Some(item) = item {
            table.insert(member, item);
        }
    }
}

/// Writes the members of one client.
fn note(table: &mut Table, client: &Client, kept: &Map<String, Value>) {
    if kept.is_empty() {
        table.remove(&client.table());
        return;
    }
    let mut notes = Table::new();
    fill(&mut notes, kept);
    table.insert(&client.table(), Item::Table(notes));
}

/// Returns a valid name for a client's server: its own, or with invalid characters replaced; `None`
/// if no characters are left.
pub fn name(original: &str) -> Option<ServerName> {
    if let Ok(name) = original.parse() {
        return Some(name);
    }
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let replaced = original
        .chars()
        .map(|letter| if allowed(letter) { letter } else { '-' });
    let replaced: String = replaced.take(64).collect();
    let trimmed = replaced.trim_matches(['-', '.', '_']);
    trimmed.parse().ok()
}

#[cfg(test)]
mod tests;
