//! `gantry grant ls | add | rm`: what agents, single keys and all agents of the project may use, may not
//! use, or may use only with an approval.
//!
//! Entry point: [`run`]. The flags that describe a grant are shared with `gantry policy test`.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use gantry_model::grant::{Condition, Grant, GrantError};
use serde_json::{Value, json};

use super::CliContext;
use super::as_json::AsJson;
use super::client::{Client, segment};
use super::failure::{Exit, Failure};
use super::find::Role;
use super::format::{list, number, text, time};

/// Arguments of `gantry grant`.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the grants with whom they are for and when they last decided a call
    Ls(Ls),
    /// Allow, deny or ask for what a pattern names
    Add(Add),
    /// Remove grants, by their ids
    Rm(Rm),
}

#[derive(Debug, Args)]
struct Ls {
    /// Only grants of this agent
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// Only grants on this group of servers
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Only grants that decided no call for so long, such as `90d`
    #[arg(long, value_name = "DAYS")]
    unused: Option<String>,
    #[command(flatten)]
    shown: AsJson,
}

#[derive(Debug, Args)]
struct Add {
    /// What it is about, as `server:item`: `files:read_*`, `@team:*`, `docs:resource:file:///*`
    pattern: String,
    /// The agent it is for [default: `default`]
    #[arg(long, value_name = "AGENT", conflicts_with_all = ["key", "all_agents"])]
    agent: Option<String>,
    /// The one key it is for, by its id
    #[arg(long, value_name = "ID", conflicts_with = "all_agents")]
    key: Option<String>,
    /// It is for every agent of the project
    #[arg(long)]
    all_agents: bool,
    /// Forbid it; wins over everything that allows it
    #[arg(long, conflicts_with = "ask")]
    deny: bool,
    /// Ask an approver before each call
    #[arg(long)]
    ask: bool,
    /// A condition on the arguments, such as `/path prefix /srv/`; may be given several times, and all
    /// must hold
    #[arg(long, value_name = "CONDITION")]
    when: Vec<String>,
    /// Another name for the one tool that it allows
    #[arg(long = "as", value_name = "NAME")]
    alias: Option<String>,
    #[command(flatten)]
    shown: AsJson,
}

#[derive(Debug, Args)]
struct Rm {
    /// The ids that `gantry grant ls` shows
    #[arg(required = true)]
    grants: Vec<String>,
    #[command(flatten)]
    shown: AsJson,
}

/// Lists, adds or removes grants.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    match &options.action {
        Action::Ls(ls) => {
            let mut asked = Vec::new();
            for (name, value) in [("agent", &ls.agent), ("group", &ls.group)] {
                asked.extend(
                    value
                        .iter()
                        .map(|value| format!("{name}={}", segment(value))),
                );
            }
            if let Some(unused) = &ls.unused {
                asked.push(format!("unused_days={}", days(unused)?));
            }
            let path = match asked.is_empty() {
                true => "/api/v1/grants".to_owned(),
                false => format!("/api/v1/grants?{}", asked.join("&")),
            };
            let answer = client.get_all(&path).await?;
            let heading = ["grant", "for", "what", "made", "last used"];
            ls.shown.list(screen, &answer, &heading, row);
        }
        Action::Add(add) => {
            let body = body(add)?;
            let before = client.get_all("/api/v1/grants").await?;
            let made = client.post("/api/v1/grants", Some(&body)).await?;
            let said = match made["state"] == "pending" {
                true => format!("waits for a second person as {}", text(&made, "/id")),
                false => format!(
                    "{} for {}{}",
                    text(&made, "/text"),
                    principal(&made),
                    replaced(&before, &made)
                ),
            };
            add.shown.done(screen, &made, &said);
        }
        Action::Rm(rm) => {
            for grant in &rm.grants {
                remove(&client, grant).await?;
            }
            let said = format!("removed {}", rm.grants.join(" "));
            rm.shown.done(screen, &json!({"removed": rm.grants}), &said);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Says which alias a grant had until now, if another one or none takes its place.
fn replaced(before: &Value, made: &Value) -> String {
    let mut known = list(before, "/items").iter();
    let old = known.find(|grant| grant["id"] == made["id"] && grant["alias"] != made["alias"]);
    match old.map(|grant| text(grant, "/alias")) {
        Some(alias) if !alias.is_empty() => format!("; `{alias}` is no longer its alias"),
        _ => String::new(),
    }
}

/// Removes a grant; an unknown one is an error, so that a typo is noticed.
async fn remove(client: &Client, grant: &str) -> Result<(), Failure> {
    let path = format!("/api/v1/grants/{}", segment(grant));
    client.get(&path).await?;
    client.delete(&path).await.map(drop)
}

fn body(add: &Add) -> Result<Value, Failure> {
    let wrong = |error: GrantError| Failure::of(Exit::Usage, &error);
    let grant = Grant::parse(&add.pattern).map_err(wrong)?;
    let mut when = grant.conditions().to_vec();
    for condition in &add.when {
        when.push(Condition::parse(condition).map_err(wrong)?);
    }
    let effect = match (add.deny, add.ask) {
        (true, _) => "deny",
        (false, true) => "ask",
        (false, false) => grant.effect().as_str(),
    };
    let mut body = json!({
        "effect": effect, "server": grant.server(), "item": grant.item(),
        "when": when.iter().map(Condition::to_json).collect::<Vec<_>>(),
    });
    if let Some(alias) = add.alias.as_deref().or(grant.alias()) {
        body["alias"] = alias.into();
    }
    match (&add.key, add.all_agents) {
        (Some(key), _) => body["key"] = key.as_str().into(),
        (None, true) => body["all_agents"] = true.into(),
        (None, false) => {
            let agent = add.agent.as_deref().unwrap_or(super::up::DEFAULT_AGENT);
            body["agent"] = agent.into();
        }
    }
    Ok(body)
}

/// Reads a number of days, with or without `d`.
pub(super) fn days(text: &str) -> Result<u32, Failure> {
    let digits = text.strip_suffix('d').unwrap_or(text);
    digits.parse().map_err(|_| {
        Failure::new(Exit::Usage, format!("`{text}` is not a number of days")).hint("write `90d`")
    })
}

/// Returns what the gateway says of servers that no agent may use, with how to grant them.
pub(super) async fn ungranted(client: &Client) -> Result<Vec<String>, Failure> {
    let health = client.get("/api/v1/health").await?;
    let warnings = list(&health, "/warnings").iter();
    let warnings = warnings.map(|warning| text(warning, ""));
    Ok(warnings
        .filter(|warning| warning.starts_with("no agent may use server"))
        .collect())
}

fn principal(grant: &Value) -> String {
    match (&grant["agent"], &grant["key"]) {
        (Value::String(agent), _) => agent.clone(),
        (_, Value::String(key)) => key.clone(),
        _ => "all agents".to_owned(),
    }
}

fn row(grant: &Value) -> Vec<String> {
    let used = number(grant, "/last_used_ms").map_or_else(|| "never".to_owned(), time);
    vec![
        text(grant, "/id"),
        principal(grant),
        text(grant, "/text"),
        number(grant, "/created_ms").map_or_else(String::new, time),
        used,
    ]
}
