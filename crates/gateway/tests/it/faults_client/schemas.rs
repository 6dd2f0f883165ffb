//! Schemas that cost a careless checker its time, its memory or its secrets.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::Stopwatch;
use serde_json::{Value, json};

use super::{Holdings, NEAR, ROOM, Rig, SECOND};
use crate::harness::{Gantry, LONG};

/// What a check may take, 50 ms, and some time to get there and back on a busy machine. A check
/// without a budget would take longer by orders.
const SOON: Duration = Duration::from_secs(2);

/// What checks may need at once, in MiB: each has a value in hand, and the reasons why it does not fit.
/// Measured: 66 when a busy machine runs eight at once.
const CHECKS: u64 = 96;

/// Calls and returns the answer, which must come soon.
fn soon(gantry: &Gantry, tool: &str, arguments: Value) -> Value {
    let begun = Stopwatch::start();
    let answer = gantry.call(tool, arguments);
    let took = begun.elapsed();
    assert!(took <= SOON, "`{tool}` took {took:?}");
    answer
}

fn is_refused(answer: &Value, words: &str) {
    assert_eq!(answer["result"]["isError"], true, "{answer:#}");
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("do not fit its schema") && text.contains(words),
        "{text}"
    );
}

// fault A9
#[test]
fn odd_schemas_are_checked_in_bounded_time() {
    let rig = Rig::new(&Evilpeer::new().fault("list-badschema"), &json!({})).with_room(CHECKS);
    let gantry = &rig.gantry;
    // Exponential for a backtracking matcher.
    let almost = format!("{}!", "a".repeat(50_000));
    let answer = soon(gantry, "far__odd_slow_pattern", json!({"x": almost}));
    is_refused(&answer, "/x: must match the pattern `^(a+)+$`");
    let answer = soon(
        gantry,
        "far__odd_slow_pattern",
        json!({"x": "a".repeat(50_000)}),
    );
    assert_eq!(answer["result"]["isError"], Value::Null, "{answer:#}");

    // A value that is as deep as any message may be.
    let nested =
        |levels: usize, inner: Value| (0..levels).fold(inner, |inner, _| json!({"x": inner}));
    let answer = soon(gantry, "far__odd_recursive", nested(50, json!({})));
    assert_eq!(answer["result"]["isError"], Value::Null, "{answer:#}");
    let answer = soon(gantry, "far__odd_recursive", nested(50, json!("text")));
    is_refused(&answer, "must be an object, not a string");
    let answer = soon(gantry, "far__odd_deep", nested(20, json!("text")));
    assert_eq!(answer["result"]["isError"], Value::Null, "{answer:#}");
    let answer = soon(gantry, "far__odd_deep", nested(20, json!(5)));
    is_refused(&answer, "must be a string, not a number");

    // Wide and deep at once.
    let wide: Value = (0..2_000)
        .map(|number| (format!("k{number}"), json!({"x": {"x": 1}})))
        .collect();
    let answer = soon(
        gantry,
        "far__odd_recursive",
        json!({"x": wide, "y": "z".repeat(1 << 16)}),
    );
    assert_eq!(answer["result"]["isError"], Value::Null, "{answer:#}");
    assert_eq!(rig.journal().calls(), 4);
    rig.audited(&[(4, "ok", None), (3, "refused", Some("schema.input"))]);
    rig.neighbour_holds();
}

/// Writes a small MCP server of the handshake era that offers just these tools.
pub(crate) fn server_with(folder: &Path, tools: &Value) -> PathBuf {
    let result = json!({"content": [{"type": "text", "text": "called"}]});
    server_that_answers(folder, tools, &result.to_string())
}

/// Writes one that answers each call with this text, without apostrophes.
pub(crate) fn server_that_answers(folder: &Path, tools: &Value, result: &str) -> PathBuf {
    let listed = folder.join("tools");
    fs::write(&listed, json!({"tools": tools}).to_string()).unwrap();
    let greeting = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "shell", "version": "1"},
    });
    let script = format!(
        r#"#!/bin/sh
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case $line in
    *'"method":"initialize"'*) result='{greeting}' ;;
    *'"method":"tools/list"'*) result=$(cat '{listed}') ;;
    *'"method":"tools/call"'*) result='{result}' ;;
    *'"method":"ping"'*) result='{{}}' ;;
    *'"method":"server/discover"'*)
      printf '{{"jsonrpc":"2.0","id":%s,"error":{{"code":-32601,"message":"no"}}}}\n' "$id"
      continue ;;
    *) continue ;;
  esac
  printf '{{"jsonrpc":"2.0","id":%s,"result":%s}}\n' "$id" "$result"
done
"#,
        listed = listed.display(),
    );
    let program = folder.join("server");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// Starts a gateway whose list of tools is 4 MiB long, beside a server that can be called.
pub(crate) fn with_long_list(folder: &Path) -> Gantry {
    let text = "x".repeat(40 << 10);
    let tool = |number: usize| json!({"name": format!("t{number}"), "description": text, "inputSchema": {"type": "object"}});
    let tools: Vec<Value> = (0..105).map(tool).collect();
    with_tools(folder, "long", &json!(tools))
}

/// Starts a gateway before a server that lists these tools, beside one that can be called.
pub(super) fn with_tools(folder: &Path, name: &str, tools: &Value) -> Gantry {
    let program = server_with(folder, tools);
    let gantry = Gantry::builder()
        .entry(name, json!({"command": program.to_str().unwrap()}))
        .server(NEAR, &Evilpeer::new())
        .start();
    gantry.wait_state(name, "ready", LONG);
    gantry.wait_state(NEAR, "ready", LONG);
    gantry
}

fn tool(name: &str, schema: Value) -> Value {
    json!({"name": name, "inputSchema": schema})
}

/// Returns alternatives within alternatives, each level doubling what must be tried.
fn doubling(levels: usize) -> Value {
    let mut defs = json!({"l0": {"type": "object", "required": ["never"]}});
    for level in 1..=levels {
        let below = json!({"$ref": format!("#/$defs/l{}", level - 1)});
        defs[format!("l{level}")] = json!({"anyOf": [below, below]});
    }
    json!({"type": "object", "$defs": defs, "anyOf": [{"$ref": format!("#/$defs/l{levels}")}]})
}

// fault A9
#[test]
fn nothing_is_fetched_and_what_could_explode_is_not_judged() {
    let folder = tempfile::tempdir().unwrap();
    let trap = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/schema.json", trap.local_addr().unwrap());
    let object = |schema: Value| json!({"type": "object", "properties": {"x": schema}});
    // Short enough to be looked at.
    let many = json!({"type": "array", "prefixItems": vec![json!({}); 10_001]});
    let heavy = "(?:a{1,100}){1,100}{1,100}";
    let tools = json!([
        tool("plain", object(json!({"type": "string"}))),
        tool("remote", object(json!({"$ref": url}))),
        tool("remote_dialect", json!({"$schema": url, "type": "object"})),
        tool(
            "remote_id",
            json!({"$id": url, "type": "object", "properties": {"x": {"$ref": "other.json"}}})
        ),
        tool("dynamic", object(json!({"$dynamicRef": url}))),
        tool(
            "local_file",
            object(json!({"$ref": "file:///etc/hostname"}))
        ),
        tool(
            "endless",
            json!({"type": "object", "$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})
        ),
        tool("many", object(many)),
        tool("explosive", doubling(20)),
        tool(
            "heavy_pattern",
            object(json!({"type": "string", "pattern": heavy}))
        ),
    ]);
    let program = server_with(folder.path(), &tools);
    let gantry = Gantry::builder()
        .entry("odd", json!({"command": program.to_str().unwrap()}))
        .server(NEAR, &Evilpeer::new())
        .start();
    let begun = Stopwatch::start();
    let status = gantry.wait_state("odd", "ready", LONG);
    assert!(begun.elapsed() <= 5 * SECOND, "{:?}", begun.elapsed());
    assert_eq!(status["tools"], 10, "{status:#}");
    assert_eq!(status["unchecked_tools"], 9, "{status:#}");
    assert_eq!(status["refused_tools"], 0, "{status:#}");
    gantry.wait_state(NEAR, "ready", LONG);
    let at_first = Holdings::of(&gantry);
    assert_eq!(
        soon(&gantry, "odd__plain", json!({"x": "y"}))["result"]["content"][0]["text"],
        "called"
    );
    let why = |name: &str| {
        let unchecked = status["unchecked"].as_array().unwrap();
        let found = unchecked.iter().find(|unchecked| unchecked["tool"] == name);
        found.unwrap_or_else(|| panic!("`{name}` is checked: {status:#}"))["reason"].to_string()
    };
    for (name, words) in [
        ("remote", "refers to another document"),
        ("remote_dialect", ""),
        ("remote_id", "refers to another document"),
        ("dynamic", ""),
        (
            "local_file",
            "refers to another document: `file:///etc/hostname`",
        ),
        ("endless", "refers to itself without end"),
        ("many", "10000"),
        ("explosive", "combines too many alternatives"),
        ("heavy_pattern", "it is not a regular expression"),
    ] {
        assert!(why(name).contains(words), "`{name}`: {}", why(name));
        let answer = soon(&gantry, &format!("odd__{name}"), json!({"x": "a"}));
        assert_eq!(
            answer["result"]["content"][0]["text"], "called",
            "{answer:#}"
        );
    }
    let rows = gantry.audit_rows("server=odd");
    assert_eq!(rows.len(), 10, "{rows:#?}");
    assert!(rows.iter().all(|row| row["status"] == "ok"), "{rows:#?}");
    trap.set_nonblocking(true).unwrap();
    let fetched = trap.accept();
    assert!(fetched.is_err(), "a schema was fetched: {fetched:?}");
    assert!(gantry_testkit::procs::peak_rss_kib(gantry.pid) <= 128 << 10);
    at_first.are_all(ROOM);
    let log = gantry.stderr();
    assert!(!log.contains("panicked"), "{log}");
}

// fault A9
#[test]
fn costly_checks_end_within_their_budget_and_hold_up_nobody() {
    let folder = tempfile::tempdir().unwrap();
    // Below the bound of what is refused, and repeated for each of many items.
    let schema =
        json!({"type": "object", "properties": {"x": {"type": "array", "items": doubling(9)}}});
    let schema = hoisted(schema);
    let program = server_with(folder.path(), &json!([tool("costly", schema)]));
    let gantry = Gantry::builder()
        .entry("odd", json!({"command": program.to_str().unwrap()}))
        .server(NEAR, &Evilpeer::new())
        .start();
    gantry.wait_state("odd", "ready", LONG);
    gantry.wait_state(NEAR, "ready", LONG);
    let at_first = Holdings::of(&gantry);
    let costly = json!({"x": vec![json!({}); 20_000]});
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..8)
            .map(|_| {
                let (gantry, costly) = (&gantry, costly.clone());
                scope.spawn(move || {
                    let begun = Stopwatch::start();
                    let answer = gantry.call("odd__costly", costly);
                    assert!(begun.elapsed() <= 3 * SECOND, "{:?}", begun.elapsed());
                    answer
                })
            })
            .collect();
        for _ in 0..20 {
            let answer = soon(&gantry, "near__echo", json!({"text": "quick"}));
            assert_eq!(answer["result"]["content"][0]["text"], "quick");
        }
        for caller in callers {
            is_refused(&caller.join().unwrap(), "");
        }
    });
    let rows = gantry.audit_rows("server=odd");
    assert_eq!(rows.len(), 8);
    let refused = |row: &Value| row["status"] == "refused" && row["code"] == "schema.input";
    assert!(rows.iter().all(refused), "{rows:#?}");
    at_first.are_all(CHECKS);
    let log = gantry.stderr();
    assert!(!log.contains("panicked"), "{log}");
}

/// Moves the definitions of the items to the top, where references look for them.
fn hoisted(mut schema: Value) -> Value {
    let items = &mut schema["properties"]["x"]["items"];
    let defs = items["$defs"].take();
    items.as_object_mut().unwrap().remove("$defs");
    schema["$defs"] = defs;
    schema
}
