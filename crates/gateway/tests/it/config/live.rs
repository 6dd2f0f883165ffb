//! A file that changes while the gateway runs.

use std::fs;
use std::time::Duration;

use gantry_testkit::wait::eventually;
use gantry_testkit::{Evilpeer, procs};
use serde_json::{Value, json};

use super::{Folder, peer, servers};
use crate::harness::{LONG, entry};

fn described(text: &str) -> Value {
    let mut entry = peer();
    entry["description"] = text.into();
    entry
}

fn pid(status: &Value) -> u64 {
    status["pid"].as_u64().expect("it runs")
}

// rows 2.10 and 2.18
#[test]
fn a_change_touches_only_the_servers_that_changed() {
    let mut folder = Folder::new();
    folder.write(
        "a.json",
        &servers(&[
            ("kept", peer()),
            ("changed", described("one")),
            ("gone", peer()),
        ]),
    );
    folder.up(&["--config", "a.json"]);
    let kept = pid(&folder.wait("kept", "ready"));
    let changed = pid(&folder.wait("changed", "ready"));
    folder.wait("gone", "ready");
    // Put in place as editors do: another file under the old name.
    let text = servers(&[
        ("kept", peer()),
        ("changed", described("two")),
        ("new", peer()),
    ]);
    folder.write("draft", &text);
    fs::rename(folder.at("draft"), folder.at("a.json")).unwrap();
    let new = eventually(LONG, || folder.names().contains(&"new".to_owned()));
    assert!(new.is_some(), "{}", folder.log());
    folder.wait("new", "ready");
    // Servers are changed side by side: this one waits for its old process.
    let is_changed = || folder.status("changed")["description"] == "two";
    assert!(eventually(LONG, is_changed).is_some(), "{}", folder.log());
    let status = folder.wait("changed", "ready");
    assert_ne!(pid(&status), changed);
    assert_eq!(pid(&folder.status("kept")), kept, "nobody touched it");
    let all = || folder.names() == ["kept", "changed", "new"];
    assert!(eventually(LONG, all).is_some(), "{:?}", folder.names());
}

// fault G1
#[test]
fn a_broken_file_keeps_the_last_good_state_and_says_where() {
    let mut folder = Folder::new();
    let good = servers(&[("a", peer())]);
    folder.write("a.json", &good);
    folder.up(&["--config", "a.json"]);
    let before = pid(&folder.wait("a", "ready"));
    // Half-written.
    folder.write(
        "a.json",
        &format!("{{\n  \"mcpServers\": {{{}", &good[15..40]),
    );
    let warnings = folder.warnings(|warnings| !warnings.is_empty());
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].starts_with(
            "configuration: not applied, the last valid configuration stays in effect: a.json:2:"
        ),
        "{warnings:?}"
    );
    let shown = folder.told(&["status"]);
    assert!(
        shown.contains("the last valid configuration stays in effect: a.json:2:"),
        "{shown}"
    );
    folder.wait_until("it is logged", || folder.log().contains("a.json:2:"));
    assert_eq!(pid(&folder.status("a")), before);
    // The rest of it arrives.
    folder.write("a.json", &servers(&[("a", peer()), ("b", peer())]));
    folder.warnings(|warnings| warnings.is_empty());
    folder.wait("b", "ready");
    assert_eq!(pid(&folder.status("a")), before, "nobody touched it");
}

// fault G1
#[test]
fn one_bad_entry_leaves_its_neighbours_and_is_named() {
    let mut folder = Folder::new();
    folder.write("a.json", &servers(&[("a", peer())]));
    folder.up(&["--config", "a.json"]);
    let before = pid(&folder.wait("a", "ready"));
    let bad = json!({"command": "x", "limits": {"pids": -1}});
    folder.write("a.json", &servers(&[("a", peer()), ("bad", bad)]));
    let warnings = folder.warnings(|warnings| !warnings.is_empty());
    assert!(warnings[0].contains("left out: a.json:1:"), "{warnings:?}");
    assert!(
        warnings[0].contains("server `bad`: `limits.pids` must be"),
        "{warnings:?}"
    );
    assert_eq!(pid(&folder.status("a")), before);
    // It is shown, and nothing of it runs.
    let status = folder.wait("bad", "misconfigured");
    assert!(status["pid"].is_null(), "{status:#}");
    assert_eq!(folder.names(), ["a", "bad"]);
}

// row 2.10
#[test]
fn a_file_that_appears_replaces_the_example() {
    let mut folder = Folder::new();
    folder.up(&[]);
    folder.wait("example", "ready");
    fs::write(folder.home().join(".kode.json"), servers(&[("a", peer())])).unwrap();
    folder.wait("a", "ready");
    assert_eq!(folder.names(), ["a"]);
}

/// How long a change may take from the write to the status.
const APPLIED: Duration = Duration::from_secs(1);

// row 2.10
#[test]
fn a_change_is_in_force_within_a_second() {
    let mut folder = Folder::new();
    folder.write("a.json", &servers(&[("kept", peer())]));
    folder.up(&["--config", "a.json"]);
    folder.wait("kept", "ready");
    let mut took = Vec::new();
    for round in 0..5 {
        let name = format!("new-{round}");
        folder.write("a.json", &servers(&[("kept", peer()), (&name, peer())]));
        let applied = eventually(LONG, || {
            let names = folder.names();
            names.contains(&name) && names.len() == 2
        });
        took.push(applied.unwrap_or_else(|| panic!("not applied:\n{}", folder.log())));
    }
    // A machine that is busy with other things may miss it more than once; a gateway that looks at its
    // files too rarely misses it every time.
    took.sort_unstable();
    assert!(took[1] <= APPLIED, "{took:?}");
}

// row 2.10
#[test]
fn a_server_that_is_slow_to_end_holds_no_other_change_back() {
    let mut folder = Folder::new();
    let slow = |description: &str| {
        let peer = Evilpeer::new().fault("ignore-term").fault("ignore-eof");
        let mut entry = entry(&peer);
        entry["description"] = description.into();
        entry["life"] = json!({"stop_grace": "1h"});
        entry
    };
    folder.write(
        "a.json",
        &servers(&[("gone", slow("x")), ("changed", slow("one"))]),
    );
    folder.up(&["--config", "a.json"]);
    let gone = pid(&folder.wait("gone", "ready"));
    let changed = pid(&folder.wait("changed", "ready"));
    folder.write(
        "a.json",
        &servers(&[("changed", slow("two")), ("new", peer())]),
    );
    folder.wait("new", "ready");
    for old in [gone, changed] {
        let old = u32::try_from(old).unwrap();
        assert!(procs::alive(old), "it is still in its grace");
    }
}
