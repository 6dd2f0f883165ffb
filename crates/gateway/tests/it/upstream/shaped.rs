//! What servers answer and older clients would reject, and what clients ask for that is not offered.

use serde_json::{Value, json};

use super::peer::{Peer, Reply, Seen, legacy, modern};
use super::{FAR, entry, gateway};
use crate::eras::Older;
use crate::harness::{Gantry, LONG, modern as stateless};

const HANDSHAKE: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

fn started(handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> (Peer, Gantry) {
    let peer = Peer::start(handler);
    let gantry = gateway(entry(&peer.url("/mcp"))).start();
    gantry.wait_state(FAR, "ready", LONG);
    (peer, gantry)
}

/// A server whose tools return any structured content: what they are given, beside a text or bare.
fn structured(seen: &Seen, plain: fn(&Seen) -> Reply) -> Reply {
    let given = &seen.body["params"]["arguments"]["value"];
    match seen.method() {
        "tools/list" => {
            let schema = json!({"type": "object"});
            seen.result(
                json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": [
                    {"name": "told", "inputSchema": schema},
                    {"name": "bare", "inputSchema": schema},
                    {"name": "listed", "inputSchema": schema,
                        "outputSchema": {"type": "array", "items": {"type": "integer"}}},
                    {"name": "formed", "inputSchema": schema, "outputSchema": {"type": "object"}},
                ]}),
            )
        }
        "tools/call" => {
            let mut result =
                json!({"structuredContent": given, "content": [], "resultType": "complete"});
            if seen.body["params"]["name"] == "told" {
                result["content"] = json!([{"type": "text", "text": "as text"}]);
            }
            seen.result(result)
        }
        _ => plain(seen),
    }
}

// fault A5: a client of the handshake era rejects the whole of a result for one member
#[test]
fn structured_content_that_is_no_object_reaches_only_the_version_that_has_it() {
    for plain in [legacy as fn(&Seen) -> Reply, modern] {
        let (_peer, gantry) = started(move |seen| structured(seen, plain));
        let values = [
            json!([1, "x"]),
            json!("text"),
            json!(7),
            json!(true),
            json!(null),
        ];
        for value in &values {
            for version in HANDSHAKE {
                let session = Older::open(&gantry, "/mcp", version);
                let call = |tool: &str| {
                    let arguments = json!({"value": value});
                    session.result("tools/call", json!({"name": tool, "arguments": arguments}))
                };
                let told = call("far__told");
                assert!(told.get("structuredContent").is_none(), "{told:#}");
                assert_eq!(told["content"][0]["text"], "as text");
                // What stands nowhere else is told as text.
                let bare = call("far__bare");
                assert!(bare.get("structuredContent").is_none(), "{bare:#}");
                let text = if value.is_null() {
                    Value::Null
                } else {
                    json!(value.to_string())
                };
                assert_eq!(bare["content"][0]["text"], text, "{bare:#}");
                let kept = json!({"name": "far__told", "arguments": {"value": {"a": [1]}}});
                let kept = session.result("tools/call", kept);
                assert_eq!(kept["structuredContent"], json!({"a": [1]}));
            }
            let answer = gantry.call("far__bare", json!({"value": value}));
            let result = answer["result"].as_object().unwrap();
            assert_eq!(result.get("structuredContent"), Some(value), "{answer:#}");
        }
    }
}

// fault A5: the list would be rejected as well, and is not
#[test]
fn a_tool_that_promises_such_content_can_be_called() {
    let (_peer, gantry) = started(move |seen| structured(seen, modern));
    let session = Older::open(&gantry, "/mcp", "2025-11-25");
    let listed = session.result("tools/list", json!({}));
    let tools = listed["tools"].as_array().unwrap().iter();
    let promises: Vec<&Value> = tools.map(|tool| &tool["outputSchema"]["type"]).collect();
    let (none, object) = (&Value::Null, &json!("object"));
    assert_eq!(promises, [none, none, none, object]);
    let params = json!({"name": "far__listed", "arguments": {"value": [1, 2]}});
    let result = session.result("tools/call", params);
    assert_eq!(result["content"][0]["text"], "[1,2]", "{result:#}");
    let answer = gantry.call("far__listed", json!({"value": [1, 2]}));
    assert_eq!(
        answer["result"]["structuredContent"],
        json!([1, 2]),
        "{answer:#}"
    );
}

// fault T1: nobody could ask for the task
#[test]
fn a_call_that_asks_for_a_task_is_made_as_any_other() {
    for plain in [legacy as fn(&Seen) -> Reply, modern] {
        let (peer, gantry) = started(plain);
        let mut params = json!({"name": "far__echo", "arguments": {"text": "x"}});
        let related = "io.modelcontextprotocol/related-task";
        params["_meta"] = json!({related: {"taskId": "t"}, "mine": 1});
        for task in [json!({"ttl": 60000}), json!({}), json!(null), json!("x")] {
            params["task"] = task;
            let session = Older::open(&gantry, "/mcp", "2025-11-25");
            let answers = [
                session
                    .send(json!(1), "tools/call", params.clone())
                    .message(),
                gantry.mcp("tools/call", params.clone()),
            ];
            for answer in answers {
                let text = &answer["result"]["content"][0]["text"];
                assert_eq!(text, "x", "{answer:#}");
            }
        }
        let calls = peer.asked("tools/call");
        assert_eq!(calls.len(), 8);
        for call in calls {
            let params = &call.body["params"];
            assert!(params.get("task").is_none(), "{params:#}");
            assert!(params["_meta"].get(related).is_none(), "{params:#}");
            assert_eq!(params["_meta"]["mine"], 1);
        }
    }
}

// fault S8: an id of ours as a text of its digits is ours
#[test]
fn a_server_that_answers_with_its_ids_as_texts_is_understood() {
    let (_peer, gantry) = started(move |seen| {
        let Reply::Json(mut answer) = legacy(seen) else {
            return legacy(seen);
        };
        answer["id"] = json!(answer["id"].to_string());
        Reply::Json(answer)
    });
    let answer = gantry.call("far__echo", json!({"text": "x"}));
    assert_eq!(answer["result"]["content"][0]["text"], "x", "{answer:#}");
}

/// A server with one resource of its own words for what is not there.
fn reader(seen: &Seen) -> Reply {
    let capabilities = json!({"tools": {}, "resources": {"subscribe": true}, "completions": {}});
    match seen.method() {
        "initialize" => seen.result(json!({"protocolVersion": "2025-11-25",
            "serverInfo": {"name": "peer", "version": "1"}, "capabilities": capabilities})),
        "resources/list" => {
            seen.result(json!({"resources": [{"uri": "demo://there", "name": "x"}]}))
        }
        "resources/templates/list" => seen.result(json!({"resourceTemplates": []})),
        "resources/read" => {
            let error = json!({"code": -32002, "message": "gone"});
            Reply::Json(json!({"jsonrpc": "2.0", "id": seen.body["id"], "error": error}))
        }
        _ => legacy(seen),
    }
}

// row 2.21
#[test]
fn a_resource_that_is_not_there_has_the_code_of_each_version() {
    // Two that could have it, so that the gateway itself must say no.
    let (one, other) = (Peer::start(reader), Peer::start(reader));
    let gantry = gateway(entry(&one.url("/mcp")))
        .entry("other", entry(&other.url("/mcp")))
        .start();
    for name in [FAR, "other"] {
        gantry.wait_state(name, "ready", LONG);
    }
    let code = |answer: Value| answer["error"]["code"].clone();
    for version in HANDSHAKE {
        let session = Older::open(&gantry, "/mcp", version);
        for uri in ["demo://nothing", "demo://there"] {
            let read = session.send(json!(1), "resources/read", json!({"uri": uri}));
            assert_eq!(code(read.message()), -32002, "{version} {uri}");
        }
        let subscribe = json!({"uri": "demo://nothing"});
        let subscribe = session.send(json!(2), "resources/subscribe", subscribe);
        assert_eq!(code(subscribe.message()), -32002, "{version}");
        // What is completed is no resource that could be there.
        let reference = json!({"type": "ref/resource", "uri": "demo://nothing/{x}"});
        let argument = json!({"name": "x", "value": "a"});
        let params = json!({"ref": reference, "argument": argument});
        let completed = session.send(json!(3), "completion/complete", params);
        assert_eq!(code(completed.message()), -32602, "{version}");
        let read = session.send(json!(4), "resources/read", json!({}));
        assert_eq!(code(read.message()), -32602, "{version}");
    }
    for uri in ["demo://nothing", "demo://there"] {
        let read = gantry.mcp("resources/read", json!({"uri": uri}));
        assert_eq!(code(read), -32602, "{uri}");
    }
    let path = "/mcp/servers/far";
    let own = |method: &str, params: Value| {
        stateless(&mut gantry.connect(), &gantry.agent, path, method, params).message()
    };
    let read = own("resources/read", json!({"uri": "demo://there"}));
    assert_eq!(code(read), -32602);
}
