//! The well-behaved peer in the legacy era.

use gantry_testkit::journal::{Entry, Journal};
use gantry_testkit::{Era, Evilpeer, wait};
use serde_json::{Value, json};
use std::time::Duration;

use crate::client::{Client, scratch};

#[test]
fn negotiates_every_legacy_version_and_refuses_the_probe() {
    let peer = Evilpeer::new().era(Era::Legacy).name("old").version("7");
    for version in [
        "2024-11-05",
        "2025-03-26",
        "2025-06-18",
        "2025-11-25",
        "2031-01-01",
    ] {
        let mut client = Client::start(&peer);
        let probe = client.ask(1, "server/discover", json!({}));
        assert_eq!(probe["error"]["code"], -32601);
        let early = client.ask(2, "tools/list", json!({}));
        assert_eq!(early["error"]["code"], -32600);
        let reply = client.ask(3, "initialize", json!({"protocolVersion": version}));
        let expected = if version == "2031-01-01" {
            "2025-11-25"
        } else {
            version
        };
        assert_eq!(reply["result"]["protocolVersion"], expected);
        assert_eq!(
            reply["result"]["serverInfo"],
            json!({"name": "old", "version": "7"})
        );
        client.close();
        assert!(client.exit().success());
    }
}

#[test]
fn tools_do_what_their_names_say() {
    let mut client = Client::legacy(&Evilpeer::new());
    assert_eq!(client.text(2, "echo", json!({"text": "hü"})), "hü");
    let sum = client.ask(
        3,
        "tools/call",
        json!({"name": "add", "arguments": {"a": 2, "b": 3}}),
    );
    assert_eq!(sum["result"]["structuredContent"], json!({"sum": 5}));
    assert_eq!(sum["result"].get("resultType"), None);
    let fail = client.ask(
        4,
        "tools/call",
        json!({"name": "fail", "arguments": {"message": "no"}}),
    );
    assert_eq!(fail["result"]["isError"], true);
    let arguments = json!({"code": -32050, "message": "odd"});
    let error = client.ask(
        5,
        "tools/call",
        json!({"name": "rpc_error", "arguments": arguments}),
    );
    assert_eq!(error["error"]["code"], -32050);
    assert_eq!(error["error"]["data"]["tool"], "rpc_error");
    assert_eq!(
        client.text(6, "big", json!({"bytes": 100_000})).len(),
        100_000
    );
    let meta = json!({"name": "whoami", "_meta": {"traceparent": "00-1"}});
    let meta = client.ask(7, "tools/call", meta);
    assert_eq!(
        meta["result"]["content"][0]["text"],
        r#"{"traceparent":"00-1"}"#
    );
    let raw = r#"{"name":"mirror","arguments":{"n":1e400,"m":9223372036854775808}}"#;
    client.write(&format!(
        r#"{{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{raw}}}"#
    ));
    assert_eq!(
        client.message()["error"]["code"],
        -32602,
        "a number no value can hold"
    );
    let raw = r#"{"name":"mirror","arguments":{"n":1.00,"m":9223372036854775808}}"#;
    client.write(&format!(
        r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{raw}}}"#
    ));
    assert_eq!(client.message()["result"]["content"][0]["text"], raw);
    let missing = client.ask(10, "tools/call", json!({"name": "echo", "arguments": {}}));
    assert_eq!(missing["result"]["isError"], true);
    let unknown = client.ask(11, "tools/call", json!({"name": "nope"}));
    assert_eq!(unknown["error"]["code"], -32602);
    client.assert_no_files_of_its_own(12);
    let identity: Value = serde_json::from_str(&client.text(13, "pid", json!({}))).unwrap();
    assert_eq!(identity["pid"], client.child.id());
    let environment = client.text(14, "env", json!({}));
    assert!(
        serde_json::from_str::<Value>(&environment)
            .unwrap()
            .is_object()
    );
    let bad = client.ask(15, "tools/call", json!({"name": "bad_output"}));
    assert_eq!(
        bad["result"]["structuredContent"],
        json!({"sum": "not a number"})
    );
}

#[test]
fn lists_come_in_pages_and_grow() {
    let mut client = Client::legacy(&Evilpeer::new().tools(30).page(10));
    let mut names = Vec::new();
    let mut params = json!({});
    for id in 10.. {
        let page = client.ask(id, "tools/list", params.clone());
        let tools = page["result"]["tools"].as_array().unwrap();
        assert!(tools.len() <= 10);
        names.extend(
            tools
                .iter()
                .map(|tool| tool["name"].as_str().unwrap().to_owned()),
        );
        let Some(cursor) = page["result"].get("nextCursor") else {
            break;
        };
        params = json!({"cursor": cursor});
    }
    assert_eq!(names.len(), 19 + 30);
    assert_eq!(names.last().unwrap(), "tool_0030");
    assert_eq!(
        client.text(90, "tool_0030", json!({"text": "x"})),
        "tool_0030 x"
    );
    client.call(91, "grow", json!({}));
    assert_eq!(
        client.message()["method"],
        "notifications/tools/list_changed"
    );
    assert_eq!(
        client.message()["result"]["content"][0]["text"],
        "grown_0001"
    );
    assert_eq!(
        client.text(92, "grown_0001", json!({"text": "y"})),
        "grown_0001 y"
    );
    let bad = client.ask(93, "tools/list", json!({"cursor": "from-x"}));
    assert_eq!(bad["error"]["code"], -32602);
}

#[test]
fn resources_prompts_and_the_rest_answer() {
    let mut client = Client::legacy(&Evilpeer::new());
    let read = |client: &mut Client, uri: &str| {
        client.ask(2, "resources/read", json!({"uri": uri}))["result"]["contents"][0].clone()
    };
    assert_eq!(
        read(&mut client, "test://static-text")["text"],
        "the static text"
    );
    assert!(read(&mut client, "test://static-binary")["blob"].is_string());
    assert_eq!(
        read(&mut client, "test://template/7/data")["text"],
        r#"{"id":"7"}"#
    );
    let missing = client.ask(3, "resources/read", json!({"uri": "test://nope"}));
    assert_eq!(missing["error"]["code"], -32002);
    let uri = json!({"uri": "test://static-text"});
    client.ask(4, "resources/subscribe", uri.clone());
    client.call(5, "touch", uri);
    assert_eq!(
        client.message()["method"],
        "notifications/resources/updated"
    );
    client.message();
    let prompt = json!({"name": "with_arguments", "arguments": {"a": "x"}});
    let prompt = client.ask(6, "prompts/get", prompt);
    assert_eq!(prompt["result"]["messages"][0]["content"]["text"], "Say x.");
    let argument = json!({"argument": {"name": "a", "value": "al"}});
    let completion = client.ask(7, "completion/complete", argument);
    assert_eq!(
        completion["result"]["completion"]["values"],
        json!(["alpha", "alphabet"])
    );
    assert_eq!(
        client.ask(8, "logging/setLevel", json!({"level": "info"}))["result"],
        json!({})
    );
    assert_eq!(client.ask(9, "nope", json!({}))["error"]["code"], -32601);
}

#[test]
fn calls_overlap_report_progress_and_obey_cancellation() {
    let path = scratch("journal");
    let mut client = Client::legacy(&Evilpeer::new().journal(&path));
    client.call(
        2,
        "echo",
        json!({"text": "late", "delay_ms": 400, "nonce": "n 1"}),
    );
    client.call(3, "echo", json!({"text": "early", "nonce": "n2"}));
    assert_eq!(client.message()["id"], 3);
    assert_eq!(client.message()["id"], 2);
    let arguments = json!({"ms": 30, "progress": 2});
    let meta = json!({"progressToken": "t"});
    let params = json!({"name": "slow", "arguments": arguments, "_meta": meta});
    client.request(4, "tools/call", params);
    for step in 1..=2 {
        let progress = client.message();
        assert_eq!(progress["params"]["progress"], step);
        assert_eq!(progress["params"]["progressToken"], "t");
    }
    assert_eq!(client.message()["id"], 4);
    client.call(5, "slow", json!({"ms": 60_000, "nonce": "n5"}));
    client.tell("notifications/cancelled", json!({"requestId": 5}));
    assert!(client.silent_until_ping(6));
    let journal = Journal::read(&path).unwrap();
    assert_eq!(journal.nonces(), ["n 1", "n2", "n5"]);
    assert!(journal.cancelled("n5"));
    assert_eq!(journal.calls(), 4);
    assert_eq!(journal.starts(), 1);
    assert!(journal.entries.contains(&Entry::Call {
        nonce: Some("n2".into()),
        method: "tools/call".into(),
        tool: "echo".into(),
        id: "3".into(),
    }));
    client.close();
    assert!(client.exit().success());
    let ended = || {
        Journal::read(&path)
            .unwrap()
            .entries
            .contains(&Entry::Ended)
    };
    assert!(wait::eventually(Duration::from_secs(5), ended).is_some());
}

// fault P11
#[test]
fn a_crash_is_executed_recorded_and_loud() {
    let path = scratch("journal");
    let mut client = Client::legacy(&Evilpeer::new().journal(&path));
    client.call(2, "stderr", json!({"text": "last words"}));
    client.message();
    client.call(3, "crash", json!({"code": 42, "nonce": "c"}));
    assert!(client.sees_end());
    assert_eq!(client.exit().code(), Some(42));
    assert_eq!(client.stderr(), "last words\nboom\n");
    assert_eq!(Journal::read(&path).unwrap().executed("c"), 1);
}
