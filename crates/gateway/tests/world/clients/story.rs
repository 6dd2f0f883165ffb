//! One story that a client tells, in Python (`clients/story.py`) or JavaScript (`clients/story.mjs`), and
//! how every sentence of it is checked.

use std::process::Command;

use serde_json::{Value, json};

use super::plot::REPORTS;
use super::{Stage, Way};
use crate::parts::{NPM, beside, node_beside, part, run};

/// A client: who drives it, how it greets, and which version comes of that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    driver: Driver,
    mode: &'static str,
    version: &'static str,
}

#[derive(Debug, Clone, Copy)]
enum Driver {
    /// The environment it is installed in, and its script.
    Python(&'static str, &'static str),
    TypeScript,
}

const fn version(mode: &str) -> &'static str {
    match mode.as_bytes() {
        b"auto" => "2026-07-28",
        _ => "2025-11-25",
    }
}

impl Client {
    pub(super) const fn python(
        environment: &'static str,
        script: &'static str,
        mode: &'static str,
    ) -> Self {
        Self {
            driver: Driver::Python(environment, script),
            mode,
            version: version(mode),
        }
    }

    /// A client of the TypeScript SDK; `first` is the first generation, and a mode the second.
    pub(super) const fn typescript(mode: &'static str) -> Self {
        Self {
            driver: Driver::TypeScript,
            mode,
            version: version(mode),
        }
    }

    /// Has it tell the story of a plot over a link, `http URL KEY` or `stdio COMMAND ARGUMENT...`.
    pub(crate) fn tells(self, plot: &str, link: &[String]) -> Value {
        let mut command = match self.driver {
            Driver::Python(environment, script) => {
                let mut command = Command::new(part(&format!("{environment}/bin")).join("python"));
                command.arg(beside(&format!("clients/{script}.py")));
                command
            }
            Driver::TypeScript => {
                let mut command = node_beside("clients/story.mjs");
                command.arg(part(NPM));
                command
            }
        };
        command.args([plot, self.mode]).args(link);
        let ran = run(&mut command);
        assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
        let told = ran.stdout.lines().last().unwrap_or_default();
        let told: Value = serde_json::from_str(told).unwrap_or_else(|_| panic!("{ran:#?}"));
        assert_eq!(told["version"], self.version);
        told
    }
}

/// Has a client tell its story and checks every sentence of it.
pub(super) fn tell(stage: &Stage, client: Client, way: Way) {
    tell_over(stage, client, &stage.link(way));
}

/// Does the same over any link to the gateway.
pub(super) fn tell_over(stage: &Stage, client: Client, link: &[String]) {
    let plot = &stage.plot;
    let told = client.tells(&plot.told(), link);
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
