//! `gantry logs SERVER`: what a server wrote to stderr, and stray lines of its stdout.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::time::sleep;

use super::Surroundings;
use super::client::segment;
use super::failure::Failure;
use super::find::Role;
use super::format::{compact, list, moment, number, pretty, text, time};
use super::screen::Screen;

/// How often new lines are looked for.
const LOOK: Duration = Duration::from_millis(300);
/// Lines that are kept, and asked for while following.
const FOLLOWED: u32 = 10_000;

/// What `gantry logs` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The server, by name or id
    server: String,
    /// How many lines, counted from the end
    #[arg(short = 'n', long, alias = "lines", default_value_t = 200)]
    limit: u32,
    /// Go on as lines come, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Only lines since a time (`2026-01-31T12:00:00Z`) or for a while (`10m`)
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<u64>,
    /// Print JSON; with `-f` one line each
    #[arg(long)]
    json: bool,
}

/// Shows the lines.
pub(super) async fn run(
    options: &Options,
    surroundings: &Surroundings,
) -> Result<ExitCode, Failure> {
    let (client, screen) = (surroundings.client(Role::Admin)?, &surroundings.screen);
    let path = |limit: u32| {
        format!(
            "/api/v1/mcp/servers/{}/logs?limit={}",
            segment(&options.server),
            limit.min(FOLLOWED)
        )
    };
    let mut answer = client.get(&path(options.limit)).await?;
    let since = options.since.unwrap_or_default();
    if let Some(items) = answer.get_mut("items").and_then(Value::as_array_mut) {
        items.retain(|line| number(line, "/at_ms").is_none_or(|at| at >= since));
    }
    if options.json && !options.follow {
        screen.line(&pretty(&answer));
        return Ok(ExitCode::SUCCESS);
    }
    let mut seen = Seen::default();
    loop {
        for line in seen.new_of(list(&answer, "/items")) {
            let shown = match options.json {
                true => compact(line),
                false => show(line, screen),
            };
            if !screen.is_seen(&shown) {
                return Ok(ExitCode::SUCCESS);
            }
        }
        if !options.follow {
            return Ok(ExitCode::SUCCESS);
        }
        sleep(LOOK).await;
        answer = client.get(&path(FOLLOWED)).await?;
        seen.since = seen.since.max(since);
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

/// Up to where lines were shown.
#[derive(Debug, Default)]
struct Seen {
    since: u64,
    /// How many lines of that very moment.
    count: usize,
}

impl Seen {
    /// Returns the lines that were not shown yet, oldest first.
    fn new_of<'a>(&mut self, lines: &'a [Value]) -> Vec<&'a Value> {
        let at = |line: &Value| number(line, "/at_ms").unwrap_or_default();
        let (since, count) = (self.since, self.count);
        let now = lines.iter().filter(|line| at(line) == since).skip(count);
        let new: Vec<&Value> = now
            .chain(lines.iter().filter(|line| at(line) > since))
            .collect();
        if let Some(last) = new.last() {
            self.since = at(last);
            self.count = lines.iter().filter(|line| at(line) == self.since).count();
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_is_followed_once_even_within_one_moment() {
        let line = |at: u64, text: &str| json!({"at_ms": at, "text": text});
        let all = [
            line(1, "a"),
            line(2, "b"),
            line(2, "c"),
            line(2, "d"),
            line(3, "e"),
        ];
        let mut seen = Seen::default();
        let shown: Vec<String> = [0, 2, 3, 3, 4, 5]
            .into_iter()
            .flat_map(|end| {
                let new = seen.new_of(&all[..end]);
                new.into_iter()
                    .map(|line| text(line, "/text"))
                    .collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(shown, ["a", "b", "c", "d", "e"]);
    }
}
