//! Reads `mcpServers` files, the form that MCP clients share.
//!
//! A file that is no JSON is refused as a whole. A mistake in one server's entry leaves out that
//! server and is returned beside the others, so that one bad entry never hurts its neighbours.
//! Entry point: [`read`].

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use gantry_model::diagnose::{Diagnose, Fault};
use gantry_model::spec::ServerSpec;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::entry::{self, EntryError};
use super::env::Environment;

/// The longest file that is read.
const LONGEST_BYTES: u64 = 4 << 20;

/// What a file asks for.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The servers, in the file's order.
    pub specs: Vec<ServerSpec>,
    /// The servers that cannot be had as they are written.
    pub problems: Vec<Problem>,
    /// What was read and is of no effect.
    pub warnings: Vec<String>,
}

/// A server that cannot be had as it is written.
#[derive(Debug, thiserror::Error)]
#[error("server `{server}` in `{}` cannot be used", file.display())]
pub struct Problem {
    /// The file it stands in.
    pub file: PathBuf,
    /// Its name there, escaped.
    pub server: String,
    /// What is wrong.
    #[source]
    pub error: EntryError,
}

impl Diagnose for Problem {
    fn code(&self) -> &'static str {
        "config.server"
    }

    fn fault(&self) -> Fault {
        Fault::Client
    }

    fn hint(&self) -> Option<String> {
        self.error.hint()
    }
}

/// Why a file cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read the configuration file `{}`", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It is longer than any such file should be.
    #[error("the configuration file `{}` is longer than {LONGEST_BYTES} bytes", path.display())]
    TooLong {
        /// Which file.
        path: PathBuf,
    },
    /// It is no JSON, or lacks the shape that clients share.
    #[error("{}:{line}:{column}: {detail}", path.display())]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What was found there.
        detail: String,
    },
}

impl Diagnose for FileError {
    fn code(&self) -> &'static str {
        match self {
            Self::Read { .. } => "config.read",
            Self::TooLong { .. } => "config.too_long",
            Self::Syntax { .. } => "config.syntax",
        }
    }

    fn fault(&self) -> Fault {
        Fault::Client
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Read { .. } | Self::TooLong { .. } => None,
            Self::Syntax { .. } => Some(
                "the file should look like `{\"mcpServers\": {\"NAME\": {\"command\": \"…\", \"args\": []}}}`"
                    .to_owned(),
            ),
        }
    }
}

/// Reads one file; `folder` is where servers run that name no working folder.
pub fn read(path: &Path, environment: &Environment, folder: &Path) -> Result<Loaded, FileError> {
    let failed = |source| FileError::Read {
        path: path.to_owned(),
        source,
    };
    let mut text = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(LONGEST_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > LONGEST_BYTES {
        return Err(FileError::TooLong {
            path: path.to_owned(),
        });
    }
    parse(path, &text, environment, folder)
}

fn parse(
    path: &Path,
    text: &[u8],
    environment: &Environment,
    folder: &Path,
) -> Result<Loaded, FileError> {
    let servers: Servers = serde_json::from_slice(text).map_err(|error| FileError::Syntax {
        path: path.to_owned(),
        line: error.line(),
        column: error.column(),
        detail: without_position(&error),
    })?;
    let mut loaded = Loaded::default();
    for (name, value) in servers.0 {
        match entry::read(&name, &value, environment, folder) {
            Ok(Some(entry)) => {
                let told = |key| {
                    format!(
                        "`{}`: server `{name}`: `{key}` is not known and has no effect",
                        path.display()
                    )
                };
                loaded.warnings.extend(entry.ignored.iter().map(told));
                loaded.specs.push(entry.spec);
            }
            Ok(None) => {}
            Err(error) => {
                let server = name.escape_debug().to_string();
                loaded.problems.push(Problem {
                    file: path.to_owned(),
                    server,
                    error,
                });
            }
        }
    }
    Ok(loaded)
}

/// serde_json ends its messages with the place, which we show in front.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rfind(" at line ")
        .map_or(text.clone(), |end| text[..end].to_owned())
}

/// The entries under `mcpServers`, in order, each name once; other members belong to other programs.
#[derive(Debug)]
struct Servers(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Servers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Outer)
    }
}

struct Outer;

impl<'de> Visitor<'de> for Outer {
    type Value = Servers;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object with a member `mcpServers`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Servers, A::Error> {
        let mut servers = None;
        while let Some(key) = map.next_key::<String>()? {
            if key != "mcpServers" {
                map.next_value::<de::IgnoredAny>()?;
            } else if servers.is_some() {
                return Err(de::Error::custom("`mcpServers` stands here a second time"));
            } else {
                servers = Some(map.next_value::<Entries>()?.0);
            }
        }
        servers
            .map(Servers)
            .ok_or_else(|| de::Error::custom("there is no member `mcpServers`"))
    }
}

struct Entries(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Inner).map(Self)
    }
}

struct Inner;

impl<'de> Visitor<'de> for Inner {
    type Value = Vec<(String, Value)>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object of servers by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries: Vec<(String, Value)> = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            if entries.iter().any(|(known, _)| *known == name) {
                let name = name.escape_debug();
                return Err(de::Error::custom(format!(
                    "server `{name}` stands here a second time"
                )));
            }
            entries.push((name, value));
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests;
