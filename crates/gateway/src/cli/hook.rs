//! `gantry hook ls | set | rm`: the commands and HTTP endpoints that look at requests and results of a
//! project.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::CliContext;
use super::as_json::{AsJson, Named};
use super::client::segment;
use super::failure::Failure;
use super::find::Role;
use super::format::{here, text, words};

/// Arguments of `gantry hook`.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the hooks, in the order in which they are asked
    Ls(AsJson),
    /// Set a hook: a command after `--`, or a URL
    Set(Definition),
    /// Remove a hook
    Rm(Named),
}

#[derive(Debug, Args)]
struct Definition {
    /// Its name
    name: String,
    /// Whether it sees requests or results
    #[arg(long, value_parser = ["request", "result"])]
    on: String,
    /// The URL to post to; the gateway's own is said by `GANTRY_URL` or `--data` here
    #[arg(long, conflicts_with = "command")]
    url: Option<String>,
    /// Only for these tools, as `server:tool` with `*`
    #[arg(long = "tool", value_name = "PATTERN")]
    tools: Vec<String>,
    /// Time limit
    #[arg(long, default_value = "2s")]
    timeout: String,
    /// On failure: refuse the call, or pass it
    #[arg(long, default_value = "refuse", value_parser = ["refuse", "pass"])]
    on_failure: String,
    #[command(flatten)]
    shown: AsJson,
    /// The command and its arguments
    #[arg(last = true)]
    command: Vec<String>,
}

impl Options {
    /// Returns whether `--url` is the hook's, and not the gateway's.
    pub(super) fn takes_url(&self) -> bool {
        matches!(&self.action, Action::Set(wanted) if wanted.url.is_some())
    }
}

/// Lists, sets or removes hooks.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    let place = |name: &str| format!("/api/v1/hooks/{}", segment(name));
    match &options.action {
        Action::Ls(shown) => {
            let answer = client.get("/api/v1/hooks").await?;
            let heading = ["hook", "on", "asks", "tools", "timeout", "on failure"];
            shown.list(screen, &answer, &heading, row);
        }
        Action::Set(wanted) => {
            let mut body = json!({
                "on": wanted.on, "tools": wanted.tools, "timeout": wanted.timeout,
                "on_failure": wanted.on_failure,
            });
            if let Some(url) = &wanted.url {
                body["url"] = url.as_str().into();
            }
            if let Some((command, args)) = wanted.command.split_first() {
                body["command"] = here(command).into();
                body["args"] = args.into();
            }
            let answer = client.put(&place(&wanted.name), &body).await?;
            let said = match answer["state"] == "pending" {
                true => format!("waits for a second person as {}", text(&answer, "/id")),
                false => format!("hook {} is asked on each {}", wanted.name, wanted.on),
            };
            wanted.shown.done(screen, &answer, &said);
        }
        Action::Rm(Named { name, shown }) => {
            client.delete(&place(name)).await?;
            let value = json!({ "removed": name });
            shown.done(screen, &value, &format!("removed hook {name}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn row(hook: &Value) -> Vec<String> {
    let asks = match text(hook, "/url") {
        url if !url.is_empty() => url,
        _ => format!("{} {}", text(hook, "/command"), words(hook, "/args", " ")),
    };
    vec![
        text(hook, "/name"),
        text(hook, "/on"),
        asks.trim_end().to_owned(),
        match words(hook, "/tools", " ") {
            tools if tools.is_empty() => "all".to_owned(),
            tools => tools,
        },
        text(hook, "/timeout"),
        text(hook, "/on_failure"),
    ]
}
