//! `gantry up`: the line that programs read, and what is said where it does not start.

use std::fs;

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::eventually;
use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{run, settings, told, without_log};
use crate::config::{Folder, servers};
use crate::harness::{Gantry, LONG, PROGRAM, entry};

/// A place behind the program's own, which is not the same everywhere.
const COLUMN: (&str, &str) = (r"json:1:\d+:", "json:1:[column]:");

/// Returns what a gateway in a folder has printed, as soon as that is a whole line.
fn line_of(folder: &Folder) -> String {
    let printed = folder.home().join("stdout");
    let text = || fs::read_to_string(&printed).unwrap_or_default();
    let told = eventually(LONG, || text().ends_with('\n'));
    assert!(told.is_some(), "nothing was printed");
    text()
}

/// Makes a folder with a lazy server, one that is written wrong, and one that nobody has approved.
fn mixed() -> Folder {
    let folder = Folder::new();
    let lazy = json!({"command": PROGRAM, "args": ["example-server"], "start": "lazy"});
    let mine = servers(&[("mine", lazy), ("broken", json!({"args": []}))]);
    fs::write(folder.home().join(".kode.json"), mine).unwrap();
    folder.write(
        ".mcp.json",
        &servers(&[("theirs", json!({"command": "npx"}))]),
    );
    folder
}

#[test]
fn up_serves_and_says_how_to_use_it() {
    let mut folder = mixed();
    folder.up(&[]);
    let printed = folder.home().join("stdout");
    let text = || fs::read_to_string(&printed).unwrap_or_default();
    let told = eventually(LONG, || text().contains("Stop with Ctrl-C."));
    assert!(told.is_some(), "{}", text());
    let code = folder.down();
    let mut settings = settings();
    settings.add_filter(r"isolation  .*", "isolation  [isolation]");
    settings.add_filter(COLUMN.0, COLUMN.1);
    settings.bind(|| {
        assert_snapshot!(format!("{}--- exit {code}", text()), @r#"
        Gantry [version]

          ○ mine  starts with its first use
          ! theirs  needs approval: `.mcp.json` is not approved; look at it and run `gantry approve .mcp.json`
          ✗ broken  left out: [home]/.kode.json:1:[column]: `command` is missing; a server needs `command`, the program to run, `image`, or the `url` of a remote one

          endpoint  http://[address]/mcp
          keys  [home]/data/keys/agent.key  for clients
          [home]/data/keys/admin.key  for you
          isolation  [isolation]

        Try it:

          curl -s http://[address]/mcp -H "Authorization: Bearer $(cat [home]/data/keys/agent.key)" \
          -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \
          -d '{"jsonrpc":"2.0","id":1,"method":"tools/list"}'

        Connect a client that takes `mcpServers`; it finds the key in its environment:

          export GANTRY_KEY="$(cat [home]/data/keys/agent.key)"
          {"mcpServers": {"gantry": {"type": "http", "url": "http://[address]/mcp", "headers": {"Authorization": "Bearer ${GANTRY_KEY}"}}}}

        Stop with Ctrl-C.
        --- exit 0
        "#);
    });
}

#[test]
fn up_tells_programs_in_one_line() {
    let mut folder = mixed();
    folder.up(&["--json"]);
    let mut told: Value = serde_json::from_str(&line_of(&folder)).unwrap();
    // What the machine can hold differs.
    let isolation = told["isolation"].take();
    assert!(isolation.as_str().is_some_and(|text| !text.is_empty()));
    assert!(told["pid"].take().is_u64());
    let mut settings = settings();
    settings.add_filter(COLUMN.0, COLUMN.1);
    settings.bind(|| {
        assert_snapshot!(serde_json::to_string_pretty(&told).unwrap(), @r#"
        {
          "version": "[version]",
          "pid": null,
          "url": "http://[address]",
          "endpoint": "http://[address]/mcp",
          "keys": {
          "agent": "[home]/data/keys/agent.key",
          "admin": "[home]/data/keys/admin.key"
          },
          "isolation": null,
          "servers": [
          {
          "name": "mine",
          "state": "idle",
          "reason": null,
          "tools": 0,
          "resources": 0,
          "prompts": 0,
          "unchecked_tools": 0,
          "refused_tools": 0
          },
          {
          "name": "theirs",
          "state": "needs_approval",
          "reason": "`.mcp.json` is not approved; look at it and run `gantry approve .mcp.json`",
          "tools": 0,
          "resources": 0,
          "prompts": 0,
          "unchecked_tools": 0,
          "refused_tools": 0
          },
          {
          "name": "broken",
          "state": "misconfigured",
          "reason": "[home]/.kode.json:1:[column]: `command` is missing; a server needs `command`, the program to run, `image`, or the `url` of a remote one",
          "tools": 0,
          "resources": 0,
          "prompts": 0,
          "unchecked_tools": 0,
          "refused_tools": 0
          }
          ],
          "notices": [
          "[home]/.kode.json:1:[column]: server `broken`: `command` is missing"
          ]
        }
        "#);
    });
    let stderr = fs::read_to_string(folder.home().join("stderr")).unwrap();
    assert!(
        stderr.contains("mine    starts with its first use"),
        "{stderr}"
    );
    // What it says is true.
    let url = told["url"].as_str().unwrap();
    let key = told["keys"]["admin"].as_str().unwrap();
    let status = folder.run(&["--url", url, "--key-file", key, "status"]);
    assert!(status.status.success(), "{}", super::told(&status));
}

// fault G1
#[test]
fn up_refuses_a_broken_file() {
    let folder = Folder::new();
    folder.write("bad.json", "{\n  \"mcpServers\": [\n");
    settings().bind(|| {
        assert_snapshot!(told(&folder.run(&["up", "--port", "0", "--config", "bad.json"])), @r#"
        --- stderr
        config.syntax

          × invalid JSON: unterminated array
          ╭─[bad.json:2:17]
         1 │ {
         2 │  "mcpServers": [
          ·  ┬
          ·  ╰── here
          ╰────
          help: close the list with `]`
        --- exit 2
        "#);
        assert_snapshot!(told(&folder.run(&["up", "--config", "none.json"])), @"
        --- stderr
        config.read

          × none.json: the configuration file cannot be read
          ╰─▶ No such file or directory (os error 2)
        --- exit 2
        ");
        folder.write(
            "odd.toml",
            "[gateway]\nlisten = \"0.0.0.0:4180\"\ndrian = \"5s\"\n",
        );
        assert_snapshot!(told(&folder.run(&["up", "--config", "odd.toml", "--json"])), @r#"
        --- stderr
        config.unknown_key

          × `gateway.drian` is not known
          ╭─[odd.toml:3:1]
         2 │ listen = "************"
         3 │ drian = "**"
          · ──┬──
          ·  ╰── not known here
          ╰────
          help: did you mean `drain`?

        config.value

          × `gateway.listen` is an address that others can reach, without TLS
          ╭─[odd.toml:2:10]
         1 │ [gateway]
         2 │ listen = "[version].0:4180"
          ·  ───────┬──────
          ·  ╰── not this machine alone
         3 │ ***** = "**"
          ╰────
          help: write `[address]`, or add `insecure_bind = true`
        --- exit 2
        "#);
    });
    assert!(!folder.home().join("data/gateway.json").exists());
}

#[test]
fn up_refuses_a_folder_that_is_in_use() {
    // fault P15
    let gantry = Gantry::start(&[]);
    let mut settings = settings();
    settings.add_filter(&format!(r"process id {}\b", gantry.pid), "process id [pid]");
    settings.bind(|| {
        assert_snapshot!(run(&gantry, &["up", "--port", "0"]), @"
        --- stderr
        error: data folder `[home]/data` is in use by the gateway with process id [pid]
        hint: stop that gateway first, or give this one another folder with `--data`
        --- exit 1
        ");
    });
}

#[test]
fn up_refuses_a_port_that_is_taken() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let folder = Folder::new();
    let mut settings = settings();
    settings.add_filter(&format!(r"\b{port}\b"), "[port]");
    settings.bind(|| {
        assert_snapshot!(told(&folder.run(&["up", "--port", &port])), @"
        --- stderr
        error: cannot listen on `[address]`
          because: Address already in use (os error 98)
        hint: another program has the port; name one with `--port N`, or leave `--port` out and the next free one is taken
        --- exit 1
        ");
    });
}

#[test]
fn up_aborts_where_that_is_wanted() {
    // row 4.11
    let folder = Folder::new();
    let fails = entry(&Evilpeer::new().fault("crash-start=7"));
    folder.write("a.json", &servers(&[("first", fails)]));
    let words = [
        "up",
        "--port",
        "0",
        "--config",
        "a.json",
        "--on-start-failure",
        "abort",
    ];
    let mut settings = settings();
    settings.add_filter(
        r"did not start: .*: ended",
        "did not start: [policy]: ended",
    );
    settings.bind(|| {
        assert_snapshot!(without_log(&told(&folder.run(&words))), @"
        --- stderr
        error: server `first` did not start: [policy]: ended during the handshake: exit code 7
        hint: fix it, or start without it: `gantry up --on-start-failure isolate`
        --- exit 1
        ");
    });
    folder.write("a.json", &servers(&[("first", json!({"args": []}))]));
    settings.bind(|| {
        assert_snapshot!(told(&folder.run(&words)), @r#"
        --- stderr
        config.value

          × server `first`: `command` is missing
          ╭─[a.json:1:16]
         1 │ {"mcpServers":{"first":{"args":[]}}}
          ·  ───┬───
          ·  ╰── this server
          ╰────
          help: a server needs `command`, the program to run, `image`, or the `url` of a remote one
        --- exit 2
        "#);
    });
}

// Whoever comes late has a row before the endpoint, and the endpoint is told again after it has come.
#[test]
fn servers_that_come_late_leave_the_endpoint_at_the_end() {
    let mut folder = Folder::new();
    let go = folder.home().join("go");
    let peer = entry(&Evilpeer::new());
    let command = peer["command"].as_str().unwrap();
    let script = format!(
        "while [ ! -e {} ]; do sleep 0.05; done\nexec {command} --name late\n",
        go.display()
    );
    folder.write("late.sh", &script);
    let late = json!({"command": "sh", "args": ["late.sh"]});
    folder.write(
        "a.json",
        &servers(&[("quick", peer.clone()), ("late", late)]),
    );
    folder.up(&["--config", "a.json"]);
    let text = || fs::read_to_string(folder.home().join("stdout")).unwrap_or_default();
    let told = eventually(LONG, || text().contains("Stop with Ctrl-C."));
    assert!(told.is_some(), "{}", text());
    let shown = text();
    let rows = ["✓ quick", "… late   still starting", "  endpoint "];
    let places = rows.map(|row| shown.find(row).unwrap_or_else(|| panic!("{row}: {shown}")));
    assert!(places.is_sorted(), "{shown}");
    fs::write(&go, "").unwrap();
    let told = eventually(LONG, || text().contains("2 of 2 servers ready"));
    let shown = text();
    assert!(told.is_some(), "{shown}");
    assert!(shown.contains("✓ late   ready, "), "{shown}");
    let last = shown.lines().rfind(|line| !line.is_empty()).unwrap();
    assert!(
        last.starts_with("  endpoint ") && last.contains("/mcp  2 of 2"),
        "{shown}"
    );
}
