//! Headers that mirror the body must say what it says, and the body alone is judged.

use gantry_testkit::Evilpeer;
use gantry_testkit::journal::Journal;
use serde_json::{Value, json};

use crate::faults_client::{Posted, server_with};
use crate::harness::{Gantry, LONG};

// fault H12
#[test]
fn headers_that_do_not_agree_with_the_body_are_refused_and_nothing_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().journal(&journal))
        .start();
    gantry.wait_state("a", "ready", LONG);
    for (path, name) in [("/mcp", "a__echo"), ("/mcp/servers/a", "echo")] {
        let call = Posted::call(&gantry.agent, name, json!({"text": "x", "nonce": "n"})).at(path);
        let sentinel = |text: &str| format!("=?base64?{text}?=");
        let wrong = [
            (
                "another method",
                call.clone().header("Mcp-Method", "tools/list"),
            ),
            ("no method", call.clone().without("Mcp-Method")),
            (
                "method twice",
                call.clone().also("Mcp-Method", "tools/call"),
            ),
            (
                "method in another case",
                call.clone().header("Mcp-Method", "Tools/Call"),
            ),
            ("another name", call.clone().header("Mcp-Name", "a__add")),
            ("no name", call.clone().without("Mcp-Name")),
            ("name twice", call.clone().also("Mcp-Name", name)),
            (
                "two names in one",
                call.clone().header("Mcp-Name", &format!("{name}, {name}")),
            ),
            (
                "another name, packed",
                call.clone().header("Mcp-Name", &sentinel("YV9fYWRk")),
            ),
            (
                "packed and broken",
                call.clone().header("Mcp-Name", &sentinel("%%%")),
            ),
            (
                "packed and no text",
                call.clone().header("Mcp-Name", &sentinel("/w==")),
            ),
            (
                "packed twice",
                call.clone()
                    .header("Mcp-Name", &sentinel(&sentinel("ZWNobw=="))),
            ),
            (
                "another version",
                call.clone().header("MCP-Protocol-Version", "2025-11-25"),
            ),
            ("no version", call.clone().without("MCP-Protocol-Version")),
            (
                "version twice",
                call.clone().also("MCP-Protocol-Version", "2026-07-28"),
            ),
        ];
        for (what, posted) in wrong {
            let answer = posted.send(&gantry);
            let body = answer.json();
            assert_eq!(
                (answer.status, &body["error"]["code"]),
                (400, &json!(-32020)),
                "{what}: {body:#}"
            );
            assert_eq!(
                (&body["error"]["data"]["code"], &body["id"]),
                (&json!("era.header"), &json!(1)),
                "{what}"
            );
        }
    }
    assert_eq!(Journal::read(&journal).unwrap().calls(), 0);
    assert_eq!(gantry.audit_rows(""), Vec::<Value>::new());
}

// fault H12
#[test]
fn a_name_may_be_packed_and_what_goes_upstream_is_written_afresh() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().journal(&journal))
        .start();
    gantry.wait_state("a", "ready", LONG);
    // `a__mirror` in base64; the server gets its own name for the tool, and none of our headers.
    let call = Posted::call(&gantry.agent, "a__mirror", json!({"nonce": "n"}))
        .header("Mcp-Name", "=?base64?YV9fbWlycm9y?=")
        .header("Mcp-Param-Nonce", "something else");
    let answer = call.send(&gantry);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    let seen = answer["result"]["content"][0]["text"].as_str().unwrap();
    let seen: Value = serde_json::from_str(seen).unwrap();
    assert_eq!(
        (&seen["name"], &seen["arguments"]),
        (&json!("mirror"), &json!({"nonce": "n"}))
    );
    assert_eq!(Journal::read(&journal).unwrap().executed("n"), 1);
    // Of the older generations these headers are nothing, so that they decide nothing.
    let session = gantry.initialize().id.unwrap();
    let params = json!({"name": "a__echo", "arguments": {"text": "judged by its body"}});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let answer = Posted::in_session(&gantry.agent, &session, &message)
        .header("Mcp-Method", "tools/list")
        .header("Mcp-Name", "a__add")
        .send(&gantry);
    assert_eq!(
        answer.json()["result"]["content"][0]["text"],
        "judged by its body"
    );
    let rows = gantry.audit_rows("");
    let tools: Vec<_> = rows
        .iter()
        .map(|row| row["tool"].as_str().unwrap())
        .collect();
    assert_eq!(tools, ["mirror", "echo"]);
}

// fault H12
#[test]
fn no_client_is_asked_to_mirror_arguments_and_what_it_mirrors_decides_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let region = json!({"type": "string", "enum": ["eu", "us"], "x-mcp-header": "Region"});
    let schema = json!({"type": "object", "properties": {"region": region}});
    let program = server_with(
        folder.path(),
        &json!([{"name": "deploy", "inputSchema": schema}]),
    );
    let gantry = Gantry::builder()
        .entry("a", json!({"command": program.to_str().unwrap()}))
        .start();
    gantry.wait_state("a", "ready", LONG);
    let listed = gantry.mcp("tools/list", json!({}));
    let shown = &listed["result"]["tools"][0]["inputSchema"]["properties"]["region"];
    assert_eq!(*shown, json!({"type": "string", "enum": ["eu", "us"]}));
    for (argument, header) in [
        ("eu", None),
        ("eu", Some("us")),
        ("us", Some("=?base64?!?=")),
    ] {
        let mut call = Posted::call(&gantry.agent, "a__deploy", json!({"region": argument}));
        if let Some(header) = header {
            call = call.header("Mcp-Param-Region", header);
        }
        let answer = call.send(&gantry).json();
        assert_eq!(
            answer["result"]["content"][0]["text"], "called",
            "{answer:#}"
        );
    }
    let wrong = Posted::call(&gantry.agent, "a__deploy", json!({"region": "moon"}))
        .header("Mcp-Param-Region", "eu")
        .send(&gantry);
    assert_eq!(wrong.json()["result"]["isError"], true, "{}", wrong.text());
}
