//! Servers from an MCP registry and its manifests: `gantry search`, `gantry add --from`, against a registry
//! of the test kit that speaks the official API, honest and hostile.

mod adding;
mod searching;

use std::process::Output;

use serde_json::{Value, json};

/// Returns a manifest of this name, run from npm.
fn manifest(name: &str, version: &str, description: &str) -> Value {
    json!({
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": name,
        "description": description,
        "version": version,
        "packages": [{
            "registryType": "npm", "identifier": "@ann/weather", "version": version,
            "transport": {"type": "stdio"},
        }],
    })
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
