//! Schemas as other people's servers write them: every tool is offered as it was written, what can be
//! judged is judged, and what cannot is counted.

use std::time::Duration;

use gantry_testkit::wait::{Stopwatch, eventually};
use serde_json::{Value, json};

use super::SECOND;
use super::schemas::with_tools;
use crate::harness::{Gantry, LONG};

/// What zod writes for an address of electronic mail.
const EMAIL: &str = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$";

/// Returns a tool whose argument `x` has this schema, and whose `y` must be a string.
fn tool(name: &str, schema: Value) -> Value {
    let properties = json!({"x": schema, "y": {"type": "string"}});
    json!({"name": name, "inputSchema": {"type": "object", "properties": properties}})
}

fn is_called(gantry: &Gantry, tool: &str, arguments: Value) {
    let answer = gantry.call(&format!("odd__{tool}"), arguments);
    let text = &answer["result"]["content"][0]["text"];
    assert_eq!(text, "called", "`{tool}`: {answer:#}");
}

fn is_refused(gantry: &Gantry, tool: &str, arguments: Value, words: &str) {
    let answer = gantry.call(&format!("odd__{tool}"), arguments);
    assert_eq!(answer["result"]["isError"], true, "`{tool}`: {answer:#}");
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains(words), "`{tool}`: {text}");
}

// fault A9
#[test]
fn ordinary_patterns_of_other_servers_are_judged() {
    let folder = tempfile::tempdir().unwrap();
    let mut nulls = tool(
        "nulls",
        json!({"type": "string", "description": null, "title": null}),
    );
    nulls["description"] = Value::Null;
    nulls["annotations"] = Value::Null;
    nulls["inputSchema"]["required"] = json!(["x", "x"]);
    let mut draft4 = tool("draft4", json!({"minimum": 3, "exclusiveMinimum": true}));
    draft4["inputSchema"]["$schema"] = json!("http://json-schema.org/draft-04/schema#");
    let tools = json!([
        tool("mail", json!({"type": "string", "pattern": EMAIL})),
        tool(
            "behind",
            json!({"type": "string", "pattern": r"(?<=\$)\d+(?<!0)$"})
        ),
        tool(
            "back",
            json!({"type": "string", "pattern": r#"^(['"]).*\1$"#})
        ),
        tool("any", json!({"type": "string", "pattern": "^[^]{3}$"})),
        tool("long", json!({"type": "string", "pattern": "^.{0,5000}$"})),
        tool(
            "python",
            json!({"type": "string", "pattern": r"\A(?P<a>[a-z]+)\Z"})
        ),
        tool(
            "letters",
            json!({"type": "string", "pattern": r"^\p{L}+\/\d$"})
        ),
        tool(
            "named",
            json!({"type": "object", "propertyNames": {"pattern": "^(?!_)"}})
        ),
        tool(
            "tuple",
            json!({"items": [{"type": "string"}], "additionalItems": false})
        ),
        nulls,
        draft4,
    ]);
    let gantry = with_tools(folder.path(), "odd", &tools);
    let status = gantry.status("odd");
    assert_eq!(status["tools"], 11, "{status:#}");
    assert_eq!(status["unchecked_tools"], 0, "{status:#}");
    assert_eq!(status["refused_tools"], 0, "{status:#}");
    for (name, fits, not) in [
        (
            "mail",
            json!("ann.o'hara+x@mail.example"),
            json!("ann..o@mail.example"),
        ),
        ("behind", json!("for $42"), json!("for $40")),
        ("back", json!("'a'"), json!("'a\"")),
        ("any", json!("a\nb"), json!("ab")),
        ("long", json!("x".repeat(5_000)), json!("x".repeat(5_001))),
        ("python", json!("abc"), json!("a1")),
        ("letters", json!("Größe/1"), json!("a/ä")),
        ("named", json!({"a": 1}), json!({"_a": 1})),
        ("tuple", json!(["a"]), json!(["a", "b"])),
        ("nulls", json!("a"), json!(1)),
        ("draft4", json!(4), json!(3)),
    ] {
        is_called(&gantry, name, json!({"x": fits}));
        is_refused(&gantry, name, json!({"x": not}), "do not fit its schema");
    }
    is_refused(
        &gantry,
        "mail",
        json!({"x": "nobody"}),
        "/x: must match the pattern `^(?!\\.)",
    );
    // Clients see what the server wrote, but for what they would refuse the whole list for.
    let listed = gantry.mcp("tools/list", json!({}));
    for written in tools.as_array().unwrap() {
        let name = format!("odd__{}", written["name"].as_str().unwrap());
        let shown = listed["result"]["tools"].as_array().unwrap();
        let shown = shown.iter().find(|tool| tool["name"] == name).unwrap();
        assert_eq!(shown["inputSchema"], written["inputSchema"]);
        assert_eq!(shown.get("description"), None);
        assert_eq!(shown.get("annotations"), None);
    }
}

// fault A9
#[test]
fn what_cannot_be_judged_is_offered_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut dialect = tool("dialect", json!({"type": "string"}));
    dialect["inputSchema"]["$schema"] = json!("https://example.com/own-dialect");
    let mut output = tool("output", json!({}));
    output["outputSchema"] = json!({"type": "object", "properties": {"a": {"$ref": "other.json"}}});
    let untyped =
        json!({"name": "untyped", "inputSchema": {"properties": {"y": {"type": "string"}}}});
    let tools = json!([
        tool("fine", json!({"type": "string"})),
        tool("broken", json!({"type": "string", "pattern": "(unclosed"})),
        tool("any", json!({"type": "any"})),
        tool("elsewhere", json!({"$ref": "https://example.com/schema.json"})),
        tool("names", json!({"patternProperties": {"^(?!_)": {"type": "string"}}})),
        dialect,
        output,
        untyped,
        {"name": "text", "inputSchema": "text"},
        {"name": "missing"},
    ]);
    let gantry = with_tools(folder.path(), "odd", &tools);
    let status = gantry.status("odd");
    assert_eq!(status["tools"], 8, "{status:#}");
    assert_eq!(status["unchecked_tools"], 6, "{status:#}");
    assert_eq!(status["refused_tools"], 2, "{status:#}");
    let told: Vec<_> = status["unchecked"].as_array().unwrap().iter().collect();
    let broken = told.iter().find(|part| part["tool"] == "broken").unwrap();
    assert_eq!(broken["part"], "inputSchema/properties/x/pattern");
    let reason = "it is not a regular expression: a group does not end";
    assert_eq!(broken["reason"], reason);
    for name in ["broken", "any", "elsewhere", "names", "dialect"] {
        let x = if name == "names" {
            json!({"a": 1})
        } else {
            json!("text")
        };
        is_called(&gantry, name, json!({"x": x, "y": "text"}));
        // The rest of the schema is judged.
        is_refused(
            &gantry,
            name,
            json!({"y": 7}),
            "/y: must be a string, not a number",
        );
    }
    is_refused(&gantry, "untyped", json!({"y": 7}), "/y: must be a string");
    let summary = gantry.rest("GET", "/api/v1/mcp/servers", None).json();
    let odd = summary["items"].as_array().unwrap();
    let odd = odd.iter().find(|server| server["name"] == "odd").unwrap();
    assert_eq!(
        (&odd["unchecked_tools"], &odd["refused_tools"]),
        (&json!(6), &json!(2))
    );

    // The same in words, with reasons.
    let row =
        "✓ odd   ready, 8 tools, 6 with unchecked parts, 2 refused (broken: it is not a regular";
    let shown = eventually(LONG, || gantry.stdout().contains(row));
    assert!(shown.is_some(), "{}", gantry.stdout());
    for words in [&["ls"][..], &["status"]] {
        let output = gantry.cli(words);
        let text = String::from_utf8_lossy(&output.stdout);
        for part in [
            "8 (6 with unchecked parts, 2 refused)",
            "! odd: `broken` is not checked against inputSchema/properties/x/pattern: it is not",
            " status odd`",
        ] {
            assert!(text.contains(part), "{words:?}: {text}");
        }
    }
    let output = gantry.cli(&["status", "odd"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for part in [
        "8 tools, 0 prompts, 0 resources; 6 with unchecked parts, 2 refused",
        "unchecked    elsewhere inputSchema/properties/x/$ref: it refers to another document",
        "not offered  text: ",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let output = gantry.cli(&["status", "odd", "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&told["unchecked_tools"], &told["refused_tools"]),
        (&json!(6), &json!(2))
    );
}

// fault A9: who costs too much is left unjudged, and counted; the rest of the value is judged
#[test]
fn a_pattern_that_backtracks_without_end_judges_nothing_and_holds_up_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let tools = json!([
        tool("slow", json!({"type": "string", "pattern": "^(?=(a+)+$)"})),
        tool(
            "slower",
            json!({"type": "string", "pattern": r"^(\w+\s?)*(?!x)$"})
        ),
        tool(
            "many",
            json!({"items": {"type": "string", "pattern": "^(?=(a+)+$)"}})
        ),
        tool("states", json!({"pattern": "(?:0|1)*1(?:0|1){300}2"})),
    ]);
    let gantry = with_tools(folder.path(), "odd", &tools);
    assert_eq!(gantry.status("odd")["unchecked_tools"], 0);
    let text = format!("{}!", "a".repeat(5_000));
    let mut state = 1_u32;
    let noise: String = (0..700_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if state >> 31 == 0 { '0' } else { '1' }
        })
        .collect();
    let values = [
        ("slow", json!(text)),
        ("slower", json!(text)),
        // As many as would take as long as all may together, each.
        ("many", json!(vec![text.as_str(); 50])),
        // More states than an automaton has room for.
        ("states", json!(noise)),
    ];
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            for (name, value) in &values {
                let begun = Stopwatch::start();
                is_called(&gantry, name, json!({"x": value}));
                let wrong = json!({"x": value, "y": 7});
                is_refused(&gantry, name, wrong, "/y: must be a string");
                assert!(begun.elapsed() <= 6 * SECOND, "{:?}", begun.elapsed());
            }
        });
        for _ in 0..20 {
            let begun = Stopwatch::start();
            let answer = gantry.call("near__echo", json!({"text": "quick"}));
            assert_eq!(answer["result"]["content"][0]["text"], "quick");
            let took = begun.elapsed();
            assert!(took <= Duration::from_secs(2), "{took:?}");
        }
        caller.join().unwrap();
    });
    is_refused(
        &gantry,
        "slow",
        json!({"x": "b"}),
        "/x: must match the pattern",
    );
    let status = gantry.status("odd");
    assert_eq!(status["unchecked_tools"], 4, "{status:#}");
    let told = status["unchecked"].as_array().unwrap();
    let slow = told.iter().find(|part| part["tool"] == "slow").unwrap();
    assert_eq!(slow["part"], "inputSchema");
    let reason = slow["reason"].as_str().unwrap();
    assert!(reason.starts_with("a pattern took too long"), "{reason}");
    let rows = gantry.audit_rows("server=odd&status=ok");
    assert_eq!(rows.len(), 4, "{rows:#?}");
}
