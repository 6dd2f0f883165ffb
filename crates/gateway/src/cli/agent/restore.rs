//! `gantry agent restore`: recreates the default agent and the key that this folder's verbs use.
//!
//! Keeps what exists and works. Entry point: [`run`].

use std::fs;

use serde_json::json;

use crate::config::clients::BaseFolders;
use crate::config::clients::ours::Way;
use crate::data_folder::DataFolder;

use super::super::CliContext;
use super::super::as_json::AsJson;
use super::super::client::Client;
use super::super::connect::connections;
use super::super::failure::{Exit, Failure};
use super::super::find::working_folder;
use super::super::format::{list, pretty, text};
use super::super::screen::Screen;
use super::super::up::DEFAULT_AGENT;

/// Makes what is missing.
pub(super) async fn run(
    shown: AsJson,
    client: &Client,
    context: &CliContext,
) -> Result<(), Failure> {
    if context.url.is_some() {
        let message = "the key is written into the data folder of a gateway on this machine";
        return Err(Failure::new(Exit::Usage, message)
            .hint("leave out `--url`, and name the folder with `--data DIR`"));
    }
    let folder = DataFolder::at(context.data_path()?);
    let url = folder.running().map(|running| running.url);
    let url = url.ok_or_else(|| super::super::find::no_gateway(folder.path()))?;
    let made_agent = restore_agent(client).await?;
    let file = folder.agent_key();
    let is_valid = match fs::read_to_string(&file) {
        Ok(key) => accepts(&url, key.trim()).await,
        Err(_) => false,
    };
    if !is_valid {
        let wanted = json!({
            "kind": "agent", "agent": DEFAULT_AGENT, "label": "made by `gantry agent restore`",
        });
        let made = client.post("/api/v1/keys", Some(&wanted)).await?;
        folder
            .write_key(&file, &text(&made, "/key"))
            .map_err(|error| Failure::of(Exit::Failed, &error))?;
    }
    let again = clients_without_key(&url, context).await?;
    let screen = &context.screen;
    if shown.is_wanted() {
        screen.line(&pretty(&json!({
            "agent": DEFAULT_AGENT, "agent_made": made_agent, "key_made": !is_valid,
            "key_file": file, "connect_again": again,
        })));
        return Ok(());
    }
    let (good, file) = (screen.good("✓"), file.display());
    match (made_agent, is_valid) {
        (false, true) => screen.line(&format!(
            "nothing to restore: `{DEFAULT_AGENT}` is there, and its key in `{file}` is valid"
        )),
        (_, true) => screen.line(&format!(
            "{good} `{DEFAULT_AGENT}` may use all servers again; its key in `{file}` is valid"
        )),
        (_, false) => screen.line(&format!(
            "{good} `{DEFAULT_AGENT}` has a new key in `{file}`"
        )),
    }
    if !again.is_empty() {
        screen.line("These clients need a new key, too:");
        for command in &again {
            screen.line(&format!("  {}", Screen::safe(command)));
        }
    }
    Ok(())
}

/// Recreates a missing agent; one without grants gets its grant back. Returns whether anything
/// changed.
async fn restore_agent(client: &Client) -> Result<bool, Failure> {
    let agents = client.get_all("/api/v1/agents").await?;
    let known = list(&agents, "/items");
    let known = known.iter().find(|agent| agent["name"] == DEFAULT_AGENT);
    match known {
        None => {
            let body = json!({"name": DEFAULT_AGENT, "grant": first_grants(client).await?});
            client.post("/api/v1/agents", Some(&body)).await?;
            Ok(true)
        }
        Some(agent) if agent["grants"].as_array().is_some_and(Vec::is_empty) => {
            let body = json!({"grant": first_grants(client).await?});
            let path = format!("/api/v1/agents/{DEFAULT_AGENT}");
            client.patch(&path, &body).await?;
            Ok(true)
        }
        Some(_) => Ok(false),
    }
}

/// Returns what a first start would grant: what files define, and the registered servers.
async fn first_grants(client: &Client) -> Result<Vec<String>, Failure> {
    let servers = client.get_all("/api/v1/mcp/servers").await?;
    let servers = list(&servers, "/items").iter();
    let registered = servers.filter(|server| server["source"] == "api");
    let registered = registered.map(|server| format!("{}:*", text(server, "/name")));
    Ok(["@files:*".to_owned()]
        .into_iter()
        .chain(registered)
        .collect())
}

/// Returns whether a gateway accepts a key.
async fn accepts(url: &str, key: &str) -> bool {
    match Client::new(url, key) {
        Ok(client) => client.get("/api/v1/tools").await.is_ok(),
        Err(_) => false,
    }
}

/// Returns the command to reconnect each client whose key is no longer accepted.
async fn clients_without_key(url: &str, context: &CliContext) -> Result<Vec<String>, Failure> {
    let Ok(at) = BaseFolders::new(&context.environment, &working_folder()?) else {
        return Ok(Vec::new());
    };
    let ours = format!("{}/mcp", url.trim_end_matches('/'));
    let mut commands = Vec::new();
    for connection in connections(&at) {
        if let Way::Http { url: known, key } = &connection.way
            && *known == ours
            && !accepts(url, key).await
        {
            commands.push(connection.again());
        }
    }
    commands.dedup();
    Ok(commands)
}
