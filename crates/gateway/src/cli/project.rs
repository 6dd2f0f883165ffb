//! `gantry project ls | new | load | unload | rm | settings | set`: projects and their settings.
//!
//! Values of settings are JSON; a word that is not JSON is a text, and a list may be written with commas.
//! Deleting a project asks first.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::CliContext;
use super::as_json::{AsJson, Named};
use super::client::segment;
use super::failure::{Exit, Failure};
use super::find::Role;
use super::format::{number, text, time};
use super::prompt;

/// Arguments of `gantry project`.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the projects
    Ls(AsJson),
    /// Make a project; `gantry --project NAME key new --admin` then makes a key of it
    New {
        /// Its name
        name: String,
        /// A description
        #[arg(long, default_value = "")]
        description: String,
        #[command(flatten)]
        shown: AsJson,
    },
    /// Start the servers of a project again
    Load(Named),
    /// End the calls of a project and stop its servers, also over restarts of the gateway
    Unload(Named),
    /// Delete a project with its servers, volumes, agents, keys, grants, secrets and settings; its
    /// record of calls and acts is kept
    Rm {
        /// The project
        name: String,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        shown: AsJson,
    },
    /// Show the settings of a project
    Settings {
        /// The project [default: that of the key]
        name: Option<String>,
        #[command(flatten)]
        shown: AsJson,
    },
    /// Change settings of a project, all that are given or none
    Set {
        /// The project
        name: String,
        /// A setting and its value, as JSON, a word, or words with commas; `null` brings the default
        /// back
        #[arg(required = true, value_name = "KEY=VALUE")]
        changes: Vec<String>,
        #[command(flatten)]
        shown: AsJson,
    },
}

/// Shows or changes projects.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    let place = |name: &str| format!("/api/v1/projects/{}", segment(name));
    match &options.action {
        Action::Ls(shown) => {
            let answer = client.get_all("/api/v1/projects").await?;
            let heading = ["project", "state", "servers", "made", "description"];
            shown.list(screen, &answer, &heading, project_row);
        }
        Action::New {
            name,
            description,
            shown,
        } => {
            let body = json!({"name": name, "description": description});
            let made = client.post("/api/v1/projects", Some(&body)).await?;
            let said = format!("made project {}", text(&made, "/name"));
            shown.done(screen, &made, &said);
        }
        Action::Load(one) => {
            let body = json!({"loaded": true});
            let answer = client.patch(&place(&one.name), &body).await?;
            let said = format!("loaded project {}", one.name);
            one.shown.done(screen, &answer, &said);
        }
        Action::Unload(one) => {
            let body = json!({"loaded": false});
            let answer = client.patch(&place(&one.name), &body).await?;
            let said = format!("unloaded project {}: its servers are stopped", one.name);
            one.shown.done(screen, &answer, &said);
        }
        Action::Rm { name, yes, shown } => {
            let known = client.get(&place(name)).await?;
            let question = format!(
                "Delete project {name} with its servers, volumes, agents, keys, grants, secrets and \
                 settings?"
            );
            if !yes && (!prompt::is_possible() || !prompt::yes(&question)) {
                let failure = Failure::new(Exit::Failed, "nothing was deleted");
                let hint = format!("to delete it, run `gantry project rm {name} --yes`");
                return Err(failure.hint(hint));
            }
            client.delete(&place(name)).await?;
            let said = format!("deleted project {}", text(&known, "/name"));
            shown.done(screen, &json!({"deleted": name}), &said);
        }
        Action::Settings { name, shown } => {
            let path = match name {
                Some(name) => format!("{}/settings", place(name)),
                None => "/api/v1/settings".to_owned(),
            };
            let answer = client.get(&path).await?;
            shown.list(screen, &answer, &["setting", "value", "meaning"], row);
        }
        Action::Set {
            name,
            changes,
            shown,
        } => {
            let path = format!("{}/settings", place(name));
            let body = body(changes)?;
            let mut answer = client.patch(&path, &body).await?;
            if !shown.is_wanted()
                && let Some(settings) = answer.get_mut("items").and_then(Value::as_array_mut)
            {
                settings.retain(|setting| body.get(text(setting, "/name")).is_some());
            }
            shown.list(screen, &answer, &["setting", "value", "meaning"], row);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn project_row(project: &Value) -> Vec<String> {
    let is = |name: &str| project[name] == true;
    let state = match (is("loaded"), is("suspended")) {
        (false, _) => "unloaded",
        (true, true) => "suspended",
        (true, false) => "loaded",
    };
    let servers = number(project, "/servers").map_or_else(String::new, |count| count.to_string());
    vec![
        text(project, "/name"),
        state.to_owned(),
        servers,
        number(project, "/created_ms").map_or_else(String::new, time),
        text(project, "/description"),
    ]
}

fn row(setting: &Value) -> Vec<String> {
    let value = setting.get("value").unwrap_or(&Value::Null);
    vec![
        text(setting, "/name"),
        value.to_string(),
        text(setting, "/doc"),
    ]
}

/// Reads `KEY=VALUE` into the body of a change.
fn body(changes: &[String]) -> Result<Value, Failure> {
    let mut body = Map::new();
    for change in changes {
        let Some((name, value)) = change.split_once('=') else {
            let message = format!("`{change}` is not of the form KEY=VALUE");
            return Err(Failure::new(Exit::Usage, message));
        };
        body.insert(name.trim().to_owned(), value_of(name, value));
    }
    Ok(body.into())
}

/// Parses a value: JSON, a list of words if the setting is a list or there are commas, else a word.
fn value_of(name: &str, value: &str) -> Value {
    if let Ok(value) = serde_json::from_str(value) {
        return value;
    }
    let takes_list = || {
        let setting = gantry_model::settings::Setting::named(name.trim());
        setting.is_ok_and(|setting| setting.values.starts_with("a list"))
    };
    match value.contains(',') || takes_list() {
        true => value
            .split(',')
            .map(|word| word.trim().to_owned())
            .collect(),
        false => value.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_json_words_or_lists() {
        let list = "registration.commands";
        assert_eq!(value_of(list, "npx"), json!(["npx"]));
        assert_eq!(value_of(list, "npx, uvx"), json!(["npx", "uvx"]));
        assert_eq!(value_of(list, r#"["npx"]"#), json!(["npx"]));
        assert_eq!(value_of(list, "null"), Value::Null);
        assert_eq!(value_of("x", "gvisor"), json!("gvisor"));
        assert_eq!(value_of("x", "true"), json!(true));
    }
}
