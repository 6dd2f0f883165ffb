//! Sessions of 2024-11-05 to 2025-11-25, at both endpoints, and the batches that one version has.

use gantry_testkit::{Era, Evilpeer};
use serde_json::{Value, json};

use super::Older;
use crate::faults_client::{Posted, with_long_list};
use crate::harness::{Gantry, LONG};

const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Starts a gateway with a server of each generation.
fn both() -> Gantry {
    let gantry = Gantry::builder()
        .server("old", &Evilpeer::new().era(Era::Legacy))
        .server("new", &Evilpeer::new().era(Era::Modern))
        .start();
    gantry.wait_state("old", "ready", LONG);
    gantry.wait_state("new", "ready", LONG);
    gantry
}

/// Asserts that nothing of the stateless generation is in a result.
fn is_plain(result: &Value) {
    for member in ["resultType", "ttlMs", "cacheScope"] {
        assert!(result.get(member).is_none(), "`{member}` in {result:#}");
    }
}

#[test]
fn every_version_with_a_handshake_works_at_both_endpoints_with_servers_of_both_generations() {
    let gantry = both();
    for version in VERSIONS {
        for (path, names) in [
            ("/mcp", ["old__echo", "new__echo"]),
            ("/mcp/servers/old", ["echo", "echo"]),
            ("/mcp/servers/new", ["echo", "echo"]),
        ] {
            let session = Older::open(&gantry, path, version);
            assert_eq!(session.hello["protocolVersion"], version);
            assert_eq!(session.hello["serverInfo"]["name"], "gantry");
            assert_eq!(
                session.hello["capabilities"]["tools"],
                json!({"listChanged": true})
            );
            // One server's own words where only it is meant, else those of all under their names.
            let told = session.hello["instructions"].as_str().unwrap();
            for name in ["old", "new"] {
                let has = told.contains(&format!("## {name}\n"));
                assert_eq!(has, path == "/mcp", "{path}: {told}");
            }
            assert_eq!(session.id.len(), 32);
            let listed = session.result("tools/list", json!({}));
            is_plain(&listed);
            for name in names {
                let tools = listed["tools"].as_array().unwrap();
                assert!(
                    tools.iter().any(|tool| tool["name"] == name),
                    "{path} {version}: {name}"
                );
                let text = format!("{path} {version} {name}");
                let called = session.result(
                    "tools/call",
                    json!({"name": name, "arguments": {"text": text}}),
                );
                is_plain(&called);
                assert_eq!(called["content"], json!([{"type": "text", "text": text}]));
            }
            assert_eq!(session.result("ping", json!({})), json!({}));
            assert_eq!(
                session.result("logging/setLevel", json!({"level": "error"})),
                json!({})
            );
            is_plain(&session.result("resources/list", json!({})));
            is_plain(&session.result("prompts/list", json!({})));
            assert_eq!(session.end(), 204);
            assert_eq!(session.send(json!(1), "ping", json!({})).status, 404);
        }
    }
    let rows = gantry.audit_rows("");
    assert!(
        rows.iter()
            .all(|row| row["status"] == "ok" && row["surface"] == "mcp")
    );
    assert_eq!(rows.len(), VERSIONS.len() * 6);
}

#[test]
fn other_versions_are_answered_with_our_newest_and_ids_come_back_as_they_were() {
    let gantry = both();
    for asked in ["2026-07-28", "2031-01-01", "1.0"] {
        let session = Older::open(&gantry, "/mcp", asked);
        assert_eq!(session.hello["protocolVersion"], "2025-11-25");
    }
    let session = Older::open(&gantry, "/mcp", "2025-11-25");
    for id in [
        json!(1),
        json!("1"),
        json!("ü \n"),
        json!(-7),
        json!(9_007_199_254_740_993_u64),
        json!(1.5),
    ] {
        assert_eq!(
            session.send(id.clone(), "ping", json!({})).message()["id"],
            id
        );
        let call = json!({"name": "old__echo", "arguments": {"text": "x"}});
        assert_eq!(
            session.send(id.clone(), "tools/call", call).message()["id"],
            id
        );
    }
    let named = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 5}});
    let refused = Posted::new(&gantry.agent, "/mcp", &named).send(&gantry);
    assert_eq!(
        (refused.status, &refused.json()["error"]["code"]),
        (400, &json!(-32602))
    );
    assert!(refused.header("mcp-session-id").is_none());
}

#[test]
fn a_client_that_keeps_no_session_is_served_as_one_of_2025_03_26() {
    let gantry = both();
    let call = json!({"name": "new__echo", "arguments": {"text": "bare"}});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call});
    let answer = Posted::new(&gantry.agent, "/mcp", &message).send(&gantry);
    assert_eq!(answer.status, 200);
    assert!(answer.header("mcp-session-id").is_none());
    assert_eq!(
        answer.json()["result"],
        json!({"content": [{"type": "text", "text": "bare"}]})
    );
    let unknown = Posted::new(&gantry.agent, "/mcp/servers/nobody", &message).send(&gantry);
    assert_eq!(
        (unknown.status, &unknown.json()["error"]["data"]["code"]),
        (404, &json!("server.unknown"))
    );
    // Answers to requests that we never made, and notifications that need nothing of us.
    for message in [
        json!({"jsonrpc": "2.0", "id": 5, "result": {}}),
        json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}),
        json!({"jsonrpc": "2.0", "method": "notifications/nobody/knows"}),
    ] {
        let answer = Posted::new(&gantry.agent, "/mcp", &message).send(&gantry);
        assert_eq!((answer.status, answer.body.len()), (202, 0), "{message}");
    }
}

// fault A1: what one call of a batch has taken does not pay for the lists beside it.
#[test]
fn the_lists_of_a_batch_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let gantry = with_long_list(folder.path());
    let session = Older::open(&gantry, "/mcp", "2025-03-26");
    let params = json!({"name": "near__big", "arguments": {"bytes": 17 << 10}});
    let mut batch =
        vec![json!({"jsonrpc": "2.0", "id": 0, "method": "tools/call", "params": params})];
    let list = |id: u32| json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"});
    batch.extend((1..=30).map(list));
    batch.push(json!({"jsonrpc": "2.0", "id": "last", "method": "ping"}));
    let answer = session.posted(&json!(batch)).send(&gantry);
    assert_eq!(answer.status, 200, "{:.1000}", answer.text());
    let text = answer.text();
    assert!(text.len() < 50 << 20, "{}", text.len());
    let refused = text.matches("\"http.answers_full\"").count();
    assert!((15..=25).contains(&refused), "{refused} of 30 lists");
    assert!(text.starts_with("[{\"jsonrpc\":\"2.0\",\"id\":0,\"result\""));
    assert!(text.ends_with("{\"jsonrpc\":\"2.0\",\"id\":\"last\",\"result\":{}}]"));
    assert!(text.contains("{\"jsonrpc\":\"2.0\",\"id\":30,\"error\""));
}

#[test]
fn a_batch_of_2025_03_26_is_answered_message_by_message() {
    let gantry = both();
    for path in ["/mcp", "/mcp/servers/old"] {
        let session = Older::open(&gantry, path, "2025-03-26");
        let name = if path == "/mcp" { "old__echo" } else { "echo" };
        let call = |id: Value, text: &str| {
            let params = json!({"name": name, "arguments": {"text": text}});
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
        };
        let batch = json!([
            call(json!(1), "one"),
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            call(json!("two"), "two"),
            {"jsonrpc": "2.0", "id": 3, "method": "ping"},
            {"jsonrpc": "2.0", "id": 4, "method": "initialize", "params": {"protocolVersion": "2025-03-26"}},
            {"jsonrpc": "2.0", "id": 5, "method": "no/such/method"},
            {"jsonrpc": "2.0", "id": 6, "result": {}},
            {"jsonrpc": "1.0", "id": 7, "method": "ping"},
        ]);
        let answer = session.posted(&batch).send(&gantry);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answers = answer.json();
        let told: Vec<_> = answers
            .as_array()
            .unwrap()
            .iter()
            .map(|answer| {
                let text = answer.pointer("/result/content/0/text");
                (
                    answer["id"].clone(),
                    text.cloned(),
                    answer["error"]["code"].as_i64(),
                )
            })
            .collect();
        let wanted = [
            (json!(1), Some(json!("one")), None),
            (json!("two"), Some(json!("two")), None),
            (json!(3), None, None),
            (json!(4), None, Some(-32600)),
            (json!(5), None, Some(-32601)),
            (Value::Null, None, Some(-32600)),
        ];
        assert_eq!(told, wanted, "{answers:#}");
        let silent = json!([{"jsonrpc": "2.0", "method": "notifications/initialized"}]);
        let taken = session.posted(&silent).send(&gantry);
        assert_eq!((taken.status, taken.body.len()), (202, 0));
        let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
        for wrong in [json!([]), Value::Array(vec![ping.clone(); 33])] {
            let refused = session.posted(&wrong).send(&gantry);
            assert_eq!(
                (refused.status, &refused.json()["error"]["code"]),
                (400, &json!(-32600))
            );
        }
        let most = session.posted(&Value::Array(vec![ping; 32])).send(&gantry);
        assert_eq!(most.json().as_array().unwrap().len(), 32);
    }
    let rows = gantry.audit_rows("server=old");
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row["status"] == "ok"));
}
