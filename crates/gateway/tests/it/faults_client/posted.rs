//! Requests that a test sends in its own way: changed in any part, answered later or never.

use std::io;

use serde_json::{Value, json};

use crate::harness::{Answer, Connection, Gantry};

/// The stateless protocol version.
const STATELESS: &str = "2026-07-28";

/// One POST, described before it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Posted {
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Posted {
    /// Describes a POST with a key and a JSON body.
    pub(crate) fn new(key: &str, path: &str, body: &Value) -> Self {
        let posted = Self {
            path: path.to_owned(),
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
        };
        posted
            .header("Authorization", &format!("Bearer {key}"))
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream")
    }

    /// Describes a request of the stateless generation, its headers in agreement with its body.
    pub(crate) fn stateless(key: &str, method: &str, mut params: Value) -> Self {
        let name = ["name", "uri"]
            .iter()
            .find_map(|member| params.get(*member)?.as_str());
        let name = name.map(str::to_owned);
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(STATELESS);
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let posted = Self::new(key, "/mcp", &message)
            .header("MCP-Protocol-Version", STATELESS)
            .header("Mcp-Method", method);
        match name {
            Some(name) => posted.header("Mcp-Name", &name),
            None => posted,
        }
    }

    /// Describes a tool call of the stateless generation.
    pub(crate) fn call(key: &str, tool: &str, arguments: Value) -> Self {
        Self::stateless(
            key,
            "tools/call",
            json!({"name": tool, "arguments": arguments}),
        )
    }

    /// Describes a message of a session of an older generation.
    pub(crate) fn in_session(key: &str, session: &str, message: &Value) -> Self {
        Self::new(key, "/mcp", message).header("Mcp-Session-Id", session)
    }

    /// Sends it to another path.
    pub(crate) fn at(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// Sets a header, in place of any other of that name.
    pub(crate) fn header(self, name: &str, value: &str) -> Self {
        self.without(name).also(name, value)
    }

    /// Adds a header beside others of that name.
    pub(crate) fn also(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Leaves a header out.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    /// Replaces the body.
    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Fills the body up to so many bytes with blanks, which are no part of its message.
    pub(crate) fn padded(mut self, bytes: usize) -> Self {
        self.body.resize(bytes, b' ');
        self
    }

    /// Returns the request's head as bytes, with a line that says how the body is framed.
    pub(crate) fn head(&self, host: &str, framing: &str) -> Vec<u8> {
        let mut head = format!(
            "POST {} HTTP/1.1\r\nHost: {host}\r\n{framing}\r\n",
            self.path
        );
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    /// Sends it on a connection and does not read the answer.
    pub(crate) fn write(&self, connection: &mut Connection) {
        self.try_write(connection).expect("the gateway reads");
    }

    /// Sends it on a connection that may be closed meanwhile.
    pub(crate) fn try_write(&self, connection: &mut Connection) -> io::Result<()> {
        let headers: Vec<(&str, &str)> = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        connection.write("POST", &self.path, &headers, &self.body)
    }

    /// Sends it on a connection of its own, which it returns.
    pub(crate) fn open(&self, gantry: &Gantry) -> Connection {
        let mut connection = gantry.connect();
        self.write(&mut connection);
        connection
    }

    /// Sends it on a connection of its own and returns the answer.
    pub(crate) fn send(&self, gantry: &Gantry) -> Answer {
        let mut connection = gantry.connect();
        // Who is refused in the middle of a long body may find the connection closed, and the answer.
        drop(self.try_write(&mut connection));
        connection.answer().expect("the gateway answers")
    }
}
