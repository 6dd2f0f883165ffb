//! Servers of other makers that are reached over HTTP, each in both ways: the reference server for
//! everything, whose tests are here, and one made with the Python SDK, which clients of other makers
//! use in `clients`.

use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use gantry_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::harness::Gantry;
use crate::parts::{Running, beside, part};

/// The first start downloads the package.
const FIRST_START: Duration = Duration::from_secs(180);

/// Returns a port that is free now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A server that runs, and the entry that a person would write for it.
pub(crate) struct Remote {
    _running: Running,
    pub(crate) entry: Value,
}

impl Remote {
    /// Starts a program and waits until it listens; without a transport it must be found out.
    fn start(command: &mut Command, port: u16, path: &str, transport: Option<&str>) -> Self {
        let running = Running::start(command);
        let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        assert!(
            eventually(FIRST_START, listens).is_some(),
            "{}",
            running.said()
        );
        let mut entry = json!({"url": format!("http://127.0.0.1:{port}{path}")});
        if let Some(transport) = transport {
            entry["type"] = json!(transport);
        }
        Self {
            _running: running,
            entry,
        }
    }

    /// Starts a server of the Python SDK; `way` is `sse` or `streamable-http`.
    pub(crate) fn python(way: &str) -> Self {
        let port = free_port();
        let mut command = Command::new(part("mcp-2/bin").join("python"));
        command
            .arg(beside("servers/remote.py"))
            .args([way, &port.to_string()]);
        let (path, transport) = match way {
            "sse" => ("/sse", "sse"),
            _ => ("/mcp", "http"),
        };
        Self::start(&mut command, port, path, Some(transport))
    }

    /// Puts a gateway before it.
    fn before(&self) -> Gantry {
        let gantry = Gantry::builder().entry("far", self.entry.clone()).start();
        gantry.wait_state("far", "ready", Duration::from_secs(60));
        gantry
    }
}

fn text(answer: &Value) -> &str {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{answer:#}"))
}

/// Has everything do its work; without a transport it must be found out.
fn everything(mode: &str, path: &str, transport: Option<&str>) {
    let port = free_port();
    let mut command = Command::new("npx");
    command.args(["-y", "@modelcontextprotocol/server-everything", mode]);
    command.env("PORT", port.to_string());
    let remote = Remote::start(&mut command, port, path, transport);
    let gantry = remote.before();
    let echoed = gantry.call("far__echo", json!({"message": "hello"}));
    assert_eq!(text(&echoed), "Echo: hello");
    let sum = gantry.call("far__get-sum", json!({"a": 2, "b": 3}));
    assert!(text(&sum).contains('5'), "{sum}");
    let resources = gantry.mcp("resources/list", json!({}));
    assert!(
        !resources["result"]["resources"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

#[test]
fn everything_over_sse() {
    everything("sse", "/sse", Some("sse"));
}

#[test]
fn everything_over_sse_found_out() {
    everything("sse", "/sse", None);
}

#[test]
fn everything_over_streamable_http() {
    everything("streamableHttp", "/mcp", Some("http"));
}
