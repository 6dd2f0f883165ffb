//! The files to import from: those of named clients, named files, or all that exist.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::config::clients::disk::Opened;
use crate::config::clients::document::Document;
use crate::config::clients::{self, BaseFolders, CLIENTS, Client, ClientError, Place, Scope};

use super::super::failure::{Exit, Failure};
use super::Options;

/// A readable file of a client.
pub(super) struct Source {
    pub(super) client: &'static Client,
    /// Its scope; absent for a file named by the user.
    pub(super) scope: Option<Scope>,
    pub(super) path: PathBuf,
    pub(super) document: Document,
    at: Vec<String>,
}

impl Source {
    /// Returns its servers, in order.
    pub(super) fn servers(&self) -> Vec<(&str, &Value)> {
        self.document.servers(&self.at)
    }

    /// Reads the file of a scope; nothing if it does not exist.
    pub(super) fn read(client: &'static Client, place: Place) -> Result<Option<Self>, ClientError> {
        let opened = Opened::read(&place.path)?;
        if !opened.existed() {
            return Ok(None);
        }
        let document = Document::parse(&place.path, opened.text())?;
        Ok(Some(Self {
            client,
            scope: Some(place.scope),
            path: place.path,
            document,
            at: place.at,
        }))
    }

    /// Reads a file named by the user, and locates its servers.
    fn of_file(client: &'static Client, path: &Path) -> Result<Self, ClientError> {
        let opened = Opened::read(path)?;
        let document = Document::parse(path, opened.text())?;
        let roots = [client.root, "mcpServers", "servers"];
        let root = roots
            .iter()
            .find(|root| document.value().get(**root).is_some());
        Ok(Self {
            client,
            scope: None,
            path: path.to_owned(),
            at: root.map(|root| (*root).to_owned()).into_iter().collect(),
            document,
        })
    }
}

/// Reads every existing file.
pub(super) fn all(at: &BaseFolders, scope: Option<Scope>) -> Result<Vec<Source>, Failure> {
    let mut sources = Vec::new();
    for client in &CLIENTS {
        sources.extend(of_client(client, at, scope)?);
    }
    if sources.is_empty() {
        let message = "no client with servers is found on this machine";
        return Err(Failure::new(Exit::Failed, message).hint("name a file: `gantry import FILE`"));
    }
    Ok(sources)
}

/// Reads what a user named.
pub(super) fn named(
    names: &[String],
    options: &Options,
    at: Option<&BaseFolders>,
    folder: &Path,
) -> Result<Vec<Source>, Failure> {
    let mut sources = Vec::new();
    for name in names {
        match (clients::find(name), at) {
            (Some(client), Some(at)) => {
                let found = of_client(client, at, options.scope)?;
                if found.is_empty() {
                    return Err(nothing_of(client, at, options.scope));
                }
                sources.extend(found);
            }
            (Some(_), None) => {
                return Err(Failure::of(Exit::Failed, &ClientError::NoHome));
            }
            (None, _) => sources.push(file(name, options, folder)?),
        }
    }
    Ok(sources)
}

fn file(name: &str, options: &Options, folder: &Path) -> Result<Source, Failure> {
    let path = folder.join(name);
    if !path.exists() {
        let known: Vec<&str> = CLIENTS.iter().map(|client| client.id).collect();
        let message = format!("`{name}` is neither a client nor a file");
        let hint = format!("the clients are {}", known.join(", "));
        return Err(Failure::new(Exit::Usage, message).hint(hint));
    }
    let client = options.form.unwrap_or_else(|| clients::of_file(&path));
    Source::of_file(client, &path).map_err(|error| Failure::of(Exit::Failed, &error))
}

fn of_client(
    client: &'static Client,
    at: &BaseFolders,
    scope: Option<Scope>,
) -> Result<Vec<Source>, Failure> {
    let mut sources = Vec::new();
    for place in client.places(at) {
        if scope.is_some_and(|scope| scope != place.scope) {
            continue;
        }
        let read = Source::read(client, place);
        let read = read.map_err(|error| Failure::of(Exit::Failed, &error))?;
        sources.extend(read.filter(|source| !source.servers().is_empty()));
    }
    Ok(sources)
}

fn nothing_of(client: &Client, at: &BaseFolders, scope: Option<Scope>) -> Failure {
    let message = format!("no servers of {} are found", client.title);
    let mut failure = Failure::new(Exit::Failed, message);
    let mut known: Vec<PathBuf> = Vec::new();
    for place in client.places(at) {
        let wanted = scope.is_none_or(|scope| scope == place.scope);
        if wanted && !known.contains(&place.path) {
            failure = failure.cause(format!("there are none in `{}`", place.path.display()));
            known.push(place.path);
        }
    }
    failure.hint("name the file: `gantry import FILE`")
}
