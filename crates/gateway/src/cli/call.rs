//! `gantry call TOOL`: calls a tool as the default agent and prints the result.
//!
//! Arguments are flags from the tool's schema, `name=value` pairs, or JSON. Everything after the
//! tool belongs to it: `--url` after it is an argument, before it a flag of ours. Entry point:
//! [`run`].

pub(super) mod arguments;
pub(super) mod help;

use std::io::Read as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::CliContext;
use super::client::Client;
use super::failure::{Exit, Failure};
use super::find::Role;
use super::format::{list, pretty, text, time_span};
use super::screen::Screen;

use arguments::{Own, Tokens};

/// Maximum size of an argument document.
const LONGEST: u64 = 4 << 20;

/// Arguments of `gantry call`.
#[derive(Debug, Args)]
#[command(override_usage = "gantry call [OPTIONS] <TOOL> [--ARGUMENT VALUE | NAME=VALUE]...")]
pub(super) struct Options {
    /// All arguments as one JSON object: the text, `@FILE`, or `-` for stdin
    #[arg(long, value_name = "OBJECT")]
    json_args: Option<String>,
    /// Print the whole result as JSON
    #[arg(long, alias = "raw")]
    json: bool,
    /// Do not wait: print the id for `gantry calls ID`
    #[arg(long = "async")]
    later: bool,
    /// Time limit of the call
    #[arg(long, value_name = "TIME", value_parser = time_span)]
    timeout: Option<Duration>,
    /// The tool, as `server__tool` or `server:tool`, and its arguments: `gantry call TOOL --help`
    /// shows them
    #[arg(required = true, trailing_var_arg = true, value_names = ["TOOL", "ARGUMENT"])]
    words: Vec<String>,
}

/// Calls the tool; exits with 1 if the tool reports a failure.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (tool, words) = options.words.split_first().expect("clap asks for a tool");
    let words = Tokens::of(words)?;
    let client = context.client(Role::Agent)?;
    let definition = match words.is_empty() {
        true => None,
        false => find(&client, tool).await?,
    };
    let schema = definition
        .as_ref()
        .and_then(|tool| tool.pointer("/definition/inputSchema"));
    let parsed = words.read(schema.unwrap_or(&Value::Null))?;
    let own = Own {
        json: parsed.own.json || options.json,
        later: parsed.own.later || options.later,
        timeout: parsed.own.timeout.or(options.timeout),
        json_args: parsed.own.json_args.or_else(|| options.json_args.clone()),
        help: parsed.own.help,
    };
    let screen = &context.screen;
    if own.help {
        let definition = definition.ok_or_else(|| unknown(tool))?;
        help::show(&definition, screen);
        return Ok(ExitCode::SUCCESS);
    }
    let arguments = match &own.json_args {
        None => Value::Object(parsed.arguments),
        Some(_) if !parsed.arguments.is_empty() => {
            let message = "arguments are given as JSON or one by one, not both";
            return Err(Failure::new(Exit::Usage, message));
        }
        Some(text) => document(text)?,
    };
    let mut body = json!({"name": tool, "arguments": arguments});
    if let Some(timeout) = own.timeout {
        body["timeout_ms"] = u64::try_from(timeout.as_millis())
            .unwrap_or(u64::MAX)
            .into();
    }
    if own.later {
        let wish = [("Prefer", "respond-async")];
        let answer = client
            .post_with("/api/v1/tools/call", Some(&body), &wish)
            .await?;
        match own.json {
            true => screen.line(&pretty(&answer)),
            false => screen.line(&text(&answer, "/id")),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let answer = client.post("/api/v1/tools/call", Some(&body)).await?;
    let result = answer.get("result").unwrap_or(&Value::Null);
    if own.json {
        screen.line(&pretty(result));
    } else {
        for line in shown(result) {
            screen.line(&Screen::safe(&line));
        }
    }
    Ok(match answer.get("is_error") {
        Some(Value::Bool(true)) => ExitCode::from(Exit::Failed as u8),
        Some(_) | None => ExitCode::SUCCESS,
    })
}

/// Returns a tool as the agent sees it.
pub(super) async fn find(client: &Client, name: &str) -> Result<Option<Value>, Failure> {
    let answer = client.get_all("/api/v1/tools").await?;
    let is_it = |tool: &&Value| text(tool, "/name") == name || text(tool, "/id") == name;
    Ok(list(&answer, "/items").iter().find(is_it).cloned())
}

fn unknown(tool: &str) -> Failure {
    Failure::new(Exit::Failed, format!("no tool `{tool}`"))
        .hint("`gantry tools` lists what there is")
}

/// Reads arguments that are one JSON object.
pub(super) fn document(given: &str) -> Result<Value, Failure> {
    let unreadable = |error: &std::io::Error| {
        Failure::plain(
            Exit::Usage,
            format!("cannot read the arguments from `{given}`"),
            error,
        )
    };
    let mut read = String::new();
    let text = match given.strip_prefix('@') {
        Some(path) => {
            let file = std::fs::File::open(path).map_err(|error| unreadable(&error))?;
            file.take(LONGEST)
                .read_to_string(&mut read)
                .map_err(|error| unreadable(&error))?;
            read.as_str()
        }
        None if given == "-" => {
            let stdin = std::io::stdin().lock();
            stdin
                .take(LONGEST)
                .read_to_string(&mut read)
                .map_err(|error| unreadable(&error))?;
            read.as_str()
        }
        None => given,
    };
    let value: Value = serde_json::from_str(text)
        .map_err(|error| Failure::plain(Exit::Usage, "`--json-args` is not valid JSON", &error))?;
    if !value.is_object() {
        return Err(Failure::new(
            Exit::Usage,
            "`--json-args` must be a JSON object",
        ));
    }
    Ok(value)
}

/// Returns a result for display: its texts, and a placeholder for everything else.
fn shown(result: &Value) -> Vec<String> {
    let content = result.get("content").and_then(Value::as_array);
    let Some(content) = content.filter(|content| !content.is_empty()) else {
        return vec![pretty(result.get("structuredContent").unwrap_or(result))];
    };
    let text = |item: &Value, name: &str| item.get(name).and_then(Value::as_str).map(str::to_owned);
    let shown = content.iter().map(|item| {
        let kind = text(item, "type").unwrap_or_default();
        match (kind.as_str(), text(item, "text")) {
            ("text", Some(text)) => text,
            _ => {
                let mime =
                    text(item, "mimeType").map_or_else(String::new, |mime| format!(", {mime}"));
                format!("[{kind}{mime}: see `--json`]")
            }
        }
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_sees_the_texts() {
        let result = json!({"content": [{"type": "text", "text": "hi"}, {"type": "image", "mimeType": "image/png"}]});
        assert_eq!(shown(&result), ["hi", "[image, image/png: see `--json`]"]);
        assert_eq!(shown(&json!({"structuredContent": 5})), ["5"]);
    }
}
