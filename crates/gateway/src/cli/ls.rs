//! `gantry ls`: the servers, what they run and where they came from.

use std::process::ExitCode;

use clap::Args;

use super::Surroundings;
use super::failure::Failure;
use super::find::Role;
use super::format::{list, pretty, text};

/// What `gantry ls` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Lists the servers.
pub(super) async fn run(
    options: &Options,
    surroundings: &Surroundings,
) -> Result<ExitCode, Failure> {
    let (client, screen) = (surroundings.client(Role::Admin)?, &surroundings.screen);
    let answer = client.get_all("/api/v1/mcp/servers").await?;
    let servers = list(&answer, "/items");
    if options.json {
        screen.line(&pretty(&answer));
    } else if servers.is_empty() {
        screen.line("no servers");
    } else {
        let columns = ["/name", "/state", "/tools", "/source", "/profile", "/start"];
        let row = |server| {
            let mut row = columns.map(|pointer| text(server, pointer)).to_vec();
            let places = ["/command", "/url"].map(|pointer| text(server, pointer));
            row.push(places.concat());
            row
        };
        let rows: Vec<Vec<String>> = servers.iter().map(row).collect();
        let heading = [
            "server", "state", "tools", "from", "profile", "start", "command",
        ];
        screen.table(&heading, &rows);
    }
    Ok(ExitCode::SUCCESS)
}
