//! Calls over REST: the audit's filters and exports, and calls that nobody waits for.

use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::journal::Journal;
use gantry_testkit::wait::eventually;
use serde_json::{Value, json};

use super::{items, problem};
use crate::harness::{Answer, Gantry, LONG, on_postgresql};

pub(super) fn later(gantry: &Gantry, key: &str, tool: &str, arguments: &Value) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
        ("Prefer", "respond-async"),
    ];
    let body = json!({"name": tool, "arguments": arguments}).to_string();
    gantry
        .connect()
        .request("POST", "/api/v1/tools/call", &headers, body.as_bytes())
        .unwrap()
}

// row 2.9
#[test]
fn a_call_that_nobody_waits_for_can_be_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let peer = Evilpeer::new().name("a").journal(&journal);
    let gantry = Gantry::builder().server("a", &peer).start();
    gantry.wait_state("a", "ready", LONG);
    let arguments = json!({"ms": 20_000, "nonce": "n1"});
    let accepted = later(&gantry, &gantry.agent, "a__slow", &arguments);
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    assert_eq!(accepted.header("preference-applied"), Some("respond-async"));
    let place = accepted.header("location").unwrap().to_owned();
    let running = gantry.rest_as(&gantry.agent, "GET", &place, None);
    assert_eq!(
        (running.status, running.json()["status"].clone()),
        (202, json!("running"))
    );
    eventually(LONG, || !gantry.audit_rows("status=running").is_empty()).expect("it runs");
    // Another agent's key neither sees it nor ends it.
    let other = json!({"kind": "agent", "agent": "other"});
    let other = gantry.rest("POST", "/api/v1/keys", Some(&other)).json();
    let other = other["key"].as_str().unwrap();
    for method in ["DELETE", "GET"] {
        let unknown = gantry.rest_as(other, method, &place, None);
        assert_eq!(problem(&gantry, &unknown, 404), "call.unknown");
    }
    assert_eq!(
        gantry.rest_as(&gantry.agent, "GET", &place, None).status,
        202
    );

    assert_eq!(
        gantry.rest_as(&gantry.agent, "DELETE", &place, None).status,
        204
    );
    let mut ended = None;
    eventually(Duration::from_secs(5), || {
        let answer = gantry.rest_as(&gantry.agent, "GET", &place, None);
        let is_over = answer.status != 202;
        ended = Some(answer);
        is_over
    });
    assert_eq!(problem(&gantry, &ended.unwrap(), 499), "call.cancelled");
    eventually(Duration::from_secs(5), || {
        gantry.audit_rows("status=cancelled").len() == 1
    })
    .expect("the audit says so");
    eventually(Duration::from_secs(5), || {
        Journal::read(&journal).unwrap().cancelled("n1")
    })
    .expect("the server was told");
    // Its outcome is forgotten once; the row of the audit stays, under the same id.
    assert_eq!(
        gantry.rest_as(&gantry.agent, "DELETE", &place, None).status,
        204
    );
    for key in [&gantry.agent, &gantry.admin] {
        let gone = gantry.rest_as(key, "DELETE", &place, None);
        assert_eq!(problem(&gantry, &gone, 404), "call.unknown");
        let row = gantry.rest_as(key, "GET", &place, None);
        assert_eq!(
            (row.status, &row.json()["status"]),
            (200, &json!("cancelled"))
        );
    }
}

#[test]
fn one_agent_cannot_take_all_the_room_for_later_answers() {
    let peer = Evilpeer::new().name("a");
    let members = json!({"calls": {"concurrency": 128}});
    let gantry = Gantry::builder().server_with("a", &peer, &members).start();
    gantry.wait_state("a", "ready", LONG);
    let arguments = json!({"ms": 30_000});
    for n in 0..64 {
        let accepted = later(&gantry, &gantry.agent, "a__slow", &arguments);
        assert_eq!(accepted.status, 202, "{n}: {}", accepted.text());
    }
    let refused = later(&gantry, &gantry.agent, "a__slow", &arguments);
    assert!(refused.header("retry-after").is_some());
    assert_eq!(problem(&gantry, &refused, 429), "call.too_many_async");
    let other = later(&gantry, &gantry.admin, "a__echo", &json!({"text": "x"}));
    assert_eq!(other.status, 202, "{}", other.text());
}

#[test]
fn the_audit_is_filtered_and_exported() {
    let gantry = Gantry::start(&["a", "b"]);
    for n in 0..3 {
        gantry.call("a__echo", json!({"text": format!("=x,\"{n}\"")}));
    }
    gantry.call("b__echo", json!({"text": "y"}));
    gantry.call("b__echo", json!({"text": 7}));
    let count = |query: &str| gantry.audit_rows(query).len();
    assert_eq!((count("server=a"), count("server=b")), (3, 2));
    assert_eq!(
        (count("code=schema.input"), count("status=refused")),
        (1, 1)
    );
    assert_eq!((count("agent=default"), count("agent=nobody")), (5, 0));
    assert_eq!(
        (
            count("since=2000-01-01T00:00:00Z"),
            count("until=946684800000")
        ),
        (5, 0)
    );
    assert_eq!(count("tool=echo&server=b&status=ok"), 1);
    let refused = gantry.rest("GET", "/api/v1/calls?status=fine", None);
    assert_eq!(problem(&gantry, &refused, 400), "request.query");

    let lines = gantry.rest("GET", "/api/v1/calls/export?server=a", None);
    assert_eq!(lines.header("content-type"), Some("application/jsonl"));
    let rows: Vec<Value> = lines
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        rows,
        items(&gantry.rest("GET", "/api/v1/calls?server=a", None))
    );
    let table = gantry.rest("GET", "/api/v1/calls/export?format=csv", None);
    assert_eq!(
        table.header("content-type"),
        Some("text/csv; charset=utf-8")
    );
    assert!(
        table
            .header("content-disposition")
            .unwrap()
            .contains("calls.csv")
    );
    let table = table.text();
    assert!(table.starts_with("id,started_ms,"), "{table}");
    assert_eq!(table.matches("\r\n").count(), 6, "{table}");
    // An agent's export is of its own calls, whatever it asks for.
    let other = json!({"kind": "agent", "agent": "other"});
    let other = gantry.rest("POST", "/api/v1/keys", Some(&other)).json();
    let own = gantry.rest_as(
        other["key"].as_str().unwrap(),
        "GET",
        "/api/v1/calls/export?agent=default",
        None,
    );
    assert_eq!((own.status, own.text().as_str()), (200, ""));
    let refused = gantry.rest("GET", "/api/v1/calls/export?format=xml", None);
    assert_eq!(problem(&gantry, &refused, 400), "request.query");
}

#[test]
fn the_audit_is_filtered_and_exported_on_postgresql() {
    on_postgresql(the_audit_is_filtered_and_exported);
}

#[test]
fn an_export_is_longer_than_a_page() {
    let gantry = Gantry::start(&["a"]);
    let mut session = gantry.initialize();
    for n in 0..1203 {
        let params = json!({"name": "a__echo", "arguments": {"text": format!("{n}")}});
        session.request("tools/call", params);
    }
    let lines = gantry.rest("GET", "/api/v1/calls/export", None);
    assert_eq!(lines.header("transfer-encoding"), Some("chunked"));
    let text = lines.text();
    let ids: std::collections::BTreeSet<String> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].to_string())
        .collect();
    assert_eq!((text.lines().count(), ids.len()), (1203, 1203));
}
