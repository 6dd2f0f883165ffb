//! `gantry calls`: the recorded calls, newest last, and the details of one.

use std::collections::HashSet;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::CliContext;
use super::call_filters::CallFilters;
use super::client::{Client, segment};
use super::failure::Failure;
use super::find::Role;
use super::follow::Follow;
use super::format::{compact, duration, list, now_ms, number, pretty, text, time};
use super::screen::Screen;

/// Longer than the longest call: a call is shown when it has ended.
const WINDOW_MS: u64 = 15 * 60_000;
/// Calls fetched at once while following.
const FOLLOWED: u32 = 1000;

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
    #[command(flatten)]
    filters: CallFilters,
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
        .get(&path(options, options.limit, options.filters.since))
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
    for (noun, name) in [
        ("mcp/servers", &options.filters.server),
        ("agents", &options.filters.agent),
    ] {
        if let Some(name) = name {
            client
                .get(&format!("/api/v1/{noun}/{}", segment(name)))
                .await?;
        }
    }
    Ok(())
}

fn path(options: &Options, limit: u32, since: Option<u64>) -> String {
    format!(
        "/api/v1/calls?limit={limit}{}",
        options.filters.query(since)
    )
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
    let mut since = options.filters.since;
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
                .max(options.filters.since.unwrap_or_default()),
        );
        // The call of this event is recorded by now.
        following.changed().await?;
    }
}

/// Returns a topic that includes all calls that may match the filter; the query selects among them.
fn topic(options: &Options) -> String {
    let wanted = [
        ("agent", &options.filters.agent),
        ("server", &options.filters.server),
        ("tool", &options.filters.tool),
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
