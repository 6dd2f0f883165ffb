//! `gantry secret set | ls | rotate | bind | unbind | rm | rekey`: the project's secrets.
//!
//! Values come from a prompt without echo or from stdin, never from the command line, which other
//! users can see. `rekey` needs a data folder whose gateway is stopped. Entry point: [`run`].

use std::io::Read as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use gantry_engine::{Actor, EngineConfig, StoreConfig};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::CliContext;
use super::as_json::{AsJson, Named};
use super::client::segment;
use super::failure::{Exit, Failure};
use super::find::Role;
use super::format::{list, shown_time, text};
use super::prompt;
use super::screen::Screen;
use crate::config::env::GANTRY_STORE;
use crate::config::master_key::KeySource;

/// More than the maximum size of a value.
const LONGEST: u64 = 1 << 20;

/// What `gantry secret` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Set a secret; its value comes from a prompt or from stdin
    Set {
        /// Its name, as in `${NAME}`
        name: String,
        /// A server that may be given it; may be given several times [default: those it was bound to]
        #[arg(long = "server", value_name = "SERVER")]
        servers: Vec<String>,
        /// Send it to the origin of this URL only, in headers
        #[arg(long, value_name = "URL", requires = "servers")]
        origin: Option<String>,
        #[command(flatten)]
        shown: AsJson,
    },
    /// List the secrets, their versions and which servers may be given them
    Ls(AsJson),
    /// Give a secret another value, and restart the servers that use it
    Rotate(Named),
    /// Let a server as it is now be given a secret, without its value; for approvers
    Bind {
        /// Its name
        name: String,
        /// The server
        #[arg(long, value_name = "SERVER")]
        server: String,
        /// Send it to the origin of this URL only, in headers
        #[arg(long, value_name = "URL")]
        origin: Option<String>,
        #[command(flatten)]
        shown: AsJson,
    },
    /// Take a secret away from a server
    Unbind {
        /// Its name
        name: String,
        /// The server
        #[arg(long, value_name = "SERVER")]
        server: String,
        #[command(flatten)]
        shown: AsJson,
    },
    /// Remove a secret
    Rm(Named),
    /// Encrypt everything with another master key; the gateway must be stopped
    Rekey(Rekey),
}

/// How the master key is changed.
#[derive(Debug, Args)]
struct Rekey {
    /// The key in use: `file:PATH`, `env:NAME` or `command:PROGRAM` [default: `data.key` of the data folder]
    #[arg(long, value_name = "SOURCE")]
    master_key: Option<KeySource>,
    /// The new key, from a source of the same kind [default: a new `data.key`]
    #[arg(long, value_name = "SOURCE")]
    new_key: Option<KeySource>,
    /// The old key is lost: remove everything it had encrypted
    #[arg(long, conflicts_with = "new_key")]
    lost: bool,
    /// The store [default: `gantry.db` in the data folder]
    #[arg(long, value_name = "URL|PATH")]
    store: Option<StoreConfig>,
    #[command(flatten)]
    shown: AsJson,
}

/// Sets, lists, binds or removes secrets.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let screen = &context.screen;
    if let Action::Rekey(rekey) = &options.action {
        return change_key(rekey, context).await;
    }
    let client = context.client(Role::Admin)?;
    match &options.action {
        Action::Set {
            name,
            servers,
            origin,
            shown,
        } => {
            let value = value(name)?;
            let mut body = json!({"value": value.as_str()});
            if !servers.is_empty() {
                body["servers"] = json!(servers);
            }
            if let Some(origin) = origin {
                body["origin"] = origin.as_str().into();
            }
            let set = client.put(&path(name), &body).await?;
            said(*shown, screen, &set, "set");
        }
        Action::Ls(shown) => {
            let answer = client.get_all("/api/v1/secrets").await?;
            let heading = ["secret", "version", "servers", "last used", "fingerprint"];
            shown.list(screen, &answer, &heading, row);
        }
        Action::Rotate(Named { name, shown }) => {
            // An unknown name is an error, so that a typo creates no secret.
            client.get(&path(name)).await?;
            let value = value(name)?;
            let body = json!({"value": value.as_str()});
            let set = client.put(&path(name), &body).await?;
            said(*shown, screen, &set, "rotated");
        }
        Action::Bind {
            name,
            server,
            origin,
            shown,
        } => {
            let mut body = json!({});
            if let Some(origin) = origin {
                body["origin"] = origin.as_str().into();
            }
            let bound = client.put(&binding(name, server), &body).await?;
            said(*shown, screen, &bound, "bound");
        }
        Action::Unbind {
            name,
            server,
            shown,
        } => {
            let bound = client.delete(&binding(name, server)).await?;
            said(*shown, screen, &bound, "unbound");
        }
        Action::Rm(Named { name, shown }) => {
            client.get(&path(name)).await?;
            client.delete(&path(name)).await?;
            let line = format!("removed {name}");
            shown.done(screen, &json!({"removed": name}), &line);
        }
        Action::Rekey(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn path(name: &str) -> String {
    format!("/api/v1/secrets/{}", segment(name))
}

fn binding(name: &str, server: &str) -> String {
    format!("{}/bindings/{}", path(name), segment(server))
}

/// Asks for a value without echo, or reads all of stdin; a final line break is not part of it.
fn value(name: &str) -> Result<Zeroizing<String>, Failure> {
    let none = || Failure::new(Exit::Usage, "no value was given");
    if prompt::is_possible() {
        let value = prompt::secret(&format!("value of {name}")).map(Zeroizing::new);
        return value.filter(|value| !value.is_empty()).ok_or_else(none);
    }
    let mut value = Zeroizing::new(String::new());
    let read = std::io::stdin()
        .lock()
        .take(LONGEST)
        .read_to_string(&mut value);
    read.map_err(|error| Failure::plain(Exit::Failed, "stdin cannot be read", &error))?;
    let trimmed = value.strip_suffix('\n').unwrap_or(&value);
    let trimmed = trimmed.strip_suffix('\r').unwrap_or(trimmed);
    match trimmed.is_empty() {
        true => Err(none().hint(format!("pipe it in: `gantry secret set {name} < FILE`"))),
        false => Ok(Zeroizing::new(trimmed.to_owned())),
    }
}

/// Prints the result for a secret, and what is still to be done.
fn said(shown: AsJson, screen: &Screen, secret: &Value, what: &str) {
    let name = text(secret, "/name");
    let bound = list(secret, "/bindings").iter();
    let bound: Vec<String> = bound.map(|binding| text(binding, "/server")).collect();
    let servers = match bound.is_empty() {
        true => format!("bound to no server yet: `gantry secret bind {name} --server SERVER`"),
        false => format!("for {}", bound.join(", ")),
    };
    let mut line = format!(
        "{what} {name} (version {}), {servers}",
        text(secret, "/version")
    );
    let restarted = list(secret, "/restarted").iter();
    let restarted: Vec<&str> = restarted.filter_map(Value::as_str).collect();
    if !restarted.is_empty() {
        line.push_str(&format!("; restarted {}", restarted.join(", ")));
    }
    if secret["redacted"] == false {
        line.push_str("; too short or too regular to be redacted from what servers send");
    }
    shown.done(screen, secret, &line);
}

fn row(secret: &Value) -> Vec<String> {
    let bound = list(secret, "/bindings").iter().map(|binding| {
        let server = text(binding, "/server");
        match binding["in_force"] == true {
            true => server,
            false => format!("{server} (changed)"),
        }
    });
    let used = match text(secret, "/last_used") {
        used if used.is_empty() => "never".to_owned(),
        used => format!("{} by {}", shown_time(&used), text(secret, "/last_used_by")),
    };
    vec![
        text(secret, "/name"),
        text(secret, "/version"),
        bound.collect::<Vec<_>>().join(", "),
        used,
        text(secret, "/fingerprint"),
    ]
}

/// Changes the master key of the data folder.
async fn change_key(asked: &Rekey, context: &CliContext) -> Result<ExitCode, Failure> {
    let screen = &context.screen;
    let read = |source: &KeySource| {
        let key = source.read(&context.environment);
        key.map_err(|why| Failure::new(Exit::Usage, format!("no key from `{source}`: {why}")))
    };
    let mut config = EngineConfig::new(context.data_path()?);
    let variable = context.environment.filled(GANTRY_STORE);
    let variable = variable.map(str::parse).transpose();
    let variable =
        variable.map_err(|error| Failure::plain(Exit::Usage, "invalid `GANTRY_STORE`", &error))?;
    config.store = asked.store.clone().or(variable).unwrap_or(config.store);
    config.master_key = asked.master_key.as_ref().map(read).transpose()?;
    let failed = |error: gantry_engine::EngineError| Failure::of(Exit::Failed, &error);
    let by = Actor::files("gantry secret rekey");
    if asked.lost {
        let gone = gantry_engine::forget_secrets(&config, &by)
            .await
            .map_err(failed)?;
        let line = format!(
            "removed {gone} secrets and tokens; set them again, and register the servers again that were \
             given values"
        );
        asked.shown.done(screen, &json!({"removed": gone}), &line);
        return Ok(ExitCode::SUCCESS);
    }
    let new = asked.new_key.as_ref().map(read).transpose()?;
    let done = gantry_engine::rekey(&config, &by, new)
        .await
        .map_err(failed)?;
    let line = format!(
        "{} secrets and tokens and {} servers are encrypted with the key {}",
        done.values, done.servers, done.key_id
    );
    let value = json!({"values": done.values, "servers": done.servers, "key_id": done.key_id});
    asked.shown.done(screen, &value, &line);
    Ok(ExitCode::SUCCESS)
}
