//! Schemas that make a check cost more than it may: the gateway answers others meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::Stopwatch;
use serde_json::{Value, json};

use super::Scripted;
use crate::harness::{Gantry, LONG};

/// What anything else may take meanwhile, on a machine with other things to do: checks of [`MANY`] calls
/// on the threads that answer would take more than twice that.
const SOON: Duration = Duration::from_secs(5);
/// How many calls that are dear to check come at once.
const MANY: usize = 16;

/// Sees to it that others are answered while `hostile` runs.
fn others_are_answered(gantry: &Gantry, hostile: impl FnOnce() + Send) {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            hostile();
            ended.store(true, Ordering::Release);
        });
        let mut asked = 0;
        while asked < 5 || !ended.load(Ordering::Acquire) {
            asked += 1;
            let begun = Stopwatch::start();
            let health = gantry.rest("GET", "/healthz", None);
            assert_eq!(health.status, 200);
            assert!(
                begun.elapsed() <= SOON,
                "`/healthz` took {:?}",
                begun.elapsed()
            );
            let begun = Stopwatch::start();
            let echoed = gantry.call("near__echo", json!({"text": "quick"}));
            assert_eq!(
                echoed["result"]["content"][0]["text"], "quick",
                "{echoed:#}"
            );
            assert!(begun.elapsed() <= SOON, "a call took {:?}", begun.elapsed());
        }
    });
}

/// Returns whether arguments were refused because checking them takes too long.
fn is_too_slow(answer: &Value) -> bool {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.is_some_and(|text| text.contains("takes too long; send something simpler"))
}

fn near(gantry: &Gantry) {
    for server in ["odd", "near"] {
        gantry.wait_state(server, "ready", LONG);
    }
}

// fault A9: few subschemas, and a look at each of many items goes through a long list
#[test]
fn results_that_are_dear_to_check_hold_up_nobody() {
    let options: Vec<f64> = (0..9_000).map(|number| f64::from(number) + 0.5).collect();
    let items = json!({"type": "object", "properties": {"list": {"type": "array", "items": {"enum": options}}}});
    let odd = Scripted::new();
    let object = json!({"type": "object"});
    let tool = json!({"name": "list", "inputSchema": object, "outputSchema": items});
    odd.answers("tools/list", &json!({"tools": [tool]}));
    let result = json!({"list": vec![8_999.5; 60_000]});
    odd.answers(
        "tools/call",
        &json!({"content": [], "structuredContent": result}),
    );
    let gantry = Gantry::builder()
        .entry("odd", odd.entry())
        .server("near", &Evilpeer::new())
        .start();
    near(&gantry);
    others_are_answered(&gantry, || {
        std::thread::scope(|scope| {
            for _ in 0..MANY {
                scope.spawn(|| {
                    let begun = Stopwatch::start();
                    let answer = gantry.call("odd__list", json!({}));
                    assert!(begun.elapsed() <= LONG, "{:?}", begun.elapsed());
                    let data = &answer["error"]["data"];
                    assert_eq!(data["code"], "schema.output", "{answer:#}");
                    let why = data["issues"][0]["message"].as_str().unwrap();
                    let in_time = why.contains("takes too long") || why.contains("in time");
                    assert!(in_time, "{why}");
                });
            }
        });
    });
    let rows = gantry.audit_rows("server=odd");
    let told = |row: &Value| row["status"] == "error" && row["code"] == "schema.output";
    assert!(rows.len() == MANY && rows.iter().all(told), "{rows:#?}");
    let log = gantry.stderr();
    assert!(!log.contains("panicked"), "{log}");
}

// fault A9: the same for arguments, for each way in which a keyword can be dear
#[test]
fn arguments_that_are_dear_to_check_hold_up_nobody() {
    let members: serde_json::Map<String, Value> = (0..3_000)
        .map(|number| (format!("k{number}"), json!(number)))
        .collect();
    let mut other = members.clone();
    other.insert("k2999".to_owned(), json!(0));
    let again = |count| vec![json!({"$ref": "#/$defs/d"}); count];
    let mut nearly = again(100);
    nearly.push(json!(true));
    let names: serde_json::Map<String, Value> = (0..400)
        .map(|number| (format!("^(?:a|b{number})*[0-9]{{1,30}}$"), json!(true)))
        .collect();
    let schema = |x: Value, definition: Value| json!({"type": "object", "properties": {"x": x}, "$defs": {"d": definition}});
    let tools = [
        (
            "const",
            schema(json!({"items": {"anyOf": nearly}}), json!({"const": other})),
            json!(vec![members; 60]),
        ),
        (
            "names",
            schema(json!({"patternProperties": names}), json!({})),
            (0..40_000)
                .map(|number| (format!("aaaa{number}"), json!(1)))
                .collect::<Value>(),
        ),
        (
            "contains",
            schema(
                json!({"allOf": again(400)}),
                json!({"contains": {"const": 7.5}, "minContains": 0}),
            ),
            json!(vec![1; 60_000]),
        ),
        (
            "nothing",
            schema(
                json!({"items": {"anyOf": [{"anyOf": vec![false; 9_000]}, true]}}),
                json!({}),
            ),
            json!(vec![1; 60_000]),
        ),
    ];
    let listed = tools
        .iter()
        .map(|(name, schema, _)| json!({"name": name, "inputSchema": schema}));
    let odd = Scripted::new();
    odd.answers("tools/list", &json!({"tools": listed.collect::<Vec<_>>()}));
    odd.answers("tools/call", &json!({"content": []}));
    let gantry = Gantry::builder()
        .entry("odd", odd.entry())
        .server("near", &Evilpeer::new())
        .start();
    near(&gantry);
    assert_eq!(
        gantry.status("odd")["tools"],
        tools.len(),
        "{:#}",
        gantry.status("odd")
    );
    others_are_answered(&gantry, || {
        for (name, _, x) in &tools {
            let answer = gantry.call(&format!("odd__{name}"), json!({"x": x}));
            assert!(is_too_slow(&answer), "{name}: {answer:#}");
        }
        // Many at once: whoever has to wait too long for a check is refused as well.
        std::thread::scope(|scope| {
            for (name, _, x) in tools.iter().cycle().take(MANY) {
                let gantry = &gantry;
                scope.spawn(move || {
                    let answer = gantry.call(&format!("odd__{name}"), json!({"x": x}));
                    let refused =
                        answer["error"]["data"]["code"] == "server.busy" || is_too_slow(&answer);
                    assert!(refused, "{name}: {answer:#}");
                });
            }
        });
    });
    assert_eq!(
        odd.sent("tools/call"),
        Vec::<Value>::new(),
        "nothing was sent upstream"
    );
}

// fault A9: a value that is to be a pattern, with many names, each of which a plain check compares with
// all before it
#[test]
fn arguments_that_are_to_be_patterns_hold_up_nobody() {
    let schema = json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
                        "properties": {"x": {"type": "string", "format": "regex"}}});
    let odd = Scripted::new();
    odd.answers(
        "tools/list",
        &json!({"tools": [{"name": "search", "inputSchema": schema}]}),
    );
    odd.answers("tools/call", &json!({"content": []}));
    let gantry = Gantry::builder()
        .entry("odd", odd.entry())
        .server("near", &Evilpeer::new())
        .start();
    near(&gantry);
    let names: String = (0..40_000).map(|name| format!("(?<a{name}>)")).collect();
    others_are_answered(&gantry, || {
        std::thread::scope(|scope| {
            for _ in 0..MANY {
                scope.spawn(|| {
                    let answer = gantry.call("odd__search", json!({"x": names}));
                    assert_eq!(answer["result"]["content"], json!([]), "{answer:#}");
                });
            }
        });
    });
}

// fault A9: one server's heavy checks are no business of another's
#[test]
fn one_servers_heavy_checks_do_not_refuse_anothers() {
    let odd = Scripted::new();
    let twice = vec![json!({"$ref": "#/$defs/d"}); 400];
    let schema = json!({"type": "object", "properties": {"x": {"allOf": twice}},
                        "$defs": {"d": {"contains": {"const": 7.5}, "minContains": 0}}});
    odd.answers(
        "tools/list",
        &json!({"tools": [{"name": "slow", "inputSchema": schema}]}),
    );
    let tree = Scripted::new();
    // What refers to itself is always checked on a thread of its own.
    let schema = json!({"type": "object", "properties": {"sub": {"items": {"$ref": "#"}}}});
    tree.answers(
        "tools/list",
        &json!({"tools": [{"name": "plant", "inputSchema": schema}]}),
    );
    tree.answers(
        "tools/call",
        &json!({"content": [{"type": "text", "text": "planted"}]}),
    );
    let gantry = Gantry::builder()
        .entry("odd", odd.entry())
        .entry("near", tree.entry())
        .start();
    near(&gantry);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // More than ran at once when all servers shared the permits.
        for _ in 0..5 {
            scope.spawn(|| {
                while !ended.load(Ordering::Acquire) {
                    gantry.call("odd__slow", json!({"x": vec![1; 60_000]}));
                }
            });
        }
        let plant = || gantry.call("near__plant", json!({"sub": [{"sub": []}]}));
        let begun = Stopwatch::start();
        let answers = std::iter::repeat_with(|| {
            // A machine with other things to do may need longer than a check may take.
            let mut answer = plant();
            while is_too_slow(&answer) && begun.elapsed() < LONG {
                answer = plant();
            }
            answer
        });
        let answers: Vec<Value> = answers.take(6).collect();
        // First, so that the others end if this fails.
        ended.store(true, Ordering::Release);
        for answer in answers {
            assert_eq!(
                answer["result"]["content"][0]["text"], "planted",
                "{answer:#}"
            );
        }
    });
}

// fault S19: a definition may be long, not all of them together
#[test]
fn long_definitions_are_offered_as_far_as_there_is_room_for_all_of_them() {
    let text = |kib: usize| "d".repeat(kib << 10);
    let options: Vec<String> = (0..4_000).map(|n| format!("{n:016}")).collect();
    let place = json!({"type": "object", "properties": {"x": {"enum": options}}});
    let mut tools = vec![
        json!({"name": "place", "description": "82 KB", "inputSchema": place}),
        json!({"name": "novel", "description": text(300), "inputSchema": {"type": "object"}}),
    ];
    tools.extend((0..80).map(|n| {
        json!({"name": format!("t{n}"), "description": text(240), "inputSchema": {"type": "object"}})
    }));
    let odd = Scripted::new();
    odd.answers("tools/list", &json!({"tools": tools}));
    odd.answers("tools/call", &json!({"content": []}));
    let gantry = Gantry::builder()
        .entry("odd", odd.entry())
        .server("near", &Evilpeer::new())
        .start();
    near(&gantry);
    let status = gantry.status("odd");
    // 16 MiB of 240 KiB each.
    assert_eq!(status["tools"], 68, "{}", status["excluded"]);
    assert_eq!(status["refused_tools"], 14);
    let why = |tool: &str| {
        let excluded = status["excluded"].as_array().unwrap().iter();
        let mut excluded = excluded.filter(|entry| entry["tool"] == tool);
        excluded.next().unwrap()["reason"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(
        why("novel").contains("longer than 256 KiB"),
        "{}",
        why("novel")
    );
    assert!(why("t79").contains("more than 16 MiB"), "{}", why("t79"));
    // What is long is judged all the same.
    assert_eq!(status["unchecked_tools"], 0, "{status:#}");
    let refused = gantry.call("odd__place", json!({"x": "nowhere"}));
    assert_eq!(refused["result"]["isError"], true, "{refused:#}");
    let called = gantry.call("odd__place", json!({"x": options[7]}));
    assert_eq!(called["result"]["content"], json!([]), "{called:#}");
}

// row 2.6: a list that fails once is asked for again
#[test]
fn a_first_list_that_fails_is_asked_for_again() {
    let odd = Scripted::new();
    odd.fails("tools/list", &json!({"code": -32603, "message": "not yet"}));
    odd.answers(
        "tools/list",
        &json!({"tools": [{"name": "late", "inputSchema": {"type": "object"}}]}),
    );
    let gantry = Gantry::builder().entry("odd", odd.entry()).start();
    let marked = |status: &Value| {
        let reason = status["reason"].as_str().unwrap_or_default();
        status["state"] == "ready" && reason.contains("not yet")
    };
    let pid = gantry.wait_status("odd", LONG, marked)["pid"].clone();
    std::fs::remove_file(odd.path().join("error_tools_list")).unwrap();
    let listed = |status: &Value| status["tools"] == 1 && status["reason"].is_null();
    let status = gantry.wait_status("odd", LONG, listed);
    assert_eq!(status["pid"], pid, "the same process");
}

// fault P1: what a traceback ends with is what happened
#[test]
fn a_server_that_ends_with_a_traceback_is_told_by_its_last_line() {
    let odd = Scripted::new();
    odd.write(
        "server",
        "#!/bin/sh\ncat >&2 <<'END'\nTraceback (most recent call last):\n  File \"/srv/x.py\", line 1, in <module>\n    import y\nModuleNotFoundError: No module named 'y'\nEND\nexit 1\n",
    );
    let down =
        json!({"restart": {"at_once": 0, "window": "1m", "ladder": ["1m"], "reset_after": "10m"}});
    let mut entry = odd.entry();
    entry["life"] = down;
    let gantry = Gantry::builder().entry("odd", entry).start();
    let status = gantry.wait_state("odd", "failed", LONG);
    let reason = status["reason"].as_str().unwrap();
    assert!(
        reason.contains("ModuleNotFoundError: No module named 'y'"),
        "{reason}"
    );
    assert!(!reason.contains("Traceback"), "{reason}");
    let row = "ModuleNotFoundError: No module named 'y'";
    let shown = gantry_testkit::wait::eventually(LONG, || gantry.stdout().contains(row));
    assert!(shown.is_some(), "{}", gantry.stdout());
    assert!(
        !gantry.stdout().contains("Traceback"),
        "{}",
        gantry.stdout()
    );
    for verb in ["status", "ls"] {
        let told = gantry.cli(&[verb]);
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(!told.contains("Traceback"), "{verb}: {told}");
    }
}
