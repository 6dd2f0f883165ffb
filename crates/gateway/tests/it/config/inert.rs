//! What nobody has approved takes nothing from anybody: no name, no start, no file that is trusted.
//! fault G5

use std::fs;
use std::path::Path;

use gantry_testkit::Evilpeer;
use gantry_testkit::journal::Journal;
use serde_json::{Value, json};

use super::{Folder, journaled, peer, servers};
use crate::harness::entry;

/// Writes what is trusted: the person's own file, in their home.
fn mine(folder: &Folder, entries: &[(&str, Value)]) {
    fs::write(folder.home().join(".kode.json"), servers(entries)).unwrap();
}

fn starts(journal: &Path) -> usize {
    Journal::read(journal).map_or(0, |journal| journal.starts())
}

/// Waits until a notice with these words is among the warnings.
fn noticed(folder: &Folder, words: &str) {
    folder.warnings(|warnings| warnings.iter().any(|warning| warning.contains(words)));
}

// fault G5
#[test]
fn a_trusted_entry_wins_until_the_stronger_file_is_approved_and_the_shadow_is_shown() {
    let mut folder = Folder::new();
    let (ours, theirs) = (folder.home().join("ours"), folder.home().join("theirs"));
    mine(&folder, &[("mine", peer()), ("search", journaled(&ours))]);
    folder.write(".mcp.json", &servers(&[("search", journaled(&theirs))]));
    let explained = folder.told(&["config", "explain", "search"]);
    assert!(
        explained.contains("shadow") && explained.contains("`search` at .mcp.json:1 is not"),
        "{explained}"
    );
    folder.up(&[]);
    folder.wait("mine", "ready");
    folder.wait("search", "ready");
    assert_eq!((starts(&ours), starts(&theirs)), (1, 0));
    noticed(
        &folder,
        "`search` at .mcp.json:1 is not approved and has no effect",
    );
    let printed = || fs::read_to_string(folder.home().join("stdout")).unwrap();
    folder.wait_until("it is printed", || {
        printed().contains("! `search` at .mcp.json:1 is not approved")
    });
    folder.told(&["approve", "--yes"]);
    folder.wait_until("the approved one counts", || starts(&theirs) == 1);
    folder.wait("search", "ready");
    assert_eq!(starts(&ours), 1, "once approved, the project wins");
    let again = folder.told(&["approve"]);
    assert!(again.contains("nothing needs approval"), "{again}");
    let unknown = folder.run(&["approve", "--yes", "other.json"]);
    assert_eq!(unknown.status.code(), Some(2));
}

// fault G5
#[test]
fn a_disabled_or_broken_entry_of_an_unapproved_file_hides_nothing() {
    let mut folder = Folder::new();
    mine(&folder, &[("off", peer()), ("bad", peer())]);
    let hides = json!({"command": "x", "disabled": true});
    let wrong = json!({"command": "x", "limits": {"pids": -1}});
    folder.write(
        ".mcp.json",
        &servers(&[
            ("off", hides.clone()),
            ("bad", wrong.clone()),
            ("free", wrong),
            ("weaker", hides),
        ]),
    );
    folder.write(".mcprc", &json!({"weaker": peer()}).to_string());
    // One server that cannot be had is a reason not to start, but not if nobody wants it.
    folder.up(&["--on-start-failure", "abort"]);
    folder.wait("off", "ready");
    folder.wait("bad", "ready");
    folder.wait("weaker", "needs_approval");
    // What is wrong is listed with the reason, under a name that nobody else has.
    folder.wait("free", "misconfigured");
    assert_eq!(folder.names(), ["off", "bad", "weaker", "free"]);
    noticed(&folder, "not approved, left out: .mcp.json:1:");
    let check = folder.run(&["config", "check"]);
    assert_eq!(check.status.code(), Some(2), "whoever asks is told");
}

// faults G1 and G5
#[test]
fn an_unapproved_file_that_cannot_be_used_does_not_keep_the_gateway_from_starting() {
    let wrong = [
        (".mcp.json", "{\"mcpServers\": {", ".mcp.json:1:"),
        (".mcp.json", "{\"servers\": {}}", "`mcpServers` is missing"),
        (".mcprc", "[]", ".mcprc:1:1: the file must hold a table"),
        ("gantry.toml", "[gateway]\nlisten = 1\n", "gantry.toml:2:10"),
        ("gantry.toml", "version = 2\n", "`version` must be 1"),
    ];
    for (name, text, notice) in wrong {
        let mut folder = Folder::new();
        mine(&folder, &[("mine", peer())]);
        folder.write(name, text);
        folder.up(&[]);
        folder.wait("mine", "ready");
        noticed(&folder, notice);
        let explained = folder.told(&["config", "explain"]);
        assert!(explained.contains("not approved, left out"), "{explained}");
        // A person who says that it is trusted hears what is wrong with it.
        let approved = folder.run(&["approve", "--yes", name]);
        assert_eq!(approved.status.code(), Some(2), "{name}");
        let trusted = folder.run(&["up", "--port", "0", "--trust"]);
        assert_eq!(trusted.status.code(), Some(2), "{name}");
    }
}

// faults G1 and G5
#[test]
fn an_approved_file_that_is_being_written_keeps_its_last_good_state() {
    let mut folder = Folder::new();
    let good = servers(&[("theirs", peer())]);
    folder.write(".mcp.json", &good);
    folder.up(&["--trust"]);
    let before = folder.wait("theirs", "ready")["pid"].clone();
    folder.write(".mcp.json", &good[..good.len() / 2]);
    noticed(
        &folder,
        "not approved, what was approved before holds: .mcp.json:1:",
    );
    // Meanwhile the person's own file is applied.
    mine(&folder, &[("mine", peer())]);
    folder.wait("mine", "ready");
    assert_eq!(folder.status("theirs")["pid"], before, "nobody touched it");
    folder.write(
        ".mcp.json",
        &servers(&[("theirs", peer()), ("more", peer())]),
    );
    folder.wait("more", "needs_approval");
    let theirs = folder.status("theirs");
    assert_eq!(theirs["pid"], before, "what was approved runs on");
}

// fault G5
#[test]
fn a_name_that_was_registered_over_the_api_is_not_taken_by_an_unapproved_file() {
    let mut folder = Folder::new();
    let journal = folder.home().join("journal");
    let theirs = servers(&[
        ("search", journaled(&journal)),
        ("late", journaled(&journal)),
    ]);
    let register = |folder: &Folder, name: &str| {
        let mut body = entry(&Evilpeer::new());
        body["name"] = json!(name);
        body["profile"] = json!("local");
        body["start"] = json!("eager");
        let (status, answer) = folder.rest("POST", "/api/v1/mcp/servers", Some(&body));
        assert_eq!(status, 201, "{answer:#}");
    };
    mine(&folder, &[("mine", peer())]);
    folder.up(&[]);
    register(&folder, "search");
    folder.wait("search", "ready");
    folder.write(".mcp.json", &theirs);
    folder.wait("late", "needs_approval");
    noticed(&folder, "the one that was registered over the API counts");
    assert_eq!(folder.status("search")["source"], "api");
    // Nor does it keep an administrator from giving the name away.
    register(&folder, "late");
    folder.wait("late", "ready");
    folder.down();
    // The same holds when the file is there before the gateway.
    folder.up(&[]);
    for name in ["mine", "search", "late"] {
        folder.wait(name, "ready");
    }
    noticed(
        &folder,
        "`late` in a file that is not approved has no effect",
    );
    assert_eq!(starts(&journal), 0, "nothing of it ran");
}
