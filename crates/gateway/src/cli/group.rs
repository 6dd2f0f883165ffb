//! `gantry group ls | new | set | rm`: named sets of servers; grants refer to one as `@NAME`.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::CliContext;
use super::as_json::AsJson;
use super::client::segment;
use super::failure::Failure;
use super::find::Role;
use super::format::{text, words};

/// Arguments of `gantry group`.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the groups with their servers
    Ls(AsJson),
    /// Create a group
    New(Members),
    /// Give a group other servers
    Set(Members),
    /// Remove a group that no grant names
    Rm(Rm),
}

#[derive(Debug, Args)]
struct Members {
    /// Its name, without the `@`
    name: String,
    /// Its servers: names, and patterns such as `db-*`
    #[arg(required = true)]
    servers: Vec<String>,
    #[command(flatten)]
    shown: AsJson,
}

#[derive(Debug, Args)]
struct Rm {
    /// Its name, without the `@`
    name: String,
    #[command(flatten)]
    shown: AsJson,
}

/// Lists, creates, changes or removes groups.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    let path = |name: &str| format!("/api/v1/groups/{}", segment(name));
    match &options.action {
        Action::Ls(shown) => {
            let answer = client.get_all("/api/v1/groups").await?;
            shown.list(screen, &answer, &["group", "servers"], row);
        }
        Action::New(new) => {
            let body = json!({"name": new.name, "servers": new.servers});
            let made = client.post("/api/v1/groups", Some(&body)).await?;
            new.shown.done(screen, &made, &said(&made));
        }
        Action::Set(set) => {
            let body = json!({"servers": set.servers});
            let changed = client.patch(&path(&set.name), &body).await?;
            set.shown.done(screen, &changed, &said(&changed));
        }
        Action::Rm(rm) => {
            // An unknown one is an error, so that a typo is noticed.
            client.get(&path(&rm.name)).await?;
            client.delete(&path(&rm.name)).await?;
            let said = format!("removed {}", rm.name);
            rm.shown.done(screen, &json!({"removed": rm.name}), &said);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn said(group: &Value) -> String {
    let members = words(group, "/servers", " ");
    format!("@{} is {members}", text(group, "/name"))
}

fn row(group: &Value) -> Vec<String> {
    let name = format!("@{}", text(group, "/name"));
    vec![name, words(group, "/servers", " ")]
}
