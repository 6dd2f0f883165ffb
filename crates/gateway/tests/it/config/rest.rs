//! What is registered over REST is held to the same rules as a file. fault G8

use gantry_testkit::Evilpeer;
use serde_json::{Value, json};

use crate::harness::{Gantry, LONG, entry};

// faults G2, G3, G4, G6 and G8
#[test]
fn registration_refuses_what_a_file_may_not_say() {
    let gantry = Gantry::start(&[]);
    let refused = |body: Value| {
        let answer = gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
        assert_eq!(answer.status, 422, "{body}: {}", answer.text());
        let problem = answer.json();
        let path = problem["issues"][0]["path"].as_str().unwrap_or_default();
        (
            problem["code"].as_str().unwrap().to_owned(),
            path.to_owned(),
        )
    };
    let spec = |path: &str| ("server.spec".to_owned(), format!("/{path}"));
    for name in ["a:b", "../x", "a b", "brаve"] {
        let (code, _) = refused(json!({"name": name, "command": "x"}));
        assert_eq!(code, "request.body", "{name}");
    }
    let script = json!({"name": "a", "command": "sh", "args": ["-c", "x"]});
    assert_eq!(refused(script), spec("args"));
    for line in [
        "sh -o errexit -c x",
        "bash -euo pipefail -c x",
        "env -u X sh -c x",
        "/usr/bin/env -i -u X A=b /bin/sh -ec x",
        "timeout 5 sh -c x",
        "busybox sh -c x",
        "su -c x",
        "script -qc x /dev/null",
        "pwsh -Command x",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let body = json!({"name": "a", "command": words[0], "args": words[1..]});
        assert_eq!(refused(body), spec("args"), "{line}");
    }
    let split = json!({"name": "a", "command": "env", "args": ["-S", "sh -c x"]});
    assert_eq!(refused(split), spec("args"));
    assert_eq!(
        refused(json!({"name": "a", "command": "x; y"})),
        spec("command")
    );
    for variable in [
        "LD_PRELOAD",
        "PATH",
        "NODE_OPTIONS",
        "PYTHONSTARTUP",
        "DOCKER_HOST",
        "PYTHONPATH",
        "NODE_PATH",
        "npm_config_registry",
        "NPM_CONFIG_REGISTRY",
        "GIT_CONFIG_COUNT",
        "GIT_SSH_COMMAND",
        "RUBYOPT",
        "PERL5LIB",
        "BASH_ENV",
        "JAVA_TOOL_OPTIONS",
        "PIP_INDEX_URL",
        "UV_DEFAULT_INDEX",
    ] {
        let body = json!({"name": "a", "command": "x", "env": {variable: "y"}});
        assert_eq!(refused(body), spec(&format!("env/{variable}")));
    }
    let limits = json!({"name": "a", "command": "x", "limits": {"cpu": 0}});
    assert_eq!(refused(limits), spec("limits/cpu"));
    let servers = gantry.rest("GET", "/api/v1/mcp/servers", None).json();
    assert_eq!(servers["items"], json!([]), "nothing was registered");
}

// fault G8
#[test]
fn only_an_administrator_registers_and_nothing_runs_otherwise() {
    let gantry = Gantry::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let mut body = entry(&Evilpeer::new().journal(&journal));
    body["name"] = json!("a");
    let answer = gantry.rest_as(&gantry.agent, "POST", "/api/v1/mcp/servers", Some(&body));
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert!(!journal.exists(), "nothing ran");
}

// fault G8
#[test]
fn a_registered_server_does_not_read_the_gateways_environment() {
    let gantry = Gantry::builder()
        .variable("SECRET_OF_GATEWAY", "hunter2")
        .start();
    let mut body = entry(&Evilpeer::new());
    body["name"] = json!("a");
    body["profile"] = json!("local");
    body["start"] = json!("eager");
    body["env"] = json!({"PROBE": "${SECRET_OF_GATEWAY}"});
    let answer = gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
    assert_eq!(answer.status, 201, "{}", answer.text());
    // It is the name of a secret that the project does not have.
    let status = gantry.wait_state("a", "misconfigured", LONG);
    let reason = status["reason"].as_str().unwrap();
    assert!(reason.contains("`SECRET_OF_GATEWAY`"), "{reason}");
    assert!(!status.to_string().contains("hunter2"), "{status:#}");
    let path = "/api/v1/secrets/SECRET_OF_GATEWAY";
    let set = json!({"value": "of-the-project-7", "servers": ["a"]});
    let answer = gantry.rest("PUT", path, Some(&set));
    assert_eq!(answer.status, 201, "{}", answer.text());
    let status = gantry.wait_state("a", "ready", LONG);
    let pid = status["pid"].as_u64().unwrap();
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(
        environment.contains("PROBE=of-the-project-7"),
        "{environment}"
    );
    assert!(!environment.contains("hunter2"), "{environment}");
}
