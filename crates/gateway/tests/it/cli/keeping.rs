//! Verbs that keep things: `add`, `ls`, `rm`, `key`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use gantry_testkit::{Evilpeer, bin};
use insta::assert_snapshot;
use serde_json::Value;

use super::{run, settings, told};
use crate::harness::Gantry;

fn without_progress(told: &str) -> String {
    // How far a server came between two looks differs.
    let on_its_way = |line: &&str| !line.ends_with(" is starting") && *line != "--- stderr";
    let lines: Vec<&str> = told.lines().filter(on_its_way).collect();
    lines.join("\n")
}

#[test]
fn a_server_is_added_listed_and_removed() {
    // row 1.1
    let gantry = Gantry::start(&["a"]);
    let peer = bin::evilpeer();
    let peer = peer.to_str().unwrap();
    let added = run(
        &gantry,
        &["add", "mine", "--env", "A=1", "--", peer, "--name", "x"],
    );
    settings().bind(|| {
        assert_snapshot!(without_progress(&added), @"");
        assert_snapshot!(run(&gantry, &["ls"]), @"");
        assert_snapshot!(run(&gantry, &["add", "mine", "--", peer]), @"");
        assert_snapshot!(run(&gantry, &["add", "not a name", "--", peer]), @"");
        assert_snapshot!(run(&gantry, &["add", "other", "--env", "nothing", "--", peer]), @"");
        assert_snapshot!(run(&gantry, &["add", "other"]), @"");
    });
    let status = gantry.status("mine");
    assert_eq!(status["spec"]["env"], serde_json::json!(["A"]));
    let called = run(&gantry, &["call", "mine__env", "--name", "A"]);
    assert!(called.ends_with("--- exit 0"), "{called}");
    let lazy = run(&gantry, &["add", "lazy", "--start", "lazy", "--", peer]);
    settings().bind(|| {
        assert_snapshot!(without_progress(&lazy), @"");
        assert_snapshot!(run(&gantry, &["rm", "mine"]), @"");
        assert_snapshot!(run(&gantry, &["rm", "mine"]), @"");
        assert_snapshot!(run(&gantry, &["rm", "lazy", "--json"]), @"");
    });
    let list: Value = serde_json::from_slice(&gantry.cli(&["ls", "--json"]).stdout).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
}

#[test]
fn a_server_that_does_not_start_is_told_with_its_reason() {
    let gantry = Gantry::start(&[]);
    settings().bind(|| {
        let told = run(&gantry, &["add", "nowhere", "--", "/nowhere/at-all"]);
        assert_snapshot!(without_progress(&told), @"");
        let argv = Evilpeer::new().fault("crash-start=3").argv();
        let mut words = vec!["add", "crashing", "--"];
        words.extend(argv.iter().map(String::as_str));
        let told = without_progress(&run(&gantry, &words));
        assert!(told.contains("error: server `crashing` is "), "{told}");
        assert!(
            told.contains("it wrote: boom") && told.ends_with("--- exit 1"),
            "{told}"
        );
        assert_snapshot!(run(&gantry, &["ls"]).lines().next().unwrap(), @"");
    });
}

#[test]
fn keys_are_made_listed_and_revoked() {
    let gantry = Gantry::start(&["a"]);
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["key", "ls"]), @"");
        assert_snapshot!(run(&gantry, &["key", "new", "--label", "laptop"]), @"");
        assert_snapshot!(run(&gantry, &["key", "new", "--agent", "not a name"]), @"");
    });
    let file = gantry.data().join("new.key");
    let made = gantry.cli(&["key", "new", "--json", "--out", file.to_str().unwrap()]);
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert!(made["key"].is_null(), "it is in the file only");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let with_key = ["tools", "--key-file", file.to_str().unwrap()];
    assert!(run(&gantry, &with_key).ends_with("--- exit 0"));
    // A file that is there is never written over, and no key is made in vain.
    let again = gantry.cli(&["key", "new", "--out", file.to_str().unwrap()]);
    assert!(told(&again).contains("File exists"), "{}", told(&again));
    let id = made["id"].as_str().unwrap();
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["key", "revoke", id]), @"");
        assert_snapshot!(run(&gantry, &with_key), @"");
        assert_snapshot!(run(&gantry, &["key", "ls"]), @"");
    });
}
