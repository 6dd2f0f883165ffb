//! The tools, resource and prompt of the example server.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

pub(super) const INSTRUCTIONS: &str = "A small server to try Gantry with: `echo`, `now` and `add`.";

const WELCOME: &str = "example://welcome";

/// A JSON-RPC error.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) code: i64,
    pub(super) message: String,
}

pub(super) fn about() -> Value {
    json!({"name": "gantry-example", "title": "Gantry's example server", "version": env!("CARGO_PKG_VERSION")})
}

pub(super) fn capabilities() -> Value {
    json!({"tools": {}, "resources": {}, "prompts": {}})
}

pub(super) fn tools() -> Value {
    json!([
        {
            "name": "echo",
            "description": "Returns the text it is given.",
            "inputSchema": {
                "type": "object",
                "properties": {"text": {"type": "string", "description": "What to return"}},
                "required": ["text"],
                "additionalProperties": false
            },
            "annotations": {"readOnlyHint": true}
        },
        {
            "name": "now",
            "description": "Tells the time in UTC.",
            "inputSchema": {"type": "object", "properties": {}, "additionalProperties": false},
            "annotations": {"readOnlyHint": true}
        },
        {
            "name": "add",
            "description": "Adds two numbers.",
            "inputSchema": {
                "type": "object",
                "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
                "required": ["a", "b"],
                "additionalProperties": false
            },
            "outputSchema": {
                "type": "object",
                "properties": {"sum": {"type": "number"}},
                "required": ["sum"]
            },
            "annotations": {"readOnlyHint": true}
        }
    ])
}

pub(super) fn call(params: &Value) -> Result<Value, Refusal> {
    let tool = params
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let argument = |name: &str| params.pointer(&format!("/arguments/{name}"));
    match tool {
        "echo" => Ok(match argument("text").and_then(Value::as_str) {
            Some(text) => said(text),
            None => failed("`text` must be a text"),
        }),
        "now" => Ok(said(
            &Timestamp::now()
                .to_zoned(TimeZone::UTC)
                .strftime("%Y-%m-%dT%H:%M:%SZ")
                .to_string(),
        )),
        "add" => Ok(match (argument("a"), argument("b")) {
            (Some(Value::Number(a)), Some(Value::Number(b))) => {
                let sum = sum(a, b);
                let mut result = said(&sum.to_string());
                result["structuredContent"] = json!({"sum": sum});
                result
            }
            _ => failed("`a` and `b` must be numbers"),
        }),
        _ => Err(Refusal {
            code: -32602,
            message: format!("Unknown tool: {tool}"),
        }),
    }
}

/// Adds integers as integers, so that 2 + 3 is 5 and not 5.0.
fn sum(a: &serde_json::Number, b: &serde_json::Number) -> Value {
    let whole = a
        .as_i64()
        .zip(b.as_i64())
        .and_then(|(a, b)| a.checked_add(b));
    whole.map_or_else(
        || json!(a.as_f64().unwrap_or(0.0) + b.as_f64().unwrap_or(0.0)),
        |sum| json!(sum),
    )
}

fn said(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

fn failed(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}], "isError": true})
}

pub(super) fn resources() -> Value {
    json!([{"uri": WELCOME, "name": "welcome", "description": "What to try next", "mimeType": "text/plain"}])
}

pub(super) fn read(params: &Value) -> Result<Value, Refusal> {
    match params.get("uri").and_then(Value::as_str) {
        Some(WELCOME) => Ok(json!({"contents": [{
            "uri": WELCOME,
            "mimeType": "text/plain",
            "text": "This server lives inside Gantry. Name your own with `gantry up --config FILE`.",
        }]})),
        other => Err(Refusal {
            code: -32602,
            message: format!("Unknown resource: {}", other.unwrap_or("")),
        }),
    }
}

pub(super) fn prompts() -> Value {
    json!([{
        "name": "greet",
        "description": "Greets somebody",
        "arguments": [{"name": "name", "description": "Whom", "required": true}]
    }])
}

pub(super) fn prompt(params: &Value) -> Result<Value, Refusal> {
    match (
        params.get("name").and_then(Value::as_str),
        params.pointer("/arguments/name"),
    ) {
        (Some("greet"), Some(Value::String(whom))) => Ok(json!({"messages": [
            {"role": "user", "content": {"type": "text", "text": format!("Greet {whom} in one sentence.")}}
        ]})),
        (Some("greet"), _) => Err(Refusal {
            code: -32602,
            message: "`name` is missing".to_owned(),
        }),
        (other, _) => Err(Refusal {
            code: -32602,
            message: format!("Unknown prompt: {}", other.unwrap_or("")),
        }),
    }
}
