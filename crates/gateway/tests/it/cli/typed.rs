//! What a person types by habit: commands as the documentation shows them, relative paths, headers as
//! HTTP writes them, a command in one word; and answers that stay short.

use std::fs;

use gantry_testkit::Evilpeer;
use serde_json::{Value, json};

use super::{run, told};
use crate::harness::{Gantry, LONG};

fn json_of(gantry: &Gantry, words: &[&str]) -> Value {
    let output = gantry.cli(words);
    assert!(output.status.success(), "{words:?}: {}", told(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

// `--url` is the gateway's for every other verb.
#[test]
fn a_hook_is_set_with_a_url_as_documented() {
    let gantry = Gantry::builder().start();
    let words = "hook set mask --on result --url https://hooks.example.com/mask --timeout 500ms \
                 --on-failure pass";
    let words: Vec<&str> = words.split_whitespace().collect();
    let done = run(&gantry, &words);
    assert!(done.ends_with("exit 0"), "{done}");
    let hooks = json_of(&gantry, &["hook", "ls", "--json"]);
    assert_eq!(hooks["items"][0]["url"], "https://hooks.example.com/mask");
    assert_eq!(hooks["items"][0]["on_failure"], "pass");
    // A program is named from the folder where this was typed.
    let done = run(
        &gantry,
        &["hook", "set", "own", "--on", "request", "--", "./check"],
    );
    assert!(done.ends_with("exit 0"), "{done}");
    let hooks = json_of(&gantry, &["hook", "ls", "--json"]);
    let command = hooks["items"][1]["command"].as_str().unwrap();
    assert!(
        command.starts_with('/') && command.ends_with("/check"),
        "{command}"
    );
}

#[test]
fn a_server_is_added_with_paths_of_this_folder() {
    let gantry = Gantry::builder().start();
    let home = fs::canonicalize(gantry.home()).unwrap();
    let argv = Evilpeer::new().name("here").argv();
    let script = format!("#!/bin/sh\nexec {}\n", argv.join(" "));
    let program = home.join("here.sh");
    fs::write(&program, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&program, mode).unwrap();
    let added = run(&gantry, &["add", "here", "--cwd", ".", "--", "./here.sh"]);
    assert!(added.contains("here is ready"), "{added}");
    let spec = gantry.status("here")["spec"].clone();
    assert_eq!(spec["cwd"], json!(home), "{spec}");
    assert_eq!(spec["command"], json!(program), "{spec}");
    // Over REST there is no folder that a relative path could be of.
    let body = json!({"name": "b", "command": "x", "cwd": "sub"});
    let refused = gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
    assert_eq!(refused.status, 422, "{}", refused.text());
    let refused = refused.json();
    assert_eq!(refused["code"], "server.spec");
    assert_eq!(refused["issues"][0]["path"], "/cwd");
}

// fault G3
#[test]
fn a_command_in_one_word_is_refused_with_what_to_write() {
    let gantry = Gantry::builder().start();
    let refused = run(&gantry, &["add", "one", "--", "python3 /srv/server.py"]);
    assert!(refused.contains("which is a shell line"), "{refused}");
    assert!(refused.contains("each argument in `args`"), "{refused}");
    // What is wrong is said once.
    assert_eq!(
        refused.matches("which is a shell line").count(),
        1,
        "{refused}"
    );
    let many = (&["python3", "server.py"][..], "<NAME> -- <COMMAND>");
    let quoted = (&["python3 server.py"][..], "gantry add NAME -- COMMAND");
    for (words, hint) in [many, quoted] {
        let refused = run(&gantry, &[&["add", "one"], words].concat());
        assert!(refused.ends_with("exit 2"), "{refused}");
        assert!(refused.contains(hint), "{refused}");
    }
    assert_eq!(json_of(&gantry, &["ls", "--json"])["items"], json!([]));
}

#[test]
fn headers_are_taken_as_http_writes_them() {
    let gantry = Gantry::builder().start();
    let words = [
        "add",
        "far",
        "http://127.0.0.1:1/mcp",
        "--header",
        "Authorization: Bearer a=b",
        "--header",
        "X-Team=one",
        "--no-wait",
        "--json",
    ];
    let server = json_of(&gantry, &words);
    assert_eq!(
        server["spec"]["headers"],
        json!(["Authorization", "X-Team"]),
        "{server:#}"
    );
}

#[test]
fn a_key_of_an_unknown_agent_says_that_it_makes_one() {
    let gantry = Gantry::builder().start();
    let made = run(&gantry, &["key", "new", "--agent", "reveiwer"]);
    assert!(
        made.contains("agent `reveiwer` is new and may use nothing yet"),
        "{made}"
    );
    let again = run(&gantry, &["key", "new", "--agent", "reveiwer"]);
    assert!(!again.contains("is new"), "{again}");
    // An empty file is no key, and the gateway is not asked.
    fs::write(gantry.home().join("empty"), "\n").unwrap();
    let refused = run(&gantry, &["ls", "--key-file", "empty"]);
    assert!(refused.contains("error: no key is in `empty`"), "{refused}");
}

#[test]
fn answers_are_as_long_as_the_question() {
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().name("a"))
        .start();
    gantry.wait_state("a", "ready", LONG);
    let set = run(
        &gantry,
        &["project", "set", "local", "approvals.timeout=1m"],
    );
    assert_eq!(set.lines().count(), 3, "{set}");
    assert!(set.contains("approvals.timeout  \"1m\""), "{set}");
    for text in ["x", "y", "z"] {
        gantry.call("a__echo", json!({ "text": text }));
    }
    let differs = || run(&gantry, &["policy", "test", "--deny", "a:*"]);
    let three = |said: &str| said.contains("3 calls: 0 the same, 3 would differ");
    let there = gantry_testkit::wait::eventually(LONG, || three(&differs()));
    assert!(there.is_some(), "{}", differs());
    let tested = differs();
    assert_eq!(tested.matches("call_").count(), 1, "one row: {tested}");
    assert!(tested.lines().nth(1).unwrap().starts_with("3 "), "{tested}");
    let named = run(&gantry, &["--project", "elsewhere", "ls"]);
    assert!(
        named.contains("no project `elsewhere` is loaded"),
        "{named}"
    );
    let named = run(&gantry, &["--project", "elsewhere", "tools"]);
    assert!(named.contains("`--key-file FILE`"), "{named}");
}
