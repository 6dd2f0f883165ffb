//! `gantry agent ls | new | rm`: who keys speak for, and what they may use.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::Surroundings;
use super::client::segment;
use super::failure::Failure;
use super::find::Role;
use super::format::{list, number, pretty, text, time};
use super::screen::Screen;

/// What `gantry agent` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the agents with what they may use
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make an agent; `gantry key new --agent NAME` then makes its key
    New(New),
    /// Remove an agent with its grants and keys
    Rm {
        /// The agent's name
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
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
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Lists, makes or removes agents.
pub(super) async fn run(
    options: &Options,
    surroundings: &Surroundings,
) -> Result<ExitCode, Failure> {
    let (client, screen) = (surroundings.client(Role::Admin)?, &surroundings.screen);
    match &options.action {
        Action::Ls { json } => {
            let answer = client.get_all("/api/v1/agents").await?;
            show(&answer, *json, screen);
        }
        Action::New(new) => {
            let made = client.post("/api/v1/agents", Some(&body(new))).await?;
            if new.json {
                screen.line(&pretty(&made));
            } else {
                let may = words(&made, "/grants");
                let may = if may.is_empty() {
                    "nothing yet".to_owned()
                } else {
                    may
                };
                let line = format!("{} may use {may}", text(&made, "/name"));
                screen.line(&Screen::safe(&line));
            }
        }
        Action::Rm { name, json } => {
            let path = format!("/api/v1/agents/{}", segment(name));
            client.get(&path).await?;
            client.delete(&path).await?;
            if *json {
                screen.line(&pretty(&json!({"removed": name})));
            } else {
                screen.line(&Screen::safe(&format!(
                    "{name} is removed, and its keys open nothing any more"
                )));
            }
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
    body
}

fn words(value: &Value, pointer: &str) -> String {
    let words: Vec<String> = list(value, pointer)
        .iter()
        .map(|word| text(word, ""))
        .collect();
    words.join(" ")
}

fn show(answer: &Value, json: bool, screen: &Screen) {
    if json {
        return screen.line(&pretty(answer));
    }
    let row = |agent: &Value| {
        let mut may = words(agent, "/grants");
        for (word, pointer) in [("only", "/tools/include"), ("but not", "/tools/exclude")] {
            let patterns = words(agent, pointer);
            if !patterns.is_empty() {
                may.push_str(&format!(", {word} {patterns}"));
            }
        }
        vec![
            text(agent, "/name"),
            list(agent, "/keys").len().to_string(),
            number(agent, "/created_ms").map_or_else(String::new, time),
            text(agent, "/label"),
            may,
        ]
    };
    let rows: Vec<Vec<String>> = list(answer, "/items").iter().map(row).collect();
    screen.table(&["agent", "keys", "made", "label", "may use"], &rows);
}
