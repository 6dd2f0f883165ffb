//! `gantry key ls | new | revoke`: keys of agents and administrators.
//!
//! A key's text is shown once, or written to a file that only its owner can read.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::CliContext;
use super::as_json::AsJson;
use super::client::{Client, segment};
use super::failure::{Exit, Failure};
use super::find::Role;
use super::format::{list, number, pretty, text, time};

/// Arguments of `gantry key`.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the keys, without their text
    Ls(AsJson),
    /// Create a key; its text is shown only now
    New(New),
    /// Revoke a key immediately
    Revoke {
        /// The key's id, as `gantry key ls` shows it
        key: String,
        #[command(flatten)]
        shown: AsJson,
    },
}

#[derive(Debug, Args)]
struct New {
    /// The agent it identifies
    #[arg(long, default_value = "default", conflicts_with = "admin")]
    agent: String,
    /// Create an admin key instead
    #[arg(long)]
    admin: bool,
    /// What an admin key may do: `installation`, `admin`, `operator`, `approver` or `auditor`
    #[arg(long, requires = "admin", value_name = "ROLE")]
    role: Option<String>,
    /// Whom an admin key identifies [default: `admin`, or the role of approvers and auditors]
    #[arg(long, requires = "admin", value_name = "NAME")]
    name: Option<String>,
    /// A label
    #[arg(long, default_value = "")]
    label: String,
    /// How long it is valid, such as `12h`; by default until it is revoked
    #[arg(long, value_name = "TIME")]
    expires_in: Option<String>,
    /// Write it to a new private file, instead of showing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    shown: AsJson,
}

/// Lists, creates or revokes keys.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    match &options.action {
        Action::Ls(shown) => {
            let mut answer = client.get_all("/api/v1/keys").await?;
            if !shown.is_wanted() {
                sort(&mut answer);
            }
            let heading = ["key", "kind", "role", "agent", "made", "ends", "label"];
            shown.list(screen, &answer, &heading, row);
        }
        Action::New(new) => {
            let mut body = json!({"kind": "agent", "agent": new.agent, "label": new.label});
            if new.admin {
                body = json!({"kind": "admin", "label": new.label});
                if let Some(role) = &new.role {
                    body["role"] = role.as_str().into();
                }
                if let Some(name) = &new.name {
                    body["agent"] = name.as_str().into();
                }
            }
            if let Some(period) = &new.expires_in {
                body["expires_in"] = period.as_str().into();
            }
            let file = new.out.as_deref().map(create).transpose()?;
            let made = client.post("/api/v1/keys", Some(&body)).await;
            if let (Err(_), Some(path)) = (&made, &new.out) {
                // It is empty, and we created it.
                drop(std::fs::remove_file(path));
            }
            let mut made = made?;
            if let (Some(mut file), Some(path)) = (file, &new.out) {
                let key = text(&made, "/key");
                let written = writeln!(file, "{key}").and_then(|()| file.sync_all());
                written.map_err(|error| unwritable(path, &error))?;
                made["key"] = Value::Null;
                made["file"] = path.display().to_string().into();
            }
            if new.shown.is_wanted() {
                screen.line(&pretty(&made));
            } else {
                let place = [text(&made, "/key"), text(&made, "/file")].concat();
                screen.error_line(&format!(
                    "{} for {}",
                    text(&made, "/id"),
                    text(&made, "/agent")
                ));
                screen.line(&place);
            }
        }
        Action::Revoke { key, shown } => {
            known(&client, key).await?;
            client
                .delete(&format!("/api/v1/keys/{}", segment(key)))
                .await?;
            let said = format!("revoked {key}");
            shown.done(screen, &json!({"revoked": key}), &said);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses an unknown id, so that a typo is not reported as revoked.
async fn known(client: &Client, id: &str) -> Result<(), Failure> {
    let keys = client.get_all("/api/v1/keys").await?;
    let mut ids = list(&keys, "/items").iter().map(|key| text(key, "/id"));
    match ids.any(|known| known == id) {
        true => Ok(()),
        false => Err(Failure::new(Exit::Failed, format!("no key `{id}`"))
            .hint("`gantry key ls` lists the active keys by id")),
    }
}

/// Sorts keys by agent, the oldest first.
fn sort(answer: &mut Value) {
    if let Some(keys) = answer["items"].as_array_mut() {
        keys.sort_by_cached_key(|key| {
            let row = row(key);
            [1, 2, 3, 4, 6].map(|column| row[column].clone())
        });
    }
}

fn row(key: &Value) -> Vec<String> {
    let moment = |pointer: &str| number(key, pointer).map_or_else(String::new, time);
    vec![
        text(key, "/id"),
        text(key, "/kind"),
        text(key, "/role"),
        text(key, "/agent"),
        moment("/created_ms"),
        moment("/expires_ms"),
        text(key, "/label"),
    ]
}

/// Creates the file before the key, so that no key is lost.
fn create(path: &Path) -> Result<std::fs::File, Failure> {
    let opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    opened.map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::plain(
        Exit::Failed,
        format!("cannot write `{}`", path.display()),
        error,
    )
}
