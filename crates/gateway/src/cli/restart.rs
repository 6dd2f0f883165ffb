//! `gantry restart SERVER [--pull]`: restarts a server and resets its counters. With `--pull` it
//! uses the image that the tag points to now.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::CliContext;
use super::await_server;
use super::client::segment;
use super::failure::Failure;
use super::find::Role;
use super::format::{text, time_span};
use super::images::pulling::work;

/// Arguments of `gantry restart`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The server, by name or id
    server: String,
    /// Pull its image first, and take it if it changed under its tag; the server keeps running meanwhile
    #[arg(long)]
    pull: bool,
    /// Do not wait until it is ready
    #[arg(long)]
    no_wait: bool,
    /// Time limit
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
    let mut server = match options.pull {
        true => {
            let body = json!({ "pull": true });
            work(&client, &path, &body, &options.server, screen).await?
        }
        false => client.post(&path, None).await?,
    };
    if !options.no_wait {
        server = await_server::settled(&client, &options.server, screen, options.wait).await?;
    }
    let line = format!("{} is {}", text(&server, "/name"), text(&server, "/state"));
    screen.outcome(options.json, &server, &line);
    Ok(ExitCode::SUCCESS)
}
