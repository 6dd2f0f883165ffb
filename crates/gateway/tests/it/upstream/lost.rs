//! Connections that are cut while calls are on them.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    // It is the calls that find out, and no question whether it is there.
    let patient = json!({"calls": {"timeout": "30s", "timeout_max": "60s"},
        "life": {"health_every": "60s"}});
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

/// Answers on a connection that serves nothing more, and counts what was answered, to the last byte.
fn counted(answer: &str, count: &Arc<AtomicUsize>) -> Reply {
    let kind = "Content-Type: application/json\r\nConnection: close";
    let length = answer.len();
    let answer = format!("HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {length}\r\n\r\n{answer}");
    let count = Arc::clone(count);
    Reply::Raw(Box::new(move |to: &mut dyn Write| {
        to.write_all(answer.as_bytes())?;
        to.flush()?;
        count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }))
}

#[test]
fn one_cut_connection_does_not_cost_the_session() {
    // fault H6
    let pings = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&pings);
    let far = Peer::start(move |seen| match (seen.method(), legacy(seen)) {
        ("ping", Reply::Json(answer)) => counted(&answer.to_string(), &count),
        (_, reply) => reply,
    });
    // It is asked whether it is there when a call was cut, and not beside that.
    let calm = json!({"life": {"health_every": "60s"}});
    let gantry = gateway(with(entry(&far.url("/mcp")), &calm)).start();
    gantry.wait_state(FAR, "ready", LONG);
    for round in 0..5 {
        let before = pings.load(Ordering::SeqCst);
        far.cut();
        // A connection that lay idle may be found cut by the first who uses it; the next is new.
        if echo(&gantry, "x").is_err() {
            assert_eq!(echo(&gantry, "x"), Ok("x".to_owned()), "{round}");
            // Its answer that it is there is not cut, too.
            eventually(LONG, || pings.load(Ordering::SeqCst) > before).unwrap();
        }
    }
    assert_eq!(gantry.status(FAR)["restart_count"], 0);
    assert_eq!(far.asked("initialize").len(), 1);
}
