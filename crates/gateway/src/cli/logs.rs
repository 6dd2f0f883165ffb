//! `gantry logs SERVER`: what a server wrote to stderr, and stray lines of its stdout.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::CliContext;
use super::client::{Client, segment};
use super::failure::{Exit, Failure};
use super::find::Role;
use super::follow::Follow;
use super::format::{compact, list, moment, number, pretty, text, time};
use super::screen::Screen;
use super::status::start;

/// Maximum number of lines kept.
const KEPT: u32 = 10_000;

/// Arguments of `gantry logs`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The server, by name or id
    server: String,
    /// Number of last lines
    #[arg(short = 'n', long, alias = "lines", default_value_t = 200)]
    limit: u32,
    /// Only the output of one start, by its number in `gantry status SERVER`
    #[arg(long, value_name = "N", conflicts_with_all = ["follow", "since"])]
    attempt: Option<u64>,
    /// Follow the log until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Only lines since a time (`2026-01-31T12:00:00Z`) or within a period (`10m`)
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<u64>,
    /// Print JSON; with `-f` one line each
    #[arg(long)]
    json: bool,
}

/// Shows the lines.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    if let Some(wanted) = options.attempt {
        return attempt(&client, options, wanted, screen).await;
    }
    let path = |limit: u32| {
        let server = segment(&options.server);
        format!(
            "/api/v1/mcp/servers/{server}/logs?limit={}",
            limit.min(KEPT)
        )
    };
    let since = options.since.unwrap_or_default();
    let is_late = |line: &Value| number(line, "/at_ms").is_none_or(|at| at >= since);
    if options.follow {
        // Opened before the page is read, so that no line is missed in between.
        let mut following = Follow::open(&client, &format!("log:{}", options.server)).await?;
        let mut shown = Shown::default();
        let mut limit = options.limit;
        loop {
            let page = client.get(&path(limit)).await?;
            let lines = list(&page, "/items").iter();
            for line in lines.filter(|line| is_late(line)) {
                if !shown.print(line, options, screen) {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            loop {
                let event = following.next().await?;
                let is_line = event.kind == "log" && is_late(&event.data);
                if is_line && !shown.print(&event.data, options, screen) {
                    return Ok(ExitCode::SUCCESS);
                }
                if event.kind == "gap" {
                    break;
                }
            }
            limit = KEPT;
        }
    }
    let mut answer = client.get(&path(options.limit)).await?;
    if let Some(items) = answer.get_mut("items").and_then(Value::as_array_mut) {
        items.retain(is_late);
    }
    if options.json {
        screen.line(&pretty(&answer));
        return Ok(ExitCode::SUCCESS);
    }
    for line in list(&answer, "/items") {
        if !screen.is_seen(&show(line, screen)) {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the end of what one start wrote, and how it ended.
async fn attempt(
    client: &Client,
    options: &Options,
    wanted: u64,
    screen: &Screen,
) -> Result<ExitCode, Failure> {
    let server = format!("/api/v1/mcp/servers/{}", segment(&options.server));
    let server = client.get(&server).await?;
    let attempts = list(&server, "/attempts");
    let mut found = attempts.iter();
    let found = found.find(|one| number(one, "/number") == Some(wanted));
    let Some(found) = found else {
        let known: Vec<String> = attempts.iter().map(|one| text(one, "/number")).collect();
        let message = format!("no log is stored of start {wanted} of `{}`", options.server);
        return Err(
            Failure::new(Exit::Failed, message).hint(format!("kept are: {}", known.join(", ")))
        );
    };
    if options.json {
        screen.line(&pretty(found));
        return Ok(ExitCode::SUCCESS);
    }
    screen.line(&screen.faint(&Screen::safe(&start(found))));
    let written = text(found, "/stderr");
    let lines: Vec<&str> = written.lines().collect();
    let first = lines.len().saturating_sub(options.limit as usize);
    for line in &lines[first..] {
        if !screen.is_seen(&Screen::safe(line)) {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Up to which number lines were shown.
#[derive(Debug, Default)]
struct Shown(Option<u64>);

impl Shown {
    /// Prints a line that was not shown yet; returns whether stdout is still open.
    fn print(&mut self, line: &Value, options: &Options, screen: &Screen) -> bool {
        if !self.is_new(line) {
            return true;
        }
        let shown = match options.json {
            true => compact(line),
            false => show(line, screen),
        };
        screen.is_seen(&shown)
    }

    /// Returns whether a line is new, and remembers it. An unfinished line has no number and
    /// appears again when finished.
    fn is_new(&mut self, line: &Value) -> bool {
        let number = number(line, "/number");
        let is_new = number.is_some_and(|number| self.0.is_none_or(|last| number > last));
        if is_new {
            self.0 = number;
        }
        is_new
    }
}

fn show(line: &Value, screen: &Screen) -> String {
    let at = number(line, "/at_ms").map_or_else(String::new, time);
    let stream = match text(line, "/stream").as_str() {
        "stderr" => String::new(),
        other => format!("[{other}] "),
    };
    let said = Screen::safe(&text(line, "/text"));
    format!("{} {stream}{said}", screen.faint(&at))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_is_followed_once_when_it_has_ended() {
        let line = |number: Option<u64>| json!({"number": number, "text": "x"});
        let mut shown = Shown::default();
        let told: Vec<bool> = [Some(0), Some(1), None, Some(1), Some(2), Some(0), Some(7)]
            .into_iter()
            .map(|number| shown.is_new(&line(number)))
            .collect();
        assert_eq!(told, [true, true, false, false, true, false, true]);
    }
}
