//! Servers of other makers that are reached over HTTP, each in both ways: the reference server for
//! everything and one made with the Python SDK. Clients of other makers use both in `clients`; here the
//! first does its work before any client.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use gantry_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::harness::{Gantry, held_port};
use crate::parts::{Running, beside, part};

/// The first start downloads the package.
const FIRST_START: Duration = Duration::from_secs(180);

/// A server that runs, and the entry that a person would write for it.
pub(crate) struct Remote {
    _running: Running,
    pub(crate) entry: Value,
}

impl Remote {
    /// Starts a program and waits until it listens; without a transport it must be found out.
    pub(crate) fn start(
        command: &mut Command,
        address: SocketAddr,
        path: &str,
        transport: Option<&str>,
    ) -> Self {
        let running = Running::start(command);
        let listens = || TcpStream::connect(address).is_ok();
        assert!(
            eventually(FIRST_START, listens).is_some(),
            "{}",
            running.said()
        );
        let mut entry = json!({"url": format!("http://{address}{path}")});
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
        let address = held_port();
        let mut command = Command::new(part("mcp-2/bin").join("python"));
        command
            .arg(beside("servers/remote.py"))
            .args([way, &address.port().to_string()]);
        let (path, transport) = match way {
            "sse" => ("/sse", "sse"),
            _ => ("/mcp", "http"),
        };
        Self::start(&mut command, address, path, Some(transport))
    }

    /// Starts the reference server for everything; `mode` is `sse` or `streamableHttp`.
    pub(crate) fn everything(mode: &str, transport: Option<&str>) -> Self {
        let address = held_port();
        let mut command = Command::new("npx");
        command.args(["-y", "@modelcontextprotocol/server-everything", mode]);
        command.env("PORT", address.port().to_string());
        // A registry may be away for a moment.
        command.env("npm_config_fetch_retries", "5");
        let path = match mode {
            "sse" => "/sse",
            _ => "/mcp",
        };
        Self::start(&mut command, address, path, transport)
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
fn everything(mode: &str, transport: Option<&str>) {
    let remote = Remote::everything(mode, transport);
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
    everything("sse", Some("sse"));
}

#[test]
fn everything_over_sse_found_out() {
    everything("sse", None);
}

#[test]
fn everything_over_streamable_http() {
    everything("streamableHttp", Some("http"));
}
