//! `gantry logs SERVER`: what a server wrote to stderr, and stray lines of its stdout.

use std::process::ExitCode;

use clap::Args;

use super::Surroundings;
use super::client::segment;
use super::failure::Failure;
use super::find::Role;
use super::format::{list, number, pretty, text, time};
use super::screen::Screen;

/// What `gantry logs` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The server, by name or id
    server: String,
    /// How many lines, counted from the end
    #[arg(short = 'n', long, default_value_t = 200)]
    lines: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Shows the lines.
pub(super) async fn run(
    options: &Options,
    surroundings: &Surroundings,
) -> Result<ExitCode, Failure> {
    let client = surroundings.client(Role::Admin)?;
    let path = format!(
        "/api/v1/mcp/servers/{}/logs?lines={}",
        segment(&options.server),
        options.lines
    );
    let answer = client.get(&path).await?;
    let screen = &surroundings.screen;
    if options.json {
        screen.line(&pretty(&answer));
        return Ok(ExitCode::SUCCESS);
    }
    for line in list(&answer, "/items") {
        let at = number(line, "/at_ms").map_or_else(String::new, time);
        let stream = match text(line, "/stream").as_str() {
            "stderr" => String::new(),
            other => format!("[{other}] "),
        };
        screen.line(&format!(
            "{} {stream}{}",
            screen.faint(&at),
            Screen::safe(&text(line, "/text"))
        ));
    }
    Ok(ExitCode::SUCCESS)
}
