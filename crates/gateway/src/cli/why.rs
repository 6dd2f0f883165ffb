//! `gantry why AGENT TOOL`: whether an agent may use a tool, and which grant, filter or server
//! decides it.
//!
//! The gateway applies the same rules as to a call. Entry point: [`run`].

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::CliContext;
use super::client::segment;
use super::failure::{Exit, Failure};
use super::find::Role;
use super::format::{list, pretty, text};
use super::screen::Screen;

/// Arguments of `gantry why`.
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

/// Prints the explanation; exits with 1 if the agent may not use the tool.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
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
