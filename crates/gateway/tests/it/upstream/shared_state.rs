//! What a server keeps for its one client, the gateway, and what no agent may reach because it is
//! that of all of them: tasks, and the level of its log.

use serde_json::{Value, json};

use super::peer::{Peer, Reply, Seen, legacy, modern};
use super::{FAR, entry, gateway};
use crate::harness::{Answer, Gantry, LONG, Session, modern as stateless};

const SECRET: &str = "the result of another agent";
const TASKS: [&str; 5] = [
    "tasks/list",
    "tasks/get",
    "tasks/result",
    "tasks/update",
    "tasks/cancel",
];

/// Answers as a server with tasks, one of which somebody has begun.
fn with_tasks(seen: &Seen, plain: fn(&Seen) -> Reply) -> Reply {
    let method = seen.method();
    if method.starts_with("tasks/") {
        let task =
            json!({"taskId": "task-1", "status": "completed", "createdAt": "2026-01-01T00:00:00Z"});
        let text = json!([{"type": "text", "text": SECRET}]);
        return seen.result(json!({"tasks": [task], "task": task, "taskId": "task-1",
            "status": "completed", "content": text, "resultType": "complete"}));
    }
    match method {
        "initialize" => {
            let mut hello = json!({"protocolVersion": "2025-11-25",
                "serverInfo": {"name": "peer", "version": "1"}});
            hello["capabilities"] = json!({"tools": {}, "logging": {},
                "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}});
            seen.result(hello)
        }
        "logging/setLevel" => seen.result(json!({})),
        _ => plain(seen),
    }
}

fn start(plain: fn(&Seen) -> Reply) -> (Peer, Gantry) {
    let peer = Peer::start(move |seen| with_tasks(seen, plain));
    let gantry = gateway(entry(&peer.url("/mcp"))).start();
    gantry.wait_state(FAR, "ready", LONG);
    (peer, gantry)
}

fn rest(gantry: &Gantry, key: &str, method: &str, params: &Value) -> Answer {
    let path = format!("/api/v1/mcp/servers/{FAR}/call");
    let body = json!({"method": method, "params": params});
    gantry.rest_as(key, "POST", &path, Some(&body))
}

// fault T1, fault T4
#[test]
fn tasks_of_another_agent_cannot_be_reached() {
    for plain in [legacy as fn(&Seen) -> Reply, modern] {
        let (peer, gantry) = start(plain);
        // A grant of everything, and one of all tasks by name.
        let keys = [
            gantry.agent.clone(),
            gantry.agent_with("wide", &["far:*", "far:task:*"]),
        ];
        let mut session = Session::open(gantry.connect(), &keys[0], "2025-11-25");
        for method in TASKS {
            for id in ["task-1", "task-2"] {
                let params = json!({"taskId": id, "inputResponses": {}});
                for key in &keys {
                    let answer = rest(&gantry, key, method, &params);
                    let text = answer.text();
                    assert_eq!(
                        (answer.status, &answer.json()["code"]),
                        (404, &json!("method.unknown")),
                        "{text}"
                    );
                    assert!(!text.contains(id) && !text.contains(SECRET), "{text}");
                    for path in ["/mcp", "/mcp/servers/far"] {
                        let mut connection = gantry.connect();
                        let answer = stateless(&mut connection, key, path, method, params.clone());
                        let error = answer.message()["error"]["code"].clone();
                        assert_eq!((answer.status, error), (404, json!(-32601)), "{method}");
                    }
                }
                let answer = session.request(method, params);
                assert_eq!(answer["error"]["code"], -32601, "{answer:#}");
            }
        }
        let reached = |seen: &Seen| seen.method().starts_with("tasks/");
        assert!(!peer.seen().iter().any(reached));
    }
}

// fault T4: a call that would run as a task is made as any other, as nobody could ask for the task.
#[test]
fn a_call_of_an_agent_never_becomes_a_task() {
    for plain in [legacy as fn(&Seen) -> Reply, modern] {
        let (peer, gantry) = start(plain);
        let related = json!({"taskId": "task-1"});
        let params = json!({"name": "echo", "arguments": {"text": "x"}, "task": {"ttl": 60000},
            "_meta": {"io.modelcontextprotocol/related-task": related, "vendor/own": 1}});
        let answer = rest(&gantry, &gantry.agent, "tools/call", &params);
        assert_eq!(answer.json()["result"]["content"][0]["text"], "x");
        let mut session = Session::open(gantry.connect(), &gantry.agent, "2025-11-25");
        let mut renamed = params.clone();
        renamed["name"] = "far__echo".into();
        let answer = session.request("tools/call", renamed);
        assert_eq!(answer["result"]["content"][0]["text"], "x", "{answer:#}");
        let calls = peer.asked("tools/call");
        assert_eq!(calls.len(), 2);
        for call in calls {
            let params = &call.body["params"];
            assert_eq!(params["task"], Value::Null, "{params:#}");
            let meta = &params["_meta"];
            assert_eq!(meta["io.modelcontextprotocol/related-task"], Value::Null);
            assert_eq!(meta["vendor/own"], 1, "what is not ours passes through");
        }
    }
}

// fault T4
#[test]
fn the_level_of_a_servers_log_is_no_agents_to_set() {
    let (peer, gantry) = start(legacy);
    let quiet = gantry.agent_with("quiet", &["far:*", "far:logging:*"]);
    let refused = rest(
        &gantry,
        &quiet,
        "logging/setLevel",
        &json!({"level": "emergency"}),
    );
    assert_eq!(refused.json()["code"], "method.unknown");
    let call = json!({"name": "far__echo", "arguments": {"text": "x"}});
    let at_level = |key: &str, level: &str| {
        let mut session = Session::open(gantry.connect(), key, "2025-06-18");
        let set = session.request("logging/setLevel", json!({"level": level}));
        assert_eq!(set["result"], json!({}), "{set:#}");
        let answer = session.request("tools/call", call.clone());
        assert_eq!(answer["result"]["content"][0]["text"], "x", "{answer:#}");
    };
    at_level(&quiet, "error");
    at_level(&gantry.agent, "debug");
    // Who wants less than another hears less; the server goes on logging for the other.
    at_level(&quiet, "emergency");
    let asked = peer.asked("logging/setLevel");
    let levels: Vec<&Value> = asked
        .iter()
        .map(|seen| &seen.body["params"]["level"])
        .collect();
    assert_eq!(levels, ["error", "debug"]);
}
