//! A disk that does not confirm what was written to it: nothing more is written, the gateway ends with an
//! error, and its next start has everything that was acknowledged. The tracer has the system call fail.

use serde_json::json;

use super::{echo, echoes, health};
use crate::harness::{Gantry, LONG, Tracer};

/// The system calls that wait for the disk.
const SYNCS: &str = "fsync,fdatasync";

/// Waits for a gateway to end by itself, and starts it again.
fn ends_and_starts_again(mut gantry: Gantry, reason: &str) -> Gantry {
    assert_eq!(gantry.wait(LONG), Some(1), "{}", gantry.stderr());
    let log = gantry.stderr();
    assert!(log.contains(reason), "{log}");
    assert!(log.contains("start the gateway again"), "{log}");
    let gantry = gantry.again();
    gantry.wait_state("a", "ready", LONG);
    let told = health(&gantry);
    assert_eq!(
        (&told["status"], &told["audit"]["damage"]),
        (&json!("ok"), &json!([])),
        "{told:#}"
    );
    gantry
}

// fault F3
#[test]
fn a_journal_that_the_disk_does_not_confirm_ends_the_gateway() {
    let gantry = Gantry::builder()
        .server("a", &gantry_testkit::Evilpeer::new())
        .flags(&["--audit", "disk"])
        .start();
    gantry.wait_state("a", "ready", LONG);
    echoes(&gantry, 5);
    let tracer = Tracer::attach(&gantry, SYNCS, &gantry.journal_files(), Some("error=EIO"));
    let is_answered = echo(&mut gantry.connect(), &gantry, "not on record");
    assert!(!is_answered, "what is not on the disk is not done");
    let gantry = ends_and_starts_again(gantry, "Input/output error");
    drop(tracer);
    let rows = gantry.audit_rows("server=a&status=ok");
    assert_eq!(rows.len(), 5, "{rows:#?}");
    echoes(&gantry, 1);
}

// fault F3
#[test]
fn a_database_that_the_disk_does_not_confirm_ends_the_gateway() {
    let gantry = Gantry::start(&["a"]);
    gantry.agent_with("kept", &["a:*"]);
    echoes(&gantry, 5);
    let tracer = Tracer::attach(&gantry, SYNCS, &gantry.database_files(), Some("error=EIO"));
    let agent = json!({"name": "lost", "grant": ["*"]});
    let answer = gantry.rest("POST", "/api/v1/agents", Some(&agent));
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(answer.json()["code"], "store.disk", "{}", answer.text());
    let gantry = ends_and_starts_again(gantry, "the disk did not confirm");
    drop(tracer);
    let kept = gantry.rest("GET", "/api/v1/agents/kept", None);
    assert_eq!(kept.status, 200, "{}", kept.text());
    assert_eq!(gantry.audit_rows("server=a&status=ok").len(), 5);
    let again = gantry.rest("POST", "/api/v1/agents", Some(&agent));
    assert_eq!(again.status, 201, "{}", again.text());
}
