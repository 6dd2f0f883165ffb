//! Rows about calls: over REST and MCP, answered, failed, queued, cancelled, answered later.

mod lanes;
mod names;
mod native;
mod resources;
mod schemas;

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::journal::Journal;
use gantry_testkit::wait::{Stopwatch, eventually};
use serde_json::{Value, json};

use crate::harness::{Answer, Connection, Gantry, LONG, Session, modern};

const SECOND: Duration = Duration::from_secs(1);

/// Calls any method of a server over REST, as the default agent.
fn rest_call(gantry: &Gantry, server: &str, method: &str, params: Value) -> Answer {
    let path = format!("/api/v1/mcp/servers/{server}/call");
    let body = json!({"method": method, "params": params});
    gantry.rest_as(&gantry.agent, "POST", &path, Some(&body))
}

/// Calls a tool of a server over REST, as the default agent.
fn rest_tool(gantry: &Gantry, server: &str, tool: &str, arguments: Value) -> Answer {
    rest_call(
        gantry,
        server,
        "tools/call",
        json!({"name": tool, "arguments": arguments}),
    )
}

/// Starts a gateway with one server `a` that keeps a journal.
fn with_journal(journal: &Path, peer: Evilpeer, members: &Value) -> Gantry {
    let peer = peer.journal(journal);
    let gantry = Gantry::builder().server_with("a", &peer, members).start();
    gantry.wait_state("a", "ready", LONG);
    gantry
}

// row 1.4
#[test]
fn any_method_can_be_called_over_rest() {
    let gantry = Gantry::start(&["a"]);
    let id = gantry.status("a")["id"].as_str().unwrap().to_owned();
    for server in ["a", &id] {
        let called = rest_tool(&gantry, server, "echo", json!({"text": "hello"}));
        assert_eq!(called.status, 200, "{}", called.text());
        let called = called.json();
        assert_eq!(
            called["result"]["content"],
            json!([{"type": "text", "text": "hello"}])
        );
        assert_eq!(called["is_error"], false);
        let call = called["call"].as_str().unwrap();
        let row = gantry
            .rest("GET", &format!("/api/v1/calls/{call}"), None)
            .json();
        assert_eq!(
            (&row["status"], &row["surface"]),
            (&json!("ok"), &json!("rest"))
        );
        assert_eq!(
            (&row["server"], &row["tool"]),
            (&json!("a"), &json!("echo"))
        );
    }
    let methods = [
        ("tools/list", json!({}), "/result/tools/0/name", "echo"),
        (
            "resources/list",
            json!({}),
            "/result/resources/0/uri",
            "test://static-text",
        ),
        (
            "resources/read",
            json!({"uri": "test://static-text"}),
            "/result/contents/0/text",
            "the static text",
        ),
        (
            "prompts/get",
            json!({"name": "simple"}),
            "/result/messages/0/content/text",
            "Say hello.",
        ),
    ];
    for (method, params, place, wanted) in methods {
        let answer = rest_call(&gantry, "a", method, params);
        assert_eq!(answer.status, 200, "{method}: {}", answer.text());
        assert_eq!(
            answer.json().pointer(place),
            Some(&json!(wanted)),
            "{method}"
        );
    }
    // The handshake is ours.
    for method in ["initialize", "server/discover", "notifications/initialized"] {
        let answer = rest_call(&gantry, "a", method, json!({}));
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (400, &json!("request.handshake"))
        );
    }
    let answer = rest_tool(&gantry, "nobody", "echo", json!({"text": "x"}));
    assert_eq!(
        (answer.status, &answer.json()["code"]),
        (404, &json!("server.unknown"))
    );
}

// row 1.5, row 2.8
#[test]
fn an_error_of_the_server_becomes_structured_http() {
    let gantry = Gantry::start(&["a"]);
    for (code, status) in [
        (-32601, 404),
        (-32602, 400),
        (-32603, 502),
        (-32000, 502),
        (7, 502),
    ] {
        let arguments = json!({"code": code, "message": "out of paper"});
        let answer = rest_tool(&gantry, "a", "rpc_error", arguments);
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json")
        );
        let problem = answer.json();
        let data = json!({"tool": "rpc_error", "detail": "as asked"});
        let error = json!({"code": code, "message": "out of paper", "data": data});
        assert_eq!(problem["error"], error);
        assert_eq!(
            (&problem["code"], &problem["fault"]),
            (&json!("server.error"), &json!("server"))
        );
        let wanted = format!("server `a` answered with error {code}: out of paper");
        assert_eq!(problem["detail"], wanted);
        let rows = gantry.audit_rows("tool=rpc_error");
        let row = rows.last().unwrap();
        assert_eq!(
            (&row["status"], &row["code"]),
            (&json!("error"), &json!(code.to_string()))
        );
        assert_eq!(row["error"], wanted);
    }
    // A tool's own failure is an answer.
    let answer = rest_tool(&gantry, "a", "fail", json!({"message": "no such file"}));
    assert_eq!(
        (answer.status, &answer.json()["is_error"]),
        (200, &json!(true))
    );
    assert_eq!(
        answer.json()["result"]["content"][0]["text"],
        "no such file"
    );
    let over_mcp = gantry.call("a__fail", json!({"message": "no such file"}));
    assert_eq!(over_mcp["result"]["isError"], true);
    let rows = gantry.audit_rows("tool=fail");
    assert!(
        rows.iter()
            .all(|row| row["status"] == "error" && row["code"] == "tool_error")
    );
    assert_eq!(rows.len(), 2);
}

// row 2.7, row 2.9
#[test]
fn long_calls_block_nobody_and_their_progress_passes_through() {
    let folder = tempfile::tempdir().unwrap();
    let until = folder.path().join("until");
    let gantry = Gantry::start(&["a"]);
    assert_eq!(gantry.status("a")["queue"]["lanes"], 32);
    thread::scope(|scope| {
        let long = scope.spawn(|| gantry.call("a__slow", json!({"ms": 0, "until": until})));
        gantry.wait_status("a", LONG, |status| status["queue"]["in_flight"] == 1);
        let begun = Stopwatch::start();
        for number in 0..10 {
            let answer = gantry.call("a__add", json!({"a": number, "b": 1}));
            assert_eq!(
                answer["result"]["structuredContent"],
                json!({"sum": number + 1})
            );
        }
        assert!(begun.elapsed() <= SECOND, "{:?}", begun.elapsed());
        assert_eq!(
            gantry.status("a")["queue"]["in_flight"],
            1,
            "the long one is still under way"
        );
        fs::write(&until, "").unwrap();
        let answer = long.join().unwrap();
        assert_eq!(answer["result"]["content"][0]["text"], "waited");
    });
    let params = json!({
        "name": "a__slow",
        "arguments": {"ms": 1500, "progress": 4},
        "_meta": {"progressToken": 77},
    });
    let mut connection = gantry.connect();
    let answer = modern(&mut connection, &gantry.agent, "/mcp", "tools/call", params);
    let messages = answer.messages();
    let (last, progress) = messages.split_last().unwrap();
    assert_eq!(last["result"]["content"][0]["text"], "slept 1500 ms");
    let steps: Vec<_> = progress.iter().map(|message| &message["params"]).collect();
    assert_eq!(steps.len(), 4);
    for (step, params) in (1..).zip(steps) {
        let wanted = json!({"progressToken": 77, "progress": step, "total": 4, "message": format!("step {step} of 4")});
        assert_eq!(*params, wanted);
    }
}

/// Sends a message of an open session on a connection of its own.
fn beside(gantry: &Gantry, session: &str, message: &Value) -> Answer {
    let mut connection = Connection::open(&gantry.authority).unwrap();
    let bearer = format!("Bearer {}", gantry.agent);
    let headers = [
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
        ("Authorization", bearer.as_str()),
        ("MCP-Protocol-Version", "2025-11-25"),
        ("Mcp-Session-Id", session),
    ];
    connection
        .request("POST", "/mcp", &headers, message.to_string().as_bytes())
        .unwrap()
}

// row 2.9
#[test]
fn a_cancelled_call_is_cancelled_upstream() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = with_journal(&journal, Evilpeer::new(), &json!({}));
    let session: Session = gantry.initialize();
    let id = session.id.clone().unwrap();
    thread::scope(|scope| {
        let (gantry, id) = (&gantry, id.as_str());
        let arguments = json!({"ms": 20_000, "nonce": "long"});
        let params = json!({"name": "a__slow", "arguments": arguments});
        let call =
            json!({"jsonrpc": "2.0", "id": "mine", "method": "tools/call", "params": params});
        let called = scope.spawn(move || beside(gantry, id, &call));
        let arrived = || Journal::read(&journal).unwrap().executed("long") == 1;
        assert!(eventually(LONG, arrived).is_some(), "the call arrives");
        let begun = Stopwatch::start();
        let params = json!({"requestId": "mine", "reason": "changed my mind"});
        let method = "notifications/cancelled";
        let cancel = json!({"jsonrpc": "2.0", "method": method, "params": params});
        assert_eq!(beside(gantry, id, &cancel).status, 202);
        called.join().unwrap();
        assert!(begun.elapsed() <= SECOND, "{:?}", begun.elapsed());
    });
    let told = eventually(SECOND, || {
        Journal::read(&journal).unwrap().cancelled("long")
    });
    assert!(told.is_some());
    assert_eq!(gantry.status("a")["queue"]["in_flight"], 0);
    let rows = gantry.audit_rows("server=a");
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (&rows[0]["status"], &rows[0]["code"]),
        (&json!("cancelled"), &json!("call.cancelled"))
    );
}

// row 2.9
#[test]
fn a_call_over_rest_can_be_answered_later() {
    let folder = tempfile::tempdir().unwrap();
    let until = folder.path().join("until");
    let gantry = Gantry::start(&["a"]);
    let params = json!({"name": "slow", "arguments": {"ms": 0, "until": until}});
    let body = json!({"method": "tools/call", "params": params});
    let bearer = format!("Bearer {}", gantry.agent);
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
        ("Prefer", "respond-async"),
    ];
    let path = "/api/v1/mcp/servers/a/call";
    let body = body.to_string();
    let accepted = gantry
        .connect()
        .request("POST", path, &headers, body.as_bytes())
        .unwrap();
    // Nobody has let the call end yet.
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    assert_eq!(accepted.header("preference-applied"), Some("respond-async"));
    let place = accepted.header("location").unwrap().to_owned();
    let ask = || gantry.rest_as(&gantry.agent, "GET", &place, None);
    assert_eq!(
        (ask().status, &ask().json()["status"]),
        (202, &json!("running"))
    );
    fs::write(&until, "").unwrap();
    assert!(eventually(LONG, || ask().status == 200).is_some());
    let done = ask().json();
    assert_eq!(done["result"]["content"][0]["text"], "waited");
    let call = done["call"].as_str().unwrap();
    assert_eq!(
        gantry
            .rest("GET", &format!("/api/v1/calls/{call}"), None)
            .json()["status"],
        "ok"
    );
}
