//! `gantry agent ls | new | set | rm | restore`: agents, their grants and filters.
//!
//! Removing an agent that clients or verbs depend on asks first; `restore` recreates the default
//! agent and its key. Entry point: [`run`].

mod removal;
mod restore;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::CliContext;
use super::as_json::AsJson;
use super::client::segment;
use super::failure::Failure;
use super::find::Role;
use super::format::{list, number, text, time, words};
use super::limits::{self, LimitChange, LimitFlags};

/// Arguments of `gantry agent`.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the agents with what they may use
    Ls(AsJson),
    /// Create an agent; `gantry key new --agent NAME` then creates its key
    New(New),
    /// Change an agent; what is not given stays as it is
    Set(Set),
    /// Remove an agent with its grants and keys
    Rm(removal::Options),
    /// Recreate the default agent and the key that this folder's verbs and `gantry stdio` use
    Restore(AsJson),
}

#[derive(Debug, Args)]
struct New {
    /// Its name
    name: String,
    /// A description
    #[arg(long, default_value = "")]
    label: String,
    /// Its grants: `all`, or a pattern such as `files:read_*`; may be given several times
    #[arg(long, value_name = "PATTERN")]
    grant: Vec<String>,
    /// Show only granted tools that match a pattern; may be given several times
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Hide granted tools that match a pattern; may be given several times
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Trust the user ids that it sends; otherwise they are recorded as asserted
    #[arg(long)]
    trusted_user_ids: bool,
    #[command(flatten)]
    limits: LimitFlags,
    #[command(flatten)]
    shown: AsJson,
}

#[derive(Debug, Args)]
struct Set {
    /// Its name
    name: String,
    /// A description
    #[arg(long)]
    label: Option<String>,
    /// Its grants, replacing the current ones: `all`, `none`, or a pattern such as `files:read_*`;
    /// may be given several times
    #[arg(long, value_name = "PATTERN")]
    grant: Vec<String>,
    /// Show only granted tools that match a pattern, replacing the filter; may be given several
    /// times
    #[arg(long, value_name = "PATTERN", conflicts_with = "no_filter")]
    include: Vec<String>,
    /// Hide granted tools that match a pattern, replacing the filter; may be given several times
    #[arg(long, value_name = "PATTERN", conflicts_with = "no_filter")]
    exclude: Vec<String>,
    /// See all granted tools
    #[arg(long)]
    no_filter: bool,
    /// Whether the user ids that it sends are trusted, or recorded as asserted
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    trusted_user_ids: Option<bool>,
    #[command(flatten)]
    limits: LimitChange,
    #[command(flatten)]
    shown: AsJson,
}

/// Lists, creates, changes or removes agents.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    match &options.action {
        Action::Ls(shown) => {
            let answer = client.get_all("/api/v1/agents").await?;
            let heading = ["agent", "keys", "made", "label", "may use"];
            shown.list(screen, &answer, &heading, row);
        }
        Action::New(new) => {
            let made = client.post("/api/v1/agents", Some(&body(new)?)).await?;
            let may = match words(&made, "/grants", ", ") {
                may if may.is_empty() => "nothing yet".to_owned(),
                may => may,
            };
            let said = format!("{} may use {may}", text(&made, "/name"));
            new.shown.done(screen, &made, &said);
        }
        Action::Set(set) => {
            let body = patch(set)?;
            let path = format!("/api/v1/agents/{}", segment(&set.name));
            let changed = client.patch(&path, &body).await?;
            let said = format!("{} may use {}", text(&changed, "/name"), may_use(&changed));
            set.shown.done(screen, &changed, &said);
        }
        Action::Rm(options) => removal::run(options, &client, context).await?,
        Action::Restore(shown) => restore::run(*shown, &client, context).await?,
    }
    Ok(ExitCode::SUCCESS)
}

fn body(new: &New) -> Result<Value, Failure> {
    let mut body = json!({"name": new.name, "label": new.label});
    if new.grant.iter().any(|pattern| pattern == "all") {
        body["grant"] = "all".into();
    } else if !new.grant.is_empty() {
        body["grant"] = json!(new.grant);
    }
    if !new.include.is_empty() || !new.exclude.is_empty() {
        body["tools"] = json!({"include": new.include, "exclude": new.exclude});
    }
    if new.trusted_user_ids {
        body["trusted_user_ids"] = true.into();
    }
    if let Some(limits) = new.limits.body()? {
        body["limits"] = limits;
    }
    Ok(body)
}

/// Returns the requested changes; none at all is an error.
fn patch(set: &Set) -> Result<Value, Failure> {
    let mut body = Map::new();
    if let Some(label) = &set.label {
        body.insert("label".to_owned(), label.as_str().into());
    }
    match set.grant.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {}
        ["none"] => drop(body.insert("grant".to_owned(), json!([]))),
        _ if set.grant.iter().any(|pattern| pattern == "all") => {
            body.insert("grant".to_owned(), "all".into());
        }
        _ => drop(body.insert("grant".to_owned(), json!(set.grant))),
    }
    if set.no_filter || !set.include.is_empty() || !set.exclude.is_empty() {
        let filter = json!({"include": set.include, "exclude": set.exclude});
        body.insert("tools".to_owned(), filter);
    }
    if let Some(trusted) = set.trusted_user_ids {
        body.insert("trusted_user_ids".to_owned(), trusted.into());
    }
    set.limits.put_into(body, "agent set")
}

/// Returns an agent's grants as a phrase.
fn may_use(agent: &Value) -> String {
    let mut may = match words(agent, "/grants", ", ") {
        may if may.is_empty() => "nothing yet".to_owned(),
        may => may,
    };
    may.push_str(&narrowed(agent));
    may
}

/// Returns an agent's filter, whether its user ids are trusted, and its limits.
fn narrowed(agent: &Value) -> String {
    let mut may = String::new();
    for (word, pointer) in [("only", "/tools/include"), ("but not", "/tools/exclude")] {
        let patterns = words(agent, pointer, " ");
        if !patterns.is_empty() {
            may.push_str(&format!(", {word} {patterns}"));
        }
    }
    if agent["trusted_user_ids"] == true {
        may.push_str(", trusted user ids");
    }
    let limits = limits::shown(&agent["limits"]);
    if !limits.is_empty() {
        may.push_str(&format!(", at most {limits}"));
    }
    may
}

fn row(agent: &Value) -> Vec<String> {
    let may = format!("{}{}", words(agent, "/grants", ", "), narrowed(agent));
    vec![
        text(agent, "/name"),
        list(agent, "/keys").len().to_string(),
        number(agent, "/created_ms").map_or_else(String::new, time),
        text(agent, "/label"),
        may,
    ]
}
