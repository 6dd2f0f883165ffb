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
    /// An argument of the call, as `NAME=VALUE`; the value is JSON or a text; may be given several times
    #[arg(long = "arg", value_name = "NAME=VALUE", conflicts_with = "arguments")]
    argument: Vec<String>,
    /// The arguments of the call, as a JSON object: conditions and the schema are then judged, too
    #[arg(long, value_name = "JSON")]
    arguments: Option<String>,
    /// The id of the agent's key that the call comes with
    #[arg(long, value_name = "ID")]
    key: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints the explanation; exits with 1 if the agent may not use the tool.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    let (agent, tool) = (segment(&options.agent), segment(&options.tool));
    let mut path = format!("/api/v1/tools/why?agent={agent}&tool={tool}");
    if let Some(arguments) = arguments(options)? {
        path.push_str(&format!("&arguments={}", segment(&arguments)));
    }
    if let Some(key) = &options.key {
        path.push_str(&format!("&key_id={}", segment(key)));
    }
    let judged = client.get(&path).await?;
    let allowed = judged["allowed"] == Value::Bool(true);
    if options.json {
        screen.line(&pretty(&judged));
    } else {
        let (mark, may) = match (allowed, judged["decision"] == "ask") {
            (true, false) => (screen.good("✓"), "may use"),
            (true, true) => (screen.good("✓"), "may use, with an approval,"),
            (false, _) => (screen.bad("✗"), "may not use"),
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

/// Returns the arguments that were given, as JSON.
fn arguments(options: &Options) -> Result<Option<String>, Failure> {
    if options.argument.is_empty() {
        return Ok(options.arguments.clone());
    }
    let mut members = serde_json::Map::new();
    for given in &options.argument {
        let Some((name, value)) = given.split_once('=') else {
            let message = format!("`--arg {given}` is not NAME=VALUE");
            return Err(Failure::new(Exit::Usage, message));
        };
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        members.insert(name.to_owned(), value);
    }
    Ok(Some(Value::Object(members).to_string()))
}
