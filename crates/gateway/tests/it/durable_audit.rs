//! Durability `database`: a call is in the database before its server hears of it, and its end before the
//! answer; without the database no call is made.

use std::path::Path;
use std::thread;
use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::cut::Cut;
use gantry_testkit::journal::Journal;
use gantry_testkit::postgres::PgDatabase;
use gantry_testkit::wait::eventually;
use serde_json::json;

use crate::harness::{Builder, Gantry, LONG, on_postgresql};

const IN_DATABASE: [&str; 2] = ["--audit", "database"];

/// Returns how often the server executed a call.
fn executed(journal: &Path, nonce: &str) -> usize {
    Journal::read(journal).map_or(0, |journal| journal.executed(nonce))
}

fn started(builder: Builder) -> Gantry {
    let gantry = builder.flags(&IN_DATABASE).start();
    gantry.wait_state("a", "ready", LONG);
    gantry
}

// rows 0.9, 3.5
#[test]
fn a_call_is_in_the_database_before_it_is_sent_and_before_it_is_answered() {
    is_stored_first();
}

// rows 0.9, 3.5
#[test]
fn a_call_is_in_postgresql_before_it_is_sent_and_before_it_is_answered() {
    on_postgresql(is_stored_first);
}

fn is_stored_first() {
    let folder = tempfile::tempdir().unwrap();
    let far = folder.path().join("executed");
    let peer = Evilpeer::new().journal(&far);
    let mut gantry = started(Gantry::builder().server("a", &peer));
    let stored =
        |gantry: &Gantry| gantry.asked("SELECT status FROM kb.mcp_tool_call_log ORDER BY id");
    thread::scope(|scope| {
        let slow = scope.spawn(|| gantry.call("a__slow", json!({"ms": 500, "nonce": "one"})));
        let is_sent = || executed(&far, "one") == 1;
        assert!(eventually(LONG, is_sent).is_some());
        assert_eq!(stored(&gantry), ["running"]);
        slow.join().unwrap();
        assert_eq!(stored(&gantry), ["ok"]);
    });
    // Calls at once share transactions.
    let blocks = || {
        let count = gantry.asked("SELECT count(*) FROM kb.mcp_audit_blocks");
        count[0].parse::<usize>().unwrap()
    };
    let before = blocks();
    thread::scope(|scope| {
        for number in 0..8 {
            let gantry = &gantry;
            scope.spawn(move || {
                for _ in 0..5 {
                    let answer = gantry.call("a__echo", json!({"text": number.to_string()}));
                    assert_eq!(answer["result"]["content"][0]["text"], number.to_string());
                }
            });
        }
    });
    assert_eq!(stored(&gantry).len(), 41);
    assert!(stored(&gantry).iter().all(|status| status == "ok"));
    assert!(
        blocks() - before < 80,
        "two blocks a call would be none shared"
    );
    // An answered call is there, whatever comes a moment later.
    gantry.call("a__echo", json!({"text": "last"}));
    gantry.kill();
    assert_eq!(stored(&gantry).len(), 42);
    let gantry = gantry.again();
    let report = gantry.rest("GET", "/api/v1/audit/verify", None).json();
    assert_eq!(report["sound"], true, "{report:#}");
    assert_eq!(gantry.audit_rows("status=ok").len(), 42);
}

// fault D1
#[test]
fn without_its_database_no_call_is_made() {
    let database = PgDatabase::new();
    let cut = Cut::to(database.port());
    let folder = tempfile::tempdir().unwrap();
    let far = folder.path().join("executed");
    let builder = Gantry::builder()
        .server("a", &Evilpeer::new().journal(&far))
        .flags(&["--store", &database.url_at(cut.port())]);
    let gantry = started(builder);
    gantry.call("a__echo", json!({"text": "x", "nonce": "before"}));
    cut.cut();
    let answer = gantry.call("a__echo", json!({"text": "x", "nonce": "during"}));
    assert_eq!(
        answer["error"]["data"]["code"], "audit.unavailable",
        "{answer:#}"
    );
    let health = gantry.rest("GET", "/api/v1/health", None).json();
    assert_eq!(health["status"], "failing", "{health:#}");
    let reason = health["audit"]["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("in the database"), "{health:#}");
    assert_eq!(executed(&far, "during"), 0);
    cut.mend();
    let works = || {
        let answer = gantry.call("a__echo", json!({"text": "y"}));
        answer["result"]["content"][0]["text"] == "y"
    };
    assert!(eventually(Duration::from_secs(10), works).is_some());
    let refused = gantry.audit_rows("status=refused");
    assert!(!refused.is_empty() && refused.iter().all(|row| row["code"] == "audit.sync"));
}
