//! `gantry bench TOOL`: calls a tool through `/mcp` for a while and reports throughput and latency.
//!
//! Every call is checked and recorded as usual. Options may precede or follow the tool, unless the
//! tool has an argument of that name.

use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use futures_util::future::join_all;
use gantry_model::era::{ProtocolVersion, headers, meta};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::CliContext;
use super::call::arguments::{Tokens, has_argument};
use super::call::{document, find, help};
use super::failure::{Exit, Failure};
use super::find::Role;
use super::format::{duration, pretty, text, time_span};
use super::pool::{Pool, SendError};
use super::screen::Screen;

/// The largest response that is read.
const LONGEST: usize = 64 << 20;
/// Maximum number of concurrent calls.
const MOST_AT_ONCE: u32 = 256;
/// How long to wait for the last responses.
const LAST: Duration = Duration::from_secs(30);

/// Arguments of `gantry bench`.
#[derive(Debug, Args)]
#[command(override_usage = "gantry bench [OPTIONS] <TOOL> [--ARGUMENT VALUE | NAME=VALUE]...")]
pub(super) struct Options {
    /// Duration, at most ten minutes
    #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = bounded)]
    period: Duration,
    /// Number of concurrent calls
    #[arg(long, short, value_name = "N", default_value_t = 8, value_parser = at_once)]
    connections: u32,
    /// All arguments as one JSON object: the text, `@FILE`, or `-` for stdin
    #[arg(long, value_name = "OBJECT")]
    json_args: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The tool and its arguments, as `gantry call` takes them
    #[arg(required = true, trailing_var_arg = true, value_names = ["TOOL", "ARGUMENT"])]
    words: Vec<String>,
}

fn bounded(text: &str) -> Result<Duration, String> {
    let period = time_span(text)?;
    match period > Duration::ZERO && period <= Duration::from_secs(600) {
        true => Ok(period),
        false => Err("write a time up to `10m`".to_owned()),
    }
}

/// The load to generate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Load {
    period: Duration,
    connections: u32,
}

impl Load {
    /// Separates our own options from the words after the tool; the rest are its arguments.
    fn of(
        options: &Options,
        words: &[String],
        schema: &Value,
    ) -> Result<(Self, Vec<String>), Failure> {
        let mut load = Self {
            period: options.period,
            connections: options.connections,
        };
        let mut rest = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let (name, mut given) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word.as_str(), None),
            };
            let name = match name {
                "--for" => "for",
                "--connections" => "connections",
                "-c" => "connections",
                // `-c4`, as clap takes it before the tool.
                short if short.starts_with("-c") && short[2..].parse::<u32>().is_ok() => {
                    given = Some(&short[2..]);
                    "connections"
                }
                _ => {
                    rest.push(word.clone());
                    continue;
                }
            };
            if has_argument(schema, name) {
                rest.push(word.clone());
                continue;
            }
            let wrong = |what: String| Failure::new(Exit::Usage, format!("`{word}`: {what}"));
            let value = match given {
                Some(value) => value,
                None => words
                    .next()
                    .ok_or_else(|| wrong("a value is missing".to_owned()))?,
            };
            match name {
                "for" => load.period = bounded(value).map_err(wrong)?,
                _ => load.connections = at_once(value).map_err(wrong)?,
            }
        }
        Ok((load, rest))
    }
}

fn at_once(text: &str) -> Result<u32, String> {
    let count = text
        .parse()
        .ok()
        .filter(|count| (1..=MOST_AT_ONCE).contains(count));
    count.ok_or_else(|| format!("write a number from 1 to {MOST_AT_ONCE}"))
}

/// The results of one connection.
#[derive(Default)]
struct Tally {
    /// How long each answered call took, in microseconds.
    took: Vec<u64>,
    errors: u64,
    first_error: Option<String>,
}

/// Runs the benchmark; exits with 1 if any call failed.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (tool, words) = options.words.split_first().expect("clap asks for a tool");
    let client = context.client(Role::Agent)?;
    let known = find(&client, tool).await?.ok_or_else(|| {
        Failure::new(Exit::Failed, format!("no tool `{tool}`"))
            .hint("`gantry tools` lists what there is")
    })?;
    let name = text(&known, "/name");
    let schema = known
        .pointer("/definition/inputSchema")
        .unwrap_or(&Value::Null);
    let (load, words) = Load::of(options, words, schema)?;
    let parsed = Tokens::of(&words)?.read(schema)?;
    if parsed.own.help {
        help::show(&known, &context.screen);
        return Ok(ExitCode::SUCCESS);
    }
    if parsed.own.later || parsed.own.timeout.is_some() {
        let message = "`bench` takes neither `--async` nor `--timeout`";
        return Err(Failure::new(Exit::Usage, message).hint("`--for TIME` sets the duration"));
    }
    let arguments = match options.json_args.as_ref().or(parsed.own.json_args.as_ref()) {
        Some(text) => document(text)?,
        None => Value::Object(parsed.arguments),
    };
    let body = body(&name, &arguments);
    let began = Instant::now();
    let end = began + load.period;
    let calling = (0..load.connections).map(|_| calls(client.pool(), &name, &body, end));
    let tallies = timeout(load.period + LAST, join_all(calling))
        .await
        .map_err(|_| {
            Failure::new(
                Exit::Failed,
                format!("responses are missing {LAST:?} after the end"),
            )
        })?;
    let seconds = began.elapsed().as_secs_f64();
    let (mut took, mut errors, mut first) = (Vec::new(), 0, None);
    for tally in tallies {
        took.extend(tally.took);
        errors += tally.errors;
        first = first.or(tally.first_error);
    }
    took.sort_unstable();
    let screen = &context.screen;
    let result = summary(&name, load.connections, seconds, &took, errors);
    if options.json || parsed.own.json {
        screen.line(&pretty(&result));
    } else {
        show(&result, screen);
    }
    match first {
        None => Ok(ExitCode::SUCCESS),
        Some(why) => Err(Failure::new(Exit::Failed, format!("{errors} calls failed")).cause(why)),
    }
}

fn body(name: &str, arguments: &Value) -> Bytes {
    let version = ProtocolVersion::LATEST.as_str();
    let meta = json!({meta::PROTOCOL_VERSION: version, meta::CLIENT_CAPABILITIES: {}});
    let params = json!({"name": name, "arguments": arguments, "_meta": meta});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    message.to_string().into()
}

async fn calls(pool: &Pool, name: &str, body: &Bytes, end: Instant) -> Tally {
    let mut tally = Tally::default();
    loop {
        let began = Instant::now();
        if began >= end {
            return tally;
        }
        match one(pool, name, body.clone()).await {
            Ok(()) => {
                let took = began.elapsed().as_micros();
                tally.took.push(u64::try_from(took).unwrap_or(u64::MAX));
            }
            Err(why) => {
                tally.errors += 1;
                tally.first_error.get_or_insert(why);
                if tally.errors > 100 {
                    return tally;
                }
            }
        }
    }
}

async fn one(pool: &Pool, name: &str, body: Bytes) -> Result<(), String> {
    let request = Request::post("/mcp")
        .header(ACCEPT, "application/json, text/event-stream")
        .header(CONTENT_TYPE, "application/json")
        .header(headers::PROTOCOL_VERSION, ProtocolVersion::LATEST.as_str())
        .header(headers::METHOD, "tools/call")
        .header(headers::NAME, &*headers::encode(name))
        .body(Full::new(body))
        .map_err(|error| error.to_string())?;
    let failed = |error: SendError| match error {
        SendError::Unsent(why) => format!("the gateway cannot be reached: {why}"),
        SendError::Cut(why) => format!("the gateway ended the connection: {why}"),
    };
    let (response, used) = pool.send(request).await.map_err(failed)?;
    let status = response.status();
    let body = pool.read(response, used, LONGEST).await.map_err(failed)?;
    let answer: Value = serde_json::from_slice(&body)
        .map_err(|_| format!("the gateway answered {status} with something that is not JSON"))?;
    if let Some(message) = answer.pointer("/error/message").and_then(Value::as_str) {
        return Err(message.to_owned());
    }
    match answer.pointer("/result/isError") {
        Some(Value::Bool(true)) => Err(text(&answer, "/result/content/0/text")),
        _ if status == StatusCode::OK => Ok(()),
        _ => Err(format!("the gateway answered {status}")),
    }
}

/// Returns a quantile of sorted values.
fn quantile(sorted: &[u64], share: f64) -> Option<u64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * share).round() as usize).copied()
}

fn summary(name: &str, connections: u32, seconds: f64, took: &[u64], errors: u64) -> Value {
    let rate = took.len() as f64 / seconds.max(0.001);
    json!({
        "tool": name,
        "connections": connections,
        "seconds": (seconds * 1000.0).round() / 1000.0,
        "calls": took.len(),
        "errors": errors,
        "calls_per_second": (rate * 10.0).round() / 10.0,
        "p50_us": quantile(took, 0.5),
        "p90_us": quantile(took, 0.9),
        "p99_us": quantile(took, 0.99),
        "max_us": took.last(),
    })
}

fn show(result: &Value, screen: &Screen) {
    let head = format!(
        "{}, {} at once, {} s",
        text(result, "/tool"),
        text(result, "/connections"),
        text(result, "/seconds")
    );
    screen.line(&Screen::safe(&head));
    let us = |pointer: &str| {
        let us = result.pointer(pointer).and_then(Value::as_f64);
        us.map_or_else(|| "–".to_owned(), |us| duration(us / 1000.0))
    };
    screen.line(&format!("  calls    {}", text(result, "/calls")));
    screen.line(&format!("  errors   {}", text(result, "/errors")));
    screen.line(&format!("  calls/s  {}", text(result, "/calls_per_second")));
    for (label, pointer) in [
        ("p50", "/p50_us"),
        ("p90", "/p90_us"),
        ("p99", "/p99_us"),
        ("max", "/max_us"),
    ] {
        screen.line(&format!("  {label:<7}  {}", us(pointer)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_options_are_taken_after_the_tool_unless_they_are_its_own() {
        let of = |words: &[&str], schema: Value| {
            let options = Options {
                period: Duration::from_secs(5),
                connections: 8,
                json_args: None,
                json: false,
                words: Vec::new(),
            };
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let load = Load::of(&options, &words, &schema);
            load.map(|(load, rest)| (load.period.as_secs(), load.connections, rest.join(" ")))
        };
        let none = || json!({"properties": {"a": {"type": "string"}}});
        let words = ["--a", "x", "--for", "2s", "-c", "3", "b=1"];
        assert_eq!(of(&words, none()).unwrap(), (2, 3, "--a x b=1".to_owned()));
        let joined = ["--for=1s", "--connections=2", "--json"];
        assert_eq!(of(&joined, none()).unwrap(), (1, 2, "--json".to_owned()));
        assert_eq!(of(&["-c4"], none()).unwrap(), (5, 4, String::new()));
        let theirs = json!({"properties": {"for": {"type": "string"}}});
        let kept = of(&["--for", "x", "-c", "2"], theirs).unwrap();
        assert_eq!(kept, (5, 2, "--for x".to_owned()));
        for wrong in [["--for", "1d"], ["-c", "0"], ["--connections", "257"]] {
            assert!(of(&wrong, none()).is_err(), "{wrong:?}");
        }
        assert!(of(&["--for"], none()).is_err());
    }

    #[test]
    fn quantiles_are_of_what_was_seen() {
        let all: Vec<u64> = (1..=101).collect();
        assert_eq!(quantile(&all, 0.5), Some(51));
        assert_eq!(quantile(&all, 0.99), Some(100));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
