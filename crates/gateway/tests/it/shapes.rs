//! Row 4.3 over REST and on the command line: tools listed and called in the shapes of models' APIs.

use gantry_testkit::Evilpeer;
use serde_json::{Value, json};

use crate::harness::{Gantry, LONG};

const SHAPES: [&str; 5] = ["mcp", "anthropic", "openai", "openai-responses", "gemini"];

fn started() -> Gantry {
    let peer = Evilpeer::new();
    let gantry = Gantry::builder()
        .server("one", &peer)
        .server("two", &peer)
        .start();
    for server in ["one", "two"] {
        gantry.wait_state(server, "ready", LONG);
    }
    gantry
}

fn tools(gantry: &Gantry, query: &str) -> Value {
    let path = format!("/api/v1/tools?{query}");
    let answer = gantry.rest_as(&gantry.agent, "GET", &path, None);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Returns each tool of a list with its name.
fn named(shape: &str, tools: &Value) -> Vec<(String, Value)> {
    let list = match shape {
        "gemini" => &tools[0]["functionDeclarations"],
        _ => tools,
    };
    let named = list.as_array().unwrap().iter().map(|tool| {
        let own = tool.get("function").unwrap_or(tool);
        (own["name"].as_str().unwrap().to_owned(), own.clone())
    });
    named.collect()
}

fn call(gantry: &Gantry, query: &str, body: &Value) -> (u16, Value, Option<String>) {
    let path = format!("/api/v1/tools/call{query}");
    let answer = gantry.rest_as(&gantry.agent, "POST", &path, Some(body));
    let rows = answer.header("x-gantry-call-id").map(str::to_owned);
    (answer.status, answer.json(), rows)
}

// row 4.3
#[test]
fn tools_are_listed_in_every_shape() {
    let gantry = started();
    let all = named("mcp", &tools(&gantry, "shape=mcp")["tools"]);
    assert!(all.iter().any(|(name, _)| name == "two__echo"));
    for (shape, schema) in [
        ("mcp", "inputSchema"),
        ("anthropic", "input_schema"),
        ("openai", "parameters"),
        ("openai-responses", "parameters"),
        ("gemini", "parametersJsonSchema"),
    ] {
        let listed = tools(&gantry, &format!("shape={shape}"));
        assert_eq!(listed["shape"], shape);
        let listed = named(shape, &listed["tools"]);
        assert_eq!(listed.len(), all.len(), "{shape}");
        for ((name, tool), (own, definition)) in listed.iter().zip(&all) {
            assert_eq!(name, own, "these names are plain everywhere");
            assert_eq!(tool["description"], definition["description"]);
            let wanted = &definition["inputSchema"]["properties"];
            if wanted.is_object() {
                assert_eq!(&tool[schema]["properties"], wanted, "{shape} {name}");
            }
        }
        let one = tools(&gantry, &format!("shape={shape}&server=two"));
        let one = named(shape, &one["tools"]);
        assert_eq!(one.len() * 2, all.len());
        assert!(one.iter().all(|(name, _)| name.starts_with("two__")));
    }
    let unknown = gantry.rest_as(&gantry.agent, "GET", "/api/v1/tools?shape=claude", None);
    let problem = unknown.json();
    assert_eq!(
        (unknown.status, &problem["code"]),
        (400, &json!("shape.name"))
    );
}

// row 2.16
#[test]
fn an_administrator_sees_what_an_agent_sees() {
    let gantry = started();
    let filter = json!({"include": ["one:*"], "exclude": ["*:e*"]});
    let made = json!({"name": "narrow", "grant": "all", "tools": filter});
    let answer = gantry.rest("POST", "/api/v1/agents", Some(&made));
    assert_eq!(answer.status, 201, "{}", answer.text());
    let key = json!({"kind": "agent", "agent": "narrow"});
    let key = gantry.rest("POST", "/api/v1/keys", Some(&key)).json();
    let key = key["key"].as_str().unwrap();
    for query in ["", "?shape=anthropic", "?shape=gemini&server=one"] {
        let own = gantry.rest_as(key, "GET", &format!("/api/v1/tools{query}"), None);
        let separator = if query.is_empty() { '?' } else { '&' };
        let path = format!("/api/v1/tools{query}{separator}agent=narrow");
        let seen = gantry.rest("GET", &path, None);
        assert_eq!((own.status, seen.status), (200, 200), "{}", seen.text());
        assert_eq!(own.json(), seen.json());
        assert!(seen.text().contains("one__add") && !seen.text().contains("one__echo"));
        let refused = gantry.rest_as(key, "GET", &path, None);
        assert_eq!(refused.status, 403, "{}", refused.text());
    }
    let unknown = gantry.rest("GET", "/api/v1/tools?agent=nobody", None);
    assert_eq!(unknown.status, 404, "{}", unknown.text());
    // And it is so in calling, too.
    let body = json!({"type": "tool_use", "id": "c", "name": "one__echo", "input": {"text": "x"}});
    let answer = gantry.rest_as(key, "POST", "/api/v1/tools/call", Some(&body));
    assert_eq!(answer.json()["is_error"], true, "{}", answer.text());
}

// row 4.3
#[test]
fn the_command_line_prints_a_requests_tools() {
    let gantry = started();
    for shape in SHAPES {
        let output = gantry.cli(&["tools", "two", "--shape", shape]);
        assert!(output.status.success(), "{shape}");
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        let wanted = tools(&gantry, &format!("shape={shape}&server=two"));
        assert_eq!(printed, wanted["tools"], "{shape}");
    }
}

// row 4.6
#[test]
fn a_call_is_answered_in_its_own_shape() {
    let gantry = started();
    let arguments = json!({"text": "hello"});
    let written = arguments.to_string();
    let text = json!([{"type": "text", "text": "hello"}]);
    for (shape, body, wanted) in [
        (
            "anthropic",
            json!({"type": "tool_use", "id": "c", "name": "two__echo", "input": arguments}),
            json!({"type": "tool_result", "tool_use_id": "c", "content": text}),
        ),
        (
            "openai",
            json!({"id": "c", "type": "function", "function": {"name": "two__echo", "arguments": written}}),
            json!({"role": "tool", "tool_call_id": "c", "content": "hello"}),
        ),
        (
            "openai-responses",
            json!({"type": "function_call", "call_id": "c", "name": "two__echo", "arguments": written}),
            json!({"type": "function_call_output", "call_id": "c", "output": "hello"}),
        ),
        (
            "gemini",
            json!({"functionCall": {"id": "c", "name": "two__echo", "args": arguments}}),
            json!({"functionResponse": {"id": "c", "name": "two__echo", "response": {"output": "hello"}}}),
        ),
    ] {
        for query in [String::new(), format!("?shape={shape}")] {
            let (status, answer, rows) = call(&gantry, &query, &body);
            assert_eq!((status, &answer), (200, &wanted), "{shape}");
            let row = gantry.rest("GET", &format!("/api/v1/calls/{}", rows.unwrap()), None);
            let row = row.json();
            assert_eq!(row["server"], "two", "{row:#}");
        }
        let (status, problem, _) = call(&gantry, "?shape=mcp", &body);
        assert_eq!(status, 422, "{shape}: {problem:#}");
    }
    // MCP's own shape is as it always was, problem documents included.
    let (status, answer, _) = call(
        &gantry,
        "",
        &json!({"name": "two__echo", "arguments": arguments}),
    );
    assert_eq!((status, &answer["result"]["content"]), (200, &text));
    let (status, problem, _) = call(&gantry, "", &json!({"name": "two__nothing"}));
    assert_eq!((status, &problem["code"]), (404, &json!("tool.unknown")));
    let (status, problem, _) = call(&gantry, "", &json!({"nme": "two__echo"}));
    assert_eq!((status, &problem["code"]), (422, &json!("request.body")));
}

// row 4.8, row 3.3
#[test]
fn every_call_of_a_message_is_answered_whatever_becomes_of_it() {
    let gantry = started();
    let call_of = |id: &str, name: &str, input: Value| json!({"type": "tool_use", "id": id, "name": name, "input": input});
    let message = json!({"role": "assistant", "content": [
        {"type": "text", "text": "I try."},
        call_of("right", "one__echo", json!({"text": "yes"})),
        call_of("unknown", "one__nothing", json!({})),
        call_of("unfit", "two__add", json!({"a": 1})),
        call_of("slow", "two__slow", json!({"ms": 60_000})),
    ]});
    // Time enough for those that are answered, on any machine.
    let (status, answers, rows) = call(&gantry, "?timeout_ms=5000", &message);
    assert_eq!(status, 200, "{answers:#}");
    let told = |index: usize| {
        let answer = &answers[index];
        let text = answer["content"][0]["text"].as_str().unwrap().to_owned();
        (
            answer["tool_use_id"].clone(),
            answer["is_error"] == true,
            text,
        )
    };
    assert_eq!(told(0), (json!("right"), false, "yes".to_owned()));
    assert_eq!(
        told(1),
        (
            json!("unknown"),
            true,
            "Unknown tool: one__nothing".to_owned()
        )
    );
    let (_, is_error, text) = told(2);
    assert!(is_error && text.contains("- /b: "), "{text}");
    let (_, is_error, text) = told(3);
    assert!(is_error && text.contains("did not answer within"), "{text}");
    let rows = rows.unwrap();
    assert_eq!(rows.split(", ").count(), 4, "each has its row: {rows}");
    // The same in MCP's shape.
    let list = json!([{"name": "one__echo", "arguments": {"text": "a"}}, {"name": "one__nothing"}]);
    let (status, answers, _) = call(&gantry, "", &list);
    assert_eq!(status, 200, "{answers:#}");
    assert_eq!(answers[0]["result"]["content"][0]["text"], "a");
    assert_eq!(answers[1]["is_error"], true);
    assert_eq!(
        answers[1]["result"]["content"][0]["text"],
        "Unknown tool: one__nothing"
    );
    // Without any call there is nothing to answer.
    let talk = json!({"role": "assistant", "content": [{"type": "text", "text": "Done."}]});
    let (status, problem, _) = call(&gantry, "", &talk);
    assert_eq!((status, &problem["code"]), (422, &json!("shape.no_call")));
}

// row 2.9
#[test]
fn a_message_can_be_answered_later() {
    let gantry = started();
    let body =
        json!([{"type": "tool_use", "id": "c", "name": "one__echo", "input": {"text": "later"}}]);
    let bearer = format!("Bearer {}", gantry.agent);
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
        ("Prefer", "respond-async"),
    ];
    let body = body.to_string();
    let accepted = gantry
        .connect()
        .request("POST", "/api/v1/tools/call", &headers, body.as_bytes())
        .unwrap();
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    let place = accepted.header("location").unwrap().to_owned();
    let done = gantry_testkit::wait::eventually(LONG, || {
        let answer = gantry.rest_as(&gantry.agent, "GET", &place, None);
        answer.text().contains("tool_result")
    });
    assert!(done.is_some());
}
