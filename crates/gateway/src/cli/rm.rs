//! `gantry rm SERVER`: stops a registered server and forgets it.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::Surroundings;
use super::client::segment;
use super::failure::Failure;
use super::find::Role;
use super::format::text;

/// What `gantry rm` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The server, by name or id
    server: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Removes the server; one that is not there exits with 1.
pub(super) async fn run(
    options: &Options,
    surroundings: &Surroundings,
) -> Result<ExitCode, Failure> {
    let (client, screen) = (surroundings.client(Role::Admin)?, &surroundings.screen);
    let path = format!("/api/v1/mcp/servers/{}", segment(&options.server));
    let server = client.get(&path).await?;
    client.delete(&path).await?;
    let name = text(&server, "/name");
    let line = format!("{name} is removed");
    screen.outcome(options.json, &json!({"removed": name}), &line);
    Ok(ExitCode::SUCCESS)
}
