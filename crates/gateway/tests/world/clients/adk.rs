//! Row 0.8: `google-adk`'s `McpToolset` before the gateway: each tool a tool function of an agent under
//! its own name, run by a real agent whose model is a script.

use std::process::Command;

use serde_json::{Value, json};

use super::Stage;
use crate::parts::{beside, part, run};

fn run_agent(stage: &Stage, url: &str, tool: &str) {
    let mut command = Command::new(part("adk/bin").join("python"));
    command.arg(beside("clients/adk.py"));
    command.args([url, &stage.gantry.agent, tool]);
    let ran = run(&mut command);
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    let told = ran.stdout.lines().last().unwrap_or_default();
    let told: Value = serde_json::from_str(told).unwrap_or_else(|_| panic!("{ran:#?}"));
    let tools = told["tools"].as_array().unwrap();
    assert!(tools.contains(&json!(tool)), "{tools:?}");
    assert_eq!(told["offered"], told["tools"], "the model is offered each");
    assert_eq!(told["said"]["content"][0]["text"], "from adk");
}

// row 0.8
#[test]
fn an_adk_agent_has_each_tool_and_its_call_is_recorded() {
    let stage = Stage::set();
    let own = stage.url().replace("/mcp", "/mcp/servers/a");
    run_agent(&stage, &own, "echo");
    run_agent(&stage, &stage.url(), "a__echo");
    let rows = stage.gantry.audit_rows("server=a&status=ok");
    let echoes = rows.iter().filter(|row| row["tool"] == "echo").count();
    assert_eq!(echoes, 2, "{rows:#?}");
}
