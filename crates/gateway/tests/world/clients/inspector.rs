//! The Inspector's command line, in its three manners of greeting.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Stage, Way};
use crate::parts::{Ran, Running, node, run};

/// Its manners of greeting.
pub(super) const ERAS: [&str; 3] = ["legacy", "auto", "modern"];

/// How the Inspector ends when a tool's result is an error.
const TOOL_FAILED: i32 = 5;

/// The Inspector before a gateway.
struct Inspector<'a> {
    stage: &'a Stage,
    era: &'static str,
    way: Way,
}

impl Inspector<'_> {
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

    fn call(&self, (tool, arguments): &(&str, Value), more: &[&str]) -> Value {
        let arguments = arguments.to_string();
        let named = ["--tool-name", tool, "--tool-args-json", &arguments];
        self.ask("tools/call", &[named.as_slice(), more].concat())
    }

    /// Has progress reported, which the Inspector asks for if told to, takes in, and shows nobody.
    fn hears_progress(&self) {
        let asking = ["--tool-metadata", "progressToken=mine"];
        let slept = self.call(&self.stage.plot.slow, &asking);
        let text = &slept["content"][0]["text"];
        assert_eq!(text, self.stage.plot.slept, "{slept:#}");
    }

    /// Asks our peer what it was told, so that it is known that progress was asked for.
    fn asks_for_progress(&self) {
        let asking = ["--tool-metadata", "progressToken=mine"];
        let heard = self.call(&("a__whoami", json!({})), &asking);
        let heard = heard["content"][0]["text"].as_str().unwrap_or_default();
        assert!(heard.contains("progressToken"), "{heard}");
    }
}

fn names(list: &Value, member: &str) -> Vec<String> {
    let list = list.as_array().unwrap_or_else(|| panic!("no list: {list}"));
    let names = list.iter().filter_map(|each| each[member].as_str());
    names.map(str::to_owned).collect()
}

/// Has the Inspector do everything.
pub(super) fn everything(stage: &Stage, era: &'static str, way: Way) {
    let inspector = Inspector { stage, era, way };
    let plot = &stage.plot;
    let lists = |method: &str, list: &str, member: &str, name: &str| {
        let names = names(&inspector.ask(method, &[])[list], member);
        assert!(names.iter().any(|known| known == name), "{names:?}");
    };
    lists("tools/list", "tools", "name", plot.call.0);
    let echoed = inspector.call(&plot.call, &[]);
    assert_eq!(echoed["content"][0]["text"], plot.called, "{echoed:#}");
    let (failing, given) = (plot.error.0, plot.error.1.to_string());
    let failing = ["--tool-name", failing, "--tool-args-json", &given];
    let failed = inspector.run("tools/call", &failing);
    assert_eq!(failed.code, Some(TOOL_FAILED), "{failed:#?}");
    assert!(failed.stdout.contains(plot.failed), "{failed:#?}");
    inspector.hears_progress();
    lists("resources/list", "resources", "uri", plot.resource);
    let read = inspector.ask("resources/read", &["--uri", plot.resource]);
    let text = read["contents"][0]["text"].as_str().unwrap_or_default();
    assert!(text.starts_with(plot.read), "{read:#}");
    lists("prompts/list", "prompts", "name", plot.prompt.0);
    let mut named = vec!["--prompt-name".to_owned(), plot.prompt.0.to_owned()];
    for (name, value) in plot.prompt.1.as_object().unwrap() {
        let value = value.as_str().unwrap();
        named.extend(["--prompt-args".to_owned(), format!("{name}={value}")]);
    }
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    let prompt = inspector.ask("prompts/get", &named);
    let text = &prompt["messages"][0]["content"]["text"];
    assert_eq!(text, plot.prompted, "{prompt:#}");

    let (long, given) = (plot.long.0, plot.long.1.to_string());
    let long = ["--tool-name", long, "--tool-args-json", &given];
    let running = Running::start(&mut inspector.command("tools/call", &long));
    let in_flight = |status: &Value| status["queue"]["in_flight"] == 1;
    stage
        .gantry
        .wait_status("a", Duration::from_secs(60), in_flight);
    running.kill();
    stage.was_cancelled();
}

/// Has the Inspector do everything with our peer.
fn everything_of_ours(era: &'static str, way: Way) {
    let stage = Stage::set();
    everything(&stage, era, way);
    let inspector = Inspector {
        stage: &stage,
        era,
        way,
    };
    inspector.asks_for_progress();
}

#[test]
fn legacy_over_http() {
    everything_of_ours("legacy", Way::Http);
}

#[test]
fn auto_over_http() {
    everything_of_ours("auto", Way::Http);
}

#[test]
fn modern_over_http() {
    everything_of_ours("modern", Way::Http);
}

#[test]
fn legacy_over_stdio() {
    everything_of_ours("legacy", Way::Stdio);
}

#[test]
fn auto_over_stdio() {
    everything_of_ours("auto", Way::Stdio);
}

#[test]
fn modern_over_stdio() {
    everything_of_ours("modern", Way::Stdio);
}

#[test]
fn legacy_over_sse() {
    everything_of_ours("legacy", Way::Sse);
}
