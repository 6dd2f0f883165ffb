//! An edit of a file that was approved asks for what it changed, and touches nothing else. fault G5

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use gantry_testkit::journal::Journal;
use serde_json::{Value, json};

use super::terminal::open;
use super::{Folder, journaled, peer, servers};

fn described(text: &str) -> Value {
    let mut entry = peer();
    entry["description"] = text.into();
    entry
}

fn notices(folder: &Folder, words: &str) -> Vec<String> {
    folder.warnings(|warnings| warnings.iter().any(|warning| warning.contains(words)))
}

// First hour 1
#[test]
fn an_edit_stops_nothing_that_it_did_not_change() {
    let mut folder = Folder::new();
    let journal = folder.home().join("journal");
    let starts = || Journal::read(&journal).map_or(0, |journal| journal.starts());
    let kept = journaled(&journal);
    folder.write(
        ".mcp.json",
        &servers(&[
            ("kept", kept.clone()),
            ("changed", described("one")),
            ("gone", peer()),
        ]),
    );
    folder.up(&["--trust"]);
    let pid = folder.wait("kept", "ready")["pid"].clone();
    let old = folder.wait("changed", "ready")["pid"].clone();
    folder.wait("gone", "ready");
    folder.write(
        ".mcp.json",
        &servers(&[
            ("new", peer()),
            ("changed", described("two")),
            ("kept", kept.clone()),
        ]),
    );
    let new = folder.wait("new", "needs_approval");
    let reason = new["reason"].as_str().unwrap();
    assert!(reason.starts_with("new in `.mcp.json`"), "{reason}");
    assert!(
        reason.contains("run `gantry approve .mcp.json`"),
        "{reason}"
    );
    let changed = folder.wait("changed", "needs_approval");
    let reason = changed["reason"].as_str().unwrap();
    assert!(reason.starts_with("changed in `.mcp.json`"), "{reason}");
    notices(&folder, "needs approval: new (new), changed (changed)");
    let mut names = folder.names();
    names.sort();
    assert_eq!(
        names,
        ["changed", "kept", "new"],
        "what is gone needs no word"
    );
    assert_eq!(folder.status("kept")["pid"], pid, "nobody touched it");

    // What is asked is the change.
    let asked = folder.run(&["approve"]);
    assert_eq!(asked.status.code(), Some(1));
    let asked = String::from_utf8_lossy(&asked.stdout).into_owned();
    assert!(
        asked.contains(".mcp.json has changed since you approved it:"),
        "{asked}"
    );
    assert!(asked.contains("+ new: runs "), "{asked}");
    assert!(asked.contains("-   description = \"one\""), "{asked}");
    assert!(asked.contains("+   description = \"two\""), "{asked}");
    assert!(asked.contains("- gone: no longer in the file"), "{asked}");
    assert!(
        asked.contains("1 other entry is as you approved it"),
        "{asked}"
    );
    assert!(!asked.contains("kept: runs "), "{asked}");
    let as_json: Value = serde_json::from_str(&folder.told(&["approve", "--json"])).unwrap();
    let file = &as_json["files"][0];
    assert_eq!(
        file["servers"],
        json!([{"name": "new", "difference": "new"}, {"name": "changed", "difference": "changed"}])
    );
    assert_eq!(
        (&file["removed"], &file["unchanged"]),
        (&json!(["gone"]), &json!(1))
    );

    let told = folder.told(&["approve", "--yes"]);
    assert!(
        told.contains("approved `.mcp.json`: new (new), changed (changed)"),
        "{told}"
    );
    folder.wait("new", "ready");
    let status = folder.wait("changed", "ready");
    assert_eq!(status["description"], "two");
    assert_ne!(status["pid"], old);
    assert_eq!(folder.status("kept")["pid"], pid, "nobody touched it");
    assert_eq!(starts(), 1);
    folder.warnings(|warnings| !warnings.iter().any(|told| told.contains("needs approval")));

    // Layout, comments and order are not asked about, neither now nor at the next start.
    let text = servers(&[
        ("changed", described("two")),
        ("kept", kept),
        ("new", peer()),
    ]);
    folder.write(".mcp.json", &format!("// mine\n{text}"));
    folder.wait_until("it was looked at", || {
        folder.told(&["approve"]).contains("nothing needs approval")
    });
    assert_eq!(folder.status("kept")["pid"], pid);
    folder.down();
    folder.up(&[]);
    for name in ["kept", "changed", "new"] {
        folder.wait(name, "ready");
    }
}

// First hour 1: what an earlier version approved was the file as a whole.
#[test]
fn a_file_that_was_approved_as_a_whole_is_asked_about_by_entry_from_now_on() {
    let mut folder = Folder::new();
    folder.write(".mcp.json", &servers(&[("a", peer()), ("b", peer())]));
    folder.told(&["approve", "--yes"]);
    let file = folder.data().join("approvals/approved.json");
    let mut approved: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    approved.as_object_mut().unwrap().remove("parts").unwrap();
    fs::write(&file, approved.to_string()).unwrap();
    folder.up(&[]);
    let pid = folder.wait("a", "ready")["pid"].clone();
    folder.write(
        ".mcp.json",
        &servers(&[("a", peer()), ("b", described("x"))]),
    );
    folder.wait("b", "needs_approval");
    assert_eq!(folder.status("a")["pid"], pid);
}

// First hour 1
#[test]
fn changed_settings_of_the_gateway_wait_and_its_servers_run_on() {
    let mut folder = Folder::new();
    let text = |expose: &str, more: &str| {
        let peer = peer();
        let command = peer["command"].as_str().unwrap();
        format!(
            "# mine\n{more}[gateway]\nexpose = \"{expose}\"\n\n[servers.a]\ncommand = \"{command}\"\n"
        )
    };
    folder.write("gantry.toml", &text("bare", ""));
    folder.up(&["--trust"]);
    let pid = folder.wait("a", "ready")["pid"].clone();
    // The same elsewhere in the file is the same.
    folder.write("gantry.toml", &text("bare", "# another line\n"));
    folder.write(".mcp.json", &servers(&[("b", peer())]));
    let told = notices(&folder, "b (new)");
    assert!(!told.concat().contains("gateway"), "{told:?}");
    folder.write("gantry.toml", &text("qualified", ""));
    notices(&folder, "`gantry.toml` needs approval: [gateway] (changed)");
    assert_eq!(folder.status("a")["pid"], pid);
    let asked = folder.run(&["approve", "gantry.toml"]);
    let asked = String::from_utf8_lossy(&asked.stdout).into_owned();
    assert!(asked.contains("- [gateway] expose = \"bare\""), "{asked}");
    assert!(
        asked.contains("+ [gateway] expose = \"qualified\""),
        "{asked}"
    );
    assert!(!asked.contains("a: runs"), "{asked}");
    folder.told(&["approve", "--yes", "gantry.toml"]);
    notices(
        &folder,
        "`[gateway]` has changed, and takes effect at the next start",
    );
    assert_eq!(folder.status("a")["pid"], pid);
}

// First hour 1
#[test]
fn the_terminal_of_up_says_what_waits_and_what_to_type() {
    let folder = Folder::new();
    folder.write(".mcp.json", &servers(&[("a", peer())]));
    let mut up = open(&folder, "up --port 0");
    up.reads("Let it run? [y/N] ");
    up.types("y\n");
    up.reads("Stop with Ctrl-C.");
    let pid = folder.wait("a", "ready")["pid"].clone();
    folder.write(".mcp.json", &servers(&[("a", peer()), ("b", peer())]));
    up.reads("! `.mcp.json` needs approval: b (new); approved entries keep running");
    up.reads(" approve .mcp.json");
    let mut approve = open(&folder, "approve .mcp.json");
    let shown = approve.reads("Let it run? [y/N] ");
    assert!(
        shown.contains("+ b: runs ") && !shown.contains("a: runs "),
        "{shown}"
    );
    approve.types("y\n");
    assert_eq!(approve.ends(), 0, "{}", approve.shown());
    up.reads("configuration applied; changed: b");
    folder.wait("b", "ready");
    assert_eq!(folder.status("a")["pid"], pid);
    // A new content of what waits is told again, what is the same is not.
    folder.write(
        ".mcp.json",
        &servers(&[("a", peer()), ("b", described("x"))]),
    );
    up.reads("needs approval: b (changed)");
    folder.write(
        ".mcp.json",
        &servers(&[("a", peer()), ("b", described("y"))]),
    );
    up.reads("needs approval: b (changed)");
    folder.write(".mcp.json", &servers(&[("a", peer())]));
    up.reads("configuration applied; removed: b");
    up.stops();
}

// First hour 1
#[test]
fn stdio_in_a_folder_that_is_not_approved_says_so_on_stderr() {
    let folder = Folder::new();
    folder.write(
        ".mcp.json",
        &servers(&[("theirs", peer()), ("more", peer())]),
    );
    let served = |folder: &Folder| {
        let mut command = folder.command(&["stdio"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let listing = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
        let mut keyboard = child.stdin.take().unwrap();
        writeln!(keyboard, "{listing}").unwrap();
        drop(keyboard);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let told = served(&folder);
    assert!(
        told.contains("these servers are not approved and offer nothing yet: theirs, more"),
        "{told}"
    );
    let command = format!(
        "cd {} && gantry --data {} approve",
        folder.home().join("shop").display(),
        folder.data().display()
    );
    assert!(told.contains(&command), "{told}");
    folder.told(&["approve", "--yes"]);
    // The gateway of the first one may still be there, and takes a moment to see it.
    folder.wait_until("nothing waits", || !served(&folder).contains("approve"));
}

// An approval is of all that an entry says: one that comes back unchanged says what was approved.
#[test]
fn an_entry_that_comes_back_unchanged_runs_and_a_changed_one_waits() {
    let mut folder = Folder::new();
    let both = servers(&[("kept", peer()), ("back", described("one"))]);
    folder.write(".mcp.json", &both);
    folder.up(&["--trust"]);
    folder.wait("back", "ready");
    let gone = |folder: &Folder| {
        folder.write(".mcp.json", &servers(&[("kept", peer())]));
        folder.wait_until("it is gone", || folder.names() == ["kept"]);
    };
    gone(&folder);
    folder.write(".mcp.json", &both);
    folder.wait("back", "ready");
    gone(&folder);
    folder.write(
        ".mcp.json",
        &servers(&[("kept", peer()), ("back", described("two"))]),
    );
    folder.wait("back", "needs_approval");
}

// Whoever is told what to type can type it: the data folder is part of it.
#[test]
fn what_to_type_names_the_data_folder() {
    let mut folder = Folder::new();
    folder.write(".mcp.json", &servers(&[("new", peer())]));
    folder.up(&[]);
    folder.wait("new", "needs_approval");
    let data = folder.data();
    let gantry = format!("`gantry --data {}", data.display());
    let said = |arguments: &[&str]| {
        let output = folder.run(arguments);
        let told = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&told).into_owned()
    };
    let screen = folder.home().join("stdout");
    let screen = || fs::read_to_string(&screen).unwrap_or_default();
    folder.wait_until("the screen is whole", || screen().contains("Stop with"));
    for (what, told, verb) in [
        ("up", screen(), "approve .mcp.json"),
        ("approve", said(&["approve"]), "approve --yes"),
        ("tools", said(&["tools", "nosuch"]), "ls"),
        ("status", said(&["status"]), "approve .mcp.json"),
        ("config", said(&["config", "check"]), "approve .mcp.json"),
        (
            "agent",
            said(&["agent", "rm", "default"]),
            "agent rm default --yes",
        ),
        ("connect", said(&["connect"]), "connect CLIENT"),
        ("doctor", said(&["doctor"]), "approve"),
    ] {
        assert!(told.contains(&format!("{gantry} {verb}")), "{what}: {told}");
        // What an agent is used by is no advice.
        let bare = told.replace(&gantry, "").contains("`gantry ");
        assert!(!bare || what == "agent", "{what}: {told}");
    }
    // Without the flag the folder is the one of the working folder, and nobody needs to name it.
    let plain = folder.command(&[]).args(["--help"]).output().unwrap();
    assert!(plain.status.success());
}
