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

/// Tells whether arguments were refused because checking them takes too long.
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
    let mut state = 1_u32;
    let noise: String = (0..700_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if state >> 31 == 0 { '0' } else { '1' }
        })
        .collect();
    let tools = [
        (
            "const",
            schema(json!({"items": {"anyOf": nearly}}), json!({"const": other})),
            json!(vec![members; 60]),
        ),
        (
            "pattern",
            schema(json!({"pattern": "(?:0|1)*1(?:0|1){300}2"}), json!({})),
            json!(noise),
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
