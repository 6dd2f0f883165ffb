//! What clients do that is not quite as the specification has it, or is seldom done: slashes behind a
//! path, one form of answer alone, params that are none, places in lists that were never given out.

use gantry_testkit::{Era, Evilpeer};
use serde_json::{Value, json};

use super::{Events, Older};
use crate::faults_client::Posted;
use crate::harness::{Answer, Gantry, LONG};

fn started() -> Gantry {
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().era(Era::Legacy))
        .start();
    gantry.wait_state("a", "ready", LONG);
    gantry
}

fn initialize() -> Value {
    let info = json!({"name": "c", "version": "1"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
}

fn request(id: Value, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

// fault A7
#[test]
fn a_slash_behind_an_endpoint_changes_nothing() {
    let gantry = started();
    for (path, tool) in [("/mcp/", "a__echo"), ("/mcp/servers/a/", "echo")] {
        let session = Older::open(&gantry, path, "2025-11-25");
        let params = json!({"name": tool, "arguments": {"text": "x"}});
        let result = session.result("tools/call", params.clone());
        assert_eq!(result["content"][0]["text"], "x", "{path}");
        // A session is that of the endpoint, however its path is written.
        let plain = path.trim_end_matches('/');
        let message = request(json!(2), "tools/list", json!({}));
        let listed = Posted::in_session(&gantry.agent, &session.id, &message).at(plain);
        assert_eq!(listed.send(&gantry).status, 200, "{plain}");
        let stateless = Posted::stateless(&gantry.agent, "tools/call", params).at(path);
        let answer = stateless.send(&gantry).message();
        assert_eq!(answer["result"]["content"][0]["text"], "x", "{path}");
        assert_eq!(session.end(), 204);
        // Nobody comes in without a key by it.
        let bare = Posted::new("x", path, &message).without("Authorization");
        assert_eq!(bare.send(&gantry).status, 401, "{path}");
    }
    let bearer = format!("Bearer {}", gantry.agent);
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Accept", "text/event-stream"),
    ];
    for path in ["/sse/", "/sse/servers/a/"] {
        let mut connection = gantry.connect();
        connection.write("GET", path, &headers, b"").unwrap();
        assert_eq!(connection.head().unwrap().status, 200, "{path}");
        let first = connection.chunk().unwrap().unwrap();
        let first = String::from_utf8(first).unwrap();
        assert!(
            first.starts_with("event: endpoint\ndata: /messages?"),
            "{first}"
        );
    }
    let unknown = Posted::new(&gantry.agent, "/mcp/servers/none/", &initialize());
    assert_eq!(unknown.send(&gantry).status, 404);
}

/// Asserts that an answer is a stream with one message, and returns that.
fn only_event(what: &str, answer: &Answer) -> Value {
    let kind = answer.header("content-type");
    assert_eq!(kind, Some("text/event-stream"), "{what}: {}", answer.text());
    let messages = answer.messages();
    assert_eq!(messages.len(), 1, "{what}: {}", answer.text());
    messages[0].clone()
}

// fault A7
#[test]
fn a_client_that_takes_only_events_gets_events() {
    let gantry = started();
    let only = |posted: Posted| posted.header("Accept", "text/event-stream").send(&gantry);
    let hello = only(Posted::new(&gantry.agent, "/mcp", &initialize()));
    assert_eq!(
        only_event("initialize", &hello)["result"]["protocolVersion"],
        "2025-11-25"
    );
    let session = hello
        .header("mcp-session-id")
        .expect("a session")
        .to_owned();
    let in_session = |message: &Value| only(Posted::in_session(&gantry.agent, &session, message));
    let notified = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(in_session(&notified).status, 202);
    let call = json!({"name": "a__echo", "arguments": {"text": "x"}});
    let rows = [
        ("ping", json!({}), "/result"),
        ("tools/list", json!({}), "/result/tools"),
        ("tools/list", json!({"cursor": "x"}), "/error/code"),
        ("tools/call", call.clone(), "/result/content"),
        (
            "resources/subscribe",
            json!({"uri": "test://static-text"}),
            "/result",
        ),
        ("logging/setLevel", json!({"level": "info"}), "/result"),
        ("prompts/get", json!({"name": "none"}), "/error/code"),
        ("no/such", json!({}), "/error/code"),
    ];
    for (place, (method, params, wanted)) in rows.into_iter().enumerate() {
        let answer = in_session(&request(json!(place), method, params));
        assert_eq!(answer.status, 200, "{method}: {}", answer.text());
        let message = only_event(method, &answer);
        assert_eq!(message["id"], place, "{method}");
        assert!(message.pointer(wanted).is_some(), "{method}: {message:#}");
    }
    for (method, params) in [("server/discover", json!({})), ("tools/call", call)] {
        let answer = only(Posted::stateless(&gantry.agent, method, params));
        let message = only_event(method, &answer);
        assert!(message["result"].is_object(), "{message:#}");
    }
    // What is refused as a whole is told by its status.
    let refused = only(Posted::new("wrong", "/mcp", &initialize()));
    assert_eq!(refused.status, 401);
}

// fault A7
#[test]
fn other_forms_of_accept_get_one_document() {
    let gantry = started();
    let call = json!({"name": "a__echo", "arguments": {"text": "x"}});
    let forms = [
        Some("application/json"),
        Some("*/*"),
        Some("application/json;q=0.5, text/event-stream;q=0.1"),
        Some("application/*"),
        None,
    ];
    for form in forms {
        for message in [initialize(), request(json!(1), "tools/call", call.clone())] {
            let posted = Posted::new(&gantry.agent, "/mcp", &message);
            let posted = match form {
                Some(form) => posted.header("Accept", form),
                None => posted.without("Accept"),
            };
            let answer = posted.send(&gantry);
            let kind = answer.header("content-type");
            assert_eq!(
                (answer.status, kind),
                (200, Some("application/json")),
                "{form:?}"
            );
        }
    }
}

// fault A7
#[test]
fn params_that_are_none_are_refused_under_the_id_of_their_request() {
    let gantry = started();
    let ids = [json!(7), json!("a b"), json!("\u{e9}\"")];
    let session = Older::open(&gantry, "/mcp", "2025-11-25");
    for id in &ids {
        for params in [
            json!(null),
            json!([]),
            json!([1]),
            json!("x"),
            json!(5),
            json!(false),
        ] {
            let message = request(id.clone(), "tools/call", params);
            let posted = [
                Posted::new(&gantry.agent, "/mcp", &message),
                Posted::in_session(&gantry.agent, &session.id, &message),
                Posted::new(&gantry.agent, "/mcp/servers/a", &message),
            ];
            for posted in posted {
                let answer = posted.send(&gantry);
                let told = answer.json();
                assert_eq!(answer.status, 400, "{told:#}");
                assert_eq!((&told["id"], &told["error"]["code"]), (id, &json!(-32602)));
            }
        }
    }
    // A notification has none.
    let message = json!({"jsonrpc": "2.0", "method": "notifications/x", "params": null});
    let answer = Posted::new(&gantry.agent, "/mcp", &message)
        .send(&gantry)
        .json();
    assert_eq!(answer["id"], Value::Null);
    // The first version posts elsewhere, and one has batches.
    let bearer = format!("Bearer {}", gantry.agent);
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Accept", "text/event-stream"),
    ];
    let mut connection = gantry.connect();
    connection.write("GET", "/sse", &headers, b"").unwrap();
    connection.head().unwrap();
    let first = String::from_utf8(connection.chunk().unwrap().unwrap()).unwrap();
    let place = first.trim().rsplit("data: ").next().unwrap().to_owned();
    let message = request(json!(9), "tools/call", json!(null));
    let answer = Posted::new(&gantry.agent, &place, &message)
        .send(&gantry)
        .json();
    assert_eq!(answer["id"], 9, "{answer:#}");
    let batching = Older::open(&gantry, "/mcp", "2025-03-26");
    let batch = json!([
        request(json!(1), "ping", json!({})),
        request(json!("b"), "ping", json!(null))
    ]);
    let answer = Posted::in_session(&gantry.agent, &batching.id, &batch)
        .send(&gantry)
        .json();
    assert_eq!(
        (&answer[0]["id"], &answer[1]["id"]),
        (&json!(1), &json!("b")),
        "{answer:#}"
    );
}

// fault A7
#[test]
fn a_place_in_a_list_that_was_never_given_out_is_refused() {
    let gantry = started();
    let lists = [
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ];
    let session = Older::open(&gantry, "/mcp", "2025-06-18");
    for method in lists {
        for cursor in [
            json!("nonsense"),
            json!("MTA="),
            json!(5),
            json!({}),
            json!(true),
        ] {
            let params = json!({"cursor": cursor});
            let answers = [
                session.send(json!(1), method, params.clone()).message(),
                gantry.mcp(method, params.clone()),
            ];
            for answer in answers {
                assert_eq!(
                    answer["error"]["code"], -32602,
                    "{method} {cursor}: {answer:#}"
                );
            }
        }
        // Nothing is no place.
        let answer = session
            .send(json!(1), method, json!({"cursor": null}))
            .message();
        assert!(answer["result"].is_object(), "{method}: {answer:#}");
    }
}

// row 2.20: a client that keeps ids as texts
#[test]
fn a_client_may_answer_what_it_is_asked_with_the_id_as_a_text() {
    let argv = gantry_testkit::fixture::argv(Era::Legacy);
    let entry = json!({"command": argv[0], "args": argv[1..]});
    let gantry = Gantry::builder().entry("old", entry).start();
    gantry.wait_state("old", "ready", LONG);
    let mut hello = initialize();
    hello["params"]["capabilities"] = json!({"roots": {}});
    let hello = Posted::new(&gantry.agent, "/mcp", &hello).send(&gantry);
    let session = hello.header("mcp-session-id").unwrap().to_owned();
    let call = json!({"name": "old__test_input_required_result_list_roots", "arguments": {}});
    let call = request(json!(1), "tools/call", call);
    let mut events = Events::of(Posted::in_session(&gantry.agent, &session, &call).open(&gantry));
    let asked = events.next().unwrap();
    assert_eq!(asked["method"], "roots/list", "{asked:#}");
    let id = json!(asked["id"].to_string());
    let said = json!({"jsonrpc": "2.0", "id": id, "result": {"roots": []}});
    let taken = Posted::in_session(&gantry.agent, &session, &said).send(&gantry);
    assert_eq!(taken.status, 202);
    let answer = events.next().unwrap();
    let text = answer["result"]["content"][0]["text"].as_str();
    assert_eq!(text, Some("Found 0 root(s)"), "{answer:#}");
}
