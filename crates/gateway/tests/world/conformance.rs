//! The official conformance suites, through the gateway, in front of the fixture server on every
//! kind of upstream: stdio and streamable HTTP in either generation, and HTTP+SSE.
//!
//! Nothing is expected to fail but what one kind cannot have, listed with its reason in `left-out/`; a
//! suite fails on any other failure, and on a listed one that passes.

use std::fs;
use std::path::Path;
use std::time::Duration;

use gantry_testkit::{Era, Kind, Served, fixture};
use serde_json::{Value, json};

use crate::harness::Gantry;
use crate::parts::{beside, node, run};
use crate::proxy::Proxy;

/// What stands behind the gateway.
#[derive(Debug, Clone, Copy)]
enum Upstream {
    Stdio(Era),
    Http(Era, Kind),
}

const OLD_STDIO: Upstream = Upstream::Stdio(Era::Legacy);
const NEW_STDIO: Upstream = Upstream::Stdio(Era::Modern);
const OLD_HTTP: Upstream = Upstream::Http(Era::Legacy, Kind::Streamable);
const NEW_HTTP: Upstream = Upstream::Http(Era::Modern, Kind::Streamable);
const SSE: Upstream = Upstream::Http(Era::Legacy, Kind::Sse);

impl Upstream {
    /// Starts the fixture, unless the gateway does; returns its entry in a file.
    fn start(self) -> (Value, Option<Served>) {
        match self {
            Self::Stdio(era) => {
                let argv = fixture::argv(era);
                let entry = json!({"command": argv[0], "args": argv[1..], "concurrency": 32});
                (entry, None)
            }
            Self::Http(era, kind) => {
                let served = fixture::serve(era, kind);
                let transport = match kind {
                    Kind::Streamable => "http",
                    Kind::Sse => "sse",
                };
                let entry = json!({"url": served.url, "type": transport, "concurrency": 32});
                (entry, Some(served))
            }
        }
    }
}

/// A run of a suite.
struct Suite<'a> {
    /// The suite's folder among the parts.
    version: &'a str,
    upstream: Upstream,
    arguments: &'a [&'a str],
    /// The list of what such a server cannot have.
    left_out: Option<&'a str>,
    /// The least number of checks that pass, so that a suite that checks nothing is noticed.
    passing: usize,
}

impl Suite<'_> {
    fn check(&self) {
        let (entry, _served) = self.upstream.start();
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
        if let Some(list) = self.left_out {
            command.arg("--expected-failures");
            command.arg(beside(&format!("left-out/{list}.yml")));
        }
        let ran = run(&mut command);
        let said = format!(
            "{:?}\n{}\n{}\n{}",
            self.upstream,
            ran.stdout,
            ran.stderr,
            failures(results.path())
        );
        assert_eq!(ran.code, Some(0), "{said}");
        let passed = passed(results.path());
        assert!(
            passed >= self.passing,
            "only {passed} checks passed:\n{said}"
        );
    }
}

/// Says what failed in a run.
pub(crate) fn failures(results: &Path) -> String {
    let checks = checks(results);
    let failed = checks
        .iter()
        .filter(|(_, check)| check["status"] == "FAILURE");
    failed
        .map(|(scenario, check)| {
            format!("{scenario}: {}: {}\n", check["id"], check["errorMessage"])
        })
        .collect()
}

/// Counts what passed in a run.
pub(crate) fn passed(results: &Path) -> usize {
    let checks = checks(results);
    let passed = checks
        .iter()
        .filter(|(_, check)| check["status"] == "SUCCESS");
    passed.count()
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

/// Runs the suite of the first release, which has no failure of its own.
fn active(upstream: Upstream) {
    Suite {
        version: "conformance-0.1",
        upstream,
        arguments: &["--suite", "active"],
        left_out: None,
        passing: 31,
    }
    .check();
}

/// Runs a list of the second release.
fn requires(list: &str, upstream: Upstream, passing: usize) {
    let era = match upstream {
        Upstream::Stdio(era) | Upstream::Http(era, _) => era,
    };
    let keyless = list == "2026-07-28" && era == Era::Legacy;
    Suite {
        version: "conformance-0.2",
        upstream,
        arguments: &["--requirements", list],
        left_out: keyless.then_some("before-the-handshake-era"),
        passing,
    }
    .check();
}

/// Runs one scenario that the lists leave unscored.
fn scenario(name: &str, version: &str, passing: usize) {
    for upstream in [OLD_STDIO, NEW_STDIO, OLD_HTTP, NEW_HTTP, SSE] {
        Suite {
            version: "conformance-0.2",
            upstream,
            arguments: &["--scenario", name, "--spec-version", version],
            left_out: None,
            passing,
        }
        .check();
    }
}

#[test]
fn the_first_release_before_stdio() {
    active(OLD_STDIO);
    active(NEW_STDIO);
}

#[test]
fn the_first_release_before_streamable_http() {
    active(OLD_HTTP);
    active(NEW_HTTP);
}

#[test]
fn the_first_release_before_sse() {
    active(SSE);
}

#[test]
fn what_2025_11_25_requires_before_old_stdio() {
    requires("2025-11-25", OLD_STDIO, 72);
}

#[test]
fn what_2025_11_25_requires_before_new_stdio() {
    requires("2025-11-25", NEW_STDIO, 72);
}

#[test]
fn what_2025_11_25_requires_before_old_streamable_http() {
    requires("2025-11-25", OLD_HTTP, 72);
}

#[test]
fn what_2025_11_25_requires_before_new_streamable_http() {
    requires("2025-11-25", NEW_HTTP, 72);
}

#[test]
fn what_2025_11_25_requires_before_sse() {
    requires("2025-11-25", SSE, 72);
}

#[test]
fn what_2026_07_28_requires_before_old_stdio() {
    requires("2026-07-28", OLD_STDIO, 142);
}

#[test]
fn what_2026_07_28_requires_before_new_stdio() {
    requires("2026-07-28", NEW_STDIO, 142);
}

#[test]
fn what_2026_07_28_requires_before_old_streamable_http() {
    requires("2026-07-28", OLD_HTTP, 142);
}

#[test]
fn what_2026_07_28_requires_before_new_streamable_http() {
    requires("2026-07-28", NEW_HTTP, 142);
}

#[test]
fn what_2026_07_28_requires_before_sse() {
    requires("2026-07-28", SSE, 142);
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
