//! `gantry status [SERVER]`: all servers in a table, or the details of one.

mod hosting;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::time::sleep;

use super::CliContext;
use super::client::Client;
use super::failure::Failure;
use super::find::Role;
use super::follow::Follow;
use super::format::{bytes, count, duration, list, number, pretty, text, time, words};
use super::screen::Screen;
use super::unchecked_tools;
use super::up::NOTICE;

pub(super) use self::hosting::start;

/// The least time between two updates of `--watch`.
const APART: Duration = Duration::from_millis(250);

/// Arguments of `gantry status`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The server, by name or id
    server: Option<String>,
    /// Show it again whenever something changes, until Ctrl-C
    #[arg(short, long)]
    watch: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Shows the servers, or one.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    if !options.watch {
        show(options, &client, screen).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let server = options.server.as_ref();
    let topic = server.map_or_else(|| "servers".to_owned(), |server| format!("server:{server}"));
    let mut following = Follow::open(&client, &topic).await?;
    while screen.clear() {
        show(options, &client, screen).await?;
        // Faster changes are shown together.
        sleep(APART).await;
        following.changed().await?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(options: &Options, client: &Client, screen: &Screen) -> Result<(), Failure> {
    let path = match &options.server {
        Some(server) => format!("/api/v1/mcp/servers/{}", super::client::segment(server)),
        None => "/api/v1/mcp/servers".to_owned(),
    };
    let answer = client.get_all(&path).await?;
    if options.json {
        screen.line(&pretty(&answer));
    } else if options.server.is_some() {
        one(&answer, screen);
    } else {
        all(&answer, screen);
        unchecked_tools::explain(client, list(&answer, "/items"), screen).await?;
        hidden(&answer, screen);
        let health = client.get("/api/v1/health").await?;
        condition(&health, screen);
        configuration(&health, screen);
        screen.line("");
        let line = format!("on record: {}", Screen::safe(&kept(&health)));
        screen.line(&screen.faint(&line));
    }
    Ok(())
}

fn all(answer: &Value, screen: &Screen) {
    let servers = list(answer, "/items");
    if servers.is_empty() {
        screen.line("no servers");
        return;
    }
    let rows: Vec<Vec<String>> = servers
        .iter()
        .map(|server| {
            let uptime =
                number(server, "/uptime_ms").map_or_else(String::new, |ms| duration(ms as f64));
            let mut why = text(server, "/reason");
            for more in [text(server, "/next_try/text")] {
                if !more.is_empty() {
                    why = if why.is_empty() {
                        more
                    } else {
                        format!("{why}; {more}")
                    };
                }
            }
            let calls = format!(
                "{}+{}",
                text(server, "/in_flight"),
                text(server, "/waiting")
            );
            vec![
                text(server, "/name"),
                text(server, "/state"),
                unchecked_tools::tools_of(server),
                calls,
                uptime,
                text(server, "/restart_count"),
                screen.typed(&why),
            ]
        })
        .collect();
    screen.table(
        &[
            "server", "state", "tools", "calls", "uptime", "restarts", "why",
        ],
        &rows,
    );
}

/// Lists servers whose resources are hidden by other servers' resources.
pub(super) fn hidden(answer: &Value, screen: &Screen) {
    for server in list(answer, "/items") {
        let count = number(server, "/hidden_resources").unwrap_or_default();
        if count > 0 {
            let name = Screen::safe(&text(server, "/name"));
            let what = super::format::count(count, "resource");
            let line = format!(
                "{what} of `{name}` not listed at /mcp: another server offers the same URI \
                 (`gantry status {name}`)"
            );
            screen.advise(&format!("{} {line}", screen.doubtful("!")));
        }
    }
}

/// Shows why the gateway is unhealthy, if so.
fn condition(health: &Value, screen: &Screen) {
    let status = text(health, "/status");
    let reasons = list(health, "/reasons");
    if reasons.is_empty() {
        return;
    }
    screen.line("");
    for reason in reasons {
        let line = format!("{status}: {}", Screen::safe(&text(reason, "")));
        screen.line(&format!("{} {line}", screen.bad("✗")));
    }
}

/// Shows errors of the configuration files, if any.
fn configuration(health: &Value, screen: &Screen) {
    let warnings = list(health, "/warnings").iter().map(|one| text(one, ""));
    let notices: Vec<String> = warnings
        .filter(|warning| warning.starts_with(NOTICE))
        .collect();
    if !notices.is_empty() {
        screen.line("");
    }
    for notice in notices {
        let line = format!("{} {}", screen.doubtful("!"), Screen::safe(&notice));
        screen.advise(&line);
    }
}

/// Shows how many calls are recorded, their size and retention.
pub(super) fn kept(health: &Value) -> String {
    let Some(calls) = number(health, "/audit/calls") else {
        return "unknown: the database did not answer".to_owned();
    };
    let since = number(health, "/audit/oldest_ms");
    let since = since.map_or_else(String::new, |ms| format!(" since {}", time(ms)));
    let size = |pointer: &str| bytes(number(health, pointer).unwrap_or_default());
    let calls = count(calls, "call");
    format!(
        "{calls}{since}, kept for {} days; database {}, journal {}",
        text(health, "/audit/retention_days"),
        size("/audit/database_bytes"),
        size("/audit/journal_bytes"),
    )
}

fn one(server: &Value, screen: &Screen) {
    let field = |label: &str, value: String| screen.field(label, &screen.typed(&value));
    let joined = |parts: [String; 2], by: &str| {
        let filled: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        filled.join(by)
    };
    let moment = |pointer: &str| number(server, pointer).map_or_else(String::new, time);
    let some = |pointer, thing| count(number(server, pointer).unwrap_or_default(), thing);
    field(
        "server",
        format!("{}  {}", text(server, "/name"), text(server, "/id")),
    );
    field("for", text(server, "/description"));
    field(
        "state",
        joined(
            [
                text(server, "/state"),
                format!("since {}", moment("/since_ms")),
            ],
            ", ",
        ),
    );
    field(
        "why",
        joined(
            [text(server, "/reason"), text(server, "/next_try/text")],
            "; ",
        ),
    );
    let arguments = words(server, "/spec/args", " ");
    field(
        "command",
        joined([text(server, "/command"), arguments], " "),
    );
    for (label, value) in hosting::fields(server) {
        field(label, value);
    }
    field("env", words(server, "/spec/env", " "));
    field(
        "url",
        joined([text(server, "/url"), text(server, "/transport")], ", ")
            .trim_start_matches("stdio")
            .to_owned(),
    );
    field("proxy", text(server, "/spec/proxy"));
    field("headers", words(server, "/spec/headers", " "));
    field(
        "sign-in",
        joined(
            [
                text(server, "/sign_in/state").replace('_', " "),
                text(server, "/sign_in/link/link"),
            ],
            ", ",
        ),
    );
    field(
        "profile",
        format!(
            "{}, {}, from {}",
            text(server, "/profile"),
            text(server, "/start"),
            text(server, "/source")
        ),
    );
    field("process", text(server, "/pid"));
    field(
        "protocol",
        joined(
            [
                text(server, "/protocol_version"),
                text(server, "/server_info/name"),
            ],
            ", ",
        ),
    );
    field(
        "offers",
        format!(
            "{}, {}, {}{}",
            some("/tools", "tool"),
            some("/prompts", "prompt"),
            some("/resources", "resource"),
            unchecked_tools::counts_of(server)
                .map_or_else(String::new, |counts| format!("; {counts}"))
        ),
    );
    for part in list(server, "/unchecked") {
        let (tool, place) = (text(part, "/tool"), text(part, "/part"));
        field(
            "unchecked",
            format!("{tool} {place}: {}", text(part, "/reason")),
        );
    }
    for hidden in list(server, "/hidden") {
        let (uri, behind) = (text(hidden, "/uri"), text(hidden, "/behind"));
        let name = text(server, "/name");
        field(
            "not listed",
            format!("{uri}: `{behind}` offers the same URI; it is read at /mcp/servers/{name}"),
        );
    }
    if number(server, "/unapproved").is_some_and(|count| count > 0) {
        let name = text(server, "/name");
        let count = text(server, "/unapproved");
        field(
            "not approved",
            format!("{count} new or changed; `gantry tools changes {name}` shows them"),
        );
    }
    for finding in list(server, "/findings") {
        let (what, path) = (text(finding, "/of"), text(finding, "/path"));
        let rule = text(finding, "/rule");
        field(
            "look at",
            format!("{what} {path}: {rule}: {}", text(finding, "/text").trim()),
        );
    }
    for excluded in list(server, "/excluded") {
        field(
            "not offered",
            format!("{}: {}", text(excluded, "/tool"), text(excluded, "/reason")),
        );
    }
    field(
        "calls",
        format!(
            "{} in flight, concurrency {} ({} paused), {} of {} waiting, {} late responses",
            text(server, "/queue/in_flight"),
            text(server, "/queue/lanes"),
            text(server, "/queue/closed_lanes"),
            text(server, "/queue/waiting"),
            text(server, "/queue/limit"),
            text(server, "/late_replies"),
        ),
    );
    field("uses", usage(server));
    field("restarts", text(server, "/restart_count"));
    if server.get("last_crash").is_some_and(Value::is_object) {
        field(
            "last crash",
            format!(
                "{} at {}",
                text(server, "/last_crash/how"),
                moment("/last_crash/at_ms")
            ),
        );
        field("", text(server, "/last_crash/stderr"));
    }
    for promise in list(server, "/isolation") {
        let state = text(promise, "/state").replace('_', " ");
        field(
            "isolation",
            format!(
                "{:<12} {state:<13} {}",
                text(promise, "/name"),
                text(promise, "/detail")
            ),
        );
    }
    if number(server, "/noise/lines").is_some_and(|lines| lines > 0) {
        field(
            "noise",
            format!("{} stray lines on stdout", text(server, "/noise/lines")),
        );
    }
}

fn usage(server: &Value) -> String {
    let of = |used: Option<String>, limit: Option<String>| match (used, limit) {
        (None, None) => String::new(),
        (used, None) => used.unwrap_or_default(),
        (used, Some(limit)) => format!("{} of {limit}", used.unwrap_or_else(|| "?".to_owned())),
    };
    let size = |pointer: &str| number(server, pointer).map(bytes);
    let count = |pointer: &str| number(server, pointer).map(|count| count.to_string());
    let cpu = number(server, "/usage/cpu_ms").map(|ms| duration(ms as f64));
    let cores = server.pointer("/usage/cpu_limit").and_then(Value::as_f64);
    let is_reached = server.pointer("/usage/pids_limit_hit") == Some(&Value::Bool(true));
    let reached = if is_reached { " (limit reached)" } else { "" };
    if cpu.is_none() && server["usage"]["pids"].is_null() {
        // It does not run.
        return String::new();
    }
    let parts = [
        ("cpu", of(cpu, cores.map(|cores| format!("{cores} cores")))),
        (
            "memory",
            of(
                size("/usage/memory_bytes"),
                size("/usage/memory_limit_bytes"),
            ),
        ),
        (
            "processes",
            of(count("/usage/pids"), count("/usage/pids_limit")) + reached,
        ),
        (
            "disk",
            of(size("/usage/disk_bytes"), size("/usage/disk_limit_bytes")),
        ),
    ];
    let filled = parts.iter().filter(|(_, value)| !value.is_empty());
    filled
        .map(|(name, value)| format!("{name} {value}"))
        .collect::<Vec<_>>()
        .join(", ")
}
