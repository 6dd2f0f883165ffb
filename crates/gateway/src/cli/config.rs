//! `gantry config check`, `explain` and `schema`: errors in the files, the origin of each value,
//! and the JSON Schema.
//!
//! Starts nothing and shows no environment values. Entry point: [`run`].

mod explain;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use gantry_model::diagnose::Diagnose as _;
use serde_json::json;

use crate::config::diagnostic::Diagnostic;
use crate::config::plan::Plan;
use crate::config::schema;
use crate::data_folder::DataFolder;

use super::CliContext;
use super::failure::{Exit, Failure};
use super::files::{Files, Setup, refused};
use super::format::pretty;
use super::screen::Screen;
use super::up::Flags;

/// Arguments of `gantry config`.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check the configuration files, and show every error in its place
    Check(Check),
    /// Show each value and where it comes from
    Explain(Box<Explain>),
    /// Print the JSON Schema of the configuration, for editors
    Schema,
}

#[derive(Debug, Args)]
struct Check {
    #[command(flatten)]
    files: Files,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Explain {
    /// The server; by default the gateway and all servers
    server: Option<String>,
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    flags: Flags,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Checks or explains.
pub(super) fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let screen = &context.screen;
    if matches!(options.verb, Verb::Schema) {
        screen.line(&pretty(&schema::file()));
        return Ok(ExitCode::SUCCESS);
    }
    let data = DataFolder::at(context.data_path()?);
    match &options.verb {
        Verb::Schema => Ok(ExitCode::SUCCESS),
        Verb::Check(check) => {
            let setup = Setup::new(&check.files, data, context)?;
            report(setup.load(), check.json, screen)
        }
        Verb::Explain(options) => {
            let setup = Setup::new(&options.files, data, context)?;
            let plan = setup.plan(screen)?;
            let explained = explain::explain(&plan, &options.flags, &context.environment);
            explain::show(&explained, options.server.as_deref(), options.json, screen)
        }
    }
}

fn report(
    loaded: Result<Plan, Vec<Diagnostic>>,
    as_json: bool,
    screen: &Screen,
) -> Result<ExitCode, Failure> {
    let (plan, mistakes) = match loaded {
        Ok(mut plan) => {
            let mut mistakes = std::mem::take(&mut plan.mistakes);
            let ignored = std::mem::take(&mut plan.ignored).into_iter();
            mistakes.extend(ignored.map(|ignored| ignored.mistake));
            let shadows = plan.shadows.iter().map(ToString::to_string);
            plan.warnings.extend(shadows);
            (plan, mistakes)
        }
        Err(mistakes) => (Plan::default(), mistakes),
    };
    if as_json {
        let items: Vec<_> = mistakes
            .iter()
            .map(|mistake| {
                let (line, column) = mistake.place().unzip();
                json!({
                    "file": mistake.path(), "line": line, "column": column, "code": mistake.code(),
                    "server": mistake.server(), "message": mistake.to_string(), "help": mistake.hint(),
                })
            })
            .collect();
        let servers: Vec<_> = plan
            .servers
            .iter()
            .map(|planned| &planned.entry.name)
            .collect();
        let answer = json!({"ok": mistakes.is_empty(), "files": plan.files, "servers": servers, "mistakes": items, "warnings": plan.warnings});
        screen.line(&pretty(&answer));
        let code = if mistakes.is_empty() {
            0
        } else {
            Exit::Usage as u8
        };
        return Ok(ExitCode::from(code));
    }
    for warning in &plan.warnings {
        screen.line(&format!(
            "{} {}",
            screen.doubtful("warning:"),
            Screen::safe(warning)
        ));
    }
    if !mistakes.is_empty() {
        return Err(refused(&mistakes, screen));
    }
    for file in &plan.unapproved {
        let path = file.path.display();
        screen.advise(&format!(
            "`{path}` needs approval: run `gantry approve {path}`"
        ));
    }
    let count = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    };
    screen.line(&format!(
        "{} in {}, no errors",
        count(plan.servers.len(), "server"),
        count(plan.files.len(), "file")
    ));
    Ok(ExitCode::SUCCESS)
}
