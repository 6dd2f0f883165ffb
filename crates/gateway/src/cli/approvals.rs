//! `gantry approvals ls | show | allow | refuse`: calls that wait for an approver.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::CliContext;
use super::as_json::AsJson;
use super::client::segment;
use super::failure::Failure;
use super::find::Role;
use super::format::{number, pretty, shown_time, text};

/// How much of the arguments is shown in the list.
const SHOWN: usize = 60;

/// Arguments of `gantry approvals`.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the calls that wait, the oldest first
    Ls(AsJson),
    /// Show a call with its arguments, as JSON
    Show {
        /// The call's id
        call: String,
        #[command(flatten)]
        shown: AsJson,
    },
    /// Allow a call, once
    Allow(Decision),
    /// Refuse a call
    Refuse(Decision),
}

#[derive(Debug, Args)]
struct Decision {
    /// The call's id
    call: String,
    /// Why, for the record and for the agent of a refused call
    #[arg(long, default_value = "")]
    reason: String,
    #[command(flatten)]
    shown: AsJson,
}

/// Shows or decides on calls that wait.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    let place = |call: &str| format!("/api/v1/approvals/{}", segment(call));
    let (one, verb, said) = match &options.action {
        Action::Ls(shown) => {
            let answer = client.get_all("/api/v1/approvals").await?;
            let heading = ["call", "agent", "tool", "expires", "arguments"];
            shown.list(screen, &answer, &heading, row);
            return Ok(ExitCode::SUCCESS);
        }
        Action::Show { call, shown: _ } => {
            let answer = client.get(&place(call)).await?;
            screen.line(&pretty(&answer));
            // Beside the JSON, which is read by programs.
            let shown = text(&answer, "/arguments");
            if serde_json::from_str::<IgnoredAny>(&shown).is_err() {
                let whole = number(&answer, "/arguments_bytes").unwrap_or_default();
                screen.error_line(&format!("the arguments are cut: they have {whole} bytes"));
            }
            return Ok(ExitCode::SUCCESS);
        }
        Action::Allow(one) => (one, "allow", "allowed"),
        Action::Refuse(one) => (one, "refuse", "refused"),
    };
    let body = json!({ "reason": one.reason });
    let path = format!("{}/{verb}", place(&one.call));
    let answer = client.post(&path, Some(&body)).await?;
    let said = format!(
        "{said} the call of {} to {}:{}",
        text(&answer, "/agent"),
        text(&answer, "/server"),
        text(&answer, "/name")
    );
    one.shown.done(screen, &answer, &said);
    Ok(ExitCode::SUCCESS)
}

fn row(held: &Value) -> Vec<String> {
    let arguments = text(held, "/arguments");
    let mut short: String = arguments.chars().take(SHOWN).collect();
    if short.len() < arguments.len() {
        short.push('…');
    }
    vec![
        text(held, "/call"),
        text(held, "/agent"),
        format!("{}:{}", text(held, "/server"), text(held, "/name")),
        shown_time(&text(held, "/expires")),
        short,
    ]
}
