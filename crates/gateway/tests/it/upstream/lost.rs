//! Connections that are cut while calls are on them.

use std::io::Write;

use gantry_testkit::wait::eventually;
use serde_json::json;
use tokio::time::Instant;

use super::peer::{Peer, Reply, event, legacy, modern};
use super::{FAR, SECOND, code, echo, entry, gateway, with};
use crate::harness::LONG;

#[test]
fn a_call_whose_stream_is_cut_fails_now_and_is_not_sent_again() {
    // fault H6
    let far = Peer::start(|seen| match seen.method() {
        "tools/call" => Reply::Events(Box::new(|to: &mut dyn Write| {
            let told = json!({"jsonrpc": "2.0", "method": "notifications/message",
                "params": {"level": "info", "data": "begun"}});
            event(to, &format!("data: {told}\n\n"))
        })),
        _ => modern(seen),
    });
    let patient = json!({"calls": {"timeout": "30s"}});
    let gantry = gateway(with(entry(&far.url("/mcp")), &patient)).start();
    gantry.wait_state(FAR, "ready", LONG);
    let begun = Instant::now();
    let error = echo(&gantry, "x").unwrap_err();
    assert!(begun.elapsed() < 10 * SECOND);
    assert_eq!(code(&error), "remote.cut", "{error}");
    assert_eq!(far.asked("tools/call").len(), 1);
    let rows = gantry.audit_rows("server=far");
    assert_eq!((rows.len(), &rows[0]["code"]), (1, &json!("remote.cut")));
    // The server was looked at, and is there.
    eventually(LONG, || far.asked("server/discover").len() > 1).unwrap();
    assert_eq!(gantry.status(FAR)["state"], "ready");
}

#[test]
fn a_server_that_goes_away_during_calls_fails_them_all_at_once() {
    // fault H6; row 0.7
    let far = Peer::start(|seen| match seen.method() {
        "tools/call" => Reply::Hang,
        _ => legacy(seen),
    });
    let patient = json!({"calls": {"timeout": "30s", "timeout_max": "60s"}});
    let gantry = gateway(with(entry(&far.url("/mcp")), &patient)).start();
    gantry.wait_state(FAR, "ready", LONG);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let error = echo(&gantry, "x").unwrap_err();
                let known = ["remote.cut", "remote.refused", "remote.unreachable"];
                assert!(known.contains(&code(&error)), "{error}");
            });
        }
        eventually(LONG, || far.asked("tools/call").len() == 4).unwrap();
        let begun = Instant::now();
        drop(far);
        gantry.wait_state(FAR, "disconnected", LONG);
        assert!(begun.elapsed() < 10 * SECOND);
    });
    assert_eq!(gantry.audit_rows("server=far").len(), 4);
}

#[test]
fn one_cut_connection_does_not_cost_the_session() {
    // fault H6
    let far = Peer::start(legacy);
    let gantry = gateway(entry(&far.url("/mcp"))).start();
    gantry.wait_state(FAR, "ready", LONG);
    for round in 0..5 {
        far.cut();
        // A connection that lay idle may be found cut by the first who uses it; the next is new.
        if echo(&gantry, "x").is_err() {
            assert_eq!(echo(&gantry, "x"), Ok("x".to_owned()), "{round}");
        }
    }
    assert_eq!(gantry.status(FAR)["restart_count"], 0);
    assert_eq!(far.asked("initialize").len(), 1);
}
