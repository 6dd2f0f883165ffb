//! `gantry calls`: the recorded calls, newest last.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::Surroundings;
use super::client::segment;
use super::failure::Failure;
use super::find::Role;
use super::format::{duration, list, number, pretty, table, text, time};

/// What `gantry calls` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// How many
    #[arg(long, short = 'n', default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Only calls to this server
    #[arg(long)]
    server: Option<String>,
    /// Only calls of this tool
    #[arg(long)]
    tool: Option<String>,
    /// Only calls that ended so: ok, error, timeout, cancelled, refused, unknown, running
    #[arg(long)]
    status: Option<String>,
    /// Only calls of this agent
    #[arg(long)]
    agent: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Shows the calls.
pub(super) async fn run(
    options: &Options,
    surroundings: &Surroundings,
) -> Result<ExitCode, Failure> {
    let client = surroundings.client(Role::Admin)?;
    let mut path = format!("/api/v1/calls?limit={}", options.limit);
    let filters = [
        ("server", &options.server),
        ("tool", &options.tool),
        ("status", &options.status),
        ("agent", &options.agent),
    ];
    for (name, value) in filters {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", segment(value)));
        }
    }
    let answer = client.get(&path).await?;
    let (screen, calls) = (&surroundings.screen, list(&answer, "/items"));
    if options.json {
        screen.line(&pretty(&answer));
    } else if calls.is_empty() {
        screen.line("no calls");
    } else {
        let rows: Vec<Vec<String>> = calls.iter().rev().map(row).collect();
        let heading = [
            "time", "agent", "server", "tool", "status", "took", "code", "call",
        ];
        screen.line(&table(&heading, &rows));
    }
    Ok(ExitCode::SUCCESS)
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
