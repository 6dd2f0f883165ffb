//! `gantry restart SERVER`: restarts a server and resets its counters.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::CliContext;
use super::await_server;
use super::client::segment;
use super::failure::Failure;
use super::find::Role;
use super::format::{text, time_span};

/// Arguments of `gantry restart`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The server, by name or id
    server: String,
    /// Do not wait until it is ready
    #[arg(long)]
    no_wait: bool,
    /// How long it may take
    #[arg(long, value_name = "TIME", default_value = "90s", value_parser = time_span)]
    wait: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Restarts the server; exits with 1 if it does not become ready.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    let path = format!("/api/v1/mcp/servers/{}/restart", segment(&options.server));
    let mut server = client.post(&path, None).await?;
    if !options.no_wait {
        server = await_server::settled(&client, &options.server, screen, options.wait).await?;
    }
    let line = format!("{} is {}", text(&server, "/name"), text(&server, "/state"));
    screen.outcome(options.json, &server, &line);
    Ok(ExitCode::SUCCESS)
}
