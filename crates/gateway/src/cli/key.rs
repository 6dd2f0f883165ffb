//! `gantry key ls | new | set | rotate | revoke`: keys of agents and administrators.
//!
//! A key's text is shown once, or written to a file that only its owner can read.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::CliContext;
use super::as_json::AsJson;
use super::client::{Client, segment};
use super::failure::{Exit, Failure};
use super::find::Role;
use super::format::{list, number, pretty, text, time, words};
use super::limits::{self, LimitChange, LimitFlags};
use super::screen::Screen;
use crate::data_folder::create_private;

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
    /// Change a key; what is not given stays as it is
    Set(Set),
    /// Replace a key; the old one stays valid for a while. The new text is shown only now
    Rotate(Rotate),
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
    /// The role of an admin key: `installation`, `admin`, `operator`, `approver` or `auditor`
    #[arg(long, requires = "admin", value_name = "ROLE")]
    role: Option<String>,
    /// The name of the administrator [default: `admin`, or the role of approvers and auditors]
    #[arg(long, requires = "admin", value_name = "NAME")]
    name: Option<String>,
    /// A label
    #[arg(long, default_value = "")]
    label: String,
    /// How long it is valid, such as `12h`; by default until it is revoked
    #[arg(long, value_name = "TIME")]
    expires_in: Option<String>,
    /// A range of addresses that it may be used from, such as `10.0.0.0/8`; by default all; may be given
    /// several times
    #[arg(long, value_name = "RANGE")]
    from: Vec<String>,
    #[command(flatten)]
    limits: LimitFlags,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
struct Set {
    /// The key's id, as `gantry key ls` shows it
    key: String,
    /// A label
    #[arg(long)]
    label: Option<String>,
    /// A range of addresses that it may be used from, replacing the current ones: such as `10.0.0.0/8`, or
    /// `anywhere`; may be given several times
    #[arg(long, value_name = "RANGE")]
    from: Vec<String>,
    #[command(flatten)]
    limits: LimitChange,
    #[command(flatten)]
    shown: AsJson,
}

#[derive(Debug, Args)]
struct Rotate {
    /// The key's id, as `gantry key ls` shows it
    key: String,
    /// How long the old key stays valid
    #[arg(long, value_name = "TIME", default_value = "24h")]
    overlap: String,
    #[command(flatten)]
    output: Output,
}

/// Where the text of a new key goes.
#[derive(Debug, Args)]
struct Output {
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
            let heading = [
                "key",
                "kind",
                "role",
                "agent",
                "made",
                "ends",
                "last used",
                "from",
                "limits",
                "label",
            ];
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
            if !new.from.is_empty() {
                body["sources"] = json!(new.from);
            }
            if let Some(limits) = new.limits.body()? {
                body["limits"] = limits;
            }
            let agent = &new.agent;
            let is_new = !new.admin && is_unknown(&client, agent).await?;
            make(&client, screen, "/api/v1/keys", &body, &new.output).await?;
            if is_new && !new.output.shown.is_wanted() {
                let said = format!(
                    "agent `{agent}` is new and may use nothing yet: \
                     `gantry grant add --agent {agent} SERVER:TOOL`"
                );
                screen.error_line(&screen.typed(&Screen::safe(&said)));
            }
        }
        Action::Set(set) => {
            let path = format!("/api/v1/keys/{}", segment(&set.key));
            let changed = client.patch(&path, &patch(set)?).await?;
            let said = format!("changed {}", text(&changed, "/id"));
            set.shown.done(screen, &changed, &said);
        }
        Action::Rotate(rotate) => {
            let path = format!("/api/v1/keys/{}/rotate", segment(&rotate.key));
            let body = json!({"overlap": rotate.overlap});
            let made = make(&client, screen, &path, &body, &rotate.output).await?;
            if !rotate.output.shown.is_wanted() {
                let end = number(&made, "/replaces/expires_ms").map_or_else(String::new, time);
                screen.error_line(&format!("{} ends {end}", rotate.key));
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

/// Has a key made; shows its text, or writes it to a file that is created first, so that no key is lost.
async fn make(
    client: &Client,
    screen: &Screen,
    path: &str,
    body: &Value,
    output: &Output,
) -> Result<Value, Failure> {
    let file = output.out.as_deref().map(create).transpose()?;
    let made = client.post(path, Some(body)).await;
    if let (Err(_), Some(path)) = (&made, &output.out) {
        // It is empty, and we created it.
        drop(std::fs::remove_file(path));
    }
    let mut made = made?;
    if let (Some(mut file), Some(path)) = (file, &output.out) {
        let key = text(&made, "/key");
        let written = writeln!(file, "{key}").and_then(|()| file.sync_all());
        written.map_err(|error| unwritable(path, &error))?;
        made["key"] = Value::Null;
        made["file"] = path.display().to_string().into();
    }
    if output.shown.is_wanted() {
        screen.line(&pretty(&made));
    } else {
        let place = [text(&made, "/key"), text(&made, "/file")].concat();
        let written = match output.out {
            Some(_) => ", written to",
            None => "",
        };
        screen.error_line(&format!(
            "{} for {}{written}",
            text(&made, "/id"),
            text(&made, "/agent")
        ));
        screen.line(&place);
    }
    Ok(made)
}

/// Returns the requested changes; none at all is an error.
fn patch(set: &Set) -> Result<Value, Failure> {
    let mut body = Map::new();
    if let Some(label) = &set.label {
        body.insert("label".to_owned(), label.as_str().into());
    }
    match set.from.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {}
        ["anywhere"] => drop(body.insert("sources".to_owned(), json!([]))),
        _ => drop(body.insert("sources".to_owned(), json!(set.from))),
    }
    set.limits.put_into(body, "key set")
}

/// Returns whether a key would make its agent.
async fn is_unknown(client: &Client, agent: &str) -> Result<bool, Failure> {
    let agents = client.get_all("/api/v1/agents").await?;
    let mut names = list(&agents, "/items").iter();
    Ok(!names.any(|known| text(known, "/name") == agent))
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
            [1, 2, 3, 4, 9].map(|column| row[column].clone())
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
        moment("/last_used_ms"),
        text(key, "/last_used_from"),
        may_use(key),
        text(key, "/label"),
    ]
}

/// Returns from where and how much a key may be used.
fn may_use(key: &Value) -> String {
    let sources = words(key, "/sources", " ");
    let from = (!sources.is_empty()).then(|| format!("from {sources}"));
    let limits = Some(limits::shown(&key["limits"])).filter(|shown| !shown.is_empty());
    let parts: Vec<String> = from.into_iter().chain(limits).collect();
    parts.join("; ")
}

/// Creates the file before the key, so that no key is lost.
fn create(path: &Path) -> Result<std::fs::File, Failure> {
    create_private(path).map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::plain(
        Exit::Failed,
        format!("cannot write `{}`", path.display()),
        error,
    )
}
