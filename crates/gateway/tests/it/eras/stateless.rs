//! The stateless generation, beside sessions on the same URL.

use gantry_testkit::{Era, Evilpeer};
use serde_json::{Value, json};

use super::Older;
use crate::faults_client::Posted;
use crate::harness::{Gantry, LONG};

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

fn ask(gantry: &Gantry, path: &str, method: &str, params: Value) -> Value {
    let answer = Posted::stateless(&gantry.agent, method, params)
        .at(path)
        .send(gantry);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(
        answer.header("mcp-session-id").is_none(),
        "there are no sessions here"
    );
    answer.json()["result"].take()
}

#[test]
fn a_client_discovers_lists_and_calls_without_a_handshake() {
    let gantry = both();
    let info = json!({"name": "gantry", "version": env!("CARGO_PKG_VERSION")});
    for (path, name) in [
        ("/mcp", "old__echo"),
        ("/mcp", "new__echo"),
        ("/mcp/servers/old", "echo"),
        ("/mcp/servers/new", "echo"),
    ] {
        let found = ask(&gantry, path, "server/discover", json!({}));
        assert_eq!(found["supportedVersions"], json!(["2026-07-28"]));
        assert_eq!(found["capabilities"]["tools"], json!({"listChanged": true}));
        let told = found["instructions"].as_str().unwrap();
        assert_eq!(told.contains("## old\n"), path == "/mcp", "{told}");
        assert_eq!(
            (&found["resultType"], &found["cacheScope"]),
            (&json!("complete"), &json!("private"))
        );
        assert_eq!(found["ttlMs"], 5000);
        assert_eq!(found["_meta"]["io.modelcontextprotocol/serverInfo"], info);

        for method in [
            "tools/list",
            "resources/list",
            "prompts/list",
            "resources/templates/list",
        ] {
            let listed = ask(&gantry, path, method, json!({}));
            assert_eq!(listed["resultType"], "complete", "{method}: {listed:#}");
            assert_eq!(
                (&listed["ttlMs"], &listed["cacheScope"]),
                (&json!(5000), &json!("private")),
                "{method}"
            );
        }
        let listed = ask(&gantry, path, "tools/list", json!({}));
        assert!(
            listed["tools"]
                .as_array()
                .unwrap()
                .iter()
                .any(|tool| tool["name"] == name)
        );

        let called = ask(
            &gantry,
            path,
            "tools/call",
            json!({"name": name, "arguments": {"text": "hi"}}),
        );
        assert_eq!(called["content"], json!([{"type": "text", "text": "hi"}]));
        assert_eq!(called["resultType"], "complete");
        assert_eq!(called["_meta"]["io.modelcontextprotocol/serverInfo"], info);
        assert!(
            called.get("ttlMs").is_none(),
            "a call's result is not to be kept"
        );
    }
    let rows = gantry.audit_rows("");
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row["status"] == "ok"));
}

#[test]
fn both_generations_share_one_url_and_get_the_same_tools_and_answers() {
    let gantry = both();
    let session = Older::open(&gantry, "/mcp", "2025-11-25");
    let strip = |mut result: Value| {
        for member in ["resultType", "ttlMs", "cacheScope", "_meta"] {
            result.as_object_mut().unwrap().remove(member);
        }
        result
    };
    for method in ["tools/list", "resources/list", "prompts/list"] {
        let older = session.result(method, json!({}));
        assert_eq!(
            strip(ask(&gantry, "/mcp", method, json!({}))),
            older,
            "{method}"
        );
    }
    for server in ["old", "new"] {
        for (tool, arguments) in [
            ("echo", json!({"text": "same"})),
            ("add", json!({"a": 1, "b": 2.5})),
            ("fail", json!({"message": "no such file"})),
        ] {
            let params = json!({"name": format!("{server}__{tool}"), "arguments": arguments});
            let older = session.result("tools/call", params.clone());
            assert_eq!(
                strip(ask(&gantry, "/mcp", "tools/call", params)),
                older,
                "{server} {tool}"
            );
        }
        // A resource that is not there has a code of its own in one of them only.
        let path = format!("/mcp/servers/{server}");
        let params = json!({"uri": "test://nothing"});
        let newer = Posted::stateless(&gantry.agent, "resources/read", params.clone())
            .at(&path)
            .send(&gantry);
        assert_eq!(newer.json()["error"]["code"], -32602, "{}", newer.text());
        let session = Older::open(&gantry, &path, "2025-11-25");
        let older = session.send(json!(1), "resources/read", params).message();
        assert_eq!(older["error"]["code"], -32002, "{older:#}");
    }
}

#[test]
fn what_a_stateless_request_must_carry_is_asked_for() {
    let gantry = both();
    let good = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let without = |key: &str| {
        let mut meta = good.clone();
        meta.as_object_mut().unwrap().remove(key);
        meta
    };
    let with = |key: &str, value: Value| {
        let mut meta = good.clone();
        meta[key] = value;
        meta
    };
    let version = "io.modelcontextprotocol/protocolVersion";
    let capabilities = "io.modelcontextprotocol/clientCapabilities";
    let rows = [
        ("2026-07-28", without(version), -32602, "era.meta"),
        ("2026-07-28", without(capabilities), -32602, "era.meta"),
        (
            "2026-07-28",
            with(capabilities, json!([])),
            -32602,
            "era.meta",
        ),
        ("2026-07-28", with(version, json!(5)), -32602, "era.meta"),
        ("2025-11-25", with(version, json!("2025-11-25")), -32022, ""),
        ("2031-01-01", with(version, json!("2031-01-01")), -32022, ""),
    ];
    for (header, meta, code, name) in rows {
        let params = json!({"_meta": meta});
        let message = json!({"jsonrpc": "2.0", "id": 8, "method": "tools/list", "params": params});
        let answer = Posted::new(&gantry.agent, "/mcp", &message)
            .header("MCP-Protocol-Version", header)
            .header("Mcp-Method", "tools/list")
            .send(&gantry);
        let body = answer.json();
        assert_eq!(
            (answer.status, &body["error"]["code"]),
            (400, &json!(code)),
            "{body:#}"
        );
        assert_eq!(body["id"], 8);
        let data = &body["error"]["data"];
        match code {
            -32022 => assert_eq!(
                *data,
                json!({"supported": ["2026-07-28"], "requested": header})
            ),
            _ => assert_eq!(data["code"], name, "{body:#}"),
        }
    }
}
