//! `gantry search WORDS`: searches for servers in the configured MCP registry.
//!
//! The registry searches names for one word; the other words filter its results here. Needs no
//! gateway. Entry point: [`run`].

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::CliContext;
use super::failure::Failure;
use super::format::pretty;
use super::mcp_registry::{Listed, McpRegistry};
use super::screen::Screen;

/// The number of servers per request.
const PAGE: usize = 50;
/// The maximum number of requested pages.
const MOST_PAGES: usize = 20;

/// Arguments of `gantry search`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Words to search for: the longest in names, the others in names, titles and descriptions
    #[arg(required = true, value_name = "WORD")]
    words: Vec<String>,
    /// The URL of the MCP registry [default: `GANTRY_MCP_REGISTRY`, then `mcp_registry` of `[gateway]`]
    #[arg(long, value_name = "URL")]
    registry: Option<String>,
    /// Maximum number of servers shown
    #[arg(long, value_name = "N", default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=500))]
    limit: u64,
    /// Continue an earlier search: the cursor that it printed
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was found.
#[derive(Default)]
struct Found {
    servers: Vec<Listed>,
    unreadable: usize,
    next: Option<String>,
}

/// Searches and prints.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let registry = McpRegistry::configured(options.registry.as_deref(), context)?;
    let found = search(&registry, options).await?;
    let screen = &context.screen;
    if options.json {
        let items: Vec<Value> = found.servers.iter().map(json_of).collect();
        screen.line(&pretty(&json!({
            "items": items,
            "unreadable": found.unreadable,
            "next_cursor": found.next,
        })));
        return Ok(ExitCode::SUCCESS);
    }
    if found.servers.is_empty() {
        screen.line("no servers found");
    } else {
        let rows: Vec<Vec<String>> = found.servers.iter().map(row).collect();
        screen.table(&["server", "version", "runs from", "what it is"], &rows);
    }
    if found.unreadable > 0 {
        let line = format!(
            "{} entries of the registry cannot be read",
            found.unreadable
        );
        screen.advise(&format!("{} {line}", screen.doubtful("!")));
    }
    if let Some(next) = &found.next {
        let words = options.words.join(" ");
        let line = format!("more: `gantry search {words} --cursor {next}`");
        screen.advise(&Screen::safe(&line));
    }
    if let Some(first) = found.servers.first() {
        let line = format!("add one with `gantry add --from {}`", first.name);
        screen.advise(&Screen::safe(&line));
    }
    Ok(ExitCode::SUCCESS)
}

async fn search(registry: &McpRegistry, options: &Options) -> Result<Found, Failure> {
    // The longest word is likely to have the fewest results.
    let mut words: Vec<String> = options
        .words
        .iter()
        .map(|word| word.to_lowercase())
        .collect();
    words.sort_by_key(|word| std::cmp::Reverse(word.chars().count()));
    let (first, rest) = words
        .split_first()
        .map_or(("", &[][..]), |(first, rest)| (first, rest));
    let limit = usize::try_from(options.limit).unwrap_or(PAGE);
    let mut found = Found::default();
    let mut cursor = options.cursor.clone();
    let mut seen = BTreeSet::new();
    for _ in 0..MOST_PAGES {
        let size = PAGE.min(limit - found.servers.len().min(limit)).max(1);
        let page = registry.page(first, cursor.as_deref(), size).await?;
        found.unreadable += page.unreadable;
        for server in page.servers {
            let text = format!("{} {} {}", server.name, server.title, server.description);
            let text = text.to_lowercase();
            let is_new = seen.insert((server.name.clone(), server.version.clone()));
            if is_new && server.status != "deleted" && rest.iter().all(|word| text.contains(word)) {
                found.servers.push(server);
            }
        }
        // A registry that returns the same cursor again has no further results.
        let is_same = page.next.is_some() && page.next == cursor;
        cursor = page.next.filter(|_| !is_same);
        if cursor.is_none() || found.servers.len() >= limit {
            break;
        }
    }
    found.servers.truncate(limit);
    found.next = cursor;
    Ok(found)
}

fn row(server: &Listed) -> Vec<String> {
    let what = match (server.title.as_str(), server.description.as_str()) {
        ("", what) => what.to_owned(),
        (title, "") => title.to_owned(),
        (title, what) => format!("{title}: {what}"),
    };
    let what = match server.status.as_str() {
        "" | "active" => what,
        status => format!("({status}) {what}"),
    };
    let kinds = server.kinds.join(", ");
    vec![server.name.clone(), server.version.clone(), kinds, what]
}

fn json_of(server: &Listed) -> Value {
    json!({
        "name": server.name,
        "version": server.version,
        "title": server.title,
        "description": server.description,
        "status": server.status,
        "updated": server.updated,
        "runs_from": server.kinds,
    })
}
