//! Google's Agent Development Kit: a real agent with a scripted model. // row 0.8

use std::process::Command;

use serde_json::{Value, json};

use super::Stage;
use crate::parts::{beside, part, run};

/// Has an agent use the tools of one server through its own endpoint, and returns what it tells.
fn agent(way: &str, url: &str, key: &str) -> Value {
    let mut command = Command::new(part("adk/bin").join("python"));
    command
        .arg(beside("clients/adk.py"))
        .args([way, url, key])
        // It would look for credentials of a cloud it does not run in.
        .env("NO_GCE_CHECK", "true")
        .env("GOOGLE_API_USE_CLIENT_CERTIFICATE", "false");
    let ran = run(&mut command);
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    let told = ran.stdout.lines().last().unwrap_or_default();
    serde_json::from_str(told).unwrap_or_else(|_| panic!("{ran:#?}"))
}

// row 0.8
#[test]
fn each_tool_is_a_tool_of_an_adk_agent_under_its_own_name() {
    let stage = Stage::set();
    let url = format!("http://{}/mcp/servers/a", stage.gantry.authority);
    let told = agent("http", &url, &stage.gantry.agent);
    let listed = stage.gantry.mcp("tools/list", json!({}));
    let listed = listed["result"]["tools"].as_array().unwrap();
    let names = listed.iter().filter_map(|tool| tool["name"].as_str());
    let mut own: Vec<&str> = names.filter_map(|name| name.strip_prefix("a__")).collect();
    own.sort_unstable();
    assert_eq!(told["offered"], json!(own));
    assert_eq!(told["kinds"], json!(["McpTool"]));
    let text = |text: &str, is_error: bool| json!({"content": [{"type": "text", "text": text}], "isError": is_error});
    assert_eq!(
        told["answers"],
        json!([
            {"name": "echo", "response": text("hello", false)},
            {"name": "fail", "response": text("as asked", true)},
        ])
    );
    let rows = stage.gantry.audit_rows("server=a");
    let tools: Vec<&str> = rows.iter().filter_map(|row| row["tool"].as_str()).collect();
    assert_eq!(tools.len(), 2, "{rows:#?}");
    assert!(tools.contains(&"echo") && tools.contains(&"fail"));
}
