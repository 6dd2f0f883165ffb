//! What is imported is held to the rules of what is registered: nothing runs without an administrator's
//! word, and nothing that they would be refused. fault G8

use std::fs;
use std::path::Path;

use gantry_testkit::Evilpeer;
use gantry_testkit::journal::Journal;
use serde_json::{Value, json};

use super::Home;
use crate::harness::{Gantry, LONG, entry};

fn starts(journal: &Path) -> usize {
    Journal::read(journal).map_or(0, |journal| journal.starts())
}

fn cursor(home: &Home, servers: &Value) {
    let file = json!({ "mcpServers": servers });
    home.write("shop/.cursor/mcp.json", &file.to_string());
}

// fault G8
#[test]
fn what_is_imported_starts_nothing_until_it_is_approved() {
    let place = tempfile::tempdir().unwrap();
    let journal = place.path().join("journal");
    let home = Home::new(place.path().join("data"));
    cursor(
        &home,
        &json!({"theirs": entry(&Evilpeer::new().journal(&journal))}),
    );
    home.told(&["import", "cursor"]);
    assert_eq!(starts(&journal), 0, "importing runs nothing");
    let checked = home.told(&["config", "check"]);
    assert!(
        checked.contains("`gantry.toml` needs approval"),
        "{checked}"
    );
    let explained = home.told(&["config", "explain", "theirs"]);
    assert!(explained.contains("needs_approval"), "{explained}");
    let refused = home.refused(1, &["approve"]);
    assert!(
        refused.contains("not a terminal: pass `--yes`"),
        "{refused}"
    );
    home.told(&["approve", "--yes"]);
    // Another import changes what was approved, and asks again.
    let later = place.path().join("later");
    cursor(
        &home,
        &json!({"more": entry(&Evilpeer::new().journal(&later))}),
    );
    home.told(&["import", "cursor"]);
    let explained = home.told(&["config", "explain", "more"]);
    assert!(explained.contains("needs_approval"), "{explained}");
    assert_eq!((starts(&journal), starts(&later)), (0, 0));
}

// faults G2, G3, G4 and G8
#[test]
fn what_may_not_be_registered_may_not_be_imported() {
    let gantry = Gantry::start(&[]);
    let home = Home::new(gantry.data());
    let wrong = [
        (json!({"command": "sh", "args": ["-c", "x"]}), "/args"),
        (json!({"command": "x; y"}), "/command"),
        (
            json!({"command": "x", "env": {"LD_PRELOAD": "/x.so"}}),
            "/env/LD_PRELOAD",
        ),
        (json!({"command": "x", "env": {"PATH": "/x"}}), "/env/PATH"),
    ];
    for (entry, field) in wrong {
        // What a client's file says of our own allowances is that client's, and means nothing.
        let mut imported = entry.clone();
        imported["allow_shell"] = json!(true);
        imported["allow_env"] = json!(["LD_PRELOAD", "PATH"]);
        fs::remove_file(home.folder().join("gantry.toml")).ok();
        cursor(&home, &json!({"a": imported}));
        home.told(&["import", "cursor"]);
        let told = home.refused(2, &["config", "check", "--config", "gantry.toml"]);
        let mut body = entry.clone();
        body["name"] = json!("a");
        let answer = gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
        assert_eq!(answer.status, 422, "{}", answer.text());
        let issue = &answer.json()["issues"][0];
        assert_eq!(issue["path"], field, "{issue}");
        assert!(told.contains("server `a`: "), "{told}");
    }
}

// faults G5 and G8
#[test]
fn an_approved_import_runs_in_the_sandbox_and_on_the_record_as_anything_else() {
    let place = tempfile::tempdir().unwrap();
    let journal = place.path().join("journal");
    let home = Home::new(place.path().join("unused"));
    cursor(
        &home,
        &json!({"theirs": entry(&Evilpeer::new().journal(&journal))}),
    );
    home.told(&["import", "cursor"]);
    let text = home.own();
    let file = home.folder().join("gantry.toml");
    let gantry = Gantry::builder()
        .flags(&["--config", file.to_str().unwrap()])
        .start();
    let status = gantry.wait_state("theirs", "ready", LONG);
    assert!(text.contains("[servers.theirs]"), "{text}");
    assert_eq!(status["profile"], "local");
    assert!(status["isolation"].is_array(), "{status:#}");
    let answer = gantry.call("theirs__echo", json!({"text": "x"}));
    assert_eq!(answer["result"]["content"][0]["text"], "x");
    assert_eq!(gantry.audit_rows("status=ok").len(), 1);
    let events = gantry.rest("GET", "/api/v1/events", None).text();
    assert!(events.contains("theirs"), "{events}");
}
