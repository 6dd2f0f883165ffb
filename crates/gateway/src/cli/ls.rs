//! `gantry ls`: the servers, what they run and where they came from.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::Surroundings;
use super::doubts;
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
        // Why servers may not start at all; why others do not run is in `gantry status`.
        const HELD: [&str; 3] = ["disabled", "misconfigured", "needs_approval"];
        let is_held = |one: &Value| HELD.contains(&text(one, "/state").as_str());
        let has_reasons = servers.iter().any(is_held);
        let columns = ["/source", "/profile", "/start"];
        let row = |server| {
            let mut row = ["/name", "/state"]
                .map(|pointer| text(server, pointer))
                .to_vec();
            row.push(doubts::tools_of(server));
            row.extend(columns.map(|pointer| text(server, pointer)));
            let places = ["/command", "/image", "/url"].map(|pointer| text(server, pointer));
            row.push(places.concat());
            if has_reasons {
                row.push(screen.typed(&text(server, "/reason")));
            }
            row
        };
        let rows: Vec<Vec<String>> = servers.iter().map(row).collect();
        let mut heading = vec![
            "server", "state", "tools", "from", "profile", "start", "command",
        ];
        if has_reasons {
            heading.push("why");
        }
        screen.table(&heading, &rows);
        doubts::explain(&client, servers, screen).await?;
        super::status::hidden(&answer, screen);
    }
    Ok(ExitCode::SUCCESS)
}
