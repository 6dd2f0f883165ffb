//! `gantry restart SERVER`: stops a server and starts it again, its counters reset.

use std::process::ExitCode;

use clap::Args;

use super::Surroundings;
use super::client::segment;
use super::failure::Failure;
use super::find::Role;
use super::format::text;
use super::screen::Screen;

/// What `gantry restart` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The server, by name or id
    server: String,
}

/// Restarts the server.
pub(super) async fn run(
    options: &Options,
    surroundings: &Surroundings,
) -> Result<ExitCode, Failure> {
    let client = surroundings.client(Role::Admin)?;
    let path = format!("/api/v1/mcp/servers/{}/restart", segment(&options.server));
    let server = client.post(&path, None).await?;
    let line = format!("{} is {}", text(&server, "/name"), text(&server, "/state"));
    surroundings.screen.line(&Screen::safe(&line));
    Ok(ExitCode::SUCCESS)
}
