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
        let failed = failures(results.path());
        let said = format!("{}\n{}\n{}", ran.stdout, ran.stderr, failed.join("\n"));
        assert_eq!(ran.code, Some(0), "{said}");
        let passed = passed(&ran.stdout);
        assert!(
            passed >= self.passing,
            "only {passed} checks passed:\n{said}"
        );
    }
}

/// Returns the checks that failed, with the suite's reason.
fn failures(results: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for folder in fs::read_dir(results).unwrap() {
        let folder = folder.unwrap().path();
        let Ok(text) = fs::read(folder.join("checks.json")) else {
            continue;
        };
        let checks: Vec<Value> = serde_json::from_slice(&text).unwrap();
        let failed = checks.iter().filter(|check| check["status"] == "FAILURE");
        let scenario = folder.file_name().unwrap_or_default().to_string_lossy();
        found.extend(
            failed.map(|check| format!("{scenario}: {}: {}", check["id"], check["errorMessage"])),
        );
    }
    found.sort();
    found
}

/// Reads how many checks passed in all.
fn passed(text: &str) -> usize {
    let counts = text.lines().filter_map(|line| {
        let (before, _) = line.split_once(" passed")?;
        before.rsplit([' ', '\u{1b}', 'm']).next()?.parse().ok()
    });
    counts.max().unwrap_or(0)
}

#[test]
fn the_active_suite_of_the_first_release() {
    Suite {
        version: "conformance-0.1",
        upstream: Era::Legacy,
        arguments: &["--suite", "active"],
        expected: Some("active-0.1.16"),
        passing: 0,
    }
    .check();
}

#[test]
fn what_2025_11_25_requires() {
    Suite {
        version: "conformance-0.2",
        upstream: Era::Legacy,
        arguments: &["--requirements", "2025-11-25"],
        expected: Some("requirements-2025-11-25"),
        passing: 0,
    }
    .check();
}

#[test]
fn what_2026_07_28_requires() {
    Suite {
        version: "conformance-0.2",
        upstream: Era::Modern,
        arguments: &["--requirements", "2026-07-28"],
        expected: Some("requirements-2026-07-28"),
        passing: 0,
    }
    .check();
}
