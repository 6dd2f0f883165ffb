//! `gantry call TOOL`: calls a tool as the default agent and prints what it says.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, Value, json};

use super::Surroundings;
use super::failure::{Exit, Failure};
use super::find::Role;
use super::format::pretty;
use super::screen::Screen;

/// What `gantry call` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The tool, as `server__tool` or `server:tool`
    tool: String,
    /// Arguments as `name=value`; a value that is JSON is taken as such, any other as text
    #[arg(value_name = "NAME=VALUE")]
    pairs: Vec<String>,
    /// All arguments as one JSON object
    #[arg(long, value_name = "OBJECT", conflicts_with = "pairs")]
    json: Option<String>,
    /// Print the whole result as JSON
    #[arg(long)]
    raw: bool,
}

/// Calls the tool; a tool that says it failed exits with 1.
pub(super) async fn run(
    options: &Options,
    surroundings: &Surroundings,
) -> Result<ExitCode, Failure> {
    let arguments = arguments(options)?;
    let client = surroundings.client(Role::Agent)?;
    let body = json!({"name": options.tool, "arguments": arguments});
    let answer = client.post("/api/v1/tools/call", Some(&body)).await?;
    let result = answer.get("result").unwrap_or(&Value::Null);
    if options.raw {
        surroundings.screen.line(&pretty(result));
    } else {
        for line in shown(result) {
            surroundings.screen.line(&Screen::safe(&line));
        }
    }
    let failed = answer
        .get("is_error")
        .and_then(Value::as_bool)
        .unwrap_or(false);
    Ok(if failed {
        ExitCode::from(Exit::Failed as u8)
    } else {
        ExitCode::SUCCESS
    })
}

fn arguments(options: &Options) -> Result<Value, Failure> {
    let Some(text) = &options.json else {
        return pairs(&options.pairs);
    };
    let value: Value = serde_json::from_str(text)
        .map_err(|error| Failure::plain(Exit::Usage, "`--json` is no JSON", &error))?;
    if !value.is_object() {
        return Err(Failure::new(Exit::Usage, "`--json` must be a JSON object"));
    }
    Ok(value)
}

fn pairs(pairs: &[String]) -> Result<Value, Failure> {
    let mut members = Map::new();
    for pair in pairs {
        let (name, value) = pair.split_once('=').ok_or_else(|| {
            Failure::new(Exit::Usage, format!("`{pair}` is no argument")).hint("write `name=value`")
        })?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        members.insert(name.to_owned(), value);
    }
    Ok(Value::Object(members))
}

/// Returns what a person wants to see of a result: its texts, a word on everything else.
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
                format!("[{kind}{mime}: see `--raw`]")
            }
        }
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_json_where_they_are_and_text_otherwise() {
        let given = ["a=1", "b=two words", "c=[true]", "d=x=y", "e="].map(str::to_owned);
        let expected = json!({"a": 1, "b": "two words", "c": [true], "d": "x=y", "e": ""});
        assert_eq!(pairs(&given).unwrap(), expected);
        assert!(pairs(&["nothing".to_owned()]).is_err());
    }

    #[test]
    fn a_person_sees_the_texts() {
        let result = json!({"content": [{"type": "text", "text": "hi"}, {"type": "image", "mimeType": "image/png"}]});
        assert_eq!(shown(&result), ["hi", "[image, image/png: see `--raw`]"]);
        assert_eq!(shown(&json!({"structuredContent": 5})), ["5"]);
    }
}
