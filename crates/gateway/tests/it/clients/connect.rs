//! What `gantry connect` lists, writes, and tells about what else a client has.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use serde_json::{Value, json};

use super::{Home, parsed};
use crate::harness::Gantry;

#[test]
fn the_clients_of_this_machine_are_listed_with_what_is_connected() {
    let gantry = Gantry::start(&[]);
    let home = Home::new(gantry.data());
    assert!(
        home.told(&["connect"])
            .contains("no client is found; known are claude-desktop")
    );
    home.has("cursor");
    home.has("claude-code");
    fs::create_dir(home.at(".copilot")).unwrap();
    home.write(".gemini/settings.json", "{");
    home.told(&["connect", "cursor"]);
    home.told(&["connect", "claude-code", "--scope", "local", "--stdio"]);
    let items: Value = serde_json::from_str(&home.told(&["connect", "--json"])).unwrap();
    let rows: Vec<(&str, &str, Option<&str>)> = items["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            let way = item["connections"][0]["way"].as_str();
            (
                item["client"].as_str().unwrap(),
                item["scope"].as_str().unwrap(),
                way,
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("claude-code", "local", Some("stdio")),
            ("cursor", "user", Some("http")),
            ("gemini", "user", None),
            ("copilot", "user", None),
        ]
    );
    let told = home.told(&["connect"]);
    assert!(
        told.contains("not connected") && told.contains("cannot be read: "),
        "{told}"
    );
}

#[test]
fn what_the_client_also_starts_itself_is_told() {
    let gantry = Gantry::start(&["a"]);
    let home = Home::new(gantry.data());
    let file = json!({"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}});
    home.write(".cursor/mcp.json", &file.to_string());
    let told = home.told(&["connect", "cursor"]);
    assert!(told.contains("so it has them twice: a\n"), "{told}");
    assert!(
        told.contains("bypassing Gantry: b\n") && told.contains(" import cursor`"),
        "{told}"
    );
}

#[test]
fn a_file_that_others_share_holds_no_key() {
    // fault U2
    let gantry = Gantry::start(&[]);
    let home = Home::new(gantry.data());
    home.told(&["connect", "claude-code", "--scope", "project"]);
    let file = home.folder().join(".mcp.json");
    let entry = parsed(&file)["mcpServers"]["gantry"].clone();
    assert_eq!(entry["args"][0], "stdio", "{entry}");
    assert!(entry["command"].as_str().unwrap().starts_with('/'));
    assert!(!fs::read_to_string(&file).unwrap().contains("gantry_agent_"));
    home.told(&["connect", "cursor", "--scope", "project"]);
    assert!(
        home.folder().join(".cursor/mcp.json").is_file(),
        "a project's folder is made"
    );
}

#[test]
fn a_moved_gateway_keeps_the_key_and_what_the_person_added() {
    let gantry = Gantry::start(&[]);
    let home = Home::new(gantry.data());
    home.write(".cursor/mcp.json", "{}");
    home.told(&["connect", "cursor"]);
    let file = home.at(".cursor/mcp.json");
    let first = parsed(&file)["mcpServers"]["gantry"].clone();
    let text = fs::read_to_string(&file).unwrap();
    let moved = text.replace(&gantry.authority, "127.0.0.1:9").replace(
        "\"url\"",
        "// mine\n      \"disabledTools\": [\"x\"],\n      \"url\"",
    );
    fs::write(&file, moved).unwrap();
    home.told(&["connect", "cursor"]);
    let now = parsed(&file)["mcpServers"]["gantry"].clone();
    assert_eq!(now["url"], first["url"]);
    assert_eq!(
        now["headers"], first["headers"],
        "the key still opens the gateway"
    );
    assert_eq!(now["disabledTools"], json!(["x"]));
    assert!(fs::read_to_string(&file).unwrap().contains("// mine"));
}

#[test]
fn a_key_that_opens_nothing_is_replaced_and_none_is_left_over() {
    let gantry = Gantry::start(&[]);
    let home = Home::new(gantry.data());
    home.write(".cursor/mcp.json", "{}");
    home.told(&["connect", "cursor"]);
    let labelled = || {
        let keys = gantry.rest("GET", "/api/v1/keys", None).json();
        let keys = keys["items"].as_array().unwrap().clone();
        keys.into_iter()
            .filter(|key| key["label"].as_str().unwrap().starts_with("cursor, "))
            .collect::<Vec<_>>()
    };
    let before = labelled();
    assert_eq!(before.len(), 1);
    let file = home.at(".cursor/mcp.json");
    let text = fs::read_to_string(&file).unwrap();
    let entry = parsed(&file)["mcpServers"]["gantry"].clone();
    let key = entry["headers"]["Authorization"].as_str().unwrap();
    fs::write(&file, text.replace(key, "Bearer gantry_agent_lost")).unwrap();
    home.told(&["connect", "cursor"]);
    let after = labelled();
    assert_eq!(after.len(), 1, "{after:#?}");
    assert_ne!(after[0]["id"], before[0]["id"]);
}

#[test]
fn links_stay_and_a_file_that_others_could_read_is_closed_to_them() {
    // fault U2
    let gantry = Gantry::start(&[]);
    let home = Home::new(gantry.data());
    home.write("dotfiles/cursor.json", "{}");
    fs::create_dir(home.at(".cursor")).unwrap();
    let (file, link) = (home.at("dotfiles/cursor.json"), home.at(".cursor/mcp.json"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    symlink(&file, &link).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let told = home.told(&["connect", "cursor", "--dry-run"]);
    assert!(told.contains("connecting makes it private"), "{told}");
    assert_eq!(mode(&file), 0o644);
    let told = home.told(&["connect", "cursor"]);
    assert!(
        told.contains("now only its owner can (mode 0600)"),
        "{told}"
    );
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(parsed(&file)["mcpServers"]["gantry"].is_object());
    assert_eq!(mode(&file), 0o600);
    // One that is written already is closed, too.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let again = home.told(&["connect", "cursor", "--json"]);
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(
        [&again["written"], &again["closed_to_others"]],
        [&json!(false), &json!(true)]
    );
    assert_eq!(mode(&file), 0o600);
    let told = home.told(&["connect", "cursor"]);
    assert!(!told.contains("others on this machine"), "{told}");
    // What holds no key is as open as it was.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    home.told(&["connect", "cursor", "--stdio"]);
    assert_eq!(mode(&file), 0o644);
    // A file that did not exist is the person's alone.
    fs::create_dir(home.at(".copilot")).unwrap();
    home.told(&["connect", "copilot"]);
    assert_eq!(mode(&home.at(".copilot/mcp-config.json")), 0o600);
}

#[test]
fn without_a_gateway_a_client_that_starts_one_can_be_connected() {
    let data = tempfile::tempdir().unwrap();
    let home = Home::new(data.path().join("data"));
    let (file, _) = home.has("claude-desktop");
    home.told(&["connect", "claude-desktop"]);
    let entry = parsed(&file)["mcpServers"]["gantry"].clone();
    let folder = home.folder();
    let data = data.path().join("data");
    assert_eq!(
        entry["args"],
        json!(["stdio", "--folder", folder, "--data", data])
    );
}
