//! `gantry ls`: the servers, what they run and where they are configured.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::CliContext;
use super::failure::Failure;
use super::find::Role;
use super::format::{list, pretty, text};
use super::screen::Screen;
use super::unchecked_tools;

/// Arguments of `gantry ls`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Lists the servers.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    let answer = client.get_all("/api/v1/mcp/servers").await?;
    let servers = list(&answer, "/items");
    if options.json {
        screen.line(&pretty(&answer));
    } else if servers.is_empty() {
        screen.line("no servers");
    } else {
        // Why servers are not started at all; other reasons are in `gantry status`.
        const HELD: [&str; 3] = ["disabled", "misconfigured", "needs_approval"];
        let is_held = |one: &Value| HELD.contains(&text(one, "/state").as_str());
        let has_reasons = servers.iter().any(is_held);
        let columns = ["/source", "/profile", "/start"];
        let row = |server| {
            let mut row = ["/name", "/state"]
                .map(|pointer| text(server, pointer))
                .to_vec();
            row.push(unchecked_tools::tools_of(server));
            row.extend(columns.map(|pointer| text(server, pointer)));
            let places = ["/command", "/image", "/url"].map(|pointer| text(server, pointer));
            let mut place = places.concat();
            if is_changed(server) {
                place.push_str(" (changed under its tag)");
            }
            row.push(place);
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
        if servers.iter().any(is_changed) {
            screen
                .advise("`gantry restart SERVER --pull` takes an image that changed under its tag");
        }
        unchecked_tools::explain(&client, servers, screen).await?;
        super::status::hidden(&answer, screen);
        for warning in super::grant::ungranted(&client).await? {
            screen.advise(&Screen::safe(&warning));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns whether the tag of a server's image points to another image now. fault C6
fn is_changed(server: &Value) -> bool {
    server["image_changed"] == true
}
