//! `gantry project settings | set`: the settings of projects.
//!
//! Values are JSON; a word that is not JSON is a text, and a list may be written with commas.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use super::CliContext;
use super::as_json::AsJson;
use super::client::segment;
use super::failure::{Exit, Failure};
use super::find::Role;
use super::format::text;

/// Arguments of `gantry project`.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
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
    match &options.action {
        Action::Settings { name, shown } => {
            let path = match name {
                Some(name) => format!("/api/v1/projects/{}/settings", segment(name)),
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
            let path = format!("/api/v1/projects/{}/settings", segment(name));
            let answer = client.patch(&path, &body(changes)?).await?;
            shown.list(screen, &answer, &["setting", "value", "meaning"], row);
        }
    }
    Ok(ExitCode::SUCCESS)
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

/// Reads a value: JSON, or a list of words where commas or the setting say so, or a word.
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
    use serde_json::json;

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
