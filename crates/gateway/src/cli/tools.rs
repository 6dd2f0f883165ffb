//! `gantry tools`: what the default agent sees, under the names it must use.

use std::process::ExitCode;

use clap::Args;

use super::Surroundings;
use super::failure::Failure;
use super::find::Role;
use super::format::{list, pretty, text};

/// The longest description in the table; `--json` has all of it.
const DESCRIPTION: usize = 72;

/// What `gantry tools` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Only this server's
    server: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Lists the tools.
pub(super) async fn run(
    options: &Options,
    surroundings: &Surroundings,
) -> Result<ExitCode, Failure> {
    let client = surroundings.client(Role::Agent)?;
    let path = match &options.server {
        Some(server) => format!("/api/v1/tools?server={}", super::client::segment(server)),
        None => "/api/v1/tools".to_owned(),
    };
    let answer = client.get(&path).await?;
    let (screen, tools) = (&surroundings.screen, list(&answer, "/items"));
    if options.json {
        screen.line(&pretty(&answer));
    } else if tools.is_empty() {
        screen.line("no tools");
    } else {
        let rows: Vec<Vec<String>> = tools
            .iter()
            .map(|tool| {
                let description = text(tool, "/definition/description");
                let first = description.lines().next().unwrap_or_default();
                let mut short: String = first.chars().take(DESCRIPTION).collect();
                if short.len() < description.len() {
                    short.push('…');
                }
                vec![text(tool, "/name"), short]
            })
            .collect();
        screen.table(&["tool", "description"], &rows);
    }
    Ok(ExitCode::SUCCESS)
}
