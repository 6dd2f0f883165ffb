//! `gantry agent` and `gantry why`: who may use what, and why.

use gantry_testkit::Evilpeer;
use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{run, settings, stays_down};
use crate::harness::{Gantry, LONG, PROGRAM, Terminal};

#[test]
fn agents_are_made_listed_and_removed() {
    // row 2.16
    let gantry = Gantry::start(&["a", "b"]);
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["agent", "new", "idle"]), @"
        idle may use nothing yet
        --- exit 0
        ");
        let words = [
            "agent",
            "new",
            "reader",
            "--label",
            "reads",
            "--grant",
            "a:*",
            "--exclude",
            "a:crash",
        ];
        assert_snapshot!(run(&gantry, &words), @"
        reader may use a:*
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["agent", "ls"]), @"
        AGENT  KEYS  MADE  LABEL  MAY USE
        default  1  [time]  *
        idle  0  [time]
        operator  1  [time]
        reader  0  [time]  reads  a:*, but not a:crash
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["agent", "new", "reader"]), @"
        --- stderr
        error: an agent `reader` exists already
          because: code `agent.exists`
        hint: change it: `gantry agent set reader`, or PATCH /api/v1/agents/reader; or remove it first: `gantry agent rm reader`
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["agent", "new", "x", "--grant", "files"]), @"
        --- stderr
        error: `files` is not a pattern `server:item`
          because: code `request.body`
        hint: write `files:*` for everything on that server
        --- exit 1
        ");
    });
    let file = gantry.data().join("reader.key");
    let made = run(
        &gantry,
        &[
            "key",
            "new",
            "--agent",
            "reader",
            "--out",
            file.to_str().unwrap(),
        ],
    );
    assert!(made.ends_with("--- exit 0"), "{made}");
    let seen = run(&gantry, &["tools", "--key-file", file.to_str().unwrap()]);
    assert!(
        seen.contains("a__echo") && !seen.contains("a__crash") && !seen.contains("b__"),
        "{seen}"
    );
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["agent", "rm", "reader"]), @"
        reader is removed, and its keys are revoked
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["agent", "rm", "reader"]), @"
        --- stderr
        error: no agent `reader`
          because: code `agent.unknown`
        --- exit 1
        ");
    });
    let seen = run(&gantry, &["tools", "--key-file", file.to_str().unwrap()]);
    assert!(seen.contains("`auth.wrong_key`"), "{seen}");
    let list: Value =
        serde_json::from_slice(&gantry.cli(&["agent", "ls", "--json"]).stdout).unwrap();
    let names = list["items"].as_array().unwrap().iter();
    assert!(
        names.clone().any(|agent| agent["name"] == "idle"),
        "{list:#}"
    );
    assert!(
        !names.clone().any(|agent| agent["name"] == "reader"),
        "{list:#}"
    );
}

#[test]
fn why_names_the_grant_the_filter_or_the_server() {
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().name("a"))
        .server_with(
            "down",
            &Evilpeer::new().fault("crash-start=3"),
            &stays_down(),
        )
        .start();
    gantry.wait_state("a", "ready", LONG);
    gantry.wait_state("down", "failed", LONG);
    run(
        &gantry,
        &[
            "agent",
            "new",
            "reader",
            "--grant",
            "a:*",
            "--grant",
            "down:*",
            "--exclude",
            "a:crash",
        ],
    );
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["why", "reader", "a__echo"]), @"
        ✓ reader may use a:echo
          granted by `a:*`
          server `a` is ready and offers it
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["why", "reader", "a:crash"]), @"
        ✗ reader may not use a:crash
          granted by `a:*`
          hidden by the agent's filter: `a:crash` is excluded
          server `a` is ready and offers it
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["why", "reader", "down__echo"]), @"
        ✗ reader may not use down:echo
          granted by `down:*`
          server `down` is failed: backing off 60s: 1 failure within 60s: ended during the handshake: exit code 3
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["why", "default", "a__fly"]), @"
        ✗ default may not use a:fly
          granted by `*`
          server `a` has no tool `fly`
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["why", "nobody", "a__echo"]), @"
        --- stderr
        error: no agent `nobody`
          because: code `agent.unknown`
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["why", "default", "echo"]), @"
        --- stderr
        error: `echo` names no tool
          because: code `tool.unknown`
        hint: write `server__tool` or `server:tool`
        --- exit 1
        ");
    });
    let told = gantry.cli(&["why", "reader", "a__echo", "--json"]);
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(
        (&told["allowed"], &told["tool"]),
        (&json!(true), &json!("a:echo"))
    );
    // What is told is what happens.
    let file = gantry.data().join("reader.key");
    run(
        &gantry,
        &[
            "key",
            "new",
            "--agent",
            "reader",
            "--out",
            file.to_str().unwrap(),
        ],
    );
    let file = file.to_str().unwrap();
    let called = run(
        &gantry,
        &["--key-file", file, "call", "a__echo", "--text", "hi"],
    );
    assert_eq!(called, "hi\n--- exit 0");
    assert!(run(&gantry, &["--key-file", file, "call", "a__crash"]).ends_with("--- exit 1"));
}

/// Runs a verb as a person does in a home with Cursor.
fn in_home(gantry: &Gantry, home: &std::path::Path, arguments: &[&str]) -> String {
    let output = std::process::Command::new(PROGRAM)
        .args(arguments)
        .arg("--data")
        .arg(gantry.data())
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", home)
        .env("NO_COLOR", "1")
        .current_dir(home.join("shop"))
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    super::told(&output)
}

// First hour 3
#[test]
fn the_default_agent_is_removed_after_a_word_only_and_can_be_restored() {
    let gantry = Gantry::start(&["a"]);
    let home = tempfile::tempdir().unwrap();
    for folder in ["shop", ".cursor"] {
        std::fs::create_dir(home.path().join(folder)).unwrap();
    }
    let verb = |arguments: &[&str]| in_home(&gantry, home.path(), arguments);
    assert!(verb(&["connect", "cursor"]).ends_with("--- exit 0"));
    let refused = verb(&["agent", "rm", "default"]);
    assert!(refused.ends_with("--- exit 1"), "{refused}");
    assert!(refused.contains("`default` is in use"), "{refused}");
    assert!(refused.contains("keys/agent.key`"), "{refused}");
    assert!(refused.contains("Cursor: its key is in `"), "{refused}");
    assert!(refused.contains(" agent rm default --yes`"), "{refused}");
    let doctor = verb(&["doctor", "--json"]);
    let graded = |doctor: &str, section: &str, what: &str| {
        let json = doctor.split("--- ").next().unwrap();
        let json: Value = serde_json::from_str(json).unwrap();
        let findings = json[section].as_array().unwrap().iter();
        let mut findings = findings.filter(|finding| finding["what"] == what);
        findings.next().cloned().unwrap_or_default()
    };
    assert_eq!(graded(&doctor, "folder", "agent key")["grade"], "good");
    assert_eq!(graded(&doctor, "clients", "cursor")["grade"], "good");

    let removed = verb(&["agent", "rm", "default", "--yes"]);
    assert!(removed.contains(" agent restore`"), "{removed}");
    let broken = verb(&["tools"]);
    assert!(broken.contains("`auth.wrong_key`"), "{broken}");
    assert!(broken.contains(" agent restore`"), "{broken}");
    let doctor = verb(&["doctor", "--json"]);
    assert!(doctor.ends_with("--- exit 1"), "{doctor}");
    for (section, what, advice) in [
        ("folder", "agent key", "run `gantry agent restore`"),
        ("clients", "cursor", "run `gantry connect cursor --yes`"),
    ] {
        let finding = graded(&doctor, section, what);
        assert_eq!(
            (&finding["grade"], &finding["advice"]),
            (&json!("bad"), &json!(advice))
        );
    }
    // A key for an agent that is gone would be one for nothing.
    let refused = verb(&["connect", "cursor", "--yes"]);
    assert!(refused.contains(" agent restore`"), "{refused}");

    let restored = verb(&["agent", "restore"]);
    assert!(
        restored.contains("✓ `default` has a new key in `"),
        "{restored}"
    );
    assert!(
        restored.contains("  gantry connect cursor --yes"),
        "{restored}"
    );
    assert!(!restored.contains("gantry_agent_"), "{restored}");
    let tools = verb(&["tools"]);
    assert!(tools.contains("a__echo"), "{tools}");
    assert!(verb(&["connect", "cursor", "--yes"]).ends_with("--- exit 0"));
    let doctor = verb(&["doctor", "--json"]);
    assert_eq!(graded(&doctor, "clients", "cursor")["grade"], "good");
    assert!(doctor.ends_with("--- exit 0"), "{doctor}");
    let again = verb(&["agent", "restore"]);
    assert!(again.contains("nothing to restore"), "{again}");
    // A key file that was lost or spoilt comes back as well.
    std::fs::remove_file(gantry.data().join("keys/agent.key")).unwrap();
    assert!(verb(&["doctor"]).contains("agent.key` is missing"));
    let restored = verb(&["agent", "restore", "--json"]);
    assert!(restored.contains("\"key_made\": true"), "{restored}");
    assert!(verb(&["tools"]).contains("a__echo"));
}

// First hour 3
#[test]
fn agent_rm_asks_at_a_terminal() {
    let gantry = Gantry::start(&[]);
    let home = tempfile::tempdir().unwrap();
    let line = format!(
        "exec {PROGRAM} --data {} agent rm default",
        gantry.data().display()
    );
    for (answer, code) in [("\n", 1), ("y\n", 0)] {
        let mut terminal = Terminal::open(home.path(), home.path(), &line);
        let shown = terminal.reads("Remove it? [y/N] ");
        assert!(shown.contains("Removing `default` breaks:"), "{shown}");
        assert!(
            shown.contains("`gantry tools`, `call`, `bench` and `stdio`"),
            "{shown}"
        );
        terminal.types(answer);
        assert_eq!(terminal.ends(), code, "{}", terminal.shown());
        let tools = run(&gantry, &["tools"]);
        assert_eq!(tools.contains("auth.wrong_key"), code == 0, "{tools}");
    }
}
