//! A client that calls tools again and again on one connection, always with the id 1, and keeps its
//! own record of what it sent and what came back.

use std::io;
use std::time::Duration;

use gantry_testkit::wait::eventually;
use serde_json::Value;

use crate::harness::{Connection, Gantry};

/// Longer than a gateway takes to come back.
const COMES_BACK: Duration = Duration::from_secs(30);

/// A client of `/mcp`.
pub(super) struct Client {
    authority: String,
    bearer: String,
    connection: Option<Connection>,
}

/// What a client knows of a call that it sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// The connection was cut before the answer was whole.
    Cut,
    /// The server's result.
    Result(String),
    /// An error of the gateway's.
    Failed {
        /// Its stable code.
        code: String,
        /// The row it names.
        call: Option<String>,
    },
}

impl Client {
    pub(super) fn new(gantry: &Gantry) -> Self {
        let bearer = format!("Bearer {}", gantry.agent);
        Self {
            authority: gantry.authority.clone(),
            bearer,
            connection: None,
        }
    }

    /// Connects if need be, waiting for a gateway that is coming back.
    pub(super) fn connect(&mut self) {
        if self.connection.is_some() {
            return;
        }
        let up = eventually(COMES_BACK, || {
            self.connection = Connection::open(&self.authority).ok();
            self.connection.is_some()
        });
        assert!(
            up.is_some(),
            "no gateway at {} for {COMES_BACK:?}",
            self.authority
        );
    }

    /// Calls a tool; `arguments` is JSON.
    pub(super) fn call(&mut self, tool: &str, arguments: &str) -> Fate {
        self.connect();
        match self.exchange(tool, arguments) {
            Ok(answer) => fate(&answer),
            Err(_) => {
                self.connection = None;
                Fate::Cut
            }
        }
    }

    fn exchange(&mut self, tool: &str, arguments: &str) -> io::Result<Value> {
        let connection = self.connection.as_mut().expect("it was just connected");
        let headers = [
            ("Accept", "application/json, text/event-stream"),
            ("Content-Type", "application/json"),
            ("Authorization", self.bearer.as_str()),
        ];
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
        );
        let answer = connection.request("POST", "/mcp", &headers, body.as_bytes())?;
        Ok(serde_json::from_slice(&answer.body)?)
    }
}

fn fate(answer: &Value) -> Fate {
    assert_eq!(
        answer["id"], 1,
        "every answer carries its own client's id: {answer}"
    );
    if let Some(text) = answer
        .pointer("/result/content/0/text")
        .and_then(Value::as_str)
    {
        return Fate::Result(text.to_owned());
    }
    let data = &answer["error"]["data"];
    let word = |name: &str| data[name].as_str().map(str::to_owned);
    let code = word("code").unwrap_or_else(|| panic!("neither a text nor a code: {answer:#}"));
    Fate::Failed {
        code,
        call: word("call"),
    }
}
