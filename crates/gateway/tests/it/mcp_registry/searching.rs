//! `gantry search`: no gateway is needed, and no registry can do harm.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use gantry_testkit::mcp_registry::{McpRegistryServer, RegistryMood};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{manifest, stderr, stdout};

/// Runs `gantry search` in a folder of its own, against a registry.
fn search(registry: &str, arguments: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_gantry"));
    command
        .arg("search")
        .args(arguments)
        .current_dir(home.path());
    command
        .env("HOME", home.path())
        .env("NO_COLOR", "1")
        .env("COLUMNS", "120");
    command.env("GANTRY_MCP_REGISTRY", registry);
    command.stdin(Stdio::null()).output().unwrap()
}

fn many(count: usize) -> Vec<Value> {
    let made = (0..count).map(|n| {
        let name = format!("io.github.ann/weather-{n:03}");
        manifest(&name, "1.0.0", &format!("Forecast number {n}"))
    });
    made.collect()
}

#[test]
fn servers_are_found_page_by_page() {
    let mut known = many(120);
    known.push(manifest("com.example/files", "2.0.0", "Reads files"));
    known.push(manifest("com.example/files", "1.0.0", "Older"));
    let mut gone = manifest("com.example/files-old", "1.0.0", "Gone");
    gone["_meta"] = json!({"test": {"status": "deleted"}});
    let mut old = manifest("com.example/files-legacy", "1.0.0", "Legacy");
    old["_meta"] = json!({"test": {"status": "deprecated"}});
    known.extend([gone, old]);
    let registry = McpRegistryServer::start(RegistryMood::Honest, known);
    let url = registry.url();

    let found = search(&url, &["files"]);
    insta::assert_snapshot!(stdout(&found).trim_end(), @r"
    SERVER                    VERSION  RUNS FROM  WHAT IT IS
    com.example/files         2.0.0    npm        Reads files
    com.example/files-legacy  1.0.0    npm        (deprecated) Legacy
    add one with `gantry add --from com.example/files`
    ");
    // Twenty at a time, and where to go on.
    let first = search(&url, &["weather", "--json"]);
    let first: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!(first["items"].as_array().unwrap().len(), 20);
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = search(
        &url,
        &["weather", "--json", "--cursor", cursor, "--limit", "100"],
    );
    let second: Value = serde_json::from_slice(&second.stdout).unwrap();
    assert_eq!(second["items"][0]["name"], "io.github.ann/weather-020");
    assert_eq!(second["items"].as_array().unwrap().len(), 100);
    assert_eq!(second["next_cursor"], Value::Null);
    // Further words are looked for in what was found.
    let words = search(&url, &["weather", "119"]);
    assert!(
        stdout(&words).contains("io.github.ann/weather-119"),
        "{}",
        stdout(&words)
    );
    assert!(!stdout(&words).contains("weather-118"));
    assert!(stdout(&search(&url, &["nothing-such"])).contains("no servers found"));
    assert!(
        registry
            .asked()
            .iter()
            .all(|asked| asked.contains("version=latest"))
    );
    let older = McpRegistryServer::start(RegistryMood::Old, many(2));
    assert!(stdout(&search(&older.url(), &["weather"])).contains("weather-001"));
}

#[test]
fn without_a_registry_it_says_what_to_configure() {
    let refused = search("", &["weather"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = stderr(&refused);
    assert!(
        said.contains("GANTRY_MCP_REGISTRY") && said.contains("mcp_registry"),
        "{said}"
    );
    let refused = search("ftp://example.com", &["weather"]);
    assert!(
        stderr(&refused).contains("http or https"),
        "{}",
        stderr(&refused)
    );
    // `[gateway]` of the folder's file counts once it is approved.
    let registry = McpRegistryServer::start(RegistryMood::Honest, many(1));
    let home = tempfile::tempdir().unwrap();
    // A file of the home would need no approval.
    let elsewhere = tempfile::tempdir().unwrap();
    let setting = format!("[gateway]\nmcp_registry = \"{}\"\n", registry.url());
    std::fs::write(home.path().join("gantry.toml"), setting).unwrap();
    let gantry = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gantry"));
        command.args(arguments).current_dir(home.path()).env_clear();
        command.env("HOME", elsewhere.path()).output().unwrap()
    };
    let unasked = gantry(&["search", "weather"]);
    assert!(
        stderr(&unasked).contains("no MCP registry is configured"),
        "{}",
        stderr(&unasked)
    );
    let approved = gantry(&["approve", "--yes"]);
    assert!(approved.status.success(), "{}", stderr(&approved));
    let found = gantry(&["search", "weather"]);
    assert!(stdout(&found).contains("weather-000"), "{}", stderr(&found));
}

// faults H2 and H4
#[test]
fn a_hostile_registry_is_bounded_and_says_so() {
    let says = |body: Value| RegistryMood::Says(200, body.to_string());
    let nasty = json!({"servers": [
        {"server": {"name": "a.b/c", "version": "1.0", "title": "\u{1b}]0;x\u{7}T", "description": "\u{202e}evil\r\n\u{1b}[2J"}},
        {"server": {"name": "\u{1b}[31m/x", "version": "1"}}, 7, null, {"server": []},
    ]});
    let cases = [
        (says(json!([])), Err("not a list of servers")),
        (says(json!({"servers": {}})), Err("not a list of servers")),
        (
            says(json!({"servers": [], "metadata": {"nextCursor": 7}})),
            Err("not a text"),
        ),
        (
            RegistryMood::Says(200, "<html>".to_owned()),
            Err("not JSON"),
        ),
        (
            RegistryMood::Says(500, "{}".to_owned()),
            Err("answered 500"),
        ),
        (
            RegistryMood::Says(429, "{}".to_owned()),
            Err("no more requests"),
        ),
        (
            RegistryMood::Says(404, "{}".to_owned()),
            Err("does not have the API"),
        ),
        (RegistryMood::Flood, Err("exceeds 4194304 bytes")),
        (
            RegistryMood::Redirects("http://169.254.169.254/latest".to_owned()),
            Err("private address"),
        ),
        (
            RegistryMood::Redirects("http://127.0.0.2:1/".to_owned()),
            Err("private address"),
        ),
        (
            RegistryMood::Redirects("http://[::1]:1/".to_owned()),
            Err("private address"),
        ),
        (
            RegistryMood::Redirects("file:///etc/passwd".to_owned()),
            Err("redirects"),
        ),
        (
            RegistryMood::Redirects("/v0.1/servers".to_owned()),
            Err("more than 5 times"),
        ),
        (RegistryMood::Endless, Ok("more: ")),
        (RegistryMood::Circles, Ok("weather-001")),
        (says(nasty), Ok("4 entries of the registry cannot be read")),
    ];
    for (mood, expected) in cases {
        let registry = McpRegistryServer::start(mood.clone(), many(2));
        let began = Instant::now();
        let found = search(&registry.url(), &["weather"]);
        let (out, errors) = (stdout(&found), stderr(&found));
        match expected {
            Ok(text) => assert!(
                found.status.success() && out.contains(text),
                "{mood:?}: {out}{errors}"
            ),
            Err(text) => assert!(
                found.status.code() == Some(1) && errors.contains(text),
                "{mood:?}: {out}{errors}"
            ),
        }
        assert!(began.elapsed() < Duration::from_secs(25), "{mood:?}");
        assert!(
            registry.asked().len() <= 21,
            "{mood:?}: {}",
            registry.asked().len()
        );
        let shown = out + &errors;
        assert!(
            !shown.contains(['\u{1b}', '\u{7}', '\u{202e}']),
            "{mood:?}: {shown:?}"
        );
    }
}
