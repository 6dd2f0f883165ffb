//! MCP over HTTP as clients speak it: stateless requests, and sessions of the older generations.

use serde_json::{Value, json};

use super::http::{Answer, Connection};

/// What clients of either generation accept.
const ACCEPT: (&str, &str) = ("Accept", "application/json, text/event-stream");
const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Sends one request of the stateless generation.
pub(crate) fn modern(
    connection: &mut Connection,
    key: &str,
    path: &str,
    method: &str,
    mut params: Value,
) -> Answer {
    const VERSION: &str = "2026-07-28";
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "harness", "version": "1"},
    });
    match params["_meta"].as_object_mut() {
        Some(given) => meta
            .as_object()
            .into_iter()
            .flatten()
            .for_each(|(key, value)| {
                given.entry(key).or_insert_with(|| value.clone());
            }),
        None => params["_meta"] = meta,
    }
    let name = ["name", "uri"]
        .iter()
        .find_map(|key| params.get(*key)?.as_str())
        .map(str::to_owned);
    let bearer = format!("Bearer {key}");
    let mut headers = vec![
        ACCEPT,
        JSON,
        ("Authorization", &bearer),
        ("MCP-Protocol-Version", VERSION),
        ("Mcp-Method", method),
    ];
    if let Some(name) = &name {
        headers.push(("Mcp-Name", name));
    }
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    connection
        .request("POST", path, &headers, body.to_string().as_bytes())
        .expect("the gateway answers")
}

/// A session of an older generation, on one connection.
pub(crate) struct Session {
    connection: Connection,
    key: String,
    version: String,
    /// The session's id, if the gateway gave one.
    pub(crate) id: Option<String>,
    /// What the gateway said to `initialize`.
    pub(crate) hello: Value,
    next: u64,
}

impl Session {
    /// Shakes hands.
    pub(crate) fn open(connection: Connection, key: &str, version: &str) -> Self {
        let mut session = Self {
            connection,
            key: key.to_owned(),
            version: version.to_owned(),
            id: None,
            hello: Value::Null,
            next: 0,
        };
        let info = json!({"name": "harness", "version": "1"});
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": info});
        let answer = session.send("initialize", params);
        session.id = answer.header("mcp-session-id").map(str::to_owned);
        session.hello = answer.message()["result"].take();
        assert!(
            session.hello.is_object(),
            "`initialize` was refused: {}",
            answer.text()
        );
        session.notify("notifications/initialized", json!({}));
        session
    }

    /// Sends a request and returns the whole HTTP answer.
    pub(crate) fn send(&mut self, method: &str, params: Value) -> Answer {
        self.next += 1;
        self.post(&json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}))
    }

    /// Sends a request and returns the JSON-RPC answer.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        self.send(method, params).message()
    }

    /// Sends a notification.
    pub(crate) fn notify(&mut self, method: &str, params: Value) -> Answer {
        self.post(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
    }

    /// Posts any message.
    pub(crate) fn post(&mut self, message: &Value) -> Answer {
        let bearer = format!("Bearer {}", self.key);
        let mut headers = vec![ACCEPT, JSON, ("Authorization", &bearer)];
        headers.push(("MCP-Protocol-Version", &self.version));
        if let Some(id) = &self.id {
            headers.push(("Mcp-Session-Id", id));
        }
        let body = message.to_string();
        self.connection
            .request("POST", "/mcp", &headers, body.as_bytes())
            .expect("the gateway answers")
    }
}
