//! `gantry agent rm`: removes an agent after showing who uses its keys.

use clap::Args;
use serde_json::{Value, json};

use crate::config::clients::CLIENTS;
use crate::data_folder::DataFolder;

use super::super::as_json::AsJson;
use super::super::client::{Client, segment};
use super::super::failure::{Exit, Failure};
use super::super::format::{list, text};
use super::super::screen::Screen;
use super::super::up::DEFAULT_AGENT;
use super::super::{CliContext, prompt};

/// Arguments of `gantry agent rm`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The agent's name
    name: String,
    /// Do not ask, even if its keys are in use
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    shown: AsJson,
}

/// Who uses an agent's keys.
struct Users {
    lines: Vec<String>,
    /// Whether a connected client or the verbs of this folder use one.
    are_known: bool,
}

/// Removes the agent.
pub(super) async fn run(
    options: &Options,
    client: &Client,
    context: &CliContext,
) -> Result<(), Failure> {
    let (name, screen) = (&options.name, &context.screen);
    let path = format!("/api/v1/agents/{}", segment(name));
    let agent = client.get(&path).await?;
    let users = users(&agent, context)?;
    if !options.yes {
        confirm(options, &users, screen)?;
    }
    client.delete(&path).await?;
    let said = format!("{name} is removed, and its keys are revoked");
    options.shown.done(screen, &json!({"removed": name}), &said);
    if name == DEFAULT_AGENT && !options.shown.is_wanted() {
        screen.advise("Make it and its key again with `gantry agent restore`.");
    }
    Ok(())
}

/// Asks for confirmation if the agent's keys are in use.
fn confirm(options: &Options, users: &Users, screen: &Screen) -> Result<(), Failure> {
    let name = &options.name;
    let can_ask = prompt::is_possible() && !options.shown.is_wanted();
    if users.lines.is_empty() || (!users.are_known && !can_ask) {
        return Ok(());
    }
    if !can_ask {
        let message = format!("`{name}` is in use, and removing it breaks what uses it");
        let mut failure = Failure::new(Exit::Failed, message);
        for line in &users.lines {
            failure = failure.cause(line.as_str());
        }
        return Err(failure.hint(format!(
            "to remove it anyway, run `gantry agent rm {name} --yes`"
        )));
    }
    screen.line(&format!("Removing `{}` breaks:", Screen::safe(name)));
    for line in &users.lines {
        screen.line(&format!("  {}", Screen::safe(line)));
    }
    match prompt::yes("Remove it?") {
        true => Ok(()),
        false => Err(Failure::new(Exit::Failed, "nothing was removed")),
    }
}

/// Returns who uses the keys of an agent, judging by their labels.
fn users(agent: &Value, context: &CliContext) -> Result<Users, Failure> {
    let mut users = Users {
        lines: Vec::new(),
        are_known: false,
    };
    if text(agent, "/name") == DEFAULT_AGENT {
        users.are_known = true;
        let file = DataFolder::at(context.data_path()?).agent_key();
        users.lines.push(format!(
            "`gantry tools`, `call`, `bench` and `stdio` in this folder: their key is in `{}`",
            file.display()
        ));
    }
    for key in list(agent, "/keys") {
        let (id, label) = (text(key, "/id"), text(key, "/label"));
        match client_of(&label) {
            Some((title, rest)) => {
                users.are_known = true;
                users.lines.push(format!("{title}: its key is in `{rest}`"));
            }
            None if label.is_empty() => users.lines.push(format!("the holder of key {id}")),
            None => users
                .lines
                .push(format!("the holder of key {id}, «{label}»")),
        }
    }
    Ok(users)
}

/// Parses the label of a key made by `gantry connect`: the client's title, and its file.
fn client_of(label: &str) -> Option<(&'static str, &str)> {
    CLIENTS.iter().find_map(|client| {
        let rest = label.strip_prefix(client.id)?;
        let path = match rest.strip_prefix(" as ") {
            Some(named) => named.split_once(", ")?.1,
            None => rest.strip_prefix(", ")?,
        };
        Some((client.title, path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_of_a_connected_client_is_known() {
        assert_eq!(
            client_of("cursor, /a/b.json"),
            Some(("Cursor", "/a/b.json"))
        );
        assert_eq!(
            client_of("cursor as gantry-shop, /a/b.json"),
            Some(("Cursor", "/a/b.json"))
        );
        for other in ["", "laptop", "cursory, x", "cursor"] {
            assert_eq!(client_of(other), None, "{other}");
        }
    }
}
