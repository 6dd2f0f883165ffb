//! A database that another program holds: calls continue, the health says why it is degraded, whoever
//! administers is told at once, and a server can still be restarted.

use std::thread;
use std::time::Duration;

use gantry_testkit::wait::{Stopwatch, eventually};
use serde_json::json;

use super::{echoes, health, healthz, wait_health};
use crate::faults_auth::locked::Holder;
use crate::harness::{Gantry, LONG};

// fault D1
#[test]
fn a_locked_database_degrades_the_health_and_stops_neither_calls_nor_restarts() {
    let gantry = Gantry::start(&["a"]);
    assert_eq!(health(&gantry)["status"], "ok");
    let holder = Holder::of(&gantry.data().join("gantry.db"));
    // Also while nobody calls.
    let told = wait_health(&gantry, "degraded");
    let reason = told["reasons"][0].as_str().unwrap();
    assert!(
        reason.starts_with("the database cannot be written: "),
        "{told:#}"
    );
    assert!(
        reason.contains("is held by another process; calls continue"),
        "{told:#}"
    );
    assert_eq!(healthz(&gantry), (200, "degraded".to_owned()));
    echoes(&gantry, 20);
    assert_eq!(healthz(&gantry), (200, "degraded".to_owned()));
    let doctor = gantry.cli(&["doctor"]);
    let shown = String::from_utf8_lossy(&doctor.stdout);
    assert!(
        shown.contains("✗ database") && doctor.status.code() == Some(1),
        "{shown}"
    );

    let key = json!({"kind": "agent", "agent": "default"});
    let agent = json!({"name": "late", "grant": ["*"]});
    let writes = [("/api/v1/keys", &key), ("/api/v1/agents", &agent)];
    for (path, body) in writes {
        let watch = Stopwatch::start();
        let answer = gantry.rest("POST", path, Some(body));
        let took = watch.elapsed();
        assert!(took <= Duration::from_millis(2_500), "{path}: {took:?}");
        assert_eq!(answer.status, 503, "{}", answer.text());
        let problem = answer.json();
        let code = problem["code"].as_str().unwrap();
        assert!(
            ["store.locked", "store.busy"].contains(&code),
            "{problem:#}"
        );
        assert_eq!(problem["fault"], "gateway");
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains("nothing was changed, and calls continue"),
            "{problem:#}"
        );
        assert!(
            problem["hint"].as_str().unwrap().contains("try again"),
            "{problem:#}"
        );
    }
    // Those that come together do not wait for one another.
    thread::scope(|scope| {
        for number in 0..8 {
            let gantry = &gantry;
            scope.spawn(move || {
                let body = json!({"name": format!("late-{number}")});
                let watch = Stopwatch::start();
                let answer = gantry.rest("POST", "/api/v1/agents", Some(&body));
                let took = watch.elapsed();
                assert_eq!(answer.status, 503, "{}", answer.text());
                assert!(took <= Duration::from_secs(4), "{took:?}");
            });
        }
    });
    let before = gantry.status("a")["pid"].clone();
    let restarted = gantry.cli(&["restart", "a"]);
    let shown = String::from_utf8_lossy(&restarted.stderr);
    assert!(restarted.status.success(), "{shown}");
    let after = gantry.wait_state("a", "ready", LONG);
    assert_ne!(after["pid"], before);
    echoes(&gantry, 1);

    drop(holder);
    wait_health(&gantry, "ok");
    let stored = eventually(LONG, || health(&gantry)["audit"]["unfolded_records"] == 0);
    assert!(stored.is_some());
    assert_eq!(gantry.audit_rows("server=a&status=ok").len(), 21);
    // What could not be recorded before its effect is recorded after it. issue 10, security 12
    let acts = || {
        gantry
            .rest("GET", "/api/v1/acts?act=server.restart", None)
            .json()
    };
    let recorded = eventually(LONG, || acts()["items"][0]["outcome"] == "done");
    assert!(recorded.is_some(), "{:#}", acts());
    assert_eq!(gantry.rest("POST", "/api/v1/keys", Some(&key)).status, 201);
}
