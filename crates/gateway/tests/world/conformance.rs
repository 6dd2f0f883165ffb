//! Must show 4 of the surfaces: the official conformance suites, through the gateway, in front of the
//! fixture server over stdio in either generation.
//!
//! `expected/` lists what cannot pass yet, and which line of the issue «upstreams and eras» ends
//! that. A suite fails on any other failure, and on a listed one that passes.

use std::fs;
use std::path::Path;
use std::time::Duration;

use gantry_testkit::{Era, fixture};
use serde_json::{Value, json};

use crate::harness::Gantry;
use crate::parts::{beside, node, run};
use crate::proxy::Proxy;

/// A run of a suite.
struct Suite<'a> {
    /// The suite's folder among the parts.
    version: &'a str,
    /// What the server behind the gateway speaks.
    upstream: Era,
    arguments: &'a [&'a str],
    /// The list of what cannot pass yet.
    expected: Option<&'a str>,
    /// The least number of checks that pass, so that a suite that checks nothing is noticed.
    passing: usize,
}

impl Suite<'_> {
    fn check(&self) {
        let argv = fixture::argv(self.upstream);
        let entry = json!({"command": argv[0], "args": argv[1..], "concurrency": 32});
        let gantry = Gantry::builder().entry("fixture", entry).start();
        gantry.wait_state("fixture", "ready", Duration::from_secs(60));
        let proxy = Proxy::before(&gantry.authority, &gantry.agent);
        let url = format!(
            "http://localhost:{}/mcp/servers/fixture",
            proxy.address.port()
        );
        let results = tempfile::tempdir().unwrap();
        let script = "node_modules/@modelcontextprotocol/conformance/dist/index.js";
        let mut command = node(&format!("{}/{script}", self.version));
        command.args(["server", "--url", &url]).args(self.arguments);
        command.arg("-o").arg(results.path());
        if let Some(expected) = self.expected {
            command.arg("--expected-failures");
            command.arg(beside(&format!("expected/{expected}.yml")));
        }
        let ran = run(&mut command);
        let checks = checks(results.path());
        let failed = checks
            .iter()
            .filter(|(_, check)| check["status"] == "FAILURE");
        let failed = failed.map(|(scenario, check)| {
            format!("{scenario}: {}: {}\n", check["id"], check["errorMessage"])
        });
        let said = format!(
            "{}\n{}\n{}",
            ran.stdout,
            ran.stderr,
            failed.collect::<String>()
        );
        assert_eq!(ran.code, Some(0), "{said}");
        let passed = checks
            .iter()
            .filter(|(_, check)| check["status"] == "SUCCESS");
        let passed = passed.count();
        assert!(
            passed >= self.passing,
            "only {passed} checks passed:\n{said}"
        );
    }
}

/// Returns every check that a suite has made, with its scenario.
fn checks(results: &Path) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    let mut folders = vec![results.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.ends_with("checks.json") {
                let checks: Vec<Value> = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
                let scenario = folder.file_name().unwrap_or_default().to_string_lossy();
                found.extend(
                    checks
                        .into_iter()
                        .map(|check| (scenario.to_string(), check)),
                );
            }
        }
    }
    found
}

/// Runs a list of the second release, over a server of each generation: what a client of the one
/// misses, it misses whatever stands behind the gateway.
fn requires(list: &str, upstream: Era, passing: usize) {
    Suite {
        version: "conformance-0.2",
        upstream,
        arguments: &["--requirements", list],
        expected: Some(&format!("requirements-{list}")),
        passing,
    }
    .check();
}

/// Runs one scenario that the lists leave unscored.
fn scenario(name: &str, version: &str, passing: usize) {
    Suite {
        version: "conformance-0.2",
        upstream: Era::Modern,
        arguments: &["--scenario", name, "--spec-version", version],
        expected: None,
        passing,
    }
    .check();
}

#[test]
fn the_active_suite_of_the_first_release() {
    Suite {
        version: "conformance-0.1",
        upstream: Era::Legacy,
        arguments: &["--suite", "active"],
        expected: Some("active-0.1.16"),
        passing: 24,
    }
    .check();
}

#[test]
fn what_2025_11_25_requires_before_an_old_server() {
    requires("2025-11-25", Era::Legacy, 65);
}

#[test]
fn what_2025_11_25_requires_before_a_new_server() {
    requires("2025-11-25", Era::Modern, 65);
}

#[test]
fn what_2026_07_28_requires_before_a_new_server() {
    requires("2026-07-28", Era::Modern, 130);
}

#[test]
fn what_2026_07_28_requires_before_an_old_server() {
    requires("2026-07-28", Era::Legacy, 128);
}

#[test]
fn headers_are_validated() {
    scenario("http-header-validation", "2026-07-28", 14);
}

#[test]
fn schemas_keep_every_keyword() {
    scenario("json-schema-2020-12", "2025-11-25", 8);
    scenario("json-schema-2020-12", "2026-07-28", 8);
}
