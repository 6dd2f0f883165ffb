//! The Inspector's command line, in its three manners of greeting.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Behind, Stage, Way};
use crate::parts::{Ran, Running, node, run};

/// How the Inspector ends when a tool's result is an error.
const TOOL_FAILED: i32 = 5;

/// The Inspector before a gateway.
struct Inspector {
    stage: Stage,
    era: &'static str,
    way: Way,
}

impl Inspector {
    fn command(&self, method: &str, arguments: &[&str]) -> Command {
        let mut command = node(
            "inspector/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js",
        );
        command.arg("--cli");
        let over = match self.way {
            Way::Http => Some((self.stage.url(), "http")),
            Way::Sse => Some((self.stage.sse_url(), "sse")),
            Way::Stdio => None,
        };
        if let Some((url, transport)) = over {
            let header = format!("Authorization: Bearer {}", self.stage.gantry.agent);
            command.args([&*url, "--transport", transport, "--header", &header]);
        }
        command.args(["--protocol-era", self.era, "--method", method]);
        command.args(arguments).args(["--format", "json", "-q"]);
        if self.way == Way::Stdio {
            command.arg("--").args(self.stage.command());
        }
        command
    }

    fn run(&self, method: &str, arguments: &[&str]) -> Ran {
        run(&mut self.command(method, arguments))
    }

    /// Returns the result of a method.
    fn ask(&self, method: &str, arguments: &[&str]) -> Value {
        let ran = self.run(method, arguments);
        assert_eq!(ran.code, Some(0), "{method}: {ran:#?}");
        let said: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:#?}"));
        said["result"].clone()
    }

    fn call(&self, tool: &str, arguments: &Value) -> Value {
        let arguments = arguments.to_string();
        self.ask(
            "tools/call",
            &["--tool-name", tool, "--tool-args-json", &arguments],
        )
    }
}

impl Inspector {
    /// Has progress reported, which the Inspector asks for if told to, takes in, and shows nobody.
    fn hears_progress(&self) {
        let asking = ["--tool-metadata", "progressToken=mine"];
        let call = |tool: &str, arguments: &str| {
            let named = ["--tool-name", tool, "--tool-args-json", arguments];
            self.ask("tools/call", &[named.as_slice(), &asking].concat())
        };
        let heard = call("a__whoami", "{}");
        let heard = heard["content"][0]["text"].as_str().unwrap_or_default();
        assert!(heard.contains("progressToken"), "{heard}");
        let slept = call("a__slow", r#"{"ms":300,"progress":3}"#);
        assert_eq!(slept["content"][0]["text"], "slept 300 ms", "{slept:#}");
    }
}

fn names(list: &Value, member: &str) -> Vec<String> {
    let list = list.as_array().unwrap_or_else(|| panic!("no list: {list}"));
    let names = list.iter().filter_map(|each| each[member].as_str());
    names.map(str::to_owned).collect()
}

fn everything(era: &'static str, way: Way) {
    everything_of(Behind::Peer, era, way);
}

fn everything_of(behind: Behind, era: &'static str, way: Way) {
    let stage = Stage::before(behind);
    let inspector = Inspector { stage, era, way };
    let tools = names(&inspector.ask("tools/list", &[])["tools"], "name");
    assert!(tools.iter().any(|name| name == "a__echo"), "{tools:?}");
    let echoed = inspector.call("a__echo", &json!({"text": "hello"}));
    assert_eq!(echoed["content"][0]["text"], "hello", "{echoed:#}");
    let failing = ["--tool-name", "a__fail", "--tool-arg", "message=as asked"];
    let failed = inspector.run("tools/call", &failing);
    assert_eq!(failed.code, Some(TOOL_FAILED), "{failed:#?}");
    assert!(failed.stdout.contains("as asked"), "{failed:#?}");
    if behind == Behind::Peer {
        inspector.hears_progress();
    }
    let resources = names(&inspector.ask("resources/list", &[])["resources"], "uri");
    assert!(
        resources.iter().any(|uri| uri == "test://static-text"),
        "{resources:?}"
    );
    let read = inspector.ask("resources/read", &["--uri", "test://static-text"]);
    assert_eq!(read["contents"][0]["text"], "the static text", "{read:#}");
    let prompts = names(&inspector.ask("prompts/list", &[])["prompts"], "name");
    assert!(
        prompts.iter().any(|name| name == "a__with_arguments"),
        "{prompts:?}"
    );
    let named = [
        "--prompt-name",
        "a__with_arguments",
        "--prompt-args",
        "a=hello",
    ];
    let prompt = inspector.ask("prompts/get", &named);
    assert_eq!(
        prompt["messages"][0]["content"]["text"], "Say hello.",
        "{prompt:#}"
    );

    let long = [
        "--tool-name",
        "a__slow",
        "--tool-args-json",
        r#"{"ms":60000,"progress":600}"#,
    ];
    let running = Running::start(&mut inspector.command("tools/call", &long));
    let in_flight = |status: &Value| status["queue"]["in_flight"] == 1;
    inspector
        .stage
        .gantry
        .wait_status("a", Duration::from_secs(60), in_flight);
    running.kill();
    inspector.stage.was_cancelled();
}

#[test]
fn legacy_over_http() {
    everything("legacy", Way::Http);
}

#[test]
fn auto_over_http() {
    everything("auto", Way::Http);
}

#[test]
fn modern_over_http() {
    everything("modern", Way::Http);
}

#[test]
fn legacy_over_stdio() {
    everything("legacy", Way::Stdio);
}

#[test]
fn auto_over_stdio() {
    everything("auto", Way::Stdio);
}

#[test]
fn modern_over_stdio() {
    everything("modern", Way::Stdio);
}

#[test]
fn legacy_over_sse() {
    everything("legacy", Way::Sse);
}

#[test]
fn in_each_era_before_servers_of_others() {
    everything_of(Behind::Http, "modern", Way::Http);
    everything_of(Behind::Sse, "legacy", Way::Http);
    everything_of(Behind::Sse, "auto", Way::Http);
}
