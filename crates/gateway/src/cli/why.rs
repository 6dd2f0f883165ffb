//! `gantry why AGENT TOOL`: whether an agent may use a tool, and which grant, filter or server says so.
//!
//! The gateway judges, with the very rules that it judges a call with. Entry point: [`run`].

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::Surroundings;
use super::client::segment;
use super::failure::{Exit, Failure};
use super::find::Role;
use super::format::{list, pretty, text};
use super::screen::Screen;

/// What `gantry why` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The agent's name
    agent: String,
    /// The tool, as `server__tool` or `server:tool`
    tool: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Tells; an agent that may not use the tool exits with 1.
pub(super) async fn run(
    options: &Options,
    surroundings: &Surroundings,
) -> Result<ExitCode, Failure> {
    let (client, screen) = (surroundings.client(Role::Admin)?, &surroundings.screen);
    let (agent, tool) = (segment(&options.agent), segment(&options.tool));
    let path = format!("/api/v1/tools/why?agent={agent}&tool={tool}");
    let judged = client.get(&path).await?;
    let allowed = judged["allowed"] == Value::Bool(true);
    if options.json {
        screen.line(&pretty(&judged));
    } else {
        let (mark, may) = match allowed {
            true => (screen.good("✓"), "may use"),
            false => (screen.bad("✗"), "may not use"),
        };
        let line = format!(
            "{} {may} {}",
            text(&judged, "/agent"),
            text(&judged, "/tool")
        );
        screen.line(&format!("{mark} {}", Screen::safe(&line)));
        for reason in list(&judged, "/reasons") {
            screen.line(&format!("  {}", Screen::safe(&text(reason, ""))));
        }
    }
    Ok(match allowed {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(Exit::Failed as u8),
    })
}
