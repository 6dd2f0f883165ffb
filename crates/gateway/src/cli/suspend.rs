//! `gantry suspend KIND [NAME]` and `gantry resume KIND [NAME]`: stop an agent, a server, a tool or
//! the project at once, and resume it later with the same grants. `gantry suspend ls` lists what is
//! suspended.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::CliContext;
use super::as_json::AsJson;
use super::client::segment;
use super::failure::{Exit, Failure};
use super::find::Role;
use super::format::{number, text, time};

/// What can be suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Every agent of the project
    Project,
    /// One agent
    Agent,
    /// One server
    Server,
    /// One tool, written `server:tool`
    Tool,
    /// List what is suspended
    Ls,
}

/// Arguments of `gantry suspend` and `gantry resume`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The kind of what is suspended
    kind: Kind,
    /// Its name; none for the project
    name: Option<String>,
    /// Why
    #[arg(long, default_value = "")]
    reason: String,
    #[command(flatten)]
    shown: AsJson,
}

/// Suspends something, or lists what is suspended.
pub(super) async fn suspend(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    if options.kind == Kind::Ls {
        let answer = client.get("/api/v1/suspensions").await?;
        let heading = ["kind", "name", "since", "by", "reason"];
        options.shown.list(screen, &answer, &heading, row);
        return Ok(ExitCode::SUCCESS);
    }
    let (kind, name) = named(options)?;
    let body = json!({"kind": kind, "name": name, "reason": options.reason});
    let answer = client.post("/api/v1/suspensions", Some(&body)).await?;
    let said = format!("suspended {}", shown(kind, name));
    options.shown.done(screen, &answer, &said);
    Ok(ExitCode::SUCCESS)
}

/// Ends a suspension.
pub(super) async fn resume(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    let (kind, name) = named(options)?;
    let path = format!(
        "/api/v1/suspensions?kind={}&name={}",
        segment(kind),
        segment(name)
    );
    client.delete(&path).await?;
    let said = format!("resumed {}", shown(kind, name));
    let value = json!({"resumed": {"kind": kind, "name": name}});
    options.shown.done(screen, &value, &said);
    Ok(ExitCode::SUCCESS)
}

fn named(options: &Options) -> Result<(&'static str, &str), Failure> {
    let name = options.name.as_deref();
    let needed = |kind: &'static str| match name {
        Some(name) => Ok((kind, name)),
        None => Err(Failure::new(
            Exit::Usage,
            format!("which {kind}? its name is missing"),
        )),
    };
    match options.kind {
        Kind::Project if name.is_some() => Err(Failure::new(
            Exit::Usage,
            "the project is chosen by `--project NAME`",
        )),
        Kind::Project => Ok(("project", "")),
        Kind::Agent => needed("agent"),
        Kind::Server => needed("server"),
        Kind::Tool => needed("tool"),
        Kind::Ls => Err(Failure::new(
            Exit::Usage,
            "`gantry suspend ls` lists what is suspended",
        )),
    }
}

fn shown(kind: &str, name: &str) -> String {
    match name {
        "" => format!("the {kind}"),
        name => format!("{kind} {name}"),
    }
}

fn row(suspension: &Value) -> Vec<String> {
    vec![
        text(suspension, "/kind"),
        text(suspension, "/name"),
        number(suspension, "/since_ms").map_or_else(String::new, time),
        text(suspension, "/by"),
        text(suspension, "/reason"),
    ]
}
