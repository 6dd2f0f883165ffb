//! Calls that a client takes back with a reason: the far server hears it.

use gantry_testkit::wait::eventually;
use serde_json::{Value, json};

use super::peer::{Peer, Reply, legacy};
use super::{FAR, entry, gateway};
use crate::eras::Older;
use crate::faults_client::Posted;
use crate::harness::LONG;

// fault A10
#[test]
fn the_reason_of_a_client_reaches_the_server() {
    let peer = Peer::start(|seen| match seen.method() {
        "tools/call" => Reply::Hang,
        _ => legacy(seen),
    });
    let gantry = gateway(entry(&peer.url("/mcp"))).start();
    gantry.wait_state(FAR, "ready", LONG);
    let session = Older::open(&gantry, "/mcp", "2025-11-25");
    let long = "x".repeat(5_000);
    // What a client says, and what the server is told.
    let rows = [
        (
            json!("the person changed its mind"),
            json!("the person changed its mind"),
        ),
        (
            json!("\u{1F600} \"quoted\"\n"),
            json!("\u{1F600} \"quoted\"\n"),
        ),
        (Value::Null, json!("the caller has left")),
        (json!(7), json!("the caller has left")),
        (json!(long), json!("x".repeat(1_024))),
    ];
    for (place, (reason, wanted)) in rows.iter().enumerate() {
        let params = json!({"name": "far__echo", "arguments": {"text": "x"}});
        let call = json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": params});
        let posted = Posted::in_session(&gantry.agent, &session.id, &call);
        let waiting = posted.open(&gantry);
        let arrived = || peer.asked("tools/call").len() == place + 1;
        assert!(eventually(LONG, arrived).is_some());
        let mut params = json!({"requestId": "c"});
        if !reason.is_null() {
            params["reason"] = reason.clone();
        }
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        let taken = Posted::in_session(&gantry.agent, &session.id, &cancel).send(&gantry);
        assert_eq!(taken.status, 202);
        let told = || peer.asked("notifications/cancelled").len() == place + 1;
        assert!(eventually(LONG, told).is_some(), "{reason}");
        let told = &peer.asked("notifications/cancelled")[place].body["params"];
        let call = &peer.asked("tools/call")[place].body["id"];
        assert_eq!((&told["requestId"], &told["reason"]), (call, wanted));
        assert_eq!({ waiting }.answer().unwrap().status, 202);
    }
}
