//! How output looks: as wide as the terminal, coloured only where that is wanted.

use std::fs;
use std::process::{Command, Stdio};

use crate::harness::{Gantry, PROGRAM};

fn shown(gantry: &Gantry, variables: &[(&str, &str)], words: &[&str]) -> String {
    let output = Command::new(PROGRAM)
        .arg("--data")
        .arg(gantry.data())
        .args(words)
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE")
        .env_remove("COLUMNS")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Has a shell run a line in a terminal, `gantry` in it being the program, and returns all that was
/// on the screen.
fn on_a_terminal(gantry: &Gantry, variables: &[(&str, &str)], line: &str) -> String {
    let program = format!("{PROGRAM} --data {}", gantry.data().display());
    let line = line.replace("gantry", &program);
    let mut terminal = Command::new("script")
        .args(["--quiet", "--flush", "--return", "--command", &line])
        .arg("/dev/null")
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm")
        .envs(variables.iter().copied())
        .current_dir(gantry.data())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("`script` of util-linux is there");
    // Nobody types, and nobody goes.
    let keyboard = terminal.stdin.take();
    let output = terminal.wait_with_output().unwrap();
    drop(keyboard);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn colours_are_for_terminals_unless_they_are_forced() {
    let gantry = Gantry::start(&["a"]);
    let words = ["ls"];
    assert!(!shown(&gantry, &[], &words).contains('\x1b'));
    assert!(shown(&gantry, &[("CLICOLOR_FORCE", "1")], &words).contains('\x1b'));
    assert!(!shown(&gantry, &[("CLICOLOR_FORCE", "0")], &words).contains('\x1b'));
    let both = [("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")];
    assert!(!shown(&gantry, &both, &words).contains('\x1b'));
}

#[test]
fn a_terminal_gets_colours_unless_they_are_not_wanted() {
    let gantry = Gantry::start(&["a"]);
    // What a verb lists, what it fails with, and what is no verb.
    for (line, plain, coloured) in [
        ("gantry ls", "SERVER  STATE", "\x1b[1mSERVER  STATE"),
        (
            "gantry status nobody",
            "error: no server `nobody`",
            "\x1b[31merror:\x1b[0m no server `nobody`",
        ),
        (
            "gantry fly",
            "error: unrecognized subcommand 'fly'",
            "\x1b[31merror:\x1b[0m unrecognized subcommand",
        ),
    ] {
        let seen = on_a_terminal(&gantry, &[], line);
        assert!(seen.contains(coloured), "{line}: {seen:?}");
        for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            let seen = on_a_terminal(&gantry, &[variable], line);
            assert!(seen.starts_with(plain), "{line}, {variable:?}: {seen:?}");
            assert!(!seen.contains('\x1b'), "{line}, {variable:?}: {seen:?}");
        }
    }
}

#[test]
fn what_leaves_the_terminal_has_no_colours() {
    let gantry = Gantry::start(&["a"]);
    let listed = on_a_terminal(&gantry, &[], "gantry ls | cat");
    assert!(listed.starts_with("SERVER  STATE"), "{listed:?}");
    assert!(!listed.contains('\x1b'), "{listed:?}");
    // stdout and stderr may go different ways.
    let file = gantry.data().join("errors");
    let seen = on_a_terminal(&gantry, &[], "gantry status nobody 2>errors");
    let kept = fs::read_to_string(&file).unwrap();
    assert_eq!(seen, "");
    assert!(kept.starts_with("error: no server `nobody`\n"), "{kept:?}");
    let failed = on_a_terminal(&gantry, &[], "gantry status nobody | cat");
    assert!(
        failed.starts_with("\x1b[31merror:\x1b[0m no server"),
        "{failed:?}"
    );
    // So is a mistake in a file, which is shown with the lines around it.
    fs::write(gantry.data().join("broken.json"), "{").unwrap();
    let check = "gantry config check --config broken.json";
    let seen = on_a_terminal(&gantry, &[], check);
    assert!(
        seen.contains('\x1b') && seen.contains("invalid JSON"),
        "{seen:?}"
    );
    on_a_terminal(&gantry, &[], &format!("{check} 2>errors"));
    let kept = fs::read_to_string(&file).unwrap();
    assert!(
        kept.contains("invalid JSON") && !kept.contains('\x1b'),
        "{kept:?}"
    );
}

#[test]
fn tables_are_wrapped_to_the_width() {
    let gantry = Gantry::start(&["a"]);
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
    let free = shown(&gantry, &[], &["tools"]);
    let narrow = shown(&gantry, &[("COLUMNS", "50")], &["tools"]);
    assert!(widest(&free) > 50 && widest(&narrow) <= 50, "{narrow}");
    assert!(narrow.lines().count() > free.lines().count());
}

/// What steers a terminal or hides text: C0, C1, DEL, bidirectional, zero-width, tags, separators.
const STEERING: &str = "a\u{1b}[2J\u{9b}31m\u{9d}0;x\u{7}\u{85}\u{7f}\u{202e}\u{2066}\u{61c}\u{200b}\u{feff}\u{e0041}\u{2028}\u{3164}z";

fn is_harmless(text: &str) -> bool {
    let harmless = |c: char| c == '\n' || !gantry_model::naming::is_unprintable(c);
    text.chars().all(harmless)
}

// Foreign text is escaped whichever verb prints it, for people and as JSON, which still means the same.
#[test]
fn no_verb_prints_what_steers_a_terminal() {
    let gantry = Gantry::start(&["a"]);
    gantry.call("a__echo", serde_json::json!({"text": STEERING}));
    let label = serde_json::json!({"name": "odd", "label": STEERING, "grant": "all"});
    assert_eq!(
        gantry.rest("POST", "/api/v1/agents", Some(&label)).status,
        201
    );
    let odd = serde_json::json!({"name": STEERING, "arguments": {}});
    gantry.rest_as(&gantry.agent, "POST", "/api/v1/tools/call", Some(&odd));
    let rows = gantry.audit_rows("server=a&tool=echo");
    let id = rows[0]["id"].as_str().unwrap();
    assert!(
        rows[0]["input"].as_str().unwrap().contains('\u{202e}'),
        "{rows:?}"
    );
    let words: [&[&str]; 12] = [
        &["calls", id],
        &["calls", "--json"],
        &["calls"],
        &["calls", STEERING],
        &[
            "call",
            "a__echo",
            "--json-args",
            &serde_json::json!({"text": STEERING}).to_string(),
        ],
        &[
            "call",
            "a__echo",
            "--json",
            "--json-args",
            &serde_json::json!({"text": STEERING}).to_string(),
        ],
        &["call", STEERING],
        &["agent", "ls"],
        &["agent", "ls", "--json"],
        &["status", STEERING],
        &["tools", "--json"],
        &["why", STEERING, "a:echo"],
    ];
    for words in words {
        let output = gantry.cli(words);
        for stream in [&output.stdout, &output.stderr] {
            let text = String::from_utf8_lossy(stream);
            assert!(is_harmless(&text), "{words:?}: {text:?}");
        }
    }
    let shown: serde_json::Value =
        serde_json::from_slice(&gantry.cli(&["calls", id]).stdout).unwrap();
    assert_eq!(shown["input"], rows[0]["input"]);
}
