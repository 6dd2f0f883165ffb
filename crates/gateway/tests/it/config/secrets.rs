//! What variables hold is given to the server and to nobody else: not shown, not logged, not stored.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use gantry_testkit::Evilpeer;
use serde_json::{Value, json};

use super::{Folder, servers};
use crate::harness::entry;

/// Secret by the name of its variable.
const NAMED: &str = "correct-horse-battery";
/// Secret by its look.
const KEY: &str = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
/// Secret because it stands behind a flag that says so.
const LITERAL: &str = "written-into-the-file";

/// Returns the files under a folder that hold a text.
pub(crate) fn holding(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.is_dir() {
            found.extend(holding(&path, text));
        } else if path.is_file() {
            let bytes = match fs::read(&path) {
                // A file may come and go while the gateway runs.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                read => read.unwrap(),
            };
            let holds = bytes
                .windows(text.len())
                .any(|window| window == text.as_bytes());
            found.extend(holds.then(|| path.display().to_string()));
        }
    }
    found
}

fn clean(what: &str, text: &str) {
    for secret in [NAMED, KEY, LITERAL] {
        assert!(!text.contains(secret), "{what} shows {secret}: {text}");
    }
}

// fault K3, K4 and K8: an answer, a log line and an error of a server that echoes what it was given.
#[test]
fn what_variables_hold_in_arguments_is_shown_nowhere_and_stored_nowhere() {
    let mut folder = Folder::new();
    folder.variables = vec![("DEPLOY_TOKEN", NAMED), ("FROM_VAULT", KEY)];
    let mut server = entry(&Evilpeer::new());
    let args = server["args"].as_array_mut().unwrap();
    // It tells its name and version to whoever greets it, and in every answer.
    for word in ["--name", "n-${DEPLOY_TOKEN}", "--version", "${FROM_VAULT}"] {
        args.push(word.into());
    }
    server["env"] = json!({"MODE": LITERAL, "PLAIN": "${DEPLOY_TOKEN}", "API_TOKEN": LITERAL});
    folder.write("a.json", &servers(&[("a", server)]));
    folder.up(&["--config", "a.json"]);
    let status = folder.wait("a", "ready");
    let args = status["spec"]["args"].as_array().unwrap();
    assert!(args.contains(&json!("n-${DEPLOY_TOKEN}")), "{status:#}");
    assert!(args.contains(&json!("${FROM_VAULT}")), "{status:#}");
    clean("the status", &status.to_string());

    let echoed = folder.told(&["call", "a__echo", &format!("text={NAMED} {KEY} {LITERAL}")]);
    assert_eq!(echoed.trim(), "[redacted] [redacted] [redacted]");
    folder.told(&[
        "call",
        "a__stderr",
        &format!("text=I was given {NAMED} and {KEY}"),
    ]);
    let failed = folder.run(&["call", "a__fail", &format!("message={KEY}")]);
    clean("an error", &String::from_utf8_lossy(&failed.stdout));
    folder.wait_until("the line is logged", || {
        folder
            .told(&["logs", "a"])
            .contains("I was given [redacted]")
    });
    for verb in [
        &["ls", "--json"][..],
        &["ls"],
        &["status", "a"],
        &["status", "a", "--json"],
        &["logs", "a", "--json"],
        &["calls", "--json"],
        &["tools", "--json"],
        &["config", "explain", "--config", "a.json"],
        &["config", "explain", "--config", "a.json", "--json"],
        &["doctor", "--json"],
    ] {
        let output = folder.run(verb);
        clean(&verb.join(" "), &String::from_utf8_lossy(&output.stdout));
        clean(&verb.join(" "), &String::from_utf8_lossy(&output.stderr));
    }
    let (_, events) = folder.rest("GET", "/api/v1/events", None);
    clean("the events", &events.to_string());
    clean("the log", &folder.log());
    for secret in [NAMED, KEY, LITERAL] {
        assert_eq!(holding(&folder.data(), secret), [""; 0], "while it runs");
    }
    folder.down();
    for secret in [NAMED, KEY, LITERAL] {
        assert_eq!(holding(&folder.data(), secret), [""; 0], "after its end");
    }
    assert!(
        !holding(&folder.data(), "[redacted]").is_empty(),
        "the eyes are good: what stands in its place is found"
    );
}

#[test]
fn a_server_that_cannot_be_started_does_not_tell_its_arguments() {
    let mut folder = Folder::new();
    folder.variables = vec![("DEPLOY_TOKEN", NAMED), ("FROM_VAULT", KEY)];
    let server = json!({
        "command": "${FROM_VAULT}/no-such-program", "args": ["--token", LITERAL, "${DEPLOY_TOKEN}"],
        "cwd": "/tmp/${FROM_VAULT}"
    });
    folder.write("a.json", &servers(&[("a", server)]));
    folder.up(&["--config", "a.json"]);
    let status = folder.wait("a", "failed");
    clean("the status", &status.to_string());
    assert_eq!(
        status["spec"]["args"],
        json!(["--token", "[redacted]", "${DEPLOY_TOKEN}"])
    );
    let explained = folder.told(&["config", "explain", "a", "--config", "a.json"]);
    clean("the explanation", &explained);
    assert!(explained.contains("${DEPLOY_TOKEN}"), "{explained}");
    let (_, events) = folder.rest("GET", "/api/v1/events", None);
    clean("the events", &events.to_string());
    clean("the log", &folder.log());
    let printed = fs::read_to_string(folder.home().join("stdout")).unwrap();
    clean("what `up` prints", &printed);
    let (_, all) = folder.rest("GET", "/api/v1/mcp/servers", None);
    clean("the list", &Value::to_string(&all));
}

/// A file whose mistake has secrets on every line around it.
const BROKEN: &str = r#"{
  "oauthAccount": { "accessToken": "written-into-the-file" },
  "mcpServers": { "a": { "command": "npx", "env": { "X": "written-into-the-file" },
    "args": ["written-into-the-file", ghp_16C7e42F292c6912E7710c838347Ae178B4a],
    "headers": { "Authorization": "Bearer written-into-the-file" } } } }
"#;

// fault K3
#[test]
fn a_mistake_is_shown_in_its_place_without_the_secrets_around_it() {
    let folder = Folder::new();
    fs::write(folder.home().join(".kode.json"), BROKEN).unwrap();
    for verb in [
        &["config", "check"][..],
        &["config", "explain"],
        &["approve"],
        &["up", "--port", "0"],
    ] {
        let output = folder.run(verb);
        assert_eq!(output.status.code(), Some(2), "{verb:?}");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains(".kode.json:4:39"), "{told}");
        assert!(told.contains("\"headers\": { \"****"), "{told}");
        clean(&verb.join(" "), &told);
    }
    // A gateway that a client needs does not start either; its log is shown, and kept.
    let output = folder.run(&["stdio"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("did not start"), "{told}");
    clean("gantry stdio", &told);
    let log = fs::read_to_string(folder.data().join("gateway.log")).unwrap();
    assert!(log.contains(".kode.json:4:39"), "{log}");
    clean("gateway.log", &log);
}

// fault K3
#[test]
fn a_file_that_breaks_while_the_gateway_runs_tells_no_secrets_either() {
    let mut folder = Folder::new();
    folder.write("a.json", &servers(&[("a", entry(&Evilpeer::new()))]));
    folder.up(&["--config", "a.json"]);
    folder.wait("a", "ready");
    folder.write("a.json", BROKEN);
    let warnings = folder.warnings(|warnings| !warnings.is_empty());
    clean("the health", &warnings.join("\n"));
    clean("the status", &folder.told(&["status"]));
    folder.wait_until("it is logged", || folder.log().contains("a.json:4:39"));
    clean("the log", &folder.log());
}
