//! The MCP server that is protected: streamable HTTP of the handshake era, without sessions. Its tool
//! `whoami` needs the scope `mcp`, `administer` needs `admin` too.

use serde_json::{Value, json};

use super::Inner;
use super::wire::{Answer, Asked};

impl Inner {
    /// Answers a message, if its token opens the door.
    pub(super) fn resource(&self, asked: &Asked) -> Answer {
        let message: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
        let wants_admin = message["params"]["name"] == "administer";
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
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "protected", "version": "1"},
            }),
            "tools/list" => json!({"tools": [tool("whoami"), tool("administer")]}),
            "tools/call" => {
                let held: Vec<&String> = scopes.iter().collect();
                json!({"content": [{"type": "text", "text": json!({ "scopes": held }).to_string()}]})
            }
            "ping" => json!({}),
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

    /// Answers who asks for a stream or for the end of a session: there is neither.
    pub(super) fn no_stream(&self, asked: &Asked) -> Answer {
        match self.book().scopes(token(asked)) {
            Some(_) => Answer::new(405),
            None => self.refused(401, "invalid_token", "mcp"),
        }
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

fn tool(name: &str) -> Value {
    json!({"name": name, "description": "Tells which scopes it was called with.",
        "inputSchema": {"type": "object"}})
}
