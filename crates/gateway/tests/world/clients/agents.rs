//! Agent frameworks, each with a real agent whose model is a script: the AI SDK in JavaScript, Pydantic AI
//! in Python, and Google's, of which `adk` has more.

use std::process::Command;

use serde_json::{Value, json};

use super::Stage;
use crate::parts::{NPM, beside, node_beside, part, run};

/// A framework whose agents use tools of MCP servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framework {
    Adk,
    Ai,
    Pydantic,
}

impl Framework {
    fn command(self) -> Command {
        let python = |environment: &str, script: &str| {
            let mut command = Command::new(part(&format!("{environment}/bin")).join("python"));
            command.arg(beside(script));
            command
        };
        match self {
            Self::Adk => {
                let mut command = python("adk", "clients/adk.py");
                // It would look for credentials of a cloud it does not run in.
                command
                    .env("NO_GCE_CHECK", "true")
                    .env("GOOGLE_API_USE_CLIENT_CERTIFICATE", "false");
                command
            }
            Self::Ai => {
                let mut command = node_beside("clients/ai.mjs");
                command.arg(part(NPM));
                command
            }
            Self::Pydantic => python("pydantic", "clients/pydantic_agent.py"),
        }
    }
}

/// Has an agent use the server at an endpoint where its tools are named so; returns what it tells.
pub(super) fn agent_at(
    stage: &Stage,
    framework: Framework,
    (how, url): (&str, &str),
    named: fn(&str) -> &str,
) -> Value {
    let plot = &stage.plot;
    let (called, failed) = (named(plot.call.0), named(plot.error.0));
    let before = stage.gantry.audit_rows("server=a").len();
    let wanted = json!([[called, plot.call.1], [failed, plot.error.1]]);
    let mut command = framework.command();
    command.args([&*wanted.to_string(), how, url, &stage.gantry.agent]);
    let ran = run(&mut command);
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    let told = ran.stdout.lines().last().unwrap_or_default();
    let told: Value = serde_json::from_str(told).unwrap_or_else(|_| panic!("{ran:#?}"));

    let listed = stage.gantry.mcp("tools/list", json!({}));
    let listed = listed["result"]["tools"].as_array().unwrap();
    let names = listed.iter().filter_map(|tool| tool["name"].as_str());
    let mut names: Vec<&str> = names.map(named).collect();
    names.sort_unstable();
    assert_eq!(told["offered"], json!(names));
    let [first, second] = told["answers"].as_array().unwrap().as_slice() else {
        panic!("{told:#}");
    };
    let answered = json!({"name": called, "error": false, "text": plot.called});
    assert_eq!(*first, answered, "{told:#}");
    assert_eq!(
        (&second["name"], &second["error"]),
        (&json!(failed), &json!(true))
    );
    let text = second["text"].as_str().unwrap_or_default();
    assert!(text.ends_with(plot.failed), "{told:#}");
    let rows = stage.gantry.audit_rows("server=a");
    assert_eq!(rows.len(), before + 2, "{rows:#?}");
    told
}

/// Has an agent use the tools of all servers, over HTTP and HTTP+SSE.
fn agent_of(framework: Framework) {
    let stage = Stage::set();
    agent_at(&stage, framework, ("http", &stage.url()), |exposed| exposed);
    agent_at(&stage, framework, ("sse", &stage.sse_url()), |exposed| {
        exposed
    });
}

#[test]
fn an_agent_of_the_ai_sdk() {
    agent_of(Framework::Ai);
}

#[test]
fn an_agent_of_pydantic_ai() {
    agent_of(Framework::Pydantic);
}
