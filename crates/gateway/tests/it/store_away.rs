//! A PostgreSQL store that is away: cut off, stalled, locked, or not there at the start.

use std::fs;
use std::thread;
use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::cut::Cut;
use gantry_testkit::postgres::PgDatabase;
use gantry_testkit::wait::{Stopwatch, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::harness::{Gantry, LONG};

/// Within this time after the database is back the gateway is well.
const HEALED: Duration = Duration::from_secs(5);

fn health(gantry: &Gantry) -> String {
    let health = gantry.rest("GET", "/api/v1/health", None).json();
    health["status"].as_str().unwrap_or_default().to_owned()
}

/// Makes calls that must all be answered.
fn calls(gantry: &Gantry, count: usize) {
    for _ in 0..count {
        let answer = gantry.call("a__echo", json!({"text": "x"}));
        assert_eq!(answer["result"]["content"][0]["text"], "x", "{answer:#}");
    }
}

// fault D1: calls continue, no row is lost, health says so and heals by itself.
#[test]
fn calls_go_on_while_postgresql_is_away_and_no_row_is_lost() {
    let database = PgDatabase::new();
    let proxy = Cut::to(database.port());
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new().name("a"))
        .flags(&["--store", &database.url_at(proxy.port())])
        .start();
    gantry.wait_state("a", "ready", LONG);
    calls(&gantry, 5);
    let healed = |why: &str| {
        let watch = Stopwatch::start();
        assert!(
            eventually(LONG, || health(&gantry) == "ok").is_some(),
            "{why}"
        );
        let took = watch.elapsed();
        assert!(took <= HEALED, "{why}: {took:?}");
    };

    // Cut off: connections end, and none is accepted.
    proxy.cut();
    assert!(eventually(LONG, || health(&gantry) == "degraded").is_some());
    calls(&gantry, 20);
    let body = json!({"kind": "agent", "agent": "default"});
    let refused = gantry.rest("POST", "/api/v1/keys", Some(&body));
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.json()["code"], "store.unreachable");
    proxy.mend();
    healed("cut off");

    // Stalled: nothing answers, nothing ends.
    proxy.stall();
    calls(&gantry, 20);
    assert!(eventually(LONG, || health(&gantry) == "degraded").is_some());
    proxy.mend();
    healed("stalled");

    // Locked by somebody else.
    thread::scope(|scope| {
        let held = scope.spawn(|| {
            database.sql(
                "BEGIN; LOCK TABLE kb.mcp_tool_call_log IN ACCESS EXCLUSIVE MODE; \
                 SELECT pg_sleep(2); COMMIT",
            )
        });
        calls(&gantry, 20);
        held.join().unwrap();
    });
    healed("locked");
    let count = "SELECT count(*) FROM kb.mcp_tool_call_log WHERE tool_name = 'echo'";
    assert!(eventually(LONG, || database.sql(count) == "65").is_some());
    let twice = "SELECT count(*) - count(DISTINCT seq) FROM kb.mcp_tool_call_log";
    assert_eq!(database.sql(twice), "0");
    assert_eq!(gantry.audit_rows("tool=echo&status=ok").len(), 65);
}

// fault D1: unreachable at the start.
#[test]
fn a_gateway_waits_for_a_database_that_is_away_at_its_start_and_says_so() {
    let database = PgDatabase::new();
    let proxy = Cut::to(database.port());
    proxy.cut();
    let home = tempfile::tempdir().unwrap();
    let builder = Gantry::builder().flags(&["--store", &database.url_at(proxy.port())]);
    let mut child = builder.command(home.path()).spawn().unwrap();
    let says = |text: &str| {
        let log = fs::read_to_string(home.path().join("stderr")).unwrap_or_default();
        log.contains(text)
    };
    let waits = || says("waiting for the database: cannot reach the database");
    assert!(eventually(LONG, waits).is_some());
    assert!(child.try_wait().unwrap().is_none());
    proxy.mend();
    let announced = home.path().join("data/gateway.json");
    assert!(eventually(LONG, || announced.exists()).is_some());
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
