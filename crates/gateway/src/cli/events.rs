//! `gantry events [SERVER]`: what happened to servers, newest last; `-f` follows.

use std::collections::HashSet;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::CliContext;
use super::client::{Client, segment};
use super::failure::Failure;
use super::find::Role;
use super::follow::Follow;
use super::format::{compact, list, number, pretty, text, time};
use super::screen::Screen;

/// Events read again after a gap.
const AGAIN: u32 = 1000;

/// Arguments of `gantry events`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Only events of this server, by name or id
    server: Option<String>,
    /// Number of last events
    #[arg(short = 'n', long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Follow the events until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Print JSON; with `-f` one line each
    #[arg(long)]
    json: bool,
}

/// Shows the events.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    if options.follow {
        return follow(options, &client, screen).await;
    }
    let answer = client.get(&path(options, options.limit)).await?;
    if options.json {
        screen.line(&pretty(&answer));
        return Ok(ExitCode::SUCCESS);
    }
    for event in list(&answer, "/items") {
        screen.line(&show(event, screen));
    }
    Ok(ExitCode::SUCCESS)
}

fn path(options: &Options, limit: u32) -> String {
    match &options.server {
        Some(server) => {
            let server = segment(server);
            format!("/api/v1/mcp/servers/{server}/events?limit={limit}")
        }
        None => format!("/api/v1/events?limit={limit}"),
    }
}

async fn follow(options: &Options, client: &Client, screen: &Screen) -> Result<ExitCode, Failure> {
    let topic = options.server.as_ref();
    let topic = topic.map_or_else(|| "servers".to_owned(), |server| format!("server:{server}"));
    let mut following = Follow::open(client, &topic).await?;
    let mut answer = client.get(&path(options, options.limit)).await?;
    // Events of the last page, so that none is shown twice.
    let mut known: HashSet<String> = HashSet::new();
    // Older events were left out of the first page on purpose.
    let mut newest = 0;
    loop {
        let at = |event: &Value| number(event, "/at_ms").unwrap_or_default();
        let items = list(&answer, "/items");
        let is_new = |event: &&Value| at(event) >= newest && !known.contains(&compact(event));
        let new: Vec<&Value> = items.iter().filter(is_new).collect();
        for event in new {
            if !print(event, options, screen) {
                return Ok(ExitCode::SUCCESS);
            }
        }
        newest = items.iter().map(at).max().unwrap_or_default().max(newest);
        known = items.iter().map(compact).collect();
        loop {
            let event = following.next().await?;
            let is_new = event.kind == "lifecycle" && known.insert(compact(&event.data));
            if is_new && !print(&event.data, options, screen) {
                return Ok(ExitCode::SUCCESS);
            }
            // Only events that the store may return again are remembered.
            if event.kind == "gap" || known.len() > 2 * AGAIN as usize {
                break;
            }
        }
        answer = client.get(&path(options, AGAIN)).await?;
    }
}

/// Prints an event; returns whether stdout is still open.
fn print(event: &Value, options: &Options, screen: &Screen) -> bool {
    let line = match options.json {
        true => compact(event),
        false => show(event, screen),
    };
    screen.is_seen(&line)
}

fn show(event: &Value, screen: &Screen) -> String {
    let at = number(event, "/at_ms").map_or_else(String::new, time);
    let (server, kind) = (text(event, "/server"), text(event, "/kind"));
    let detail = Screen::safe(&text(event, "/detail")).replace('\n', " ");
    let what = Screen::safe(&format!("{server}  {kind}"));
    format!("{} {what}  {detail}", screen.faint(&at))
}
