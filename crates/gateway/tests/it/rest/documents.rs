//! What the gateway says of its own API: the description, the reference page, the pages of errors; and
//! judges from outside, a validator and a generator of requests, over the living gateway.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Answer, Gantry};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns a program of the tests' own Python, which `.ci/python` makes.
fn python(program: &str) -> Command {
    let made = Command::new(root().join(".ci/python")).output().unwrap();
    let words = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "`.ci/python` failed: {words}");
    Command::new(root().join("target/tools/python/bin").join(program))
}

fn get(gantry: &Gantry, path: &str) -> Answer {
    gantry.connect().request("GET", path, &[], b"").unwrap()
}

#[test]
fn the_description_is_served_as_it_is_committed() {
    let gantry = Gantry::builder().flags(&["--no-example"]).start();
    let served = get(&gantry, "/api/v1/openapi.json");
    let committed = std::fs::read_to_string(root().join("docs/openapi.json")).unwrap();
    assert_eq!(served.header("content-type"), Some("application/json"));
    assert!(
        served.text() == committed,
        "`just gen` brings it up to date"
    );
}

#[test]
fn pages_need_nothing_from_elsewhere() {
    let gantry = Gantry::builder().flags(&["--no-example"]).start();
    for path in ["/api/v1/docs", "/errors", "/errors/server.down"] {
        let page = get(&gantry, path);
        assert_eq!(page.status, 200, "{path}");
        assert_eq!(
            page.header("content-type"),
            Some("text/html; charset=utf-8")
        );
        let policy = page.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; style-src 'self';"),
            "{policy}"
        );
        assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
        let text = page.text();
        assert!(
            !["<script", "src=", "href=\"http", "url("]
                .iter()
                .any(|word| text.contains(word)),
            "{path}"
        );
        assert!(text.contains("href=\"/api/v1/docs/style.css\""));
    }
    let style = get(&gantry, "/api/v1/docs/style.css");
    assert_eq!(
        style.header("content-type"),
        Some("text/css; charset=utf-8")
    );
    assert!(style.text().contains("light-dark("));
    assert_eq!(get(&gantry, "/errors/no.such").status, 404);
    assert_eq!(get(&gantry, "/errors/..%2Ferrors").status, 404);
}

#[test]
fn a_validator_takes_the_description() {
    let checked = python("openapi-spec-validator")
        .arg(root().join("docs/openapi.json"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{said}");
}

// Every answer to hundreds of generated requests, good and bad ones, is as the description says.
#[test]
fn the_gateway_answers_as_it_is_described() {
    let gantry = Gantry::start(&["a"]);
    // Nothing that a generator thinks of is started on this machine.
    let excluded = ["register", "replace", "change", "test"]
        .map(|name| format!("--exclude-operation-id=servers_{name}"));
    let checked = python("schemathesis")
        .args(["run", "--phases", "examples,coverage", "--seed", "7"])
        .args(["--suppress-health-check", "all", "--checks", CHECKS])
        .args(["--no-color", "--workers", "1"])
        .arg(format!("--header=Authorization: Bearer {}", gantry.admin))
        .arg(format!("--url=http://{}", gantry.authority))
        .args(excluded)
        .arg(root().join("docs/openapi.json"))
        .current_dir(gantry.data())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{said}");
    assert_eq!(get(&gantry, "/healthz").status, 200);
    // A 500 of the gateway's own leaves a line; a 504 of a server that was given 1 ms does not.
    let log = gantry.stderr();
    let failures: Vec<_> = log
        .lines()
        .filter(|line| line.contains(" ERROR "))
        .collect();
    assert!(failures.is_empty(), "{failures:#?}");
}

const CHECKS: &str = "status_code_conformance,content_type_conformance,\
     response_headers_conformance,response_schema_conformance,negative_data_rejection";
