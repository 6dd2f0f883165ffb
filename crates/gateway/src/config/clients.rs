//! The client programs that have MCP servers in their configuration: where their files are, and the
//! format of an entry.
//!
//! `known` is the table of clients, `dialect` converts an entry to the form of `gantry.toml` and
//! back, `document` edits a client's file, `disk` replaces files atomically, `takeover` merges
//! entries into `gantry.toml`. Entry points: [`CLIENTS`], [`find`], [`Client::places`].

pub mod dialect;
pub mod disk;
pub mod document;
pub mod hide;
pub mod ours;
pub mod takeover;

mod error;
mod known;
mod toml;

use std::fmt;
use std::path::{Path, PathBuf};

use super::env::{self, Environment};
use dialect::Dialect;

pub use error::ClientError;
pub use known::CLIENTS;

/// The description of one client.
#[derive(Debug)]
pub struct Client {
    /// Its name on the command line, also the suffix of its `x-` tables in `gantry.toml`.
    pub id: &'static str,
    /// Its display name.
    pub title: &'static str,
    /// The member that holds the servers.
    pub root: &'static str,
    /// The format of its entries.
    pub dialect: Dialect,
    /// How it connects to a URL.
    pub http: Http,
    /// Suffixes of its files' paths, to recognise files named by the user.
    endings: &'static [&'static str],
    /// Where it may have servers, highest precedence first.
    places: &'static [(Scope, Base, &'static str, Location)],
}

/// The folder that a client's file is in.
#[derive(Debug, Clone, Copy)]
enum Base {
    Folder,
    Home,
    Config,
    Claude,
    Copilot,
}

/// Where in its file a client has servers.
#[derive(Debug, Clone, Copy)]
enum Location {
    /// Under the client's `root`.
    Root,
    /// Under the `root` of one folder of `projects`.
    PerFolder,
    /// The whole file is a map of servers.
    All,
}

/// How a client connects to a URL with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Http {
    /// Not supported in its file.
    No,
    /// `url` and `headers`, with this `type`.
    Typed(&'static str),
    /// `url` and `headers`, without a `type`.
    Untyped,
    /// This member instead of `url`.
    Member(&'static str),
}

/// Where an entry applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Scope {
    /// One user, in one folder.
    Local,
    /// All users of a folder.
    Project,
    /// One user, everywhere.
    User,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Project => "project",
            Self::User => "user",
        })
    }
}

/// A place where a client may have servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Where they apply.
    pub scope: Scope,
    /// The file.
    pub path: PathBuf,
    /// The path of members to the servers; empty if the whole file is a map of servers.
    pub at: Vec<String>,
}

/// The base folders of all clients' files.
#[derive(Debug, Clone)]
pub struct BaseFolders {
    /// The user's home.
    home: PathBuf,
    /// Where programs keep their settings.
    config: PathBuf,
    /// Where Claude Code keeps its own file.
    claude: PathBuf,
    /// Where Copilot keeps its files.
    copilot: PathBuf,
    /// The working folder.
    folder: PathBuf,
}

impl BaseFolders {
    /// Reads them from the environment; an error if there is no home.
    pub fn new(environment: &Environment, folder: &Path) -> Result<Self, ClientError> {
        let home = environment.filled(env::HOME).map(PathBuf::from);
        let config = environment.config_home();
        let (Some(home), Some(config)) = (home, config) else {
            return Err(ClientError::NoHome);
        };
        let named = |name| environment.filled(name).map(PathBuf::from);
        Ok(Self {
            claude: named(env::CLAUDE_CONFIG_DIR).unwrap_or_else(|| home.clone()),
            copilot: named(env::COPILOT_HOME).unwrap_or_else(|| home.join(".copilot")),
            home,
            config,
            folder: folder.to_owned(),
        })
    }

    /// Returns whether a folder is the user's home.
    pub fn is_home(&self, folder: &Path) -> bool {
        folder == self.home
    }

    fn base(&self, base: Base) -> &Path {
        match base {
            Base::Folder => &self.folder,
            Base::Home => &self.home,
            Base::Config => &self.config,
            Base::Claude => &self.claude,
            Base::Copilot => &self.copilot,
        }
    }
}

impl Client {
    /// Returns the places of its servers, highest precedence first.
    pub fn places(&self, bases: &BaseFolders) -> Vec<Place> {
        let places = self.places.iter();
        let places = places.map(|(scope, base, path, location)| Place {
            scope: *scope,
            path: bases.base(*base).join(path),
            at: match location {
                Location::Root => vec![self.root.to_owned()],
                Location::PerFolder => {
                    let folder = bases.folder.to_string_lossy();
                    ["projects", &folder, self.root].map(str::to_owned).to_vec()
                }
                Location::All => Vec::new(),
            },
        });
        places.collect()
    }

    /// Returns the place for one scope: the first that exists, else the first whose folder does.
    pub fn place(&self, bases: &BaseFolders, scope: Scope) -> Option<Place> {
        let mut places = self.places(bases);
        places.retain(|place| place.scope == scope);
        let there = places.iter().position(|place| place.path.exists());
        let folder = |place: &Place| place.path.parent().is_some_and(Path::is_dir);
        let best = there.or_else(|| places.iter().position(folder));
        (!places.is_empty()).then(|| places.swap_remove(best.unwrap_or(0)))
    }

    /// Returns the member in `gantry.toml` for settings that only this client uses.
    pub fn table(&self) -> String {
        format!("x-{}", self.id)
    }
}

/// Finds a client by name.
pub fn find(id: &str) -> Option<&'static Client> {
    CLIENTS.iter().find(|client| client.id == id)
}

/// Guesses the client of a file; Claude Code's format is the default.
pub fn of_file(path: &Path) -> &'static Client {
    let text = path.to_string_lossy();
    let known = CLIENTS
        .iter()
        .find(|client| client.endings.iter().any(|ending| text.ends_with(ending)));
    known.unwrap_or(&CLIENTS[1])
}

#[cfg(test)]
mod tests;
