//! Fault P4, other signals: SIGHUP and SIGQUIT drain as SIGTERM does; under a service manager SIGHUP
//! reads the configuration files again, and one that `nohup` ignores stays ignored.

use std::thread;

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::eventually;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{SECOND, audited, echoes};
use crate::harness::{Builder, Gantry, LONG};

fn with_one() -> Builder {
    Gantry::builder().server("good", &Evilpeer::new())
}

// fault P4
#[test]
fn a_hangup_and_a_quit_drain() {
    for signal in [Signal::HUP, Signal::QUIT] {
        let mut gantry = with_one().start();
        gantry.wait_state("good", "ready", LONG);
        let answer = thread::scope(|scope| {
            let gantry = &gantry;
            let call = scope.spawn(move || gantry.call("good__slow", json!({"ms": 1500})));
            let busy = |now: &Value| now["queue"]["in_flight"] == 1;
            gantry.wait_status("good", LONG, busy);
            gantry.signal(signal);
            call.join().unwrap()
        });
        let said = &answer["result"]["content"][0]["text"];
        assert_eq!(said, "slept 1500 ms", "{answer:#}");
        assert_eq!(gantry.wait(LONG), Some(0), "{}", gantry.stderr());
        let gantry = gantry.again();
        audited(&gantry, "good", &[(1, "ok", None)]);
    }
}

#[test]
fn a_hangup_under_a_service_manager_reads_the_files_again() {
    for (name, value) in [("INVOCATION_ID", "0f"), ("NOTIFY_SOCKET", "@nowhere")] {
        let mut gantry = with_one().variable(name, value).start();
        gantry.wait_state("good", "ready", LONG);
        let pid = gantry.status("good")["pid"].clone();
        let told = "the configuration files are read again";
        for count in 1..=2 {
            gantry.signal(Signal::HUP);
            let read = eventually(LONG, || gantry.stderr().matches(told).count() == count);
            assert!(read.is_some(), "{}", gantry.stderr());
        }
        for unused in [Signal::USR1, Signal::USR2] {
            gantry.signal(unused);
        }
        echoes(&gantry, "good");
        assert_eq!(gantry.status("good")["pid"], pid, "unchanged, untouched");
        // A file that changed counts as ever.
        let config = gantry.data().with_file_name("mcp.json");
        let more = crate::harness::entry(&Evilpeer::new());
        let servers = json!({"good": more.clone(), "more": more});
        std::fs::write(config, json!({"mcpServers": servers}).to_string()).unwrap();
        gantry.signal(Signal::HUP);
        let come = eventually(LONG, || gantry.status("more")["state"] == "ready");
        assert!(come.is_some(), "{}", gantry.stderr());
        assert_eq!(gantry.stop(), Some(0), "{}", gantry.stderr());
    }
}

#[test]
fn a_hangup_that_is_ignored_from_the_start_stays_ignored() {
    let mut gantry = with_one().under(&["nohup"]).start();
    gantry.wait_state("good", "ready", LONG);
    gantry.signal(Signal::HUP);
    // One after the other, and the second is heard.
    echoes(&gantry, "good");
    gantry.signal(Signal::TERM);
    assert_eq!(gantry.wait(LONG), Some(0), "{}", gantry.stderr());
    let log = gantry.stderr();
    assert!(log.contains("SIGTERM") && !log.contains("SIGHUP"), "{log}");
}

// fault P4: the first signal of another kind counts as the first.
#[test]
fn a_second_signal_of_another_kind_insists() {
    let deaf = Evilpeer::new().fault("ignore-term").fault("ignore-eof");
    let mut gantry = Gantry::builder().server("deaf", &deaf).start();
    gantry.wait_state("deaf", "ready", LONG);
    gantry.signal(Signal::HUP);
    let stopping = eventually(LONG, || {
        crate::harness::Connection::open(&gantry.authority).is_err()
    });
    assert!(stopping.is_some());
    gantry.signal(Signal::TERM);
    assert_eq!(gantry.wait(3 * SECOND), Some(130), "{}", gantry.stderr());
}
