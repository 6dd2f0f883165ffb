//! `gantry registration ls | show | approve | refuse`: changes that need a second person's
//! approval.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::CliContext;
use super::as_json::AsJson;
use super::client::segment;
use super::failure::Failure;
use super::find::Role;
use super::format::{pretty, text, words};

/// Arguments of `gantry registration`.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List what waits, or waited, for a second person
    Ls(AsJson),
    /// Show all that a registration asks for, as JSON
    Show(One),
    /// Approve somebody else's registration, and carry it out
    Approve(One),
    /// Refuse a registration, or take your own back
    Refuse(One),
}

#[derive(Debug, Args)]
struct One {
    /// Its id
    id: String,
    #[command(flatten)]
    shown: AsJson,
}

/// Shows or decides registrations.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    let place = |id: &str| format!("/api/v1/registrations/{}", segment(id));
    let (one, verb, said) = match &options.action {
        Action::Ls(shown) => {
            let answer = client.get_all("/api/v1/registrations").await?;
            let heading = ["id", "state", "act", "target", "asked by", "because"];
            shown.list(screen, &answer, &heading, row);
            return Ok(ExitCode::SUCCESS);
        }
        Action::Show(one) => {
            let answer = client.get(&place(&one.id)).await?;
            screen.line(&pretty(&answer));
            return Ok(ExitCode::SUCCESS);
        }
        Action::Approve(one) => (one, "approve", "approved"),
        Action::Refuse(one) => (one, "refuse", "refused"),
    };
    let path = format!("{}/{verb}", place(&one.id));
    let answer = client.post(&path, None).await?;
    let (act, target) = (text(&answer, "/act"), text(&answer, "/target"));
    let said = format!("{said} {act} of {target}");
    one.shown.done(screen, &answer, &said);
    Ok(ExitCode::SUCCESS)
}

fn row(registration: &Value) -> Vec<String> {
    vec![
        text(registration, "/id"),
        text(registration, "/state"),
        text(registration, "/act"),
        text(registration, "/target"),
        text(registration, "/asked_by"),
        words(registration, "/reasons", " "),
    ]
}
