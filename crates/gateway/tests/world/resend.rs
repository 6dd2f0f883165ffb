//! `resend-mcp`, whose schemas have patterns that not every regular expression engine reads: each of its
//! tools is offered, and each definition is what a client gets that starts the server itself.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::clients::typescript;
use crate::harness::Gantry;
use crate::parts::{NPM, node_path, part};

/// How many tools the pinned version has.
const TOOLS: usize = 105;

/// Has a client of the SDK list tools over a link; returns them by name.
fn definitions(link: &[&str]) -> BTreeMap<String, Value> {
    let link: Vec<String> = link.iter().map(|word| (*word).to_owned()).collect();
    let told = typescript::FIRST.tells(r#"{"definitions":true}"#, &link);
    let tools = told["definitions"].as_array().unwrap().iter();
    let named = |tool: &Value| (tool["name"].as_str().unwrap().to_owned(), tool.clone());
    tools.map(named).collect()
}

#[test]
fn every_tool_is_offered_as_it_is_defined() {
    let node = node_path();
    let script = part(&format!("{NPM}/node_modules/resend-mcp/dist/index.js"));
    let (node, script) = (node.to_str().unwrap(), script.to_str().unwrap());
    let key = "re_none";
    let entry = json!({"command": node, "args": [script], "env": {"RESEND_API_KEY": key}});
    let gantry = Gantry::builder().entry("resend", entry).start();
    gantry.wait_state("resend", "ready", Duration::from_secs(60));

    let variable = format!("RESEND_API_KEY={key}");
    let direct = definitions(&["stdio", "/usr/bin/env", &variable, node, script]);
    assert_eq!(direct.len(), TOOLS);
    let url = format!("http://{}/mcp/servers/resend", gantry.authority);
    let offered = definitions(&["http", &url, &gantry.agent]);
    assert_eq!(
        offered.keys().collect::<Vec<_>>(),
        direct.keys().collect::<Vec<_>>()
    );
    for (name, definition) in &direct {
        assert_eq!(offered[name], *definition, "{name}");
    }

    let all = gantry.mcp("tools/list", json!({}));
    assert_eq!(all["result"]["tools"].as_array().unwrap().len(), TOOLS);
    let status = gantry.status("resend");
    assert_eq!(status["excluded"], json!([]), "{status:#}");
    // Every pattern of its can be judged.
    assert_eq!(status["unchecked"], json!([]), "{status:#}");
    let said = gantry.stdout();
    assert!(said.contains(&format!("ready, {TOOLS} tools")), "{said}");
}
