//! Names that are not there, and servers that have nothing to show yet: errors that say what to type.

use gantry_testkit::Evilpeer;
use insta::assert_snapshot;
use serde_json::json;

use super::{run, settings};
use crate::harness::{Gantry, LONG};

#[test]
fn a_mistyped_server_is_an_error_for_every_verb() {
    let gantry = Gantry::start(&["files"]);
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["tools", "fiels"]), @"
        --- stderr
        error: no server `fiels`
          because: code `server.unknown`
        hint: did you mean `files`?
        --- exit 1
        ");
    });
    for words in [
        &["tools", "fiels", "--json"][..],
        &["tools", "fiels", "--shape", "openai"],
        &["logs", "fiels"],
        &["logs", "fiels", "-f"],
        &["restart", "fiels"],
        &["status", "fiels"],
        &["calls", "--server", "fiels"],
        &["calls", "--server", "fiels", "-f"],
        &["calls", "--server", "fiels", "--json"],
        &["rm", "fiels"],
        &["why", "default", "fiels:echo"],
    ] {
        let told = run(&gantry, words);
        assert!(told.contains("no server `fiels`"), "{words:?}: {told}");
        assert!(
            told.ends_with("hint: did you mean `files`?\n--- exit 1"),
            "{words:?}: {told}"
        );
    }
    for words in [
        &["calls", "--agent", "defualt"][..],
        &["why", "defualt", "files:echo"],
        &["agent", "set", "defualt", "--label", "x"],
    ] {
        let told = run(&gantry, words);
        assert!(told.contains("no agent `defualt`"), "{words:?}: {told}");
        assert!(
            told.ends_with("hint: did you mean `default`?\n--- exit 1"),
            "{words:?}: {told}"
        );
    }
    // One that is there and had no calls is no mistake.
    for words in [
        ["calls", "--server", "files"],
        ["calls", "--agent", "default"],
    ] {
        assert_eq!(run(&gantry, &words), "no calls\n--- exit 0");
    }
    // The record of one that was removed is still there.
    gantry.call("files__echo", json!({"text": "x"}));
    gantry.agent_with("gone", &["files:*"]);
    assert!(gantry.cli(&["calls", "--server", "files"]).status.success());
    // Far from every name, none is meant.
    let told = run(&gantry, &["tools", "zzzzzzzz"]);
    assert!(told.contains("error: no server `zzzzzzzz`"), "{told}");
    assert!(
        told.ends_with(" ls` lists the servers\n--- exit 1"),
        "{told}"
    );
}

// row 0.10
#[test]
fn the_tools_of_a_lazy_server_are_listed_by_starting_it() {
    let lazy = json!({"start": "lazy"});
    let gantry = Gantry::builder()
        .server_with("lazy", &Evilpeer::new().name("lazy"), &lazy)
        .server_with("hung", &Evilpeer::new().fault("init-hang"), &lazy)
        .start();
    gantry.wait_state("lazy", "idle", LONG);
    let told = run(&gantry, &["tools", "lazy"]);
    assert!(
        told.contains("lazy__echo") && told.ends_with("--- exit 0"),
        "{told}"
    );
    assert_eq!(gantry.status("lazy")["state"], "ready");
    assert_eq!(
        gantry.status("hung")["state"],
        "idle",
        "nobody asked for it"
    );
    // One that does not come up in a moment says so, and what to type.
    let told = run(&gantry, &["tools", "hung"]);
    assert!(
        told.contains("error: server `hung` is not started yet"),
        "{told}"
    );
    assert!(told.contains(" restart hung`"), "{told}");
    assert!(told.ends_with("--- exit 1"), "{told}");
}

#[test]
fn a_server_without_tools_for_somebody_says_why() {
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().name("a"))
        .server("broken", &Evilpeer::new().fault("crash-start=3"))
        .start();
    gantry.wait_state("a", "ready", LONG);
    let down = gantry.wait_status("broken", LONG, |status| {
        status["restart_count"].as_u64() > Some(3)
    });
    assert_ne!(down["state"], "ready");
    let told = run(&gantry, &["tools", "broken"]);
    assert!(told.contains("error: server `broken` is failed"), "{told}");
    assert!(
        told.contains("exit code 3") && told.ends_with("--- exit 1"),
        "{told}"
    );
    // An agent learns nothing of a server that it may not use, not even that it is there.
    let key = gantry.data().join("blind.key");
    let key = key.to_str().unwrap();
    for words in [
        &["agent", "new", "blind", "--grant", "b:*"][..],
        &["key", "new", "--agent", "blind", "--out", key],
    ] {
        assert!(gantry.cli(words).status.success());
    }
    for server in ["a", "nosuch"] {
        let told = run(&gantry, &["--key-file", key, "tools", server]);
        assert!(
            told.contains(&format!("no server `{server}`")) && told.ends_with("--- exit 1"),
            "{told}"
        );
    }
}

#[test]
fn bench_takes_its_own_options_on_either_side_of_the_tool() {
    let gantry = Gantry::start(&["a"]);
    for words in [
        &[
            "bench", "a__echo", "--text", "x", "--for", "200ms", "-c", "2", "--json",
        ][..],
        &[
            "bench", "--for", "200ms", "-c", "2", "--json", "a__echo", "text=x",
        ],
        &[
            "bench",
            "a__echo",
            "--for=200ms",
            "--connections=2",
            "--json",
            "--text",
            "x",
        ],
        &[
            "bench",
            "a__echo",
            "-c2",
            "--json",
            "--json-args",
            "{\"text\": \"x\"}",
            "--for",
            "200ms",
        ],
    ] {
        let output = gantry.cli(words);
        let told = super::told(&output);
        assert!(output.status.success(), "{words:?}: {told}");
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&result["connections"], &result["errors"]),
            (&json!(2), &json!(0)),
            "{told}"
        );
        assert!(result["seconds"].as_f64().unwrap() < 3.0, "{told}");
    }
    for (words, says) in [
        (
            &["bench", "a__echo", "--for", "1d"][..],
            "write for example",
        ),
        (&["bench", "a__echo", "-c", "0"], "a number from 1 to 256"),
        (&["bench", "a__echo", "-c"], "a value is missing"),
        (&["bench", "a__echo", "--timeout", "1s"], "--timeout"),
        (
            &["bench", "a__echo", "--colour", "red"],
            "no argument `--colour`",
        ),
    ] {
        let told = run(&gantry, words);
        assert!(
            told.contains(says) && told.ends_with("--- exit 2"),
            "{words:?}: {told}"
        );
    }
    let told = run(&gantry, &["bench", "a__echo", "--help"]);
    assert!(
        told.contains("--text") && told.ends_with("--- exit 0"),
        "{told}"
    );
}

// row 3.5
#[test]
fn an_agent_is_changed_where_that_is_asked_for() {
    let gantry = Gantry::start(&["a"]);
    let agent = || gantry.rest("GET", "/api/v1/agents/portal", None).json();
    assert!(
        gantry
            .cli(&["agent", "new", "portal", "--grant", "a:*"])
            .status
            .success()
    );
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["agent", "set", "portal", "--trusted-user-ids", "true"]), @"
        portal may use a:*, trusted user ids
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["agent", "set", "portal"]), @"
        --- stderr
        error: nothing to change was named
        hint: `gantry agent set --help` shows what can be changed
        --- exit 2
        ");
    });
    assert_eq!(agent()["trusted_user_ids"], true);
    for (words, member, value) in [
        (&["--label", "the portal"][..], "label", json!("the portal")),
        (
            &["--trusted-user-ids", "false"],
            "trusted_user_ids",
            json!(false),
        ),
        (&["--trusted-user-ids"], "trusted_user_ids", json!(true)),
        (
            &["--grant", "a:echo", "--grant", "b:*"],
            "grants",
            json!(["a:echo", "b:*"]),
        ),
        (
            &["--exclude", "a:crash"],
            "tools",
            json!({"include": [], "exclude": ["a:crash"]}),
        ),
        (
            &["--no-filter"],
            "tools",
            json!({"include": [], "exclude": []}),
        ),
        (&["--grant", "all"], "grants", json!(["*"])),
        (&["--grant", "none"], "grants", json!([])),
    ] {
        let output = gantry.cli(&[&["agent", "set", "portal", "--json"], words].concat());
        assert!(
            output.status.success(),
            "{words:?}: {}",
            super::told(&output)
        );
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(shown[member], value, "{words:?}");
        assert_eq!(agent()[member], value, "{words:?}");
    }
    // What was not named is as it was.
    assert_eq!(
        (&agent()["label"], &agent()["trusted_user_ids"]),
        (&json!("the portal"), &json!(true))
    );
}
