//! The clients on this machine, and which of them are connected.

use serde_json::json;

use crate::config::clients::disk::Opened;
use crate::config::clients::document::Document;
use crate::config::clients::ours::{self, Way};
use crate::config::clients::{BaseFolders, CLIENTS, Client, ClientError, Place, Scope};

use super::super::format::pretty;
use super::super::screen::Screen;

/// One file of a client.
struct Found {
    client: &'static Client,
    place: Place,
    /// Gantry's entries there with their transport, or why the file cannot be read.
    ways: Result<Vec<(String, Way)>, ClientError>,
}

/// A client's file with an entry of ours.
pub(in crate::cli) struct Connection {
    pub(in crate::cli) client: &'static Client,
    pub(in crate::cli) place: Place,
    pub(in crate::cli) name: String,
    pub(in crate::cli) way: Way,
}

impl Connection {
    /// Returns the command to reconnect the client.
    pub(in crate::cli) fn again(&self) -> String {
        let mut command = format!("gantry connect {} --yes", self.client.id);
        if self.place.scope != Scope::User {
            command.push_str(&format!(" --scope {}", self.place.scope));
        }
        if self.name != "gantry" {
            command.push_str(&format!(" --name '{}'", self.name));
        }
        command
    }
}

/// Returns our entries in the files of all clients that can be read.
pub(in crate::cli) fn connections(at: &BaseFolders) -> Vec<Connection> {
    let mut connections: Vec<Connection> = Vec::new();
    for client in &CLIENTS {
        let mut places = client.places(at);
        // In the home folder the project file is the user's own.
        places.sort_by_key(|place| place.scope != Scope::User);
        for place in places {
            let is_known = |known: &Connection| {
                (known.client.id, &known.place.path, &known.place.at)
                    == (client.id, &place.path, &place.at)
            };
            if connections.iter().any(is_known) {
                continue;
            }
            let ways = ways(&place).unwrap_or_default().into_iter();
            connections.extend(ways.map(|(name, way)| Connection {
                client,
                place: place.clone(),
                name,
                way,
            }));
        }
    }
    connections
}

/// Lists the existing files, and the installed clients.
pub(super) fn show(at: &BaseFolders, as_json: bool, screen: &Screen) {
    let mut found = Vec::new();
    for client in &CLIENTS {
        let places = client.places(at);
        let there = places.iter().any(|place| place.path.exists());
        for place in places {
            let folder = place.path.parent();
            // The home folder alone does not indicate a client.
            let installed = place.scope == Scope::User
                && !there
                && folder.is_some_and(|folder| folder.is_dir() && !at.is_home(folder));
            if place.path.exists() || installed {
                let ways = ways(&place);
                found.push(Found {
                    client,
                    place,
                    ways,
                });
            }
        }
    }
    let found = told_once(found);
    if as_json {
        let items: Vec<_> = found.iter().map(item).collect();
        screen.line(&pretty(&json!({"items": items})));
    } else if found.is_empty() {
        let known: Vec<&str> = CLIENTS.iter().map(|client| client.id).collect();
        screen.line(&format!(
            "no client is found; known are {}",
            known.join(", ")
        ));
    } else {
        let rows: Vec<Vec<String>> = found.iter().map(row).collect();
        screen.table(&["client", "scope", "gantry", "file"], &rows);
        screen.line("");
        screen.advise(
            "Connect one with `gantry connect CLIENT`; `--dry-run` shows what would change.",
        );
    }
}

/// Lists each file once. A file may be in several scopes: a scope without Gantry is listed only if
/// no other has it.
fn told_once(found: Vec<Found>) -> Vec<Found> {
    let mut kept: Vec<Found> = Vec::new();
    for one in found.into_iter().rev() {
        let empty = one.ways.as_ref().is_ok_and(Vec::is_empty) || one.ways.is_err();
        let same_file =
            |known: &Found| known.client.id == one.client.id && known.place.path == one.place.path;
        if !(empty && kept.iter().any(same_file)) {
            kept.retain(|known| {
                !(same_file(known) && known.ways.as_ref().is_ok_and(Vec::is_empty))
            });
            kept.push(one);
        }
    }
    kept.reverse();
    kept
}

fn ways(place: &Place) -> Result<Vec<(String, Way)>, ClientError> {
    let opened = Opened::read(&place.path)?;
    let document = Document::parse(&place.path, opened.text())?;
    let servers = document.servers(&place.at).into_iter();
    let ways = servers.filter_map(|(name, entry)| Some((name.to_owned(), ours::way_of(entry)?)));
    Ok(ways.collect())
}

fn item(found: &Found) -> serde_json::Value {
    let ways = found.ways.as_deref().unwrap_or_default();
    let connections = ways.iter().map(|(name, way)| match way {
        Way::Http { url, .. } => json!({"name": name, "way": "http", "url": url}),
        Way::Stdio { args, .. } => json!({"name": name, "way": "stdio", "args": args}),
    });
    json!({
        "client": found.client.id, "title": found.client.title,
        "scope": found.place.scope.to_string(), "path": found.place.path,
        "connections": connections.collect::<Vec<_>>(),
        "error": found.ways.as_ref().err().map(ToString::to_string),
    })
}

fn row(found: &Found) -> Vec<String> {
    let state = match &found.ways {
        Err(error) => format!("cannot be read: {error}"),
        Ok(ways) if ways.is_empty() => "not connected".to_owned(),
        Ok(ways) => {
            let ways = ways.iter().map(|(name, way)| match way {
                Way::Http { url, .. } => format!("`{name}`, {url}"),
                Way::Stdio { .. } => format!("`{name}`, stdio"),
            });
            ways.collect::<Vec<_>>().join("; ")
        }
    };
    let path = found.place.path.display().to_string();
    vec![
        found.client.id.to_owned(),
        found.place.scope.to_string(),
        state,
        path,
    ]
}
