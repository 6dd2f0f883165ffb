//! A gateway that is told twice to stop: the calls that it cuts off were not cancelled.

use std::thread;

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::eventually;
use rustix::process::Signal;
use serde_json::json;

use super::has_page;
use crate::harness::{Connection, Gantry, LONG};

// fault P4
#[test]
fn a_call_that_a_second_signal_cuts_off_is_unknown_and_says_why() {
    for (first, second) in [(Signal::TERM, Signal::TERM), (Signal::INT, Signal::TERM)] {
        let mut gantry = Gantry::builder().server("a", &Evilpeer::new()).start();
        gantry.wait_state("a", "ready", LONG);
        thread::scope(|scope| {
            let gantry = &gantry;
            for _ in 0..4 {
                scope.spawn(move || {
                    let bearer = format!("Bearer {}", gantry.agent);
                    let headers = [
                        ("Authorization", bearer.as_str()),
                        ("Content-Type", "application/json"),
                    ];
                    let body = json!({"name": "slow", "arguments": {"ms": 60_000}});
                    let body = json!({"method": "tools/call", "params": body}).to_string();
                    let path = "/api/v1/mcp/servers/a/call";
                    drop(
                        gantry
                            .connect()
                            .request("POST", path, &headers, body.as_bytes()),
                    );
                });
            }
            gantry.wait_status("a", LONG, |now| now["queue"]["in_flight"] == 4);
            gantry.signal(first);
            let stopping = eventually(LONG, || Connection::open(&gantry.authority).is_err());
            assert!(stopping.is_some());
            gantry.signal(second);
        });
        assert_eq!(gantry.wait(LONG), Some(130), "{}", gantry.stderr());
        let gantry = gantry.again();
        let rows = gantry.audit_rows("tool=slow");
        assert_eq!(rows.len(), 4, "{rows:#?}");
        for row in &rows {
            let code = row["code"].as_str().unwrap_or_default();
            assert_eq!(row["status"], "unknown", "{row:#}");
            // Whoever had no time to be told that it is cut off ended with the process.
            assert!(
                ["gateway.cut_off", "gateway.died"].contains(&code),
                "{row:#}"
            );
            has_page(&gantry, code);
        }
    }
}
