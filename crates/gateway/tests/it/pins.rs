//! Tools that are new or changed: quarantined, shown, approved; and texts that try to steer a model.

mod approvals;
mod hooks;
mod quarantine;
mod texts;

use std::fs;
use std::path::PathBuf;

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::eventually;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Answer, Builder, Gantry, LONG, modern};

/// A server whose list is a file that the test changes.
struct Swapping {
    folder: TempDir,
}

impl Swapping {
    fn new(tools: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let swapping = Self { folder };
        swapping.write(tools);
        swapping
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("tools.json")
    }

    fn write(&self, tools: &Value) {
        fs::write(self.path(), tools.to_string()).unwrap();
    }

    fn peer(&self) -> Evilpeer {
        Evilpeer::new().fault(&format!("list-file={}", self.path().display()))
    }

    fn builder(&self) -> Builder {
        Gantry::builder().server("files", &self.peer())
    }

    /// Swaps the list, has the server announce it, and waits until it was read.
    fn swap(&self, gantry: &Gantry, tools: &Value) {
        let before = versions_seen(gantry);
        self.write(tools);
        let grown = gantry.call("files__grow", json!({}));
        assert!(grown["result"].is_object(), "{grown}");
        let read = eventually(LONG, || versions_seen(gantry) != before);
        assert!(read.is_some(), "the changed list was not read");
    }
}

/// Returns what is offered of the server: after each list with a change that is another text.
fn versions_seen(gantry: &Gantry) -> String {
    gantry
        .rest("GET", "/api/v1/tools?server=files", None)
        .text()
}

fn tool(name: &str, description: &str, argument: &str) -> Value {
    json!({"name": name, "description": description,
        "inputSchema": {"type": "object", "properties": {argument: {"type": "string"}}}})
}

fn set(gantry: &Gantry, settings: &Value) {
    let changed = gantry.rest("PATCH", "/api/v1/settings", Some(settings));
    assert_eq!(changed.status, 200, "{}", changed.text());
}

fn call(gantry: &Gantry, tool: &str) -> Answer {
    let body = json!({"name": tool, "arguments": {"text": "x"}});
    gantry.rest_as(&gantry.agent, "POST", "/api/v1/tools/call", Some(&body))
}

fn listed(gantry: &Gantry) -> Vec<String> {
    let mut connection = gantry.connect();
    let answer = modern(
        &mut connection,
        &gantry.agent,
        "/mcp",
        "tools/list",
        json!({}),
    );
    let answer = answer.message();
    let tools = answer["result"]["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Returns what is not approved, as `id change state quarantined`, without what the peer grew.
fn changes(gantry: &Gantry) -> Vec<String> {
    let answer = gantry.rest("GET", "/api/v1/tools/changes", None).json();
    let items = answer["items"].as_array().unwrap().iter();
    let text = |item: &Value, name: &str| item[name].as_str().unwrap().to_owned();
    let shown = items
        .filter(|item| !text(item, "name").starts_with("grown_"))
        .map(|item| {
            let quarantined = item["quarantined"].as_bool().unwrap();
            format!(
                "{} {} {} {quarantined}",
                text(item, "id"),
                text(item, "change"),
                text(item, "state")
            )
        });
    shown.collect()
}

fn decide(gantry: &Gantry, key: &str, verb: &str, body: &Value) -> Answer {
    gantry.rest_as(key, "POST", &format!("/api/v1/tools/{verb}"), Some(body))
}

/// Makes a key of a role and returns it.
fn key_of(gantry: &Gantry, role: &str) -> String {
    let body = json!({"kind": "admin", "role": role, "label": role});
    let made = gantry.rest("POST", "/api/v1/keys", Some(&body));
    assert_eq!(made.status, 201, "{}", made.text());
    made.json()["key"].as_str().unwrap().to_owned()
}
