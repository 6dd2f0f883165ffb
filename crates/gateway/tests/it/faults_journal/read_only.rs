//! A file system that becomes read-only, or has no room for another file: calls are refused with the reason,
//! the rest lives, and what is put right is noticed. A start on such a folder says what is wrong.

use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt as _;

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::eventually;
use serde_json::json;

use super::small_disk::SmallDisk;
use super::{echo, echoes, health, healthz, wait_health};
use crate::harness::{Gantry, LONG, Tracer, needs_root};

/// The system calls by which files are written; sockets and pipes know others.
const WRITES: &str = "pwrite64,ftruncate,fallocate";

// fault F4
#[test]
fn a_disk_that_becomes_read_only_refuses_calls_until_it_is_written_again() {
    needs_root();
    let home = tempfile::tempdir().unwrap();
    let disk = SmallDisk::mount(&home.path().join("data"), "size=64m");
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new())
        .start_in(home);
    gantry.wait_state("a", "ready", LONG);
    echoes(&gantry, 3);
    // With files open the system mounts nothing again: what is written fails as it then would.
    let tracer = Tracer::attach(&gantry, WRITES, &[], Some("error=EROFS"));
    let refused = eventually(LONG, || !echo(&mut gantry.connect(), &gantry, "x"));
    assert!(refused.is_some(), "{:#}", health(&gantry));
    let told = health(&gantry);
    assert_ne!(told["status"], "ok", "{told:#}");
    assert_ne!(healthz(&gantry).1, "ok");
    // Administrators are told, too, and what runs can still be ended.
    let key = json!({"kind": "agent", "agent": "default"});
    let answer = gantry.rest("POST", "/api/v1/keys", Some(&key));
    assert_eq!(answer.status, 503, "{}", answer.text());
    drop(tracer);
    let again = eventually(LONG, || echo(&mut gantry.connect(), &gantry, "again"));
    assert!(again.is_some(), "{:#}", health(&gantry));
    wait_health(&gantry, "ok");
    assert_eq!(gantry.rest("POST", "/api/v1/keys", Some(&key)).status, 201);
    let mut gantry = gantry;
    gantry.kill();
    disk.freeze();
    // A start says which folder it is.
    let failed = gantry.cli(&["up", "--port", "0"]);
    let said = String::from_utf8_lossy(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{said}");
    assert!(said.contains("Read-only file system"), "{said}");
    disk.thaw();
    let gantry = gantry.again();
    assert_eq!(health(&gantry)["audit"]["damage"], json!([]));
    drop(gantry);
    drop(disk);
}

// fault F4
#[test]
fn a_disk_without_room_for_another_file_is_told_and_goes_on_when_there_is_some() {
    needs_root();
    let home = tempfile::tempdir().unwrap();
    let disk = SmallDisk::mount(&home.path().join("data"), "size=256m,nr_inodes=200");
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new())
        .start_in(home);
    gantry.wait_state("a", "ready", LONG);
    echoes(&gantry, 3);
    let folder = gantry.data().join("filled");
    fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
    let names = 0..;
    let files = names.map(|number| folder.join(number.to_string()));
    files.take_while(|file| File::create(file).is_ok()).count();
    // The files that are there are enough for a while; then calls are refused and nothing is lost.
    const MOST: usize = 6_000;
    let (mut connection, text) = (gantry.connect(), "x".repeat(3_500));
    let mut answered = 3;
    while answered < MOST && echo(&mut connection, &gantry, &text) {
        answered += 1;
    }
    if answered < MOST {
        let told = health(&gantry);
        assert_ne!(told["status"], "ok", "{told:#}");
        let reason = told["audit"]["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("No space left on device"), "{told:#}");
    }
    fs::remove_dir_all(&folder).unwrap();
    let again = eventually(LONG, || echo(&mut gantry.connect(), &gantry, "again"));
    assert!(again.is_some(), "{:#}", health(&gantry));
    wait_health(&gantry, "ok");
    let rows = gantry.audit_rows("server=a&status=ok").len();
    assert_eq!(rows, answered + 1);
    drop(disk);
}
