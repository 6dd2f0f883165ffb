//! `gantry agent ls | new | rm`: who keys speak for, and what they may use.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::Surroundings;
use super::as_json::AsJson;
use super::client::segment;
use super::failure::Failure;
use super::find::Role;
use super::format::{list, number, text, time};

/// What `gantry agent` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the agents with what they may use
    Ls(AsJson),
    /// Make an agent; `gantry key new --agent NAME` then makes its key
    New(New),
    /// Remove an agent with its grants and keys
    Rm {
        /// The agent's name
        name: String,
        #[command(flatten)]
        shown: AsJson,
    },
}

#[derive(Debug, Args)]
struct New {
    /// Its name
    name: String,
    /// What a person says of it
    #[arg(long, default_value = "")]
    label: String,
    /// What it may use: `all`, or a pattern such as `files:read_*`; may be given several times
    #[arg(long, value_name = "PATTERN")]
    grant: Vec<String>,
    /// See only the granted tools that fit a pattern; may be given several times
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Do not see the granted tools that fit a pattern; may be given several times
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Take the user ids that it gives for true; without this they are recorded as its assertions
    #[arg(long)]
    trusted_user_ids: bool,
    #[command(flatten)]
    shown: AsJson,
}

/// Lists, makes or removes agents.
pub(super) async fn run(
    options: &Options,
    surroundings: &Surroundings,
) -> Result<ExitCode, Failure> {
    let (client, screen) = (surroundings.client(Role::Admin)?, &surroundings.screen);
    match &options.action {
        Action::Ls(shown) => {
            let answer = client.get_all("/api/v1/agents").await?;
            let heading = ["agent", "keys", "made", "label", "may use"];
            shown.list(screen, &answer, &heading, row);
        }
        Action::New(new) => {
            let made = client.post("/api/v1/agents", Some(&body(new))).await?;
            let may = match words(&made, "/grants") {
                may if may.is_empty() => "nothing yet".to_owned(),
                may => may,
            };
            let said = format!("{} may use {may}", text(&made, "/name"));
            new.shown.done(screen, &made, &said);
        }
        Action::Rm { name, shown } => {
            let path = format!("/api/v1/agents/{}", segment(name));
            client.get(&path).await?;
            client.delete(&path).await?;
            let said = format!("{name} is removed, and its keys open nothing any more");
            shown.done(screen, &json!({"removed": name}), &said);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn body(new: &New) -> Value {
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
    body
}

fn words(value: &Value, pointer: &str) -> String {
    let words: Vec<String> = list(value, pointer)
        .iter()
        .map(|word| text(word, ""))
        .collect();
    words.join(" ")
}

fn row(agent: &Value) -> Vec<String> {
    let mut may = words(agent, "/grants");
    for (word, pointer) in [("only", "/tools/include"), ("but not", "/tools/exclude")] {
        let patterns = words(agent, pointer);
        if !patterns.is_empty() {
            may.push_str(&format!(", {word} {patterns}"));
        }
    }
    if agent["trusted_user_ids"] == true {
        may.push_str(", trusted user ids");
    }
    vec![
        text(agent, "/name"),
        list(agent, "/keys").len().to_string(),
        number(agent, "/created_ms").map_or_else(String::new, time),
        text(agent, "/label"),
        may,
    ]
}
