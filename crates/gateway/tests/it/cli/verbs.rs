//! Verbs that do what they are asked.

use gantry_testkit::Evilpeer;
use insta::assert_snapshot;
use serde_json::Value;

use super::{run, settings, stays_down, without_progress};
use crate::harness::{Gantry, LONG};

/// Leaves out what a machine can enforce and measure.
fn of_any_machine(told: &str) -> String {
    let is_ours = |line: &&str| !line.starts_with("isolation ") && !line.starts_with("uses ");
    let lines: Vec<&str> = told.lines().filter(is_ours).collect();
    assert!(
        lines.len() < told.lines().count(),
        "the isolation is told: {told}"
    );
    lines.join("\n")
}

#[test]
fn status() {
    let gantry = Gantry::builder()
        .server("good", &Evilpeer::new().name("good"))
        .server_with(
            "crashing",
            &Evilpeer::new().fault("crash-start=3"),
            &stays_down(),
        )
        .start();
    gantry.wait_state("good", "ready", LONG);
    gantry.wait_state("crashing", "failed", LONG);
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["status"]), @"
        SERVER  STATE  TOOLS  CALLS  UPTIME  RESTARTS  WHY
        good  ready  19  0+0  [duration]  0
        crashing  failed  0  0+0  1  backing off 60s: 1 failure within 60s: ended during the handshake: exit code 3; next try in [duration]

        on record: 0 calls, kept for 90 days; database [size], journal [size]
        --- exit 0
        ");
        assert_snapshot!(of_any_machine(&run(&gantry, &["status", "good"])), @r"
        server  good  [server]
        state  ready, since [time]
        command  [evilpeer] --name good
        provider  process: the server is a command
        start  1 at [time]: runs
        profile  local, eager, from file
        process [pid]
        protocol  2026-07-28, good
        offers  19 tools, 2 prompts, 3 resources
        calls  0 in flight, concurrency 32 (0 paused), 0 of 256 waiting, 0 late responses
        restarts  0
        --- exit 0
        ");
        assert_snapshot!(of_any_machine(&run(&gantry, &["status", "crashing"])), @"
        server  crashing  [server]
        state  failed, since [time]
        why  backing off 60s: 1 failure within 60s: ended during the handshake: exit code 3; next try in [duration]
        command  [evilpeer] --fault crash-start=3
        provider  process: the server is a command
        start  1 at [time]: ended during the handshake: exit code 3
        profile  local, eager, from file
        offers  0 tools, 0 prompts, 0 resources
        calls  0 in flight, concurrency 32 (0 paused), 0 of 256 waiting, 0 late responses
        restarts  1
        last crash  ended during the handshake: exit code 3 at [time]
          boom
        --- exit 0
        ");
    });
}

#[test]
fn tools() {
    let gantry = Gantry::start(&["a", "b"]);
    let told = run(&gantry, &["tools"]);
    // The scripted server has more of them from time to time.
    let some = ["TOOL ", "a__echo ", "b__add ", "---"];
    let shown = told
        .lines()
        .filter(|line| some.iter().any(|part| line.starts_with(part)));
    let shown: Vec<&str> = shown.collect();
    settings().bind(|| {
        assert_snapshot!(shown.join("\n"), @"
        TOOL  DESCRIPTION
        a__echo  Returns its text, after a delay if one is given
        b__add  Adds two numbers
        --- exit 0
        ");
    });
    let one = run(&gantry, &["tools", "b"]);
    assert!(!one.contains("a__") && one.contains("b__echo"), "{one}");
    let unknown = run(&gantry, &["tools", "nobody"]);
    assert!(unknown.contains("error: no server `nobody`"), "{unknown}");
    assert!(unknown.ends_with("--- exit 1"), "{unknown}");
}

#[test]
fn call() {
    let gantry = Gantry::start(&["a"]);
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["call", "a__echo", "text=hello"]), @"
        hello
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["call", "a:add", "a=1", "b=2.5"]), @r#"
        {"sum":3.5}
        --- exit 0
        "#);
        assert_snapshot!(run(&gantry, &["call", "a__echo", "--json-args", r#"{"text":"\u001b[31mred\u3164"}"#]), @r"
        red\u{3164}
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["call", "a__add", "a=1", "b=2", "--raw"]), @r#"
        {
          "content": [
          {
          "type": "text",
          "text": "{\"sum\":3}"
          }
          ],
          "structuredContent": {
          "sum": 3
          },
          "resultType": "complete",
          "_meta": {
          "io.modelcontextprotocol/serverInfo": {
          "name": "a",
          "version": "[version]"
          }
          }
        }
        --- exit 0
        "#);
    });
}

#[test]
fn calls() {
    let gantry = Gantry::start(&["a"]);
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["calls"]), @"
        no calls
        --- exit 0
        ")
    });
    run(&gantry, &["call", "a__echo", "text=hello"]);
    run(&gantry, &["call", "a__fail", "message=no"]);
    run(&gantry, &["call", "a__add", "a=1"]);
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["calls"]), @"
        TIME  AGENT  SERVER  TOOL  STATUS  TOOK  CODE  CALL
        [time]  default  a  echo  ok  [duration]  [call]
        [time]  default  a  fail  error  [duration]  tool_error  [call]
        [time]  default  a  add  refused  [duration]  schema.input  [call]
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["calls", "--status", "refused"]), @"
        TIME  AGENT  SERVER  TOOL  STATUS  TOOK  CODE  CALL
        [time]  default  a  add  refused  [duration]  schema.input  [call]
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["calls", "-n", "1", "--tool", "echo"]), @"
        TIME  AGENT  SERVER  TOOL  STATUS  TOOK  CODE  CALL
        [time]  default  a  echo  ok  [duration]  [call]
        --- exit 0
        ");
    });
}

#[test]
fn logs() {
    let gantry = Gantry::start(&["a"]);
    run(&gantry, &["call", "a__stderr", "text=one"]);
    run(
        &gantry,
        &[
            "call",
            "a__stderr",
            "--json-args",
            r#"{"text":"\u001b[2Jtwo"}"#,
        ],
    );
    run(&gantry, &["call", "a__noise", "lines=3"]);
    let logged = || run(&gantry, &["logs", "a", "--json"]);
    let all = gantry_testkit::wait::eventually(LONG, || {
        logged().contains("two") && logged().contains("request handled")
    });
    assert!(all.is_some(), "{}", logged());
    // They came through two pipes, of which either may be read first.
    let told = run(&gantry, &["logs", "a"]);
    let mut lines: Vec<&str> = told.lines().collect();
    lines.sort_by_key(|line| line.contains("[stdout]"));
    lines.sort_by_key(|line| line.starts_with("---"));
    settings().bind(|| {
        assert_snapshot!(lines.join("\n"), @r"
        [time] one
        [time] \u{1b}[2Jtwo
        [time] [stdout] INFO request handled in [duration]
        --- exit 0
        ");
    });
    let last = run(&gantry, &["logs", "a", "-n", "1"]);
    assert_eq!(last.lines().count(), 2, "{last}");
}

#[test]
fn open() {
    let gantry = Gantry::start(&["a"]);
    let mut settings = settings();
    settings.add_filter(r"#code=[A-Za-z0-9_-]{22}", "#code=[code]");
    settings.bind(|| {
        assert_snapshot!(run(&gantry, &["open", "--print"]), @"
        http://[address]/#code=[code]
        --- exit 0
        ");
    });
}

#[test]
fn events() {
    let gantry = Gantry::start(&["a"]);
    let told = run(&gantry, &["events", "a", "-n", "1000"]);
    let lines = told.lines();
    let lines = lines.filter(|line| line.contains("  ready  ") || line.starts_with("---"));
    let mut settings = settings();
    settings.add_filter(r"with \d+ tools", "with [count] tools");
    settings.bind(|| {
        assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @"
        [time] a  ready  ready with [count] tools after [duration]
        --- exit 0
        ");
    });
}

#[test]
fn restart() {
    let gantry = Gantry::start(&["a"]);
    let mut before = gantry.status("a");
    for name in ["a".to_owned(), before["id"].as_str().unwrap().to_owned()] {
        let told = without_progress(&run(&gantry, &["restart", &name]));
        insta::allow_duplicates! {
            assert_snapshot!(told, @"
            a is ready
            --- exit 0
            ");
        }
        let is_new = |now: &Value| now["state"] == "ready" && now["pid"] != before["pid"];
        before = gantry.wait_status("a", LONG, is_new);
    }
}

#[test]
fn images_and_volumes() {
    let gantry = Gantry::builder().start();
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["images", "ls"]), @"
        none
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["images", "rm", "busybox"]), @"
        --- stderr
        error: image `docker.io/library/busybox:latest` is not in the store
          because: code `image.absent`
        hint: pull it first: `gantry images pull docker.io/library/busybox:latest`
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["volumes", "ls"]), @"
        none
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["volumes", "inspect", "memory", "/data"]), @"
        --- stderr
        error: server `memory` has no volume `/data`
        hint: `gantry volumes ls` lists them
        --- exit 1
        ");
    });
}
