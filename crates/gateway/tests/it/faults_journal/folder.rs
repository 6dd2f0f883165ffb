//! A data folder that is removed while the gateway runs: noticed, said, and never made again.

use std::fs;

use gantry_testkit::wait::{Stopwatch, eventually};
use serde_json::json;

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
