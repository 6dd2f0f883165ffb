//! The Python SDK in both generations, and `fastmcp`.

use std::process::Command;

use serde_json::{Value, json};

use super::{Behind, Stage, Way};
use crate::parts::{beside, part, run};

/// Has a client tell its story of our own peer.
fn tell(environment: &str, script: &str, mode: &str, way: Way, version: &str) {
    tell_of(Behind::Peer, environment, script, mode, way, version);
}

/// Has a client tell its story over HTTP of a server of other makers, and of both kinds of link.
fn tell_of_others(environment: &str, script: &str, mode: &str, version: &str) {
    for behind in [Behind::Http, Behind::Sse] {
        tell_of(behind, environment, script, mode, Way::Http, version);
    }
}

/// Has a client tell its story and checks every sentence of it.
fn tell_of(behind: Behind, environment: &str, script: &str, mode: &str, way: Way, version: &str) {
    let stage = Stage::before(behind);
    let mut command = Command::new(part(&format!("{environment}/bin")).join("python"));
    command
        .arg(beside(&format!("clients/{script}.py")))
        .arg(mode);
    match way {
        Way::Http => command.args(["http", &stage.url(), &stage.gantry.agent]),
        Way::Sse => command.args(["sse", &stage.sse_url(), &stage.gantry.agent]),
        Way::Stdio => command.arg("stdio").args(stage.command()),
    };
    let ran = run(&mut command);
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    let told = ran.stdout.lines().last().unwrap_or_default();
    let told: Value = serde_json::from_str(told).unwrap_or_else(|_| panic!("{ran:#?}"));
    assert_eq!(told["version"], version);
    let tools = told["tools"].as_array().unwrap();
    assert!(tools.contains(&json!("a__echo")), "{tools:?}");
    assert_eq!(told["call"], json!({"error": false, "text": "hello"}));
    assert_eq!(told["error"]["error"], true);
    let failed = told["error"]["text"].as_str().unwrap_or_default();
    assert!(failed.ends_with("as asked"), "{failed}");
    assert_eq!(
        told["slow"],
        json!({"error": false, "text": "slept 300 ms"})
    );
    let reports = told["progress"].as_array().unwrap();
    assert!(!reports.is_empty(), "no progress was reported");
    assert_eq!(told["cancel"], "taken back");
    let resources = told["resources"].as_array().unwrap();
    assert!(
        resources.contains(&json!("test://static-text")),
        "{resources:?}"
    );
    assert_eq!(told["resource"], "the static text");
    let prompts = told["prompts"].as_array().unwrap();
    assert!(prompts.contains(&json!("a__with_arguments")), "{prompts:?}");
    assert_eq!(told["prompt"], "Say hello.");
    assert_eq!(told["again"], json!({"error": false, "text": "still here"}));
    stage.was_cancelled();
}

#[test]
fn the_first_generation_over_http() {
    tell("mcp-1", "mcp1", "legacy", Way::Http, "2025-11-25");
}

#[test]
fn the_first_generation_over_stdio() {
    tell("mcp-1", "mcp1", "legacy", Way::Stdio, "2025-11-25");
}

#[test]
fn the_first_generation_over_sse() {
    tell("mcp-1", "mcp1", "legacy", Way::Sse, "2025-11-25");
}

#[test]
fn the_second_generation_as_it_comes_over_http() {
    tell("mcp-2", "mcp2", "auto", Way::Http, "2026-07-28");
}

#[test]
fn the_second_generation_as_it_comes_over_stdio() {
    tell("mcp-2", "mcp2", "auto", Way::Stdio, "2026-07-28");
}

#[test]
fn the_second_generation_with_a_handshake_over_http() {
    tell("mcp-2", "mcp2", "legacy", Way::Http, "2025-11-25");
}

#[test]
fn the_second_generation_with_a_handshake_over_stdio() {
    tell("mcp-2", "mcp2", "legacy", Way::Stdio, "2025-11-25");
}

#[test]
fn fastmcp_as_it_comes_over_http() {
    tell("fastmcp", "fast", "auto", Way::Http, "2026-07-28");
}

#[test]
fn fastmcp_as_it_comes_over_stdio() {
    tell("fastmcp", "fast", "auto", Way::Stdio, "2026-07-28");
}

#[test]
fn fastmcp_with_a_handshake_over_http() {
    tell("fastmcp", "fast", "legacy", Way::Http, "2025-11-25");
}

#[test]
fn fastmcp_with_a_handshake_over_stdio() {
    tell("fastmcp", "fast", "legacy", Way::Stdio, "2025-11-25");
}

#[test]
fn the_first_generation_before_servers_of_others() {
    tell_of_others("mcp-1", "mcp1", "legacy", "2025-11-25");
}

#[test]
fn the_second_generation_before_servers_of_others() {
    tell_of_others("mcp-2", "mcp2", "auto", "2026-07-28");
}

#[test]
fn the_second_generation_with_a_handshake_before_servers_of_others() {
    tell_of_others("mcp-2", "mcp2", "legacy", "2025-11-25");
}

#[test]
fn fastmcp_before_servers_of_others() {
    tell_of_others("fastmcp", "fast", "auto", "2026-07-28");
}
