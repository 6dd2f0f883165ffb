//! Our client towards servers, judged by the conformance suites: the suite plays the server, the
//! gateway is told its URL, and `drive.py` uses the gateway. What fails is listed in `left-out/` with
//! its reason, and must fail.

use std::process::Command;

use crate::conformance::{failures, passed};
use crate::harness::PROGRAM;
use crate::parts::{beside, node, run};

/// The first release of the suites.
const FIRST: &str = "conformance-0.1";

/// Has one scenario judge our client in a protocol version.
fn judged(release: &str, scenario: &str, version: Option<&str>) {
    let results = tempfile::tempdir().unwrap();
    let script = "node_modules/@modelcontextprotocol/conformance/dist/index.js";
    let mut command: Command = node(&format!("{release}/{script}"));
    let driver = beside("drive.py");
    let driven = format!("python3 {} {PROGRAM}", driver.display());
    command.args(["client", "--scenario", scenario, "--command", &driven]);
    command.args(["--timeout", "90000"]);
    if let Some(version) = version {
        command.args(["--spec-version", version]);
    }
    if release == FIRST {
        command.arg("--expected-failures");
        command.arg(beside("left-out/first-release-clients.yml"));
    }
    command.arg("-o").arg(results.path());
    let ran = run(&mut command);
    let said = format!(
        "{scenario} {version:?}\n{}\n{}\n{}",
        ran.stdout,
        ran.stderr,
        failures(results.path())
    );
    assert_eq!(ran.code, Some(0), "{said}");
    assert!(passed(results.path()) > 0, "nothing was checked: {said}");
}

/// What a client of any version must pass that signs in.
const SIGN_IN: [&str; 14] = [
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
];
/// What 2026-07-28 adds to that.
const SIGN_IN_2026: [&str; 10] = [
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/authorization-server-migration",
    "auth/iss-supported",
    "auth/iss-not-advertised",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
];

#[test]
fn the_first_release_judges_our_client() {
    for scenario in [
        "initialize",
        "tools_call",
        "elicitation-sep1034-client-defaults",
        "sse-retry",
    ] {
        judged(FIRST, scenario, None);
    }
}

#[test]
fn the_first_release_judges_our_client_that_signs_in() {
    for scenario in SIGN_IN {
        judged(FIRST, scenario, None);
    }
}

#[test]
fn the_first_release_judges_what_few_clients_do() {
    for scenario in [
        "auth/2025-03-26-oauth-metadata-backcompat",
        "auth/2025-03-26-oauth-endpoint-fallback",
        "auth/resource-mismatch",
        "auth/offline-access-scope",
        "auth/offline-access-not-supported",
        "auth/client-credentials-jwt",
        "auth/client-credentials-basic",
        "auth/cross-app-access-complete-flow",
    ] {
        judged(FIRST, scenario, None);
    }
}

#[test]
fn what_2025_11_25_requires_of_a_client() {
    for scenario in [
        "initialize",
        "tools_call",
        "elicitation-sep1034-client-defaults",
        "sse-retry",
    ] {
        judged("conformance-0.2", scenario, Some("2025-11-25"));
    }
}

#[test]
fn what_2026_07_28_requires_of_a_client() {
    for scenario in [
        "tools_call",
        "request-metadata",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
    ] {
        judged("conformance-0.2", scenario, Some("2026-07-28"));
    }
}

#[test]
fn what_2025_11_25_requires_of_a_client_that_signs_in() {
    for scenario in SIGN_IN {
        judged("conformance-0.2", scenario, Some("2025-11-25"));
    }
}

#[test]
fn what_2026_07_28_requires_of_a_client_that_signs_in() {
    for scenario in SIGN_IN {
        judged("conformance-0.2", scenario, Some("2026-07-28"));
    }
}

#[test]
fn what_2026_07_28_requires_of_a_client_that_is_deceived() {
    for scenario in SIGN_IN_2026 {
        judged("conformance-0.2", scenario, Some("2026-07-28"));
    }
    judged(
        "conformance-0.2",
        "auth/metadata-issuer-mismatch",
        Some("2026-07-28"),
    );
}
