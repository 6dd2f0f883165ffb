//! `gantry calls ID` and `gantry call --async`: one call, whole, and one that nobody waits for.

use gantry_testkit::wait::eventually;
use insta::assert_snapshot;
use serde_json::Value;

use super::run;
use crate::harness::{Gantry, LONG};

/// Makes figures and times of records the same, too.
fn settings() -> insta::Settings {
    let mut settings = super::settings();
    settings.add_filter(r#""(seq|\w+_(?:ms|us))": \d+"#, r#""$1": "[figure]""#);
    settings.add_filter(r#""trace": "[0-9a-f]{32}""#, r#""trace": "[trace]""#);
    settings.add_filter(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "[time]");
    settings.add_filter(
        r#""policy_revision": \d+"#,
        r#""policy_revision": "[figure]""#,
    );
    settings.add_filter(
        r#""grant": (?:null|"grant_[0-9a-f]{32}")"#,
        r#""grant": "[grant]""#,
    );
    settings
}

#[test]
fn one_call_is_shown_whole() {
    let gantry = Gantry::start(&["a"]);
    run(&gantry, &["call", "a__add", "a=1", "b=2"]);
    run(&gantry, &["call", "a__add", "a=1"]);
    let calls = gantry.cli(&["calls", "--json"]);
    let calls: Value = serde_json::from_slice(&calls.stdout).unwrap();
    let id = |status: &str| {
        let mut calls = calls["items"].as_array().unwrap().iter();
        let call = calls.find(|call| call["status"] == status).unwrap();
        call["id"].as_str().unwrap().to_owned()
    };
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["calls", &id("ok")]), @r#"
        {
          "id": "[call]",
          "seq": "[figure]",
          "status": "ok",
          "project": "local",
          "agent": "default",
          "key": "[key]",
          "surface": "rest",
          "server": "a",
          "method": "tools/call",
          "tool": "add",
          "schema_version": "1-270f57a52d81",
          "user": null,
          "user_trust": null,
          "session": null,
          "run": null,
          "step": null,
          "trace": "[trace]",
          "started": "[time]",
          "started_ms": "[figure]",
          "ended_ms": "[figure]",
          "duration_us": "[figure]",
          "code": null,
          "error": null,
          "input": "{\"a\":1,\"b\":2}",
          "input_bytes": 13,
          "output": "{\"content\":[{\"type\":\"text\",\"text\":\"{\\\"sum\\\":3}\"}],\"structuredContent\":{\"sum\":3},\"resultType\":\"complete\",\"_meta\":{\"io.modelcontextprotocol/serverInfo\":{\"name\":\"a\",\"version\":\"[version]\"}}}",
          "output_bytes": 182,
          "repeats": 1,
          "phases": {
          "auth_us": "[figure]",
          "grant_us": "[figure]",
          "schema_us": "[figure]",
          "queue_us": "[figure]",
          "server_us": "[figure]",
          "output_us": "[figure]"
          },
          "attempts": 1,
          "input_check": "passed",
          "output_check": "passed",
          "error_kind": null,
          "policy_revision": "[figure]",
          "grant": "[grant]",
          "parent": null,
          "user_source": null
        }
        --- exit 0
        "#);
        assert_snapshot!(run(&gantry, &["calls", &id("refused")]), @r#"
        {
          "id": "[call]",
          "seq": "[figure]",
          "status": "refused",
          "project": "local",
          "agent": "default",
          "key": "[key]",
          "surface": "rest",
          "server": "a",
          "method": "tools/call",
          "tool": "add",
          "schema_version": "1-270f57a52d81",
          "user": null,
          "user_trust": null,
          "session": null,
          "run": null,
          "step": null,
          "trace": "[trace]",
          "started": "[time]",
          "started_ms": "[figure]",
          "ended_ms": "[figure]",
          "duration_us": "[figure]",
          "code": "schema.input",
          "error": "arguments of `add` do not fit its schema",
          "input": "{\"a\":1}",
          "input_bytes": 7,
          "output": null,
          "output_bytes": 0,
          "repeats": 1,
          "phases": {
          "auth_us": "[figure]",
          "grant_us": "[figure]",
          "schema_us": "[figure]"
          },
          "attempts": 0,
          "input_check": "failed",
          "output_check": null,
          "error_kind": "schema",
          "policy_revision": "[figure]",
          "grant": "[grant]",
          "parent": null,
          "user_source": null
        }
        --- exit 0
        "#);
        assert_snapshot!(run(&gantry, &["calls", "call_0"]), @"
        --- stderr
        error: no such call
          because: code `call.unknown`
        --- exit 1
        ");
    });
}

#[test]
fn a_call_that_nobody_waits_for_is_named_and_found() {
    // row 2.9
    let gantry = Gantry::start(&["a"]);
    let words = ["call", "--async", "a__echo", "--text", "later"];
    let started = gantry.cli(&words);
    let id = String::from_utf8(started.stdout).unwrap().trim().to_owned();
    let done = || run(&gantry, &["calls", &id]).contains("\"result\"");
    assert!(eventually(LONG, done).is_some(), "{id}");
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &words), @"
        [call]
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["call", "--async", "--json", "a__echo", "text=x"]), @r#"
        {
          "id": "[call]",
          "status": "running"
        }
        --- exit 0
        "#);
        assert_snapshot!(run(&gantry, &["calls", &id]), @r#"
        {
          "call": "[call]",
          "is_error": false,
          "result": {
          "content": [
          {
          "type": "text",
          "text": "later"
          }
          ],
          "resultType": "complete",
          "_meta": {
          "io.modelcontextprotocol/serverInfo": {
          "name": "a",
          "version": "[version]"
          }
          }
          }
        }
        --- exit 0
        "#);
        assert_snapshot!(run(&gantry, &["call", "--async", "a__nothing"]), @"
        [call]
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["call", "--async", "a__add", "a=1"]), @"
        [call]
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["calls", "call_0"]), @"
        --- stderr
        error: no such call
          because: code `call.unknown`
        --- exit 1
        ");
    });
}
