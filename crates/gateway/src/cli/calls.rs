//! `gantry calls`: the recorded calls, newest last, and the details of one.

use std::collections::HashSet;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::CliContext;
use super::client::{Client, segment};
use super::failure::Failure;
use super::find::Role;
use super::follow::Follow;
use super::format::{compact, duration, list, moment, now_ms, number, pretty, text, time};
use super::screen::Screen;

/// Longer than the longest call: a call is shown when it has ended.
const WINDOW_MS: u64 = 15 * 60_000;
/// Calls fetched at once while following.
const FOLLOWED: u32 = 1000;

/// How a call may have ended.
const STATES: [&str; 7] = [
    "ok",
    "error",
    "timeout",
    "cancelled",
    "refused",
    "unknown",
    "running",
];

/// Whose error may have ended a call.
const ERROR_KINDS: [&str; 7] = [
    "transport",
    "json_rpc",
    "tool",
    "schema",
    "policy",
    "caller",
    "gateway",
];

const HEADING: [&str; 8] = [
    "time", "agent", "server", "tool", "status", "took", "code", "call",
];

/// Arguments of `gantry calls`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Everything about one call, by its id
    call: Option<String>,
    /// Number of calls
    #[arg(long, short = 'n', default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Only calls to this server
    #[arg(long)]
    server: Option<String>,
    /// Only calls of this tool
    #[arg(long)]
    tool: Option<String>,
    /// Only calls with this status
    #[arg(long, value_parser = STATES)]
    status: Option<String>,
    /// Only calls with this error code, such as `schema.input`
    #[arg(long)]
    code: Option<String>,
    /// Only calls of this agent
    #[arg(long)]
    agent: Option<String>,
    /// Only calls of this run
    #[arg(long)]
    run: Option<String>,
    /// Only calls of this session
    #[arg(long)]
    session: Option<String>,
    /// Only calls of this trace
    #[arg(long)]
    trace: Option<String>,
    /// Only calls on behalf of this user
    #[arg(long)]
    user: Option<String>,
    /// Only calls that failed like this
    #[arg(long, value_name = "KIND", value_parser = ERROR_KINDS)]
    error_kind: Option<String>,
    /// Only calls since a time (`2026-01-31T12:00:00Z`) or within a period (`10m`)
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<u64>,
    /// Only calls until a time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<u64>,
    /// Follow calls as they end, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Print JSON; with `-f` one line each
    #[arg(long)]
    json: bool,
}

/// Shows the calls.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    if let Some(call) = &options.call {
        let call = client
            .get(&format!("/api/v1/calls/{}", segment(call)))
            .await?;
        // The response of an asynchronous call, while it is kept.
        screen.line(&pretty(call.get("answer").unwrap_or(&call)));
        return Ok(ExitCode::SUCCESS);
    }
    let answer = client
        .get(&path(options, options.limit, options.since))
        .await?;
    let calls = list(&answer, "/items");
    if calls.is_empty() {
        known(options, &client).await?;
    }
    if options.follow {
        return follow(options, &client, screen).await;
    }
    if options.json {
        screen.line(&pretty(&answer));
    } else if calls.is_empty() {
        screen.line("no calls");
    } else {
        let rows: Vec<Vec<String>> = calls.iter().rev().map(row).collect();
        screen.table(&HEADING, &rows);
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses an unknown server or agent, so that a typo is not reported as «no calls». Removed ones
/// are known while their calls are kept.
async fn known(options: &Options, client: &Client) -> Result<(), Failure> {
    for (noun, name) in [("mcp/servers", &options.server), ("agents", &options.agent)] {
        if let Some(name) = name {
            client
                .get(&format!("/api/v1/{noun}/{}", segment(name)))
                .await?;
        }
    }
    Ok(())
}

fn path(options: &Options, limit: u32, since: Option<u64>) -> String {
    let mut path = format!("/api/v1/calls?limit={limit}");
    let filters = [
        ("server", options.server.clone()),
        ("tool", options.tool.clone()),
        ("status", options.status.clone()),
        ("code", options.code.clone()),
        ("agent", options.agent.clone()),
        ("run", options.run.clone()),
        ("session", options.session.clone()),
        ("trace", options.trace.clone()),
        ("user", options.user.clone()),
        ("error_kind", options.error_kind.clone()),
        ("since_ms", since.map(|ms| ms.to_string())),
        ("until_ms", options.until.map(|ms| ms.to_string())),
    ];
    for (name, value) in filters {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", segment(&value)));
        }
    }
    path
}

/// Shows calls as they end, after the page that is shown without `-f`.
async fn follow(options: &Options, client: &Client, screen: &Screen) -> Result<ExitCode, Failure> {
    let mut following = Follow::open(client, &topic(options)).await?;
    let mut shown: HashSet<String> = HashSet::new();
    let mut limit = options.limit;
    let began = now_ms().saturating_sub(WINDOW_MS);
    if !options.json && !screen.is_seen(&HEADING.map(str::to_uppercase).join("  ")) {
        return Ok(ExitCode::SUCCESS);
    }
    let mut since = options.since;
    loop {
        let answer = client.get(&path(options, limit, since)).await?;
        let calls = list(&answer, "/items");
        let there: HashSet<String> = calls.iter().map(|call| text(call, "/id")).collect();
        for call in calls
            .iter()
            .rev()
            .filter(|call| text(call, "/status") != "running")
        {
            if !shown.insert(text(call, "/id")) {
                continue;
            }
            let line = match options.json {
                true => compact(call),
                false => Screen::safe(&row(call).join("  ")),
            };
            if !screen.is_seen(&line) {
                return Ok(ExitCode::SUCCESS);
            }
        }
        if limit == FOLLOWED {
            // Older calls cannot appear again.
            shown.retain(|id| there.contains(id));
        } else {
            // Calls before the first page are not shown later.
            let before = client.get(&path(options, FOLLOWED, Some(began))).await?;
            let before = list(&before, "/items").iter();
            let ended = before.filter(|call| text(call, "/status") != "running");
            shown.extend(ended.map(|call| text(call, "/id")));
        }
        limit = FOLLOWED;
        since = Some(
            now_ms()
                .saturating_sub(WINDOW_MS)
                .max(options.since.unwrap_or_default()),
        );
        // The call of this event is recorded by now.
        following.changed().await?;
    }
}

/// Returns a topic that includes all calls that may match the filter; the query selects among them.
fn topic(options: &Options) -> String {
    let wanted = [
        ("agent", &options.agent),
        ("server", &options.server),
        ("tool", &options.tool),
    ];
    let wanted = wanted.into_iter().filter_map(|(name, text)| {
        let text = text.as_ref()?;
        Some(format!("{name}={}", segment(text)))
    });
    format!("calls:{}", wanted.collect::<Vec<_>>().join(";"))
}

fn row(call: &Value) -> Vec<String> {
    let started = number(call, "/started_ms").map_or_else(String::new, time);
    let took =
        number(call, "/duration_us").map_or_else(String::new, |us| duration(us as f64 / 1000.0));
    let tool = Some(text(call, "/tool")).filter(|tool| !tool.is_empty());
    let mut status = text(call, "/status");
    if let Some(repeats) = number(call, "/repeats").filter(|repeats| *repeats > 1) {
        status.push_str(&format!(" ×{repeats}"));
    }
    vec![
        started,
        text(call, "/agent"),
        text(call, "/server"),
        tool.unwrap_or_else(|| text(call, "/method")),
        status,
        took,
        text(call, "/code"),
        text(call, "/id"),
    ]
}
