//! Rows about calls: over REST and MCP, answered, failed, queued, cancelled, answered later.

mod names;
mod resources;
mod schemas;

use std::path::Path;
use std::thread;
use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::journal::Journal;
use gantry_testkit::wait::eventually;
use serde_json::{Value, json};
use tokio::time::Instant;

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
    rest_call(gantry, server, "tools/call", json!({"name": tool, "arguments": arguments}))
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
        assert_eq!(called["result"]["content"], json!([{"type": "text", "text": "hello"}]));
        assert_eq!(called["is_error"], false);
        let call = called["call"].as_str().unwrap();
        let row = gantry.rest("GET", &format!("/api/v1/calls/{call}"), None).json();
        assert_eq!((&row["status"], &row["surface"]), (&json!("ok"), &json!("rest")));
        assert_eq!((&row["server"], &row["tool"]), (&json!("a"), &json!("echo")));
    }
    let methods = [
        ("tools/list", json!({}), "/result/tools/0/name", "echo"),
        ("resources/list", json!({}), "/result/resources/0/uri", "test://static-text"),
        ("resources/read", json!({"uri": "test://static-text"}), "/result/contents/0/text", "the static text"),
        ("prompts/get", json!({"name": "simple"}), "/result/messages/0/content/text", "Say hello."),
    ];
    for (method, params, place, wanted) in methods {
        let answer = rest_call(&gantry, "a", method, params);
        assert_eq!(answer.status, 200, "{method}: {}", answer.text());
        assert_eq!(answer.json().pointer(place), Some(&json!(wanted)), "{method}");
    }
    // The handshake is ours.
    for method in ["initialize", "server/discover", "notifications/initialized"] {
        let answer = rest_call(&gantry, "a", method, json!({}));
        assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("request.handshake")));
    }
    let answer = rest_tool(&gantry, "nobody", "echo", json!({"text": "x"}));
    assert_eq!((answer.status, &answer.json()["code"]), (404, &json!("server.unknown")));
}

// row 1.5, row 2.8
#[test]
fn an_error_of_the_server_becomes_structured_http() {
    let gantry = Gantry::start(&["a"]);
    for (code, status) in [(-32601, 404), (-32602, 400), (-32603, 502), (-32000, 502), (7, 502)] {
        let arguments = json!({"code": code, "message": "out of paper"});
        let answer = rest_tool(&gantry, "a", "rpc_error", arguments);
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        let problem = answer.json();
        let data = json!({"tool": "rpc_error", "detail": "as asked"});
        let error = json!({"code": code, "message": "out of paper", "data": data});
        assert_eq!(problem["error"], error);
        assert_eq!((&problem["code"], &problem["fault"]), (&json!("server.error"), &json!("server")));
        let wanted = format!("server `a` answered with error {code}: out of paper");
        assert_eq!(problem["detail"], wanted);
        let rows = gantry.audit_rows("tool=rpc_error");
        let row = rows.last().unwrap();
        assert_eq!((&row["status"], &row["code"]), (&json!("error"), &json!(code.to_string())));
        assert_eq!(row["error"], wanted);
    }
    // A tool's own failure is an answer.
    let answer = rest_tool(&gantry, "a", "fail", json!({"message": "no such file"}));
    assert_eq!((answer.status, &answer.json()["is_error"]), (200, &json!(true)));
    assert_eq!(answer.json()["result"]["content"][0]["text"], "no such file");
    let over_mcp = gantry.call("a__fail", json!({"message": "no such file"}));
    assert_eq!(over_mcp["result"]["isError"], true);
    let rows = gantry.audit_rows("tool=fail");
    assert!(rows.iter().all(|row| row["status"] == "error" && row["code"] == "tool_error"));
    assert_eq!(rows.len(), 2);
}

// row 1.6
#[test]
fn a_timeout_frees_the_lane_once_the_late_answer_has_come() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let peer = Evilpeer::new().fault("late=1500").fault_calls(1);
    let gantry = with_journal(&journal, peer, &json!({"concurrency": 1}));
    let spec = gantry.status("a")["spec"].clone();
    assert_eq!((&spec["timeout"], &spec["late_grace"]), (&json!("30s"), &json!("10s")));
    let begun = Instant::now();
    let body = json!({
        "method": "tools/call",
        "params": {"name": "echo", "arguments": {"text": "late", "nonce": "one"}},
        "timeout_ms": 400,
    });
    let path = "/api/v1/mcp/servers/a/call";
    let answer = gantry.rest_as(&gantry.agent, "POST", path, Some(&body));
    let took = begun.elapsed();
    assert_eq!(answer.status, 504, "{}", answer.text());
    assert_eq!(answer.json()["detail"], "server `a` did not answer within 400ms");
    assert_eq!(answer.json()["code"], "call.timeout");
    assert!(took >= Duration::from_millis(400) && took <= SECOND, "{took:?}");
    assert_eq!(gantry.status("a")["queue"]["closed_lanes"], 1, "and the status says so");
    let next = rest_tool(&gantry, "a", "echo", json!({"text": "next"}));
    assert_eq!(next.json()["result"]["content"][0]["text"], "next");
    assert!(begun.elapsed() >= Duration::from_millis(1500), "{:?}", begun.elapsed());
    let status = gantry.status("a");
    assert_eq!((&status["queue"]["closed_lanes"], &status["restart_count"]), (&json!(0), &json!(0)));
    assert!(status["late_replies"].as_u64().unwrap() >= 1);
    assert!(Journal::read(&journal).unwrap().cancelled("one"), "the server was told");
    let rows = gantry.audit_rows("server=a");
    let told: Vec<_> = rows.iter().map(|row| (row["status"].clone(), row["code"].clone())).collect();
    assert_eq!(told, [(json!("timeout"), json!("call.timeout")), (json!("ok"), Value::Null)]);
    let events = gantry.rest("GET", "/api/v1/mcp/servers/a/events", None).json();
    let logged = |event: &&Value| event["kind"] == "call_timeout";
    assert_eq!(events["items"].as_array().unwrap().iter().filter(logged).count(), 1);
}

// row 1.6
#[test]
fn a_lane_opens_after_its_grace_if_no_late_answer_comes() {
    let members = json!({"concurrency": 1, "calls": {"timeout": "2s", "late_grace": "500ms"}});
    let peer = Evilpeer::new().fault("hang").fault_calls(1);
    let gantry = Gantry::builder().server_with("a", &peer, &members).start();
    gantry.wait_state("a", "ready", LONG);
    let first = rest_tool(&gantry, "a", "echo", json!({"text": "x"}));
    assert_eq!(first.status, 504);
    let begun = Instant::now();
    let next = rest_tool(&gantry, "a", "echo", json!({"text": "next"}));
    assert_eq!(next.json()["result"]["content"][0]["text"], "next");
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(350) && waited <= 2 * SECOND, "{waited:?}");
    assert_eq!(gantry.status("a")["restart_count"], 0);
}

// row 1.7
#[test]
fn calls_to_one_lane_are_queued_bounded_and_fair_between_agents() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let members = json!({"concurrency": 1, "calls": {"queue": 8}});
    let gantry = with_journal(&journal, Evilpeer::new(), &members);
    let slow = |nonce: String| json!({"text": "x", "delay_ms": 150, "nonce": nonce});
    let full = thread::scope(|scope| {
        let gantry = &gantry;
        for number in 0..8 {
            let arguments = slow(format!("many{number}"));
            scope.spawn(move || assert_eq!(rest_tool(gantry, "a", "echo", arguments).status, 200));
            let entered = |status: &Value| {
                let queue = &status["queue"];
                let count = |name: &str| queue[name].as_u64().unwrap();
                count("in_flight") + count("waiting") > number
            };
            // One after the other, so that the order is known.
            if number < 3 {
                gantry.wait_status("a", LONG, entered);
            }
        }
        let waiting = |status: &Value| status["queue"]["waiting"].as_u64().unwrap() >= 4;
        gantry.wait_status("a", LONG, waiting);
        let body = json!({"method": "tools/call", "params": {"name": "echo", "arguments": slow("few".into())}});
        let path = "/api/v1/mcp/servers/a/call";
        scope.spawn(move || assert_eq!(gantry.rest("POST", path, Some(&body)).status, 200));
        let full = eventually(LONG, || {
            gantry.status("a")["queue"]["waiting"].as_u64() >= Some(7)
        });
        full.map(|_| rest_tool(gantry, "a", "echo", slow("extra".into())).status)
    });
    let seen = Journal::read(&journal).unwrap();
    let order = seen.nonces();
    let place = order.iter().position(|nonce| *nonce == "few").unwrap();
    assert!(place <= 6, "the other agent does not wait for all: {order:?}");
    assert!(full.is_none_or(|status| status == 200 || status == 429), "{full:?}");
}

// row 1.7
#[test]
fn a_full_queue_answers_busy_at_once() {
    let members = json!({"concurrency": 1, "calls": {"queue": 2}});
    let gantry = Gantry::builder().server_with("a", &Evilpeer::new(), &members).start();
    gantry.wait_state("a", "ready", LONG);
    thread::scope(|scope| {
        let gantry = &gantry;
        for _ in 0..3 {
            scope.spawn(move || {
                let answer = rest_tool(gantry, "a", "echo", json!({"text": "x", "delay_ms": 500}));
                assert_eq!(answer.status, 200, "{}", answer.text());
            });
        }
        gantry.wait_status("a", LONG, |status| status["queue"]["waiting"] == 2);
        let begun = Instant::now();
        let answer = rest_tool(gantry, "a", "echo", json!({"text": "x"}));
        assert!(begun.elapsed() <= SECOND, "never a wait");
        assert_eq!(answer.status, 429, "{}", answer.text());
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.json()["detail"], "server `a` is busy: 2 calls wait already");
    });
    let refused = gantry.audit_rows("server=a&status=refused");
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0]["code"], "server.busy");
    // A hosted server has one lane unless something else is said.
    let body = json!({"name": "hosted", "command": "true", "start": "lazy"});
    let registered = gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
    assert_eq!(registered.status, 201, "{}", registered.text());
    assert_eq!(gantry.status("hosted")["queue"]["lanes"], 1);
    assert_eq!(gantry.status("hosted")["queue"]["limit"], 256);
}

// row 2.7, row 2.9
#[test]
fn long_calls_block_nobody_and_their_progress_passes_through() {
    let gantry = Gantry::start(&["a"]);
    assert_eq!(gantry.status("a")["queue"]["lanes"], 32);
    thread::scope(|scope| {
        let long = scope.spawn(|| {
            let params = json!({
                "name": "a__slow",
                "arguments": {"ms": 1500, "progress": 4},
                "_meta": {"progressToken": 77},
            });
            modern(&mut gantry.connect(), &gantry.agent, "/mcp", "tools/call", params).messages()
        });
        gantry.wait_status("a", LONG, |status| status["queue"]["in_flight"] == 1);
        let begun = Instant::now();
        for number in 0..10 {
            let answer = gantry.call("a__add", json!({"a": number, "b": 1}));
            assert_eq!(answer["result"]["structuredContent"], json!({"sum": number + 1}));
        }
        assert!(begun.elapsed() <= SECOND, "{:?}", begun.elapsed());
        assert_eq!(gantry.status("a")["queue"]["in_flight"], 1, "the long one is still under way");
        let messages = long.join().unwrap();
        let (last, progress) = messages.split_last().unwrap();
        assert_eq!(last["result"]["content"][0]["text"], "slept 1500 ms");
        let steps: Vec<_> = progress.iter().map(|message| &message["params"]).collect();
        assert_eq!(steps.len(), 4);
        for (step, params) in (1..).zip(steps) {
            let wanted = json!({"progressToken": 77, "progress": step, "total": 4, "message": format!("step {step} of 4")});
            assert_eq!(*params, wanted);
        }
    });
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
    connection.request("POST", "/mcp", &headers, message.to_string().as_bytes()).unwrap()
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
        let call = json!({"jsonrpc": "2.0", "id": "mine", "method": "tools/call", "params": params});
        let called = scope.spawn(move || beside(gantry, id, &call));
        gantry.wait_status("a", LONG, |status| status["queue"]["in_flight"] == 1);
        let begun = Instant::now();
        let params = json!({"requestId": "mine", "reason": "changed my mind"});
        let method = "notifications/cancelled";
        let cancel = json!({"jsonrpc": "2.0", "method": method, "params": params});
        assert_eq!(beside(gantry, id, &cancel).status, 202);
        called.join().unwrap();
        assert!(begun.elapsed() <= SECOND, "{:?}", begun.elapsed());
    });
    let told = eventually(SECOND, || Journal::read(&journal).unwrap().cancelled("long"));
    assert!(told.is_some());
    assert_eq!(gantry.status("a")["queue"]["in_flight"], 0);
    let rows = gantry.audit_rows("server=a");
    assert_eq!(rows.len(), 1);
    assert_eq!((&rows[0]["status"], &rows[0]["code"]), (&json!("cancelled"), &json!("call.cancelled")));
}

// row 2.9
#[test]
fn a_call_over_rest_can_be_answered_later() {
    let gantry = Gantry::start(&["a"]);
    let body = json!({"method": "tools/call", "params": {"name": "slow", "arguments": {"ms": 400}}});
    let bearer = format!("Bearer {}", gantry.agent);
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
        ("Prefer", "respond-async"),
    ];
    let begun = Instant::now();
    let path = "/api/v1/mcp/servers/a/call";
    let body = body.to_string();
    let accepted = gantry.connect().request("POST", path, &headers, body.as_bytes()).unwrap();
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    assert!(begun.elapsed() < Duration::from_millis(400), "{:?}", begun.elapsed());
    assert_eq!(accepted.header("preference-applied"), Some("respond-async"));
    let place = accepted.header("location").unwrap().to_owned();
    let ask = || gantry.rest_as(&gantry.agent, "GET", &place, None);
    assert_eq!((ask().status, &ask().json()["status"]), (202, &json!("running")));
    assert!(eventually(LONG, || ask().status == 200).is_some());
    let done = ask().json();
    assert_eq!(done["result"]["content"][0]["text"], "slept 400 ms");
    let call = done["call"].as_str().unwrap();
    assert_eq!(gantry.rest("GET", &format!("/api/v1/calls/{call}"), None).json()["status"], "ok");
}
