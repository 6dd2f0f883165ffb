//! Checks whether the running gateway accepts the keys of this folder and of connected clients, by
//! trying them.

use std::fs;
use std::path::Path;

use crate::config::clients::BaseFolders;
use crate::config::clients::ours::{KEY_PREFIX, Way};
use crate::data_folder::DataFolder;

use super::super::CliContext;
use super::super::client::Client;
use super::super::connect::connections;
use super::super::failure::Failure;
use super::super::find::working_folder;
use super::{Finding, Grade};

/// The result of trying the keys.
#[derive(Debug, Default)]
pub(super) struct Tried {
    pub(super) admin: Option<Verdict>,
    pub(super) agent: Option<Verdict>,
    /// The keys of clients connected to this gateway.
    pub(super) clients: Vec<Finding>,
}

/// The result of trying one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The gateway accepts it.
    Accepted,
    /// The gateway refuses it, for this reason.
    Refused(String),
    /// No key is on file.
    Missing,
}

/// Tries all keys; none if no gateway answers.
pub(super) async fn tried(context: &CliContext) -> Result<Tried, Failure> {
    let folder = DataFolder::at(context.data_path()?);
    let url = context.url.clone();
    let Some(url) = url.or_else(|| Some(folder.running()?.url)) else {
        return Ok(Tried::default());
    };
    if !answers(&url).await {
        return Ok(Tried::default());
    }
    let mut found = Tried::default();
    if context.url.is_none() {
        found.admin = Some(file(&url, &folder.admin_key(), "/api/v1/health").await);
        found.agent = Some(file(&url, &folder.agent_key(), "/api/v1/tools").await);
    }
    let Ok(at) = BaseFolders::new(&context.environment, &working_folder()?) else {
        return Ok(found);
    };
    let ours = format!("{}/mcp", url.trim_end_matches('/'));
    for connection in connections(&at) {
        let Way::Http { url: known, key } = &connection.way else {
            continue;
        };
        if *known != ours || !key.starts_with(KEY_PREFIX) {
            continue;
        }
        let (name, path) = (&connection.name, connection.place.path.display());
        let place = format!("`{name}` in `{path}`");
        let client = connection.client.id;
        found
            .clients
            .push(match key_of(&url, key, "/api/v1/tools").await {
                Verdict::Accepted => {
                    Finding::new(Grade::Good, client, format!("{place}: its key is accepted"))
                }
                Verdict::Refused(why) => {
                    let detail = format!("{place}: its key is refused: {why}");
                    Finding::new(Grade::Bad, client, detail)
                        .advise(format!("run `{}`", connection.again()))
                }
                Verdict::Missing => continue,
            });
    }
    Ok(found)
}

/// Returns whether a gateway answers at all.
async fn answers(url: &str) -> bool {
    let Ok(client) = Client::new(url, "") else {
        return false;
    };
    match client.get("/healthz").await {
        Ok(_) => true,
        Err(failure) => !failure.is_no_gateway(),
    }
}

async fn file(url: &str, file: &Path, route: &str) -> Verdict {
    match fs::read_to_string(file) {
        Ok(key) => key_of(url, key.trim(), route).await,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Verdict::Missing,
        Err(error) => Verdict::Refused(error.to_string()),
    }
}

async fn key_of(url: &str, key: &str, route: &str) -> Verdict {
    let answered = match Client::new(url, key) {
        Ok(client) => client.get(route).await.map(drop),
        Err(failure) => Err(failure),
    };
    match answered {
        Ok(()) => Verdict::Accepted,
        Err(failure) => Verdict::Refused(failure.message().to_owned()),
    }
}
