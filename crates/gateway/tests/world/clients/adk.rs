//! Google's Agent Development Kit: a real agent with a scripted model. // row 0.8

use std::process::Command;

use serde_json::{Value, json};

use super::plot::Plot;
use super::{Stage, Way};
use crate::parts::{beside, part, run};

/// Has an agent use these tools, and returns what it tells.
fn agent(wanted: &Value, way: &str, url: &str, key: &str) -> Value {
    let mut command = Command::new(part("adk/bin").join("python"));
    command
        .arg(beside("clients/adk.py"))
        .args([&wanted.to_string(), way, url, key])
        // It would look for credentials of a cloud it does not run in.
        .env("NO_GCE_CHECK", "true")
        .env("GOOGLE_API_USE_CLIENT_CERTIFICATE", "false");
    let ran = run(&mut command);
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    let told = ran.stdout.lines().last().unwrap_or_default();
    serde_json::from_str(told).unwrap_or_else(|_| panic!("{ran:#?}"))
}

/// Has an agent use the server at the server's own endpoint, where each tool has the name that its
/// server gives it.
pub(super) fn agent_uses(stage: &Stage, way: Way) {
    let (how, url) = match way {
        Way::Http => ("http", stage.url()),
        Way::Sse => ("sse", stage.sse_url()),
        Way::Stdio => panic!("an agent speaks HTTP"),
    };
    agent_at(stage, (how, &format!("{url}/servers/a")), Plot::own);
}

/// Has an agent use the server at an endpoint where its tools are named so.
fn agent_at(stage: &Stage, (how, url): (&str, &str), named: fn(&str) -> &str) {
    let Plot { call, error, .. } = &stage.plot;
    let (called, failed) = (named(call.0), named(error.0));
    let count = || stage.gantry.audit_rows("server=a").len();
    let before = count();
    let wanted = json!([[called, call.1], [failed, error.1]]);
    let told = agent(&wanted, how, url, &stage.gantry.agent);
    let listed = stage.gantry.mcp("tools/list", json!({}));
    let listed = listed["result"]["tools"].as_array().unwrap();
    let names = listed.iter().filter_map(|tool| tool["name"].as_str());
    let mut names: Vec<&str> = names.map(named).collect();
    names.sort_unstable();
    assert_eq!(told["offered"], json!(names));
    assert_eq!(told["kinds"], json!(["McpTool"]));
    let answers = told["answers"].as_array().unwrap();
    let said = |answer: &Value| {
        let response = &answer["response"];
        let text = response["content"][0]["text"].as_str().unwrap_or_default();
        (response["isError"] == true, text.to_owned())
    };
    let [first, second] = answers.as_slice() else {
        panic!("{told:#}");
    };
    assert_eq!(
        (&first["name"], &second["name"]),
        (&json!(called), &json!(failed))
    );
    assert_eq!(said(first), (false, stage.plot.called.to_owned()));
    let (is_error, text) = said(second);
    assert!(is_error && text.ends_with(stage.plot.failed), "{told:#}");
    let rows = stage.gantry.audit_rows("server=a");
    assert_eq!(rows.len(), before + 2, "{rows:#?}");
}

// row 0.8
#[test]
fn each_tool_is_a_tool_of_an_adk_agent_under_its_own_name() {
    let stage = Stage::set();
    agent_uses(&stage, Way::Http);
    agent_uses(&stage, Way::Sse);
    let rows = stage.gantry.audit_rows("server=a");
    let tools: Vec<&str> = rows.iter().filter_map(|row| row["tool"].as_str()).collect();
    assert!(tools.contains(&"echo") && tools.contains(&"fail"));
}

// row 0.8
#[test]
fn an_adk_agent_over_sse_has_the_tools_of_all_servers() {
    let stage = Stage::set();
    agent_at(&stage, ("sse", &stage.sse_url()), |exposed| exposed);
}
