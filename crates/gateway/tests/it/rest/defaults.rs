//! What holds for a server that does not say: the same as is documented, for files, `gantry add` and
//! REST; and what a hosted program is told that lies outside of its sandbox.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use gantry_testkit::Evilpeer;
use serde_json::{Value, json};

use crate::harness::{Gantry, LONG, entry};

/// Returns the row of a table in the documentation that begins with this cell.
fn documented(cell: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = fs::read_to_string(page).unwrap();
    let section = page
        .split("### Over REST")
        .nth(1)
        .expect("it is documented");
    let section = section.split("\n## ").next().unwrap();
    let row = section
        .lines()
        .find(|line| line.starts_with(&format!("| {cell} |")));
    let row = row.unwrap_or_else(|| panic!("{cell} is not documented"));
    row.split('|').map(|cell| cell.trim().to_owned()).collect()
}

fn default_of(schema: &str, member: &str) -> Value {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let document: Value = serde_json::from_slice(&fs::read(document).unwrap()).unwrap();
    document["components"]["schemas"][schema]["properties"][member].clone()
}

// rows 0.10, 1.1 and 1.8
#[test]
fn defaults_are_as_they_are_documented() {
    let peer = || entry(&Evilpeer::new());
    let gantry = Gantry::builder().entry("filed", peer()).start();
    let command = peer()["command"].as_str().unwrap().to_owned();
    let added = gantry.cli(&["add", "added", "--", &command]);
    assert!(added.status.success(), "{added:?}");
    let post = |name: &str, members: Value| {
        let mut body = members;
        body["name"] = json!(name);
        let answer = gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
        assert_eq!(answer.status, 201, "{}", answer.text());
    };
    post("posted", peer());
    let mut own = peer();
    own["profile"] = json!("local");
    post("own", own);
    post("far", json!({"url": "http://127.0.0.1:9/mcp"}));
    let is = |name: &str| {
        let status = gantry.status(name);
        [&status["profile"], &status["start"]].map(|word| word.as_str().unwrap().to_owned())
    };
    assert_eq!(is("filed"), ["local", "eager"]);
    assert_eq!(is("added"), ["local", "eager"]);
    assert_eq!(is("posted"), ["hosted", "eager"]);
    assert_eq!(is("own"), ["local", "lazy"]);
    assert_eq!(is("far"), ["remote", "lazy"]);
    // A preview says so before.
    let body = json!({"name": "next", "command": "x"});
    let preview = gantry
        .rest("POST", "/api/v1/mcp/servers/preview", Some(&body))
        .json();
    assert_eq!(
        (&preview["profile"], &preview["start"]),
        (&json!("hosted"), &json!("eager"))
    );
    let profile = documented("`profile`");
    assert_eq!(profile[2..4], ["`local`", "`hosted`"]);
    let start = documented("`start`");
    assert_eq!(start[2..4], ["`eager`", "`eager` if hosted, else `lazy`"]);
    assert_eq!(default_of("Register", "profile")["default"], "hosted");
    let described = default_of("Register", "start").to_string();
    assert!(
        described.contains("`eager` for a hosted one, `lazy` for"),
        "{described}"
    );
}

#[test]
fn a_hosted_program_outside_of_its_view_is_told_of_the_sandbox() {
    let gantry = Gantry::start(&[]);
    let elsewhere = tempfile::tempdir().unwrap();
    let script = elsewhere.path().join("server.sh");
    fs::write(&script, "cat >/dev/null\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let script = script.to_str().unwrap();
    let reason = |name: &str, members: Value| {
        let mut body = json!({
            "name": name, "start": "eager",
            "restart": {"at_once": 0, "window": "1m", "ladder": ["1m"], "reset_after": "10m"},
        });
        for (key, value) in members.as_object().unwrap() {
            body[key] = value.clone();
        }
        let answer = gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
        assert_eq!(answer.status, 201, "{}", answer.text());
        let status = gantry.wait_state(name, "failed", LONG);
        status["reason"].as_str().unwrap().to_owned()
    };
    // A script that is there, but not for it.
    let hidden = reason("hidden", json!({"command": "sh", "args": [script]}));
    for part in [
        "sandbox",
        "`hosted`",
        script,
        "working folder",
        "profile `local`",
    ] {
        assert!(hidden.contains(part), "{part}: {hidden}");
    }
    let option = format!("--rcfile={script}");
    let named = reason("named", json!({"command": "false", "args": [option]}));
    assert!(
        named.contains(&format!("`{script}` lies outside of what the sandbox")),
        "{named}"
    );
    // Nothing that it names is hidden, and yet the sandbox may be why.
    let ends = reason(
        "ends",
        json!({"command": "false", "args": ["/no/such/file"]}),
    );
    assert!(ends.contains("sandbox of the profile `hosted`"), "{ends}");
    assert!(
        ends.contains("no network") && !ends.contains("/no/such/file"),
        "{ends}"
    );
    // A local one has no such trouble.
    let local = reason("local", json!({"command": "false", "profile": "local"}));
    assert!(!local.contains("sandbox"), "{local}");
    // The command line says so where it is added.
    let added = gantry.cli(&["add", "again", "--profile", "hosted", "--", "sh", script]);
    let told = String::from_utf8_lossy(&added.stderr);
    assert_eq!(added.status.code(), Some(1), "{told}");
    assert!(told.contains("sandbox of the profile `hosted`"), "{told}");
}
