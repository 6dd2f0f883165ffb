//! A data folder that is removed while the gateway runs: noticed, said, and never made again.

use std::fs;

use gantry_testkit::wait::{Stopwatch, eventually};
use serde_json::{Value, json};

use super::{echoes, has_page, healthz, wait_health};
use crate::harness::{Gantry, LONG};

// fault F4
#[test]
fn a_data_folder_that_is_removed_is_noticed_and_no_call_is_taken() {
    let mut gantry = Gantry::start(&["a"]);
    echoes(&gantry, 3);
    let watch = Stopwatch::start();
    fs::remove_dir_all(gantry.data()).unwrap();
    let failing = eventually(LONG, || healthz(&gantry) == (503, "failing".to_owned()));
    assert!(failing.is_some(), "{}", gantry.stderr());
    assert!(watch.elapsed().as_secs() <= 6, "{:?}", watch.elapsed());
    let told = wait_health(&gantry, "failing");
    let reason = told["audit"]["reason"].as_str().unwrap();
    assert!(
        reason.contains("was removed or replaced while the gateway runs"),
        "{told:#}"
    );
    let reasons = told["reasons"].to_string();
    assert!(
        !reasons.contains("calls continue"),
        "they are refused: {reasons}"
    );
    let logged = eventually(LONG, || gantry.stderr().contains("was removed or replaced"));
    assert!(logged.is_some(), "{}", gantry.stderr());
    let answer = gantry.call("a__echo", json!({"text": "x"}));
    assert_eq!(
        answer["error"]["data"]["code"], "audit.unavailable",
        "{answer:#}"
    );
    has_page(&gantry, "audit.unavailable");
    // Whatever else is asked of it, nothing is put in the folder's place.
    gantry.rest("POST", "/api/v1/mcp/servers/a/restart", None);
    let key = json!({"kind": "agent", "agent": "default"});
    assert!(gantry.rest("POST", "/api/v1/keys", Some(&key)).status >= 400);
    assert!(!gantry.data().exists(), "it is not made again");
    gantry.stop();
    assert!(!gantry.data().exists(), "nor when the gateway stops");
}

// fault F4
#[test]
fn a_database_or_journal_that_is_replaced_is_noticed() {
    for name in ["journal", "gantry.db"] {
        let gantry = Gantry::start(&["a"]);
        let (there, moved) = (gantry.data().join(name), gantry.data().join("moved"));
        fs::rename(&there, &moved).unwrap();
        wait_health(&gantry, "failing");
        assert!(!there.exists());
        // Put back, it is as if nothing had been.
        fs::rename(&moved, &there).unwrap();
        wait_health(&gantry, "ok");
        echoes(&gantry, 1);
    }
}

// fault F3: cut off while it is in use; whoever administers is told, and so is who only looks
#[test]
fn a_database_that_is_damaged_while_the_gateway_runs_degrades_the_health() {
    let gantry = Gantry::start(&["a"]);
    echoes(&gantry, 3);
    let database = gantry.data().join("gantry.db");
    let file = fs::OpenOptions::new().write(true).open(&database).unwrap();
    file.set_len(4096).unwrap();
    let agent = json!({"name": "late", "grant": ["*"]});
    let mut refused = Value::Null;
    // What the log still has can be read.
    let met = eventually(LONG, || {
        refused = gantry.rest("POST", "/api/v1/agents", Some(&agent)).json();
        refused["code"] == "store.corrupt"
    });
    assert!(met.is_some(), "{refused:#}");
    let told = wait_health(&gantry, "degraded");
    let reason = told["reasons"][0].as_str().unwrap();
    assert!(reason.contains("is damaged"), "{told:#}");
    echoes(&gantry, 3);
}

// fault F4: what is in the log alone would be lost with the process
#[test]
fn a_removed_log_of_the_database_is_noticed_and_nothing_is_lost() {
    let mut gantry = Gantry::start(&["a"]);
    echoes(&gantry, 1);
    let log = gantry.data().join("gantry.db-wal");
    fs::remove_file(&log).unwrap();
    let agent = json!({"name": "name-that-is-kept", "grant": ["*"]});
    let made = gantry.rest("POST", "/api/v1/agents", Some(&agent));
    assert_eq!(made.status, 201, "{}", made.text());
    let told = wait_health(&gantry, "degraded");
    let reason = told["reasons"][0].as_str().unwrap();
    assert!(reason.contains("gantry.db-wal"), "{told:#}");
    let file = gantry.data().join("gantry.db");
    let is_in_file = || {
        let bytes = fs::read(&file).unwrap();
        String::from_utf8_lossy(&bytes).contains("name-that-is-kept")
    };
    assert!(eventually(LONG, is_in_file).is_some(), "within a second");
    gantry.kill();
    let gantry = gantry.again();
    wait_health(&gantry, "ok");
    let kept = gantry.rest("GET", "/api/v1/agents/name-that-is-kept", None);
    assert_eq!(kept.status, 200, "{}", kept.text());
}

// fault F4: issue 10, reliability 3 and 8
#[test]
fn a_mark_or_segment_that_is_taken_away_while_the_gateway_runs_is_noticed() {
    let mut gantry = Gantry::start(&["a"]);
    echoes(&gantry, 1);
    let mark = gantry.data().join("marks/journal.mark");
    fs::remove_file(&mark).unwrap();
    assert!(
        eventually(LONG, || mark.exists()).is_some(),
        "it is written again"
    );
    gantry.kill();
    let gantry = gantry.again();
    assert_eq!(wait_health(&gantry, "ok")["audit"]["damage"], json!([]));
    gantry.wait_state("a", "ready", LONG);
    echoes(&gantry, 1);
    let journal = gantry.data().join("journal");
    let segments = fs::read_dir(&journal).unwrap().flatten();
    for segment in segments {
        let elsewhere = gantry.data().join(segment.file_name());
        fs::rename(segment.path(), elsewhere).unwrap();
    }
    let told = wait_health(&gantry, "degraded");
    assert_eq!(told["audit"]["damage"][0]["kind"], "missing", "{told:#}");
    echoes(&gantry, 3);
}
