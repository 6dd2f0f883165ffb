//! The Python SDK in both generations, and `fastmcp`.

use std::process::Command;

use serde_json::{Value, json};

use super::plot::REPORTS;
use super::{Stage, Way};
use crate::parts::{beside, part, run};

/// A client: where it is installed, who drives it, how it greets, and which version comes of that.
#[derive(Debug, Clone, Copy)]
pub(super) struct Client {
    environment: &'static str,
    script: &'static str,
    mode: &'static str,
    version: &'static str,
}

const fn client(environment: &'static str, script: &'static str, mode: &'static str) -> Client {
    let version = match mode.as_bytes() {
        b"auto" => "2026-07-28",
        _ => "2025-11-25",
    };
    Client {
        environment,
        script,
        mode,
        version,
    }
}

const FIRST: Client = client("mcp-1", "mcp1", "legacy");
const SECOND: Client = client("mcp-2", "mcp2", "auto");
const SECOND_WITH_HANDSHAKE: Client = client("mcp-2", "mcp2", "legacy");
const FASTMCP: Client = client("fastmcp", "fast", "auto");
const FASTMCP_WITH_HANDSHAKE: Client = client("fastmcp", "fast", "legacy");

/// All of them.
pub(super) const CLIENTS: [Client; 5] = [
    FIRST,
    SECOND,
    SECOND_WITH_HANDSHAKE,
    FASTMCP,
    FASTMCP_WITH_HANDSHAKE,
];

/// Has a client tell its story and checks every sentence of it.
pub(super) fn tell(stage: &Stage, client: Client, way: Way) {
    let (plot, environment) = (&stage.plot, client.environment);
    let mut command = Command::new(part(&format!("{environment}/bin")).join("python"));
    command
        .arg(beside(&format!("clients/{}.py", client.script)))
        .args([&plot.told(), client.mode]);
    match way {
        Way::Http => command.args(["http", &stage.url(), &stage.gantry.agent]),
        Way::Sse => command.args(["sse", &stage.sse_url(), &stage.gantry.agent]),
        Way::Stdio => command.arg("stdio").args(stage.command()),
    };
    let ran = run(&mut command);
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    let told = ran.stdout.lines().last().unwrap_or_default();
    let told: Value = serde_json::from_str(told).unwrap_or_else(|_| panic!("{ran:#?}"));
    assert_eq!(told["version"], client.version);
    let lists = |member: &str, name: &str| {
        let list = told[member].as_array().unwrap();
        assert!(list.contains(&json!(name)), "{list:?}");
    };
    for tool in [plot.call.0, plot.error.0, plot.slow.0] {
        lists("tools", tool);
    }
    assert_eq!(told["call"], json!({"error": false, "text": plot.called}));
    assert_eq!(told["error"]["error"], true);
    let failed = told["error"]["text"].as_str().unwrap_or_default();
    assert!(failed.ends_with(plot.failed), "{failed}");
    assert_eq!(told["slow"], json!({"error": false, "text": plot.slept}));
    let reports: Vec<(f64, f64)> = serde_json::from_value(told["progress"].clone()).unwrap();
    assert_eq!(reports, REPORTS);
    assert_eq!(told["cancel"], "taken back");
    lists("resources", plot.resource);
    let read = told["resource"].as_str().unwrap_or_default();
    assert!(read.starts_with(plot.read), "{read}");
    lists("prompts", plot.prompt.0);
    assert_eq!(told["prompt"], plot.prompted);
    assert_eq!(told["again"], told["call"]);
    stage.was_cancelled();
}

#[test]
fn the_first_generation_over_http() {
    tell(&Stage::set(), FIRST, Way::Http);
}

#[test]
fn the_first_generation_over_stdio() {
    tell(&Stage::set(), FIRST, Way::Stdio);
}

#[test]
fn the_first_generation_over_sse() {
    tell(&Stage::set(), FIRST, Way::Sse);
}

#[test]
fn the_second_generation_as_it_comes_over_http() {
    tell(&Stage::set(), SECOND, Way::Http);
}

#[test]
fn the_second_generation_as_it_comes_over_stdio() {
    tell(&Stage::set(), SECOND, Way::Stdio);
}

#[test]
fn the_second_generation_with_a_handshake_over_http() {
    tell(&Stage::set(), SECOND_WITH_HANDSHAKE, Way::Http);
}

#[test]
fn the_second_generation_with_a_handshake_over_stdio() {
    tell(&Stage::set(), SECOND_WITH_HANDSHAKE, Way::Stdio);
}

#[test]
fn fastmcp_as_it_comes_over_http() {
    tell(&Stage::set(), FASTMCP, Way::Http);
}

#[test]
fn fastmcp_as_it_comes_over_stdio() {
    tell(&Stage::set(), FASTMCP, Way::Stdio);
}

#[test]
fn fastmcp_with_a_handshake_over_http() {
    tell(&Stage::set(), FASTMCP_WITH_HANDSHAKE, Way::Http);
}

#[test]
fn fastmcp_with_a_handshake_over_stdio() {
    tell(&Stage::set(), FASTMCP_WITH_HANDSHAKE, Way::Stdio);
}
