//! Log messages of servers, from the level on that a client wants: both generations before both.

use std::fs;

use gantry_testkit::wait::eventually;
use gantry_testkit::{Era, fixture};
use serde_json::{Value, json};

use super::Older;
use crate::faults_client::Posted;
use crate::harness::{Answer, Gantry, LONG};

const LEVEL: &str = "io.modelcontextprotocol/logLevel";

fn start(era: Era) -> Gantry {
    let argv = fixture::argv(era);
    let entry = json!({"command": argv[0], "args": argv[1..]});
    let gantry = Gantry::builder().entry("f", entry).start();
    gantry.wait_state("f", "ready", LONG);
    gantry
}

fn params(level: Option<&str>) -> Value {
    let mut params = json!({"name": "test_tool_with_logging", "arguments": {}});
    if let Some(level) = level {
        params["_meta"][LEVEL] = json!(level);
    }
    params
}

/// Returns what the log messages of an answer say.
fn logged(answer: &Answer) -> Vec<String> {
    let messages = answer.messages();
    let (last, before) = messages.split_last().unwrap();
    assert!(last["result"]["content"].is_array(), "{last:#}");
    let logs = before.iter();
    logs.map(|message| {
        assert_eq!(message["method"], "notifications/message", "{message:#}");
        message["params"]["data"].as_str().unwrap().to_owned()
    })
    .collect()
}

const ALL: [&str; 3] = [
    "Tool execution started",
    "Tool execution processing data",
    "Tool execution completed",
];

#[test]
fn a_client_hears_what_the_server_of_its_call_logs() {
    for era in [Era::Legacy, Era::Modern] {
        let gantry = start(era);
        let older = Older::open(&gantry, "/mcp/servers/f", "2025-06-18");
        let call = |level| older.send(json!(1), "tools/call", params(level));
        assert_eq!(
            logged(&call(None)),
            [""; 0],
            "who asks for nothing hears nothing: {era:?}"
        );
        assert_eq!(
            older.result("logging/setLevel", json!({"level": "debug"})),
            json!({})
        );
        assert_eq!(logged(&call(None)), ALL, "{era:?}");
        older.result("logging/setLevel", json!({"level": "warning"}));
        assert_eq!(logged(&call(None)), [""; 0], "{era:?}");
        let wrong = older
            .send(json!(2), "logging/setLevel", json!({"level": "loud"}))
            .message();
        assert_eq!(wrong["error"]["code"], -32602);
        let newer = |level| {
            let posted = Posted::stateless(&gantry.agent, "tools/call", params(level));
            posted.at("/mcp/servers/f").send(&gantry)
        };
        assert_eq!(logged(&newer(Some("info"))), ALL, "{era:?}");
        assert_eq!(logged(&newer(Some("error"))), [""; 0], "{era:?}");
        assert_eq!(logged(&newer(None)), [""; 0], "{era:?}");
    }
}

// row 3.2
#[test]
fn log_messages_are_for_who_may_have_them() {
    let gantry = start(Era::Legacy);
    let tool = "f:test_tool_with_logging";
    for (name, grants, expected) in [
        ("caller", vec![tool], &[][..]),
        ("denied", vec!["f:*", "deny f:logging:*"], &[]),
        ("listener", vec![tool, "f:logging:*"], &ALL),
    ] {
        let key = gantry.agent_with(name, &grants);
        let posted = Posted::stateless(&key, "tools/call", params(Some("info")));
        let heard = logged(&posted.at("/mcp/servers/f").send(&gantry));
        assert_eq!(heard, expected, "{name}");
        let discover = Posted::stateless(&key, "server/discover", json!({}));
        let offered = discover.at("/mcp/servers/f").send(&gantry).message();
        let has = offered["result"]["capabilities"]["logging"].is_object();
        assert_eq!(has, !expected.is_empty(), "{name}: {offered:#}");
    }
}

#[test]
fn nobody_hears_what_may_be_another_calls() {
    let gantry = start(Era::Legacy);
    let older = Older::open(&gantry, "/mcp/servers/f", "2025-06-18");
    older.result("logging/setLevel", json!({"level": "debug"}));
    let lines = || {
        let logs = gantry.rest("GET", "/api/v1/mcp/servers/f/logs?lines=1000", None);
        logs.text().matches("Tool execution").count()
    };
    let folder = tempfile::tempdir().unwrap();
    let until = folder.path().join("until");
    let held = json!({"name": "test_reconnection", "arguments": {"until": until}});
    // Another call is in flight all the time, so that no message can be tied to one.
    std::thread::scope(|scope| {
        let older = &older;
        let holding = scope.spawn(move || older.send(json!("held"), "tools/call", held));
        gantry.wait_status("f", LONG, |status| status["queue"]["in_flight"] == 1);
        let both: Vec<_> = (0..2)
            .map(|n| scope.spawn(move || older.send(json!(n), "tools/call", params(None))))
            .collect();
        for call in both {
            assert_eq!(logged(&call.join().unwrap()), [""; 0]);
        }
        fs::write(&until, "").unwrap();
        assert_eq!(logged(&holding.join().unwrap()), [""; 0]);
    });
    assert_eq!(lines(), 6, "the server's own log has all of them");
}

// One call that was taken back keeps nobody from its messages for longer than a late answer is waited for.
#[test]
fn a_call_that_was_taken_back_silences_the_server_for_a_moment_only() {
    let argv = fixture::argv(Era::Legacy);
    let members = json!({"late_grace": "2s"});
    let entry = json!({"command": argv[0], "args": argv[1..], "calls": members});
    let gantry = Gantry::builder().entry("f", entry).start();
    gantry.wait_state("f", "ready", LONG);
    let open = || Older::open(&gantry, "/mcp/servers/f", "2025-06-18");
    let (left, other) = (open(), open());
    other.result("logging/setLevel", json!({"level": "debug"}));
    let folder = tempfile::tempdir().unwrap();
    let held =
        json!({"arguments": {"until": folder.path().join("never")}, "name": "test_reconnection"});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": held});
    let waiting = left.posted(&message).open(&gantry);
    gantry.wait_status("f", LONG, |status| status["queue"]["in_flight"] == 1);
    drop(waiting);
    gantry.wait_status("f", LONG, |status| status["queue"]["in_flight"] == 0);
    let call = || logged(&other.send(json!(1), "tools/call", params(None)));
    // What is said at first may be of the call that was left. fault T4
    assert_eq!(call(), [""; 0]);
    let heard = eventually(LONG, || call() == ALL);
    assert!(heard.is_some(), "it is heard again");
}
