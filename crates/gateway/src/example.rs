//! A small MCP server inside the binary, so that the first command shows real tools.
//!
//! Plain blocking reads and writes over stdio, both protocol generations, three tools, a resource and
//! a prompt. It trusts its parent and keeps no state. Entry point: [`run`].

mod content;

use std::io::{self, BufRead as _, Write as _};

use gantry_model::era::{ProtocolVersion, negotiate};
use serde_json::{Value, json};

use content::Refusal;

const META: &str = "io.modelcontextprotocol/protocolVersion";

/// Serves until stdin ends.
pub fn run() -> io::Result<()> {
    let mut input = io::stdin().lock();
    let mut output = io::stdout().lock();
    // So that its log is not empty.
    writeln!(io::stderr(), "serving three tools, a resource and a prompt")?;
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if let Some(answer) = answer(&line) {
            let mut text = serde_json::to_vec(&answer)?;
            text.push(b'\n');
            output.write_all(&text)?;
            output.flush()?;
        }
    }
}

/// Answers one line; `None` for notifications and blank lines.
fn answer(line: &[u8]) -> Option<Value> {
    if line.trim_ascii().is_empty() {
        return None;
    }
    let Ok(message) = serde_json::from_slice::<Value>(line) else {
        let error = json!({"code": -32700, "message": "invalid JSON"});
        return Some(json!({"jsonrpc": "2.0", "id": null, "error": error}));
    };
    let id = message.get("id")?.clone();
    let method = message.get("method").and_then(Value::as_str)?;
    let params = message.get("params").cloned().unwrap_or_else(|| json!({}));
    let modern = params
        .pointer(&format!("/_meta/{}", META.replace('/', "~1")))
        .is_some();
    Some(match dispatch(method, &params) {
        Ok(result) if modern => {
            json!({"jsonrpc": "2.0", "id": id, "result": completed(method, result)})
        }
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(Refusal { code, message }) => {
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
        }
    })
}

fn dispatch(method: &str, params: &Value) -> Result<Value, Refusal> {
    match method {
        "initialize" => {
            let wanted = params
                .get("protocolVersion")
                .and_then(Value::as_str)
                .unwrap_or_default();
            Ok(json!({
                "protocolVersion": negotiate(wanted).as_str(),
                "capabilities": content::capabilities(),
                "serverInfo": content::about(),
                "instructions": content::INSTRUCTIONS,
            }))
        }
        "server/discover" => Ok(json!({
            "supportedVersions": ProtocolVersion::STATELESS.map(ProtocolVersion::as_str),
            "capabilities": content::capabilities(),
            "serverInfo": content::about(),
            "instructions": content::INSTRUCTIONS,
        })),
        "ping" => Ok(json!({})),
        "tools/list" => Ok(json!({"tools": content::tools()})),
        "tools/call" => content::call(params),
        "resources/list" => Ok(json!({"resources": content::resources()})),
        "resources/templates/list" => Ok(json!({"resourceTemplates": []})),
        "resources/read" => content::read(params),
        "prompts/list" => Ok(json!({"prompts": content::prompts()})),
        "prompts/get" => content::prompt(params),
        _ => Err(Refusal {
            code: -32601,
            message: format!("there is no method `{method}`"),
        }),
    }
}

/// Adds the members that the stateless era requires in every result, and in cacheable ones.
fn completed(method: &str, mut result: Value) -> Value {
    result["resultType"] = json!("complete");
    if method.ends_with("/list") || matches!(method, "server/discover" | "resources/read") {
        result["ttlMs"] = json!(60_000);
        result["cacheScope"] = json!("public");
    }
    result
}

#[cfg(test)]
mod tests;
