//! Progress, as events before the answer.

use gantry_testkit::{Era, Evilpeer};
use serde_json::{Value, json};

use super::{Events, Older};
use crate::faults_client::Posted;
use crate::harness::{Connection, Gantry, LONG};

/// Describes a call with progress in either generation.
fn open(gantry: &Gantry, path: &str, stateless: bool, params: Value) -> Connection {
    if stateless {
        return Posted::stateless(&gantry.agent, "tools/call", params)
            .at(path)
            .open(gantry);
    }
    let session = Older::open(gantry, path, "2025-06-18");
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    session.posted(&message).open(gantry)
}

#[test]
fn progress_comes_as_events_in_every_generation_and_before_the_answer() {
    let gantry = Gantry::builder()
        .server("old", &Evilpeer::new().era(Era::Legacy))
        .server("new", &Evilpeer::new().era(Era::Modern))
        .start();
    gantry.wait_state("old", "ready", LONG);
    gantry.wait_state("new", "ready", LONG);
    for server in ["old", "new"] {
        let own = format!("/mcp/servers/{server}");
        for (path, name) in [
            ("/mcp", format!("{server}__slow")),
            (&own, "slow".to_owned()),
        ] {
            for (stateless, token) in [
                (true, json!("tök/en")),
                (false, json!(7)),
                (false, json!("7")),
            ] {
                let params = json!({
                    "name": name,
                    "arguments": {"ms": 200, "progress": 4},
                    "_meta": {"progressToken": token},
                });
                let mut events = Events::of(open(&gantry, path, stateless, params));
                for step in 1..=4 {
                    let message = events.next().unwrap();
                    assert_eq!(message["method"], "notifications/progress", "{message:#}");
                    assert!(message.get("id").is_none());
                    let wanted = json!({
                        "progressToken": token,
                        "progress": step,
                        "total": 4,
                        "message": format!("step {step} of 4"),
                    });
                    assert_eq!(message["params"], wanted);
                }
                let answer = events.next().unwrap();
                assert_eq!(answer["id"], 1);
                assert_eq!(
                    answer["result"]["content"][0]["text"], "slept 200 ms",
                    "{answer:#}"
                );
                assert_eq!(answer["result"]["resultType"].is_string(), stateless);
                assert!(events.next().is_none(), "the stream ends with the answer");
            }
        }
    }
    let rows = gantry.audit_rows("");
    assert_eq!(rows.len(), 12);
    assert!(rows.iter().all(|row| row["status"] == "ok"));
}

#[test]
fn without_progress_the_answer_is_one_document_unless_only_events_are_taken() {
    let gantry = Gantry::start(&["a"]);
    let params =
        json!({"name": "a__echo", "arguments": {"text": "x"}, "_meta": {"progressToken": 1}});
    let quick = Posted::stateless(&gantry.agent, "tools/call", params.clone());
    let answer = quick.send(&gantry);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.json()["result"]["content"][0]["text"], "x");
    let mut events = Events::of(quick.header("Accept", "text/event-stream").open(&gantry));
    assert_eq!(events.next().unwrap()["result"]["content"][0]["text"], "x");
    assert!(events.next().is_none());
    // A client that takes no events hears of no progress, and gets its answer.
    let params = json!({
        "name": "a__slow",
        "arguments": {"ms": 100, "progress": 3},
        "_meta": {"progressToken": 1},
    });
    let quiet =
        Posted::stateless(&gantry.agent, "tools/call", params).header("Accept", "application/json");
    let answer = quiet.send(&gantry);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(
        answer.json()["result"]["content"][0]["text"],
        "slept 100 ms"
    );
    // A failure, too, comes as the event that a client waits for.
    let params = json!({"name": "a__rpc_error", "arguments": {"code": 5, "message": "no"}});
    let failing = Posted::stateless(&gantry.agent, "tools/call", params)
        .header("Accept", "text/event-stream");
    let mut events = Events::of(failing.open(&gantry));
    assert_eq!(events.next().unwrap()["error"]["code"], 5);
    assert!(events.next().is_none());
}

#[test]
fn callers_with_one_token_hear_of_their_own_call_only() {
    // fault A10
    let gantry = Gantry::builder()
        .server("old", &Evilpeer::new().era(Era::Legacy))
        .server("new", &Evilpeer::new().era(Era::Modern))
        .start();
    for server in ["old", "new"] {
        gantry.wait_state(server, "ready", LONG);
        let (one, two) = (
            Older::open(&gantry, "/mcp", "2025-06-18"),
            Older::open(&gantry, "/mcp", "2025-11-25"),
        );
        let params = |steps: u64| {
            json!({
                "name": format!("{server}__slow"),
                // Long enough that all four are seen in flight, even if the machine stands still.
                "arguments": {"ms": 5000, "progress": steps},
                "_meta": {"progressToken": "shared"},
            })
        };
        // Two sessions, one of them twice, and somebody without a session; all with one key.
        let call = |session: &Older<'_>, id: u64, steps: u64| {
            let message = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
                "params": params(steps)});
            (steps, session.posted(&message).open(&gantry))
        };
        let stateless = Posted::stateless(&gantry.agent, "tools/call", params(7)).open(&gantry);
        let calls = [
            call(&one, 1, 4),
            call(&one, 2, 5),
            call(&two, 1, 6),
            (7, stateless),
        ];
        gantry.wait_status(server, LONG, |status| status["queue"]["in_flight"] == 4);
        // What a client says of somebody's token is nobody's progress.
        let told = json!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": "shared", "progress": 99, "total": 99}});
        for session in [&one, &two] {
            assert_eq!(session.posted(&told).send(&gantry).status, 202);
        }
        let bare = Posted::new(&gantry.agent, "/mcp", &told);
        assert_eq!(bare.send(&gantry).status, 202);
        for (steps, connection) in calls {
            let mut events = Events::of(connection);
            for step in 1..=steps {
                let message = events.next().unwrap();
                let wanted = json!({"progressToken": "shared", "progress": step, "total": steps,
                    "message": format!("step {step} of {steps}")});
                assert_eq!(message["params"], wanted, "{server}: {message:#}");
            }
            let answer = events.next().unwrap();
            assert_eq!(
                answer["result"]["content"][0]["text"], "slept 5000 ms",
                "{server}: {answer:#}"
            );
            assert!(events.next().is_none(), "the stream ends with the answer");
        }
        let rows = gantry.audit_rows(&format!("server={server}"));
        assert_eq!(rows.len(), 4);
        assert!(rows.iter().all(|row| row["status"] == "ok"), "{rows:#?}");
    }
}
