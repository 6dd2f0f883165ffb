//! `gantry tools changes | diff | approve | refuse | versions`: tools that are new or changed, what differs,
//! and the decision of an approver.

use clap::Args;
use serde_json::{Value, json};

use super::super::CliContext;
use super::super::as_json::AsJson;
use super::super::client::{Client, segment};
use super::super::failure::{Exit, Failure};
use super::super::find::Role;
use super::super::format::{list, number, pretty, shown_time, text};
use super::super::screen::Screen;

/// Which server's changes.
#[derive(Debug, Args)]
pub(super) struct OfServer {
    /// Only this server's
    server: Option<String>,
    #[command(flatten)]
    shown: AsJson,
}

/// One tool, or all of a server.
#[derive(Debug, Args)]
pub(super) struct Item {
    /// `server:tool`, or a server for all that it changed
    tool: String,
    /// `tool`, `prompt` or `template`
    #[arg(long, default_value = "tool", value_parser = ["tool", "prompt", "template"])]
    kind: String,
    #[command(flatten)]
    shown: AsJson,
}

/// What is decided on.
#[derive(Debug, Args)]
pub(super) struct Decision {
    #[command(flatten)]
    item: Item,
    /// The version that you looked at; without it the one listed now
    #[arg(long)]
    version: Option<u32>,
}

/// Lists what is new or changed.
pub(super) async fn list_changes(asked: &OfServer, context: &CliContext) -> Result<(), Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    let answer = changes(&client, asked.server.as_deref()).await?;
    if list(&answer, "/items").is_empty() && !asked.shown.is_wanted() {
        screen.line("nothing is new or changed");
        return Ok(());
    }
    let heading = [
        "tool",
        "kind",
        "version",
        "change",
        "state",
        "quarantined",
        "look at",
    ];
    asked.shown.list(screen, &answer, &heading, |change| {
        let findings = list(change, "/findings").iter();
        let mut rules: Vec<String> = findings.map(|finding| text(finding, "/rule")).collect();
        rules.dedup();
        let mut change_class = text(change, "/change");
        let renamed = text(change, "/renamed_from");
        if !renamed.is_empty() {
            change_class = format!("{change_class} (was {renamed}?)");
        }
        vec![
            text(change, "/id"),
            text(change, "/kind"),
            text(change, "/version"),
            change_class,
            text(change, "/state"),
            match change["quarantined"] == true {
                true => "yes".to_owned(),
                false => "no".to_owned(),
            },
            rules.join(" "),
        ]
    });
    Ok(())
}

/// Shows what differs from what is approved.
pub(super) async fn diff(asked: &Item, context: &CliContext) -> Result<(), Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    let (server, name) = split(&asked.tool);
    let answer = changes(&client, Some(server)).await?;
    let is_meant = |change: &&Value| match name {
        Some(name) => text(change, "/name") == name && text(change, "/kind") == asked.kind,
        None => true,
    };
    let found: Vec<&Value> = list(&answer, "/items").iter().filter(is_meant).collect();
    if asked.shown.is_wanted() {
        screen.line(&pretty(&json!({ "items": found })));
        return Ok(());
    }
    if found.is_empty() {
        // A name that there is not is an error.
        if name.is_some() {
            client.get(&versions_path(asked)).await?;
        }
        screen.line(&Screen::safe(&format!(
            "{} is what was approved",
            asked.tool
        )));
    }
    for change in found {
        show(change, screen);
    }
    Ok(())
}

fn show(change: &Value, screen: &Screen) {
    let from = match number(change, "/approved_version") {
        Some(version) => format!("version {version} → {}", text(change, "/version")),
        None => format!("version {}, none approved", text(change, "/version")),
    };
    let held = match change["quarantined"] == true {
        true => ", quarantined",
        false => "",
    };
    let head = format!(
        "{} {}: {from}, {}, {}{held}",
        text(change, "/kind"),
        text(change, "/id"),
        text(change, "/change"),
        text(change, "/state"),
    );
    screen.line(&Screen::safe(&head));
    let renamed = text(change, "/renamed_from");
    if !renamed.is_empty() {
        let line =
            format!("  likely renamed from {renamed}; its approvals and grants do not carry over");
        screen.line(&Screen::safe(&line));
    }
    for finding in list(change, "/findings") {
        let line = format!(
            "  {} at {}: {}",
            text(finding, "/rule"),
            text(finding, "/path"),
            text(finding, "/text").trim()
        );
        screen.line(&format!("{}{}", screen.doubtful("!"), Screen::safe(&line)));
    }
    for difference in list(change, "/diff") {
        screen.line(&screen.faint(&Screen::safe(&format!("  {}", text(difference, "/path")))));
        let side = |pointer: &str| difference.pointer(pointer).and_then(Value::as_str);
        if let Some(before) = side("/before") {
            screen.line(&screen.bad(&Screen::safe(&format!("  - {before}"))));
        }
        if let Some(after) = side("/after") {
            screen.line(&screen.good(&Screen::safe(&format!("  + {after}"))));
        }
    }
}

/// Approves or refuses one version, or all that a server changed.
pub(super) async fn decide(
    verb: &'static str,
    asked: &Decision,
    context: &CliContext,
) -> Result<(), Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    let item = &asked.item;
    let body = match split(&item.tool) {
        (server, Some(name)) => {
            let mut body = json!({"tool": format!("{server}:{name}"), "kind": item.kind});
            if let Some(version) = asked.version {
                body["version"] = version.into();
            }
            body
        }
        (_, None) if asked.version.is_some() => {
            return Err(Failure::new(
                Exit::Usage,
                "`--version` is for one tool: write `server:tool`",
            ));
        }
        (server, None) => json!({ "server": server }),
    };
    let answer = client
        .post(&format!("/api/v1/tools/{verb}"), Some(&body))
        .await?;
    let decided = list(&answer, "/items").iter();
    let lines: Vec<String> = decided
        .map(|one| {
            let (id, version) = (text(one, "/id"), text(one, "/version"));
            format!("{} {id} version {version}", text(one, "/state"))
        })
        .collect();
    let said = match lines.is_empty() {
        true => "nothing is new or changed".to_owned(),
        false => lines.join("\n"),
    };
    if item.shown.is_wanted() {
        screen.line(&pretty(&answer));
    } else {
        said.lines()
            .for_each(|line| screen.line(&Screen::safe(line)));
    }
    Ok(())
}

/// Lists the versions of one tool.
pub(super) async fn versions(asked: &Item, context: &CliContext) -> Result<(), Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    let answer = client.get(&versions_path(asked)).await?;
    let heading = ["version", "hash", "change", "state", "by", "seen"];
    asked.shown.list(screen, &answer, &heading, |version| {
        let hash = text(version, "/hash");
        vec![
            text(version, "/version"),
            hash.chars().take(12).collect(),
            text(version, "/change"),
            text(version, "/state"),
            text(version, "/decided_by"),
            shown_time(&text(version, "/seen_at")),
        ]
    });
    Ok(())
}

fn versions_path(asked: &Item) -> String {
    let tool = match split(&asked.tool) {
        (server, Some(name)) => format!("{server}:{name}"),
        (server, None) => server.to_owned(),
    };
    format!(
        "/api/v1/tools/versions?tool={}&kind={}",
        segment(&tool),
        asked.kind
    )
}

async fn changes(client: &Client, server: Option<&str>) -> Result<Value, Failure> {
    let query = server.map_or_else(String::new, |server| format!("?server={}", segment(server)));
    client
        .get_all(&format!("/api/v1/tools/changes{query}"))
        .await
}

/// Splits `server:tool` or `server__tool`; a server alone has no tool.
fn split(tool: &str) -> (&str, Option<&str>) {
    let parts = tool.split_once(':').or_else(|| tool.split_once("__"));
    parts.map_or((tool, None), |(server, name)| (server, Some(name)))
}
