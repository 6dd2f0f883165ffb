//! `gantry volumes ls | inspect | backup | rm | prune`: the persistent files of hosted servers.
//!
//! Removing asks for confirmation. Entry point: [`run`].

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::CliContext;
use super::as_json::AsJson;
use super::client::{Client, segment};
use super::failure::{Exit, Failure};
use super::find::Role;
use super::format::{bytes, count, list, number, pretty, text};
use super::images::freed_shown;
use super::prompt;
use super::screen::Screen;
use super::transfer::Transfer;
use crate::data_folder::create_private;

/// What `gantry volumes` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the volumes, what they take, and whether their servers are there
    Ls(AsJson),
    /// Show a volume
    Inspect {
        #[command(flatten)]
        volume: Volume,
        #[command(flatten)]
        shown: AsJson,
    },
    /// Write a volume's files as a tar archive
    Backup {
        #[command(flatten)]
        volume: Volume,
        /// The file to write, which must not be there yet; `-` for stdout
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Remove a volume with everything in it
    Rm {
        #[command(flatten)]
        volume: Volume,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        shown: AsJson,
    },
    /// Remove the volumes of servers that are not registered any more
    Prune {
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        shown: AsJson,
    },
}

/// A volume, by its server and its path.
#[derive(Debug, Args)]
struct Volume {
    /// The server, by name
    server: String,
    /// The path inside the server, such as `/data`
    path: String,
}

impl Volume {
    fn query(&self) -> String {
        format!(
            "server={}&path={}",
            segment(&self.server),
            segment(&self.path)
        )
    }
}

/// Lists, backs up or removes volumes.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    match &options.action {
        Action::Ls(shown) => {
            let answer = client.get("/api/v1/volumes").await?;
            let heading = ["server", "path", "size", "files", "used"];
            shown.list(screen, &answer, &heading, row);
        }
        Action::Inspect { volume, shown } => {
            let found = find(&client, volume).await?;
            if shown.is_wanted() {
                screen.line(&pretty(&found));
            } else {
                let size = bytes(number(&found, "/bytes").unwrap_or_default());
                let line = format!(
                    "{} {}: {size} in {}, {}",
                    volume.server,
                    volume.path,
                    count(number(&found, "/files").unwrap_or_default(), "file"),
                    used(&found)
                );
                screen.line(&Screen::safe(&line));
            }
        }
        Action::Backup { volume, output } => {
            let written = back_up(&client, volume, output).await?;
            if output.as_os_str() != "-" {
                let line = format!("{} in `{}`", bytes(written), output.display());
                screen.line(&line);
            }
        }
        Action::Rm { volume, yes, shown } => {
            let found = find(&client, volume).await?;
            let size = bytes(number(&found, "/bytes").unwrap_or_default());
            let question = format!(
                "Remove the volume {} of {} with {size}?",
                volume.path, volume.server
            );
            agree(*yes, shown, &question)?;
            let path = format!("/api/v1/volumes?{}", volume.query());
            client.delete(&path).await?;
            let value = json!({"removed": {"server": volume.server, "path": volume.path}});
            let line = format!("removed {} of {}", volume.path, volume.server);
            shown.done(screen, &value, &line);
        }
        Action::Prune { yes, shown } => {
            let answer = client.get("/api/v1/volumes").await?;
            let gone = list(&answer, "/items").iter();
            let gone = gone.filter(|volume| volume["has_server"] == false);
            let names: Vec<String> = gone
                .map(|volume| format!("{} {}", text(volume, "/server"), text(volume, "/path")))
                .collect();
            if !names.is_empty() {
                agree(*yes, shown, &format!("Remove {}?", names.join(", ")))?;
            }
            let freed = client.post("/api/v1/volumes/prune", None).await?;
            let line = match number(&freed, "/removed") {
                Some(0) | None => "nothing to remove".to_owned(),
                Some(_) => format!("pruned{}", freed_shown(&freed, "volume")),
            };
            shown.done(screen, &freed, &line);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks for confirmation, unless `--yes` was given. fault C13
fn agree(yes: bool, shown: &AsJson, question: &str) -> Result<(), Failure> {
    if !yes && (shown.is_wanted() || !prompt::is_possible()) {
        let message = "not a terminal: pass `--yes`";
        return Err(Failure::new(Exit::Failed, message));
    }
    match yes || prompt::yes(question) {
        true => Ok(()),
        false => Err(Failure::new(Exit::Failed, "nothing was removed")),
    }
}

async fn find(client: &Client, volume: &Volume) -> Result<Value, Failure> {
    let answer = client.get("/api/v1/volumes").await?;
    let mut all = list(&answer, "/items").iter();
    let found =
        all.find(|one| text(one, "/server") == volume.server && text(one, "/path") == volume.path);
    found.cloned().ok_or_else(|| {
        let message = format!("server `{}` has no volume `{}`", volume.server, volume.path);
        Failure::new(Exit::Failed, message).hint("`gantry volumes ls` lists them")
    })
}

/// Writes the archive and returns its size; an incomplete archive is deleted.
async fn back_up(client: &Client, volume: &Volume, output: &Path) -> Result<u64, Failure> {
    let path = format!("/api/v1/volumes/backup?{}", volume.query());
    let mut answer = Transfer::open(client, Method::GET, &path, "application/x-tar", None).await?;
    let failed = |error: io::Error| {
        let message = format!("cannot write `{}`", output.display());
        Failure::plain(Exit::Failed, message, &error)
    };
    let mut file = match output.as_os_str() == "-" {
        true => None,
        false => Some(create_private(output).map_err(failed)?),
    };
    let mut written = 0;
    let copied = loop {
        match answer.piece().await {
            Ok(None) => break Ok(()),
            Err(failure) => break Err(failure),
            Ok(Some(piece)) => {
                written += piece.len() as u64;
                let done = match &mut file {
                    Some(file) => file.write_all(&piece),
                    None => io::stdout().write_all(&piece),
                };
                if let Err(error) = done {
                    break Err(failed(error));
                }
            }
        }
    };
    if let Some(file) = file {
        let kept = copied.and_then(|()| file.sync_all().map_err(failed));
        if kept.is_err() && std::fs::remove_file(output).is_err() {
            // The incomplete file could not be deleted; the failure reports it.
        }
        return kept.map(|()| written);
    }
    copied.map(|()| written)
}

fn used(volume: &Value) -> &'static str {
    match (&volume["in_use"], &volume["has_server"]) {
        (Value::Bool(true), _) => "in use",
        (_, Value::Bool(true)) => "its server does not run",
        _ => "its server is gone",
    }
}

fn row(volume: &Value) -> Vec<String> {
    vec![
        text(volume, "/server"),
        text(volume, "/path"),
        bytes(number(volume, "/bytes").unwrap_or_default()),
        text(volume, "/files"),
        used(volume).to_owned(),
    ]
}
