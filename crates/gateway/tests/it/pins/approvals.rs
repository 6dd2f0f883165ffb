//! Calls that wait for an approver.

use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::journal::Journal;
use gantry_testkit::wait::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Swapping, key_of, set, tool};
use crate::harness::{Answer, Connection, Gantry, LONG, modern};

/// Makes an agent that may call the echo of `a` with an approval only, and returns its key.
fn asker(gantry: &Gantry, name: &str) -> String {
    gantry.agent_with(name, &["a:*", "ask a:echo"])
}

fn headers<'h>(bearer: &'h str, prefer: &'h str) -> Vec<(&'h str, &'h str)> {
    let mut headers = vec![
        ("Authorization", bearer),
        ("Content-Type", "application/json"),
    ];
    if !prefer.is_empty() {
        headers.push(("Prefer", prefer));
    }
    headers
}

/// Calls over REST in a thread of its own.
fn calling(gantry: &Gantry, key: &str, text: &str) -> JoinHandle<Answer> {
    let (authority, bearer) = (gantry.authority.clone(), format!("Bearer {key}"));
    let body = json!({"name": "a__echo", "arguments": {"text": text}}).to_string();
    thread::spawn(move || {
        let mut connection = Connection::open(&authority).unwrap();
        let sent = connection.request(
            "POST",
            "/api/v1/tools/call",
            &headers(&bearer, ""),
            body.as_bytes(),
        );
        sent.unwrap()
    })
}

/// Waits until so many calls wait, and returns them.
fn waiting(gantry: &Gantry, count: usize) -> Vec<Value> {
    let mut held = Vec::new();
    let reached = eventually(LONG, || {
        let answer = gantry.rest("GET", "/api/v1/approvals", None).json();
        held = answer["items"].as_array().unwrap().clone();
        held.len() == count
    });
    assert!(reached.is_some(), "{held:?}");
    held
}

fn decide(gantry: &Gantry, key: &str, call: &Value, verb: &str, body: &Value) -> Answer {
    let path = format!(
        "/api/v1/approvals/{}/{verb}",
        call["call"].as_str().unwrap()
    );
    gantry.rest_as(key, "POST", &path, Some(body))
}

fn code(answer: &Answer) -> String {
    answer.json()["code"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn a_call_waits_until_an_approver_allows_or_refuses_it_once() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = Gantry::builder()
        .server_with(
            "a",
            &Evilpeer::new().journal(&journal),
            &json!({"timeout": "500ms"}),
        )
        .start();
    gantry.wait_state("a", "ready", LONG);
    let (agent, approver) = (asker(&gantry, "bot"), key_of(&gantry, "approver"));
    let running = calling(&gantry, &agent, "hello");
    let held = waiting(&gantry, 1).remove(0);
    assert_eq!(
        (&held["agent"], &held["name"]),
        (&json!("bot"), &json!("echo"))
    );
    assert!(
        held["arguments"].as_str().unwrap().contains("hello"),
        "{held}"
    );
    assert_eq!(
        Journal::read(&journal).unwrap().calls(),
        0,
        "nothing was sent"
    );
    // One row, which runs.
    let rows = gantry.audit_rows("tool=echo");
    assert_eq!((rows.len(), &rows[0]["status"]), (1, &json!("running")));
    assert!(gantry.events("a", "approval_asked", 1)[0].contains("bot"));
    // Others may not decide, and a decision is on what was looked at.
    let operator = key_of(&gantry, "operator");
    assert_eq!(
        decide(&gantry, &operator, &held, "allow", &json!({})).status,
        403
    );
    let other = decide(
        &gantry,
        &approver,
        &held,
        "allow",
        &json!({"arguments_hash": "00"}),
    );
    assert_eq!(
        (other.status, code(&other).as_str()),
        (409, "approval.changed")
    );
    // The call's own timeout does not run.
    thread::sleep(Duration::from_millis(700));
    let body = json!({"arguments_hash": held["arguments_hash"]});
    assert_eq!(
        decide(&gantry, &approver, &held, "allow", &body).status,
        200
    );
    let answered = running.join().unwrap();
    assert_eq!(
        answered.json()["result"]["content"][0]["text"],
        "hello",
        "{}",
        answered.text()
    );
    let again = decide(&gantry, &approver, &held, "allow", &json!({}));
    assert_eq!(
        (again.status, code(&again).as_str()),
        (404, "approval.unknown")
    );
    let rows = gantry.audit_rows("tool=echo");
    assert_eq!((rows.len(), &rows[0]["status"]), (1, &json!("ok")));
    assert!(
        gantry
            .rest("GET", "/api/v1/acts", None)
            .text()
            .contains("call.allow")
    );

    // Refused over MCP, by the command line.
    let (authority, key) = (gantry.authority.clone(), agent.clone());
    let running = thread::spawn(move || {
        let mut connection = Connection::open(&authority).unwrap();
        let params = json!({"name": "a__echo", "arguments": {"text": "no"}});
        modern(&mut connection, &key, "/mcp", "tools/call", params).message()
    });
    let held = waiting(&gantry, 1).remove(0);
    let listed = gantry.cli(&["approvals", "ls"]);
    assert!(
        String::from_utf8_lossy(&listed.stdout).contains("a:echo"),
        "{listed:?}"
    );
    let call = held["call"].as_str().unwrap();
    let refused = gantry.cli(&["approvals", "refuse", call, "--reason", "not today"]);
    assert!(refused.status.success(), "{refused:?}");
    let answer = running.join().unwrap();
    assert_eq!(
        answer["error"]["data"]["code"], "approval.refused",
        "{answer}"
    );
    assert!(
        answer["error"].to_string().contains("not today"),
        "{answer}"
    );
    let rows = gantry.audit_rows("tool=echo&status=refused");
    assert_eq!(
        (rows.len(), &rows[0]["code"]),
        (1, &json!("approval.refused"))
    );
    assert_eq!(Journal::read(&journal).unwrap().calls(), 1);
}

/// Returns the calls that reached the server.
fn reached(journal: &Path) -> usize {
    Journal::read(journal).unwrap().calls()
}

// row 3.2
#[test]
fn an_approval_does_not_outlive_the_grant_and_opens_nothing_that_is_denied() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let peer = Evilpeer::new().journal(&journal);
    let gantry = Gantry::builder().server("a", &peer).start();
    gantry.wait_state("a", "ready", LONG);
    let agent = asker(&gantry, "bot");
    let deny = json!({"all_agents": true, "effect": "deny", "server": "a", "item": "echo",
        "when": [{"at": "/text", "equals": "denied"}]});
    for (text, change, expected) in [
        ("denied", ("POST", "/api/v1/grants", deny), "grant.denied"),
        (
            "removed",
            ("PATCH", "/api/v1/agents/bot", json!({"grant": ["a:add"]})),
            "grant.unbound",
        ),
    ] {
        let running = calling(&gantry, &agent, text);
        let held = waiting(&gantry, 1).remove(0);
        let (method, path, body) = change;
        let changed = gantry.rest(method, path, Some(&body));
        assert!(changed.status < 300, "{}", changed.text());
        let allowed = decide(&gantry, &gantry.admin, &held, "allow", &json!({}));
        assert_eq!(allowed.status, 200, "{}", allowed.text());
        let refused = running.join().unwrap();
        assert_eq!(
            (refused.status, code(&refused).as_str()),
            (403, expected),
            "{text}"
        );
    }
    assert_eq!(reached(&journal), 0, "nothing was sent");
    let rows = gantry.audit_rows("tool=echo&status=refused");
    assert_eq!(rows.len(), 2, "one row for each: {rows:?}");
}

#[test]
fn a_suspension_and_the_end_of_the_gateway_end_what_waits() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let peer = Evilpeer::new().journal(&journal);
    let mut gantry = Gantry::builder().server("a", &peer).start();
    gantry.wait_state("a", "ready", LONG);
    let agent = asker(&gantry, "bot");
    for (kind, name) in [("tool", "a:echo"), ("agent", "bot")] {
        let running = calling(&gantry, &agent, kind);
        waiting(&gantry, 1);
        let what = json!({"kind": kind, "name": name});
        let suspended = gantry.rest("POST", "/api/v1/suspensions", Some(&what));
        assert!(suspended.status < 300, "{}", suspended.text());
        let ended = running.join().unwrap();
        let expected = match kind {
            "tool" => "tool.suspended",
            _ => "auth.suspended",
        };
        assert_eq!(code(&ended), expected, "{}", ended.text());
        waiting(&gantry, 0);
        let path = format!("/api/v1/suspensions?kind={kind}&name={name}");
        let resumed = gantry.rest("DELETE", &path, None);
        assert!(resumed.status < 300, "{}", resumed.text());
    }
    let running = calling(&gantry, &agent, "last");
    let held = waiting(&gantry, 1).remove(0);
    gantry.stop();
    let ended = running.join().unwrap();
    assert_eq!(code(&ended), "gateway.stopping", "{}", ended.text());
    let gantry = gantry.again();
    assert_eq!(reached(&journal), 0, "nothing was sent");
    // What was held is not held any more, and has its one row.
    waiting(&gantry, 0);
    let gone = decide(&gantry, &gantry.admin, &held, "allow", &json!({}));
    assert_eq!(
        (gone.status, code(&gone).as_str()),
        (404, "approval.unknown")
    );
    let rows = gantry.audit_rows("tool=echo");
    assert_eq!(rows.len(), 3, "{rows:?}");
    assert_eq!(rows[2]["code"], "gateway.stopping", "{rows:?}");
}

// fault L3
#[test]
fn an_approval_is_not_for_what_a_restarted_server_has_become() {
    let server = Swapping::new(&json!([tool("read", "Reads", "text")]));
    let peer = server.peer().fault("slow-start=1500");
    let gantry = Gantry::builder().server("a", &peer).start();
    let status = gantry.wait_state("a", "ready", LONG);
    let agent = gantry.agent_with("reader", &["ask a:read"]);
    let (authority, bearer) = (gantry.authority.clone(), format!("Bearer {agent}"));
    let running = thread::spawn(move || {
        let body = json!({"name": "a__read", "arguments": {"text": "x"}}).to_string();
        let mut connection = Connection::open(&authority).unwrap();
        let headers = headers(&bearer, "");
        let sent = connection.request("POST", "/api/v1/tools/call", &headers, body.as_bytes());
        sent.unwrap()
    });
    let held = waiting(&gantry, 1).remove(0);
    server.write(&json!([tool("read", "Reads and sends", "text")]));
    let pid = status["pid"].as_i64().unwrap().try_into().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    gantry.wait_status("a", LONG, |status| status["state"] != "ready");
    // Nobody knows yet what it will list.
    let allowed = decide(&gantry, &gantry.admin, &held, "allow", &json!({}));
    assert_eq!(allowed.status, 200, "{}", allowed.text());
    let stale = running.join().unwrap();
    assert_eq!(
        (stale.status, code(&stale).as_str()),
        (403, "approval.stale"),
        "{}",
        stale.text()
    );
}

// fault L2
#[test]
fn an_approver_sees_what_is_hidden_and_how_much_there_is() {
    let gantry = Gantry::builder().server("a", &Evilpeer::new()).start();
    gantry.wait_state("a", "ready", LONG);
    let agent = asker(&gantry, "bot");
    let text = format!("gpj\u{202e}\u{200b}{}", "x".repeat(20_000));
    let running = calling(&gantry, &agent, &text);
    let held = waiting(&gantry, 1).remove(0);
    let shown = held["arguments"].as_str().unwrap();
    assert!(shown.contains("gpj\\u202e\\u200bxx"), "{}", &shown[..60]);
    assert!(shown.len() <= 16 << 10, "{}", shown.len());
    let whole = json!({ "text": text }).to_string().len();
    assert_eq!(held["arguments_bytes"], whole);
    let call = held["call"].as_str().unwrap();
    let listed = gantry.cli(&["approvals", "ls"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.contains("a:echo") && !listed.contains('\u{202e}'),
        "{listed}"
    );
    let one = gantry.cli(&["approvals", "show", call]);
    let said = String::from_utf8(one.stderr).unwrap();
    assert!(said.contains("the arguments are cut"), "{said}");
    let one: Value = serde_json::from_slice(&one.stdout).unwrap();
    assert_eq!(one["arguments"], held["arguments"]);
    assert!(shown.ends_with(" …"), "{}", &shown[shown.len() - 20..]);
    let done = gantry.cli(&["approvals", "allow", call]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(running.join().unwrap().status, 200);
    // What was approved was asked for: the same policy decides it in the same way.
    let tested = gantry.rest("POST", "/api/v1/policy/test", Some(&json!({})));
    let tested = tested.json();
    assert_eq!(
        (&tested["same"], &tested["differ"]),
        (&json!(1), &json!(0)),
        "{tested}"
    );
}

#[test]
fn what_waits_ends_with_its_time_its_key_and_its_tool() {
    let server = Swapping::new(&json!([tool("read", "Reads", "text")]));
    let gantry = Gantry::builder().server("a", &server.peer()).start();
    gantry.wait_state("a", "ready", LONG);
    set(&gantry, &json!({"approvals.timeout": "1s"}));
    let agent = asker(&gantry, "bot");
    let late = calling(&gantry, &agent, "late").join().unwrap();
    assert_eq!(
        (late.status, code(&late).as_str()),
        (403, "approval.expired")
    );
    let rows = gantry.audit_rows("tool=echo&status=refused");
    assert_eq!(
        (rows.len(), &rows[0]["code"]),
        (1, &json!("approval.expired"))
    );

    // A revoked key ends its call.
    set(&gantry, &json!({"approvals.timeout": "1m"}));
    let running = calling(&gantry, &agent, "revoked");
    waiting(&gantry, 1);
    let gone = gantry.rest("DELETE", "/api/v1/agents/bot", None);
    assert!(gone.status < 300, "{}", gone.text());
    assert_eq!(running.join().unwrap().status, 401);
    waiting(&gantry, 0);

    // An approval is for the version that was shown.
    let agent = gantry.agent_with("reader", &["ask a:read"]);
    let (authority, bearer) = (gantry.authority.clone(), format!("Bearer {agent}"));
    let running = thread::spawn(move || {
        let body = json!({"name": "a__read", "arguments": {"text": "x"}}).to_string();
        let mut connection = Connection::open(&authority).unwrap();
        let sent = connection.request(
            "POST",
            "/api/v1/tools/call",
            &headers(&bearer, ""),
            body.as_bytes(),
        );
        sent.unwrap()
    });
    let held = waiting(&gantry, 1).remove(0);
    let before = gantry.rest("GET", "/api/v1/tools?server=a", None).text();
    server.write(&json!([tool("read", "Reads and sends", "text")]));
    assert!(gantry.call("a__grow", json!({}))["result"].is_object());
    let read = eventually(LONG, || {
        gantry.rest("GET", "/api/v1/tools?server=a", None).text() != before
    });
    assert!(read.is_some(), "the changed list was not read");
    assert_eq!(
        decide(&gantry, &gantry.admin, &held, "allow", &json!({})).status,
        200
    );
    let stale = running.join().unwrap();
    assert_eq!(
        (stale.status, code(&stale).as_str()),
        (403, "approval.stale")
    );

    // A call that need not be waited for.
    let agent = asker(&gantry, "later");
    let bearer = format!("Bearer {agent}");
    let body = json!({"name": "a__echo", "arguments": {"text": "async"}}).to_string();
    let accepted = gantry
        .connect()
        .request(
            "POST",
            "/api/v1/tools/call",
            &headers(&bearer, "respond-async"),
            body.as_bytes(),
        )
        .unwrap();
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    let held = waiting(&gantry, 1).remove(0);
    assert_eq!(
        decide(&gantry, &gantry.admin, &held, "allow", &json!({})).status,
        200
    );
    let place = format!("/api/v1/calls/{}", held["call"].as_str().unwrap());
    let done = eventually(LONG, || {
        let answer = gantry.rest_as(&agent, "GET", &place, None);
        answer.json()["result"]["content"][0]["text"] == "async"
    });
    assert!(done.is_some());
}
