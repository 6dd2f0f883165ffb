//! Google's Agent Development Kit: a real agent with a scripted model. // row 0.8

use serde_json::json;

use super::agents::{Framework, agent_at};
use super::plot::Plot;
use super::{Stage, Way};

/// Has an agent use the server at the server's own endpoint, where each tool has the name that its
/// server gives it.
pub(super) fn agent_uses(stage: &Stage, way: Way) {
    let (how, url) = match way {
        Way::Http => ("http", stage.url()),
        Way::Sse => ("sse", stage.sse_url()),
        Way::Stdio => panic!("an agent speaks HTTP"),
    };
    let url = format!("{url}/servers/a");
    let told = agent_at(stage, Framework::Adk, (how, &url), Plot::own);
    assert_eq!(told["kinds"], json!(["McpTool"]));
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
    let at = ("sse", &*stage.sse_url());
    agent_at(&stage, Framework::Adk, at, |exposed| exposed);
}
