//! Calls that a client takes back by notification; leaving is told by fault A4.

use gantry_testkit::Evilpeer;
use gantry_testkit::journal::Journal;
use gantry_testkit::wait::{Stopwatch, eventually};
use serde_json::{Value, json};

use super::{Events, Older, SECOND};
use crate::faults_client::{Posted, ended_rows};
use crate::harness::{Gantry, LONG};

fn cancelled(id: &Value) -> Value {
    let params = json!({"requestId": id, "reason": "changed my mind"});
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
}

fn long_call(id: &Value, nonce: &str, more: Value) -> Value {
    let mut params =
        json!({"name": "a__slow", "arguments": {"ms": 60_000, "progress": 600, "nonce": nonce}});
    if more.is_object() {
        params["_meta"] = more;
    }
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

#[test]
fn a_session_takes_its_own_call_back_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().journal(&journal))
        .start();
    gantry.wait_state("a", "ready", LONG);
    let (mine, theirs) = (
        Older::open(&gantry, "/mcp", "2025-11-25"),
        Older::open(&gantry, "/mcp", "2025-06-18"),
    );
    let seen = |nonce: &str| Journal::read(&journal).unwrap().cancelled(nonce);
    let arrives = |nonce: &str| {
        let executed = || Journal::read(&journal).unwrap().executed(nonce) == 1;
        assert!(eventually(LONG, executed).is_some(), "{nonce}: it arrives");
    };
    let in_flight = |count: usize| {
        gantry.wait_status("a", LONG, |status| status["queue"]["in_flight"] == count);
    };
    // As one document, and as a stream that is under way.
    for (nonce, more) in [
        ("plain", Value::Null),
        ("stream", json!({"progressToken": 1})),
    ] {
        let id = json!(7);
        let mut connection = mine
            .posted(&long_call(&id, nonce, more.clone()))
            .open(&gantry);
        in_flight(1);
        arrives(nonce);
        let mut stream = None;
        if more.is_object() {
            let mut events = Events::of(connection);
            assert_eq!(events.next().unwrap()["params"]["progress"], 1);
            (stream, connection) = (Some(events), gantry.connect());
        }
        // fault A10: another session's, an id of another type, one that was never used.
        assert_eq!(theirs.posted(&cancelled(&id)).send(&gantry).status, 202);
        let bare = Posted::new(&gantry.agent, "/mcp", &cancelled(&id));
        assert_eq!(bare.send(&gantry).status, 202);
        for other in [json!("7"), json!(8), Value::Null] {
            assert_eq!(mine.posted(&cancelled(&other)).send(&gantry).status, 202);
        }
        assert_eq!(gantry.status("a")["queue"]["in_flight"], 1);
        assert!(!seen(nonce));
        let begun = Stopwatch::start();
        assert_eq!(mine.posted(&cancelled(&id)).send(&gantry).status, 202);
        let told = eventually(SECOND, || seen(nonce));
        assert!(told.is_some(), "{nonce}: {:?}", begun.elapsed());
        in_flight(0);
        match stream {
            Some(mut events) => {
                let mut rest = std::iter::from_fn(|| events.next());
                let is_progress = |message: Value| message["method"] == "notifications/progress";
                assert!(rest.all(is_progress), "there is no answer");
            }
            None => {
                let answer = connection.answer().unwrap();
                assert_eq!(
                    (answer.status, answer.body.len()),
                    (202, 0),
                    "there is no answer"
                );
            }
        }
        assert!(begun.elapsed() <= 2 * SECOND, "{:?}", begun.elapsed());
    }
    // Too late is too late, and no harm.
    assert_eq!(mine.posted(&cancelled(&json!(7))).send(&gantry).status, 202);
    let rows = gantry.audit_rows("server=a");
    assert_eq!(rows.len(), 2, "{rows:#?}");
    for row in rows {
        assert_eq!(
            (&row["status"], &row["code"]),
            (&json!("cancelled"), &json!("call.cancelled"))
        );
    }
    assert_eq!(gantry.status("a")["restart_count"], 0);
    assert_eq!(
        gantry.call("a__echo", json!({"text": "well"}))["result"]["content"][0]["text"],
        "well"
    );
}

#[test]
fn without_sessions_an_id_that_stands_for_several_calls_takes_none_back() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().journal(&journal))
        .start();
    gantry.wait_state("a", "ready", LONG);
    let post = |message: &Value| Posted::new(&gantry.agent, "/mcp", message);
    let in_flight = |count: usize| {
        gantry.wait_status("a", LONG, |status| status["queue"]["in_flight"] == count);
    };
    let id = json!(1);
    let first = post(&long_call(&id, "first", Value::Null)).open(&gantry);
    let second = post(&long_call(&id, "second", Value::Null)).open(&gantry);
    in_flight(2);
    assert_eq!(post(&cancelled(&id)).send(&gantry).status, 202);
    assert_eq!(
        gantry.status("a")["queue"]["in_flight"],
        2,
        "nobody can say which is meant"
    );
    drop(first);
    in_flight(1);
    // The first is forgotten a moment after its lane is free; until then the id stands for both.
    let taken_back = || {
        assert_eq!(post(&cancelled(&id)).send(&gantry).status, 202);
        gantry.status("a")["queue"]["in_flight"] == 0
    };
    assert!(eventually(LONG, taken_back).is_some());
    assert_eq!({ second }.answer().unwrap().status, 202);
    // Stateless requests are taken back by leaving, and by nothing else.
    let mut params = long_call(&id, "third", Value::Null);
    let third =
        Posted::stateless(&gantry.agent, "tools/call", params["params"].take()).open(&gantry);
    in_flight(1);
    assert_eq!(post(&cancelled(&id)).send(&gantry).status, 202);
    assert_eq!(gantry.status("a")["queue"]["in_flight"], 1);
    drop(third);
    in_flight(0);
    let rows = ended_rows(&gantry, "server=a");
    assert_eq!(rows.len(), 3);
    assert!(
        rows.iter().all(|row| row["status"] == "cancelled"),
        "{rows:#?}"
    );
}
