//! Calls that nobody waits for: one id from the first answer to the audit, across restarts, and bounds
//! that are each agent's own.

use std::io::Write as _;
use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::eventually;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::calls::later;
use super::problem;
use crate::faults_client::Posted;
use crate::harness::{Answer, Connection, Gantry, LONG};

fn place(accepted: &Answer) -> String {
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    let id = accepted.json()["id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("call_"), "{id}");
    let place = accepted.header("location").unwrap().to_owned();
    assert_eq!(place, format!("/api/v1/calls/{id}"));
    place
}

/// Waits for the outcome of a call.
fn outcome(gantry: &Gantry, key: &str, place: &str) -> Answer {
    let mut last = None;
    let done = eventually(LONG, || {
        let answer = gantry.rest_as(key, "GET", place, None);
        let is_done = answer.status != 202;
        last = Some(answer);
        is_done
    });
    assert!(done.is_some(), "{place} has no outcome");
    last.unwrap()
}

// row 2.9, fault A11: the id that was given out is the call's own, and outlives the process.
#[test]
fn the_id_of_a_call_that_nobody_waits_for_outlives_the_gateway() {
    let mut gantry = Gantry::start(&["a"]);
    let done = later(&gantry, &gantry.agent, "a__echo", &json!({"text": "x"}));
    let done = place(&done);
    let answer = outcome(&gantry, &gantry.agent, &done);
    assert_eq!(answer.json()["result"]["content"][0]["text"], "x");
    assert_eq!(
        format!("/api/v1/calls/{}", answer.json()["call"].as_str().unwrap()),
        done
    );
    let refused = later(&gantry, &gantry.agent, "a__none", &json!({}));
    let refused = place(&refused);
    assert_eq!(outcome(&gantry, &gantry.agent, &refused).status, 404);
    // The very moment that its id is told, a call is on record.
    let cut = later(&gantry, &gantry.agent, "a__slow", &json!({"ms": 60_000}));
    let cut = place(&cut);
    gantry.kill();
    let gantry = gantry.again();
    let other = gantry.agent_with("other", &["*"]);
    let never = "/api/v1/calls/call_0123456789abcdef0123456789abcdef";
    let unknown = gantry.rest_as(&other, "GET", never, None);
    assert_eq!(problem(&gantry, &unknown, 404), "call.unknown");
    for (place, status, code) in [
        (&done, "ok", Value::Null),
        (&refused, "refused", json!("tool.unknown")),
        (&cut, "unknown", json!("gateway.died")),
    ] {
        for key in [&gantry.agent, &gantry.admin] {
            let row = gantry.rest_as(key, "GET", place, None);
            assert_eq!(row.status, 200, "{status}: {}", row.text());
            let row = row.json();
            assert_eq!(
                (&row["status"], &row["code"]),
                (&json!(status), &code),
                "{row:#}"
            );
            assert!(row.get("result").is_none());
        }
        // Another agent's id is as unknown as one that never was, whatever is done with it.
        for method in ["GET", "DELETE"] {
            let theirs = gantry.rest_as(&other, method, place, None);
            let never = gantry.rest_as(&other, method, never, None);
            assert_eq!((theirs.status, theirs.text()), (never.status, never.text()));
        }
    }
}

// fault T7: refused or not, one agent's calls cost no other agent its outcome.
#[test]
fn one_agents_calls_drop_no_other_agents_outcome() {
    let gantry = Gantry::start(&["a"]);
    let other = gantry.agent_with("other", &["*"]);
    let kept = place(&later(&gantry, &other, "a__echo", &json!({"text": "kept"})));
    assert_eq!(outcome(&gantry, &other, &kept).status, 200);
    let bearer = format!("Bearer {}", gantry.agent);
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
        ("Prefer", "respond-async"),
    ];
    let mut connection = gantry.connect();
    let mut last = String::new();
    for (tool, count) in [("a__none", 1_100), ("a__echo", 300)] {
        let body = json!({"name": tool, "arguments": {"text": "x"}}).to_string();
        for _ in 0..count {
            let sent = connection.request("POST", "/api/v1/tools/call", &headers, body.as_bytes());
            let sent = sent.unwrap();
            if sent.status == 202 {
                last = place(&sent);
            }
        }
    }
    assert_eq!(outcome(&gantry, &gantry.agent, &last).status, 200);
    let answer = gantry.rest_as(&other, "GET", &kept, None);
    assert_eq!(answer.json()["result"]["content"][0]["text"], "kept");
}

#[test]
fn every_call_of_a_list_has_its_id_at_once() {
    let gantry = Gantry::start(&["a"]);
    let calls = json!([
        {"type": "tool_use", "id": "t1", "name": "a__echo", "input": {"text": "1"}},
        {"type": "tool_use", "id": "t2", "name": "a__echo", "input": {"text": "2"}},
    ]);
    let bearer = format!("Bearer {}", gantry.agent);
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
        ("Prefer", "respond-async"),
    ];
    let body = calls.to_string();
    let accepted = gantry
        .connect()
        .request("POST", "/api/v1/tools/call", &headers, body.as_bytes())
        .unwrap();
    let place = place(&accepted);
    let ids = accepted.json()["calls"].take();
    assert_eq!(
        (&ids[0], ids.as_array().unwrap().len()),
        (&accepted.json()["id"], 2)
    );
    let answer = outcome(&gantry, &gantry.agent, &place);
    assert_eq!(answer.json().as_array().unwrap().len(), 2);
    let rows = gantry.audit_rows("tool=echo");
    let mut recorded: Vec<_> = rows.iter().map(|row| row["id"].clone()).collect();
    recorded.sort_by_key(Value::to_string);
    assert_eq!(Value::from(recorded), ids);
    let second = format!("/api/v1/calls/{}", ids[1].as_str().unwrap());
    let row = gantry.rest_as(&gantry.agent, "GET", &second, None);
    assert_eq!(row.json()["status"], "ok");
    assert!(eventually(Duration::ZERO, || gantry.audit_rows("").len() == 2).is_some());
}

// row 2.9: an id is told of what is on record; what is not is answered at once.
#[test]
fn a_call_that_is_not_on_record_is_answered_at_once() {
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new())
        .flags(&["--drain", "8s"])
        .start();
    gantry.wait_state("a", "ready", LONG);
    // Keeps the gateway from its end.
    let slow = json!({"ms": 30_000});
    assert_eq!(later(&gantry, &gantry.agent, "a__slow", &slow).status, 202);
    let body = json!({"name": "a__echo", "arguments": {"text": "x"}});
    let text = body.to_string();
    let posted =
        Posted::new(&gantry.agent, "/api/v1/tools/call", &body).header("Prefer", "respond-async");
    let framing = format!("Content-Length: {}\r\nExpect: 100-continue", text.len());
    let head = posted.head(&gantry.authority, &framing);
    // Requests that are let in, and whose bodies are waited for.
    let begun: Vec<Connection> = (0..20)
        .map(|_| {
            let mut connection = gantry.connect();
            connection.socket().write_all(&head).unwrap();
            assert_eq!(connection.head().unwrap().status, 100);
            connection
        })
        .collect();
    gantry.signal(Signal::TERM);
    let gone = eventually(LONG, || Connection::open(&gantry.authority).is_err());
    assert!(gone.is_some(), "it accepts nobody any more");
    // The first ones may come a moment before calls are refused.
    let mut answers = begun.into_iter().map(|mut connection| {
        connection.socket().write_all(text.as_bytes()).unwrap();
        connection.answer().unwrap()
    });
    let refused = answers.find(|answer| answer.status != 202);
    let refused = refused.expect("what is not made is not promised");
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (503, &json!("gateway.stopping"))
    );
    assert_eq!(refused.header("location"), None);
}

// rows 2.9, 3.5: whoever reads what another called is on record, whatever is kept of bodies
#[test]
fn an_outcome_that_an_administrator_reads_is_on_record() {
    let gantry = Gantry::start(&["a"]);
    let off = json!({"audit.bodies": "off"});
    let set = gantry.rest("PATCH", "/api/v1/settings", Some(&off));
    assert_eq!(set.status, 200, "{}", set.text());
    let bearer = format!("Bearer {}", gantry.agent);
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
        ("Prefer", "respond-async"),
    ];
    let body = json!({"name": "a__echo", "arguments": {"text": "canary-of-an-outcome"}});
    let body = body.to_string();
    let mut connection = gantry.connect();
    let accepted = connection.request("POST", "/api/v1/tools/call", &headers, body.as_bytes());
    let place = place(&accepted.unwrap());
    assert_eq!(outcome(&gantry, &gantry.agent, &place).status, 200);
    let acts = || {
        let acts = gantry.rest("GET", "/api/v1/acts?act=call.read", None);
        acts.json()["items"].as_array().unwrap().clone()
    };
    assert_eq!(
        acts().len(),
        0,
        "whose it is reads it as often as they like"
    );
    let read = gantry.rest("GET", &place, None).text();
    assert!(read.contains("canary-of-an-outcome"), "{read}");
    let [act] = &acts()[..] else {
        panic!("{:?}", acts());
    };
    assert!(place.ends_with(act["target"].as_str().unwrap()), "{act}");
}
