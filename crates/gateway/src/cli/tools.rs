//! `gantry tools`: what the default agent sees, under the names it must use.

use std::process::ExitCode;

use clap::Args;
use gantry_model::shape::Shape;
use serde_json::Value;

use super::Surroundings;
use super::failure::Failure;
use super::find::Role;
use super::format::{list, pretty, text};

/// The longest description in the table; `--json` has all of it.
const DESCRIPTION: usize = 72;

/// The shapes that can be asked for.
const SHAPES: [&str; 5] = [
    Shape::Mcp.as_str(),
    Shape::Anthropic.as_str(),
    Shape::OpenAi.as_str(),
    Shape::OpenAiResponses.as_str(),
    Shape::Gemini.as_str(),
];

/// What `gantry tools` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Only this server's
    server: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print what stands in `tools` of a request to this API, as JSON
    #[arg(long, value_parser = SHAPES)]
    shape: Option<String>,
}

/// Lists the tools.
pub(super) async fn run(
    options: &Options,
    surroundings: &Surroundings,
) -> Result<ExitCode, Failure> {
    let client = surroundings.client(Role::Agent)?;
    let server = options
        .server
        .iter()
        .map(|server| format!("server={}", super::client::segment(server)));
    let shape = options.shape.iter().map(|shape| format!("shape={shape}"));
    let query: Vec<_> = server.chain(shape).collect();
    let path = format!("/api/v1/tools?{}", query.join("&"));
    let answer = client.get_all(&path).await?;
    if options.shape.is_some() {
        let tools = answer.get("tools").unwrap_or(&Value::Null);
        surroundings.screen.line(&pretty(tools));
        return Ok(ExitCode::SUCCESS);
    }
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
