//! The protected MCP server: streamable HTTP of the handshake era, without sessions. Its tool
//! `whoami` needs the scope `mcp`, `administer` also needs `admin`; `parrot` returns the received
//! token, in the way that its argument `how` selects.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use super::Inner;
use super::wire::{Answer, Asked};
use crate::wait::eventually;

/// The maximum wait of a request without a token.
const LONGEST_SILENCE: Duration = Duration::from_secs(120);

impl Inner {
    /// Answers a message, if its token is valid.
    pub(super) fn resource(&self, asked: &Asked) -> Answer {
        let message: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
        let wants_admin = message["params"]["name"] == "administer";
        if self.options.silent && token(asked).is_empty() {
            self.say_nothing();
        }
        let scopes = self.book().scopes(token(asked)).cloned();
        let Some(scopes) = scopes.filter(|scopes| scopes.contains("mcp")) else {
            return self.refused(401, "invalid_token", "mcp");
        };
        if wants_admin && !scopes.contains("admin") {
            return self.refused(403, "insufficient_scope", "admin");
        }
        if message.get("id").is_none() {
            return Answer::new(202);
        }
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}, "logging": {}},
                "serverInfo": {"name": "protected", "version": "1"},
            }),
            "tools/list" => {
                json!({"tools": [tool("whoami"), tool("administer"), tool("parrot")]})
            }
            "tools/call" if message["params"]["name"] == "parrot" => {
                return parrot(asked, &message);
            }
            "tools/call" => {
                let held: Vec<&String> = scopes.iter().collect();
                json!({"content": [{"type": "text", "text": json!({ "scopes": held }).to_string()}]})
            }
            "ping" | "logging/setLevel" => json!({}),
            method => {
                let error = json!({"code": -32601, "message": format!("no `{method}` here")});
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "error": error});
                let status = if method == "server/discover" {
                    400
                } else {
                    200
                };
                return Answer::json(status, &answer);
            }
        };
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        Answer::json(200, &answer)
    }

    /// Answers a request for a stream or for the end of a session: neither is supported.
    pub(super) fn no_stream(&self, asked: &Asked) -> Answer {
        match self.book().scopes(token(asked)) {
            Some(_) => Answer::new(405),
            None => self.refused(401, "invalid_token", "mcp"),
        }
    }

    /// Waits until the client disconnects.
    fn say_nothing(&self) {
        let is_over = || self.over.load(Ordering::Relaxed);
        eventually(LONGEST_SILENCE, is_over);
    }

    fn refused(&self, status: u16, error: &str, scope: &str) -> Answer {
        let place = self.url("/.well-known/oauth-protected-resource/mcp");
        let challenge =
            format!("Bearer error=\"{error}\", scope=\"{scope}\", resource_metadata=\"{place}\"");
        Answer::new(status).with("WWW-Authenticate", challenge)
    }
}

fn token(asked: &Asked) -> &str {
    let header = asked.header("authorization").unwrap_or_default();
    header.strip_prefix("Bearer ").unwrap_or_default()
}

/// Returns the token where the call wants it: in the result, in an error, in the body of a failure,
/// or in a log message before the result.
fn parrot(asked: &Asked, message: &Value) -> Answer {
    let (token, id) = (token(asked), &message["id"]);
    let said = format!("I was shown {token} and will tell everybody");
    let result = json!({"jsonrpc": "2.0", "id": id,
        "result": {"content": [{"type": "text", "text": said}]}});
    match message["params"]["arguments"]["how"].as_str() {
        Some("error") => {
            let error = json!({"code": -32000, "message": said, "data": {"token": said}});
            Answer::json(200, &json!({"jsonrpc": "2.0", "id": id, "error": error}))
        }
        // Longer than the quoted part of a failure, so that the token is cut.
        Some("failure") => {
            let before = "x".repeat(180);
            Answer::json(500, &json!({"detail": format!("{before} {token}")}))
        }
        Some("log") => {
            let log = json!({"jsonrpc": "2.0", "method": "notifications/message",
                "params": {"level": "error", "data": said}});
            Answer::events(&[log, result])
        }
        _ => Answer::json(200, &result),
    }
}

fn tool(name: &str) -> Value {
    json!({"name": name, "description": "Tells which scopes it was called with.",
        "inputSchema": {"type": "object"}})
}
