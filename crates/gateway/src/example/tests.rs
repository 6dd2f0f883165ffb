//! Both generations of the example server, line by line.

use super::*;

fn ask(text: &str) -> Value {
    answer(text.as_bytes()).unwrap()
}

#[test]
fn the_older_generation_shakes_hands() {
    let hello = ask(
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#,
    );
    assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
    assert!(answer(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).is_none());
    let list = ask(r#"{"jsonrpc":"2.0","id":"x","method":"tools/list"}"#);
    assert_eq!(list["id"], "x");
    assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 3);
    assert!(list["result"].get("resultType").is_none());
}

#[test]
fn the_stateless_generation_marks_its_results() {
    let found = ask(
        r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
    );
    assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(found["result"]["resultType"], "complete");
    assert_eq!(found["result"]["cacheScope"], "public");
}

#[test]
fn tools_do_what_they_say() {
    let call = |name: &str, arguments: Value| {
        let params = json!({"name": name, "arguments": arguments});
        ask(
            &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
                .to_string(),
        )
    };
    assert_eq!(
        call("echo", json!({"text": "hé"}))["result"]["content"][0]["text"],
        "hé"
    );
    assert_eq!(
        call("add", json!({"a": 2, "b": 3}))["result"]["structuredContent"],
        json!({"sum": 5})
    );
    assert_eq!(
        call("add", json!({"a": 0.5, "b": 1}))["result"]["content"][0]["text"],
        "1.5"
    );
    assert_eq!(
        call("now", json!({}))["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .len(),
        20
    );
    assert_eq!(
        call("nope", json!({}))["error"]["message"],
        "Unknown tool: nope"
    ); // row 4.8
    assert_eq!(call("echo", json!({}))["result"]["isError"], true);
}

#[test]
fn nonsense_is_answered_or_ignored() {
    assert_eq!(ask("{")["error"]["code"], -32700);
    assert_eq!(
        ask(r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#)["error"]["code"],
        -32601
    );
    assert!(answer(b"\n").is_none());
}
