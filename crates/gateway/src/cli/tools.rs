//! `gantry tools`: the tools of the default agent, under their exposed names. Tools that are new or changed
//! are in `changes`.

mod changes;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use gantry_model::shape::Shape;
use serde_json::Value;

use crate::data_folder::DataFolder;

use super::CliContext;
use super::failure::{Exit, Failure};
use super::find::Role;
use super::format::{list, number, pretty, text};

/// Maximum length of a description in the table; `--json` has all of it.
const DESCRIPTION: usize = 72;

/// The supported formats.
const SHAPES: [&str; 5] = [
    Shape::Mcp.as_str(),
    Shape::Anthropic.as_str(),
    Shape::OpenAi.as_str(),
    Shape::OpenAiResponses.as_str(),
    Shape::Gemini.as_str(),
];

/// Arguments of `gantry tools`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    listed: Listed,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the tools, as without a verb
    Ls(Listed),
    /// List tools, prompts and templates that are new or changed, and not approved
    Changes(changes::OfServer),
    /// Show what differs from what is approved
    Diff(changes::Item),
    /// Approve the version that is listed now
    Approve(changes::Decision),
    /// Refuse the version that is listed now: it is not offered
    Refuse(changes::Decision),
    /// List the versions of a tool
    Versions(changes::Item),
}

/// Which tools are listed, and how.
#[derive(Debug, Args)]
struct Listed {
    /// Only this server's
    server: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the tools in this API's format, as JSON
    #[arg(long, value_parser = SHAPES)]
    shape: Option<String>,
}

/// Lists the tools, or shows and decides what changed.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    match &options.action {
        None => return list_tools(&options.listed, context).await,
        Some(Action::Ls(listed)) => return list_tools(listed, context).await,
        Some(Action::Changes(asked)) => changes::list_changes(asked, context).await?,
        Some(Action::Diff(asked)) => changes::diff(asked, context).await?,
        Some(Action::Approve(asked)) => changes::decide("approve", asked, context).await?,
        Some(Action::Refuse(asked)) => changes::decide("refuse", asked, context).await?,
        Some(Action::Versions(asked)) => changes::versions(asked, context).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list_tools(options: &Listed, context: &CliContext) -> Result<ExitCode, Failure> {
    let client = context.client(Role::Agent)?;
    let server = options
        .server
        .iter()
        .map(|server| format!("server={}", super::client::segment(server)));
    let shape = options.shape.iter().map(|shape| format!("shape={shape}"));
    let query: Vec<_> = server.chain(shape).collect();
    let path = format!("/api/v1/tools?{}", query.join("&"));
    let answer = client.get_all(&path).await?;
    let screen = &context.screen;
    if options.shape.is_some() {
        let tools = answer.get("tools").unwrap_or(&Value::Null);
        screen.line(&pretty(tools));
        return empty_of(options, list(&answer, "/tools"), context).await;
    }
    let tools = list(&answer, "/items");
    if options.json {
        screen.line(&pretty(&answer));
        return empty_of(options, tools, context).await;
    }
    if tools.is_empty() && options.server.is_some() {
        let code = empty_of(options, tools, context).await?;
        screen.line("it offers no tools");
        return Ok(code);
    }
    if tools.is_empty() {
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
                // A shortened name hardly shows its server.
                if !text(tool, "/name").ends_with(&text(tool, "/tool")) {
                    short = format!("{}  {short}", text(tool, "/id"));
                }
                vec![text(tool, "/name"), short.trim_end().to_owned()]
            })
            .collect();
        screen.table(&["tool", "description"], &rows);
    }
    Ok(ExitCode::SUCCESS)
}

/// Explains why a requested server has no tools: not ready, or not for this agent. A ready server
/// without tools is not a failure.
async fn empty_of(
    options: &Listed,
    tools: &[Value],
    context: &CliContext,
) -> Result<ExitCode, Failure> {
    let (Some(server), true) = (&options.server, tools.is_empty()) else {
        return Ok(ExitCode::SUCCESS);
    };
    // An agent's key alone gives no further information.
    let admin = match &context.url {
        Some(_) => context.client(Role::Admin),
        None => context
            .data_path()
            .and_then(|path| context.admin_of(&DataFolder::at(path))),
    };
    let path = format!("/api/v1/mcp/servers/{}", super::client::segment(server));
    let status = match admin {
        Ok(admin) => admin.get(&path).await.ok(),
        Err(_) => None,
    };
    let Some(status) = status else {
        let message = format!("no tools of server `{server}` for this key");
        return Err(Failure::new(Exit::Failed, message));
    };
    let (name, state) = (text(&status, "/name"), text(&status, "/state"));
    let count = number(&status, "/tools").unwrap_or_default();
    let failure = match state.as_str() {
        "ready" if count == 0 => return Ok(ExitCode::SUCCESS),
        "ready" => {
            let message = format!("none of the {count} tools of server `{name}` is for this agent");
            Failure::new(Exit::Failed, message)
                .hint("`gantry why AGENT TOOL` says which grant or filter excludes it")
        }
        "idle" | "starting" | "restarting" => {
            let message = format!("server `{name}` is not started yet: its tools are not known");
            Failure::new(Exit::Failed, message).hint(format!(
                "`gantry restart {name}` starts it and waits until it is ready"
            ))
        }
        other => {
            let other = other.replace('_', " ");
            Failure::new(Exit::Failed, format!("server `{name}` is {other}"))
                .hint(format!("`gantry status {name}` says more"))
        }
    };
    let reason = text(&status, "/reason");
    Err(match reason.is_empty() {
        true => failure,
        false => failure.cause(reason),
    })
}
