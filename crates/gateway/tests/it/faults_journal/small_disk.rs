//! A small disk that is full: what the journal took ahead of need never keeps the database from what
//! somebody freed, nor the next gateway from its start.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::eventually;
use serde_json::json;

use super::{echo, echoes, health, wait_health};
use crate::harness::{Gantry, LONG, needs_root};

/// A file system in memory, taken down with the test.
pub(super) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one with these options, such as `size=24m`.
    pub(super) fn mount(place: &Path, options: &str) -> Self {
        fs::create_dir(place).unwrap();
        let options = format!("{options},mode=0700");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "gantry-small"])
            .arg(place)
            .status();
        assert!(mounted.unwrap().success(), "root mounts a tmpfs");
        Self(place.to_owned())
    }

    /// Lets nobody write, though files are open.
    pub(super) fn freeze(&self) {
        self.remount("ro");
    }

    /// Lets everybody write again.
    pub(super) fn thaw(&self) {
        self.remount("rw");
    }

    fn remount(&self, how: &str) {
        let options = format!("remount,{how}");
        let mut mount = Command::new("mount");
        let done = mount.args(["-o", &options]).arg(&self.0).status();
        assert!(done.unwrap().success(), "root mounts it again: {how}");
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    /// Takes all the space there is.
    fn fill(&self) {
        let mut file = File::options()
            .append(true)
            .create(true)
            .open(self.ballast())
            .unwrap();
        for size in [1 << 20, 4096] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    /// Gives so many bytes back.
    fn free(&self, bytes: u64) {
        let file = File::options().write(true).open(self.ballast()).unwrap();
        let length = file.metadata().unwrap().len();
        file.set_len(length.saturating_sub(bytes)).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

// fault F1
#[test]
fn a_full_disk_keeps_nobody_from_revoking_suspending_and_stopping() {
    needs_root();
    let home = tempfile::tempdir().unwrap();
    let disk = SmallDisk::mount(&home.path().join("data"), "size=24m");
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new())
        .start_in(home);
    gantry.wait_state("a", "ready", LONG);
    let body = json!({"kind": "agent", "agent": "bot"});
    let made = gantry.rest("POST", "/api/v1/keys", Some(&body)).json();
    disk.fill();
    // Nothing else can be changed.
    let refused = || gantry.rest("POST", "/api/v1/keys", Some(&body)).status == 503;
    assert!(eventually(LONG, refused).is_some());
    // What frees space is done first.
    let pruned = gantry.rest("POST", "/api/v1/images/prune", None);
    assert_eq!(pruned.status, 200, "{}", pruned.text());
    let key = format!("/api/v1/keys/{}", made["id"].as_str().unwrap());
    let revoked = gantry.rest("DELETE", &key, None);
    assert_eq!(revoked.status, 204, "{}", revoked.text());
    let bearer = made["key"].as_str().unwrap();
    let tools = gantry.rest_as(bearer, "GET", "/api/v1/tools", None);
    assert_eq!(tools.status, 401, "{}", tools.text());
    let server = json!({"kind": "server", "name": "a"});
    let stopped = gantry.rest("POST", "/api/v1/suspensions", Some(&server));
    assert_eq!(stopped.status, 200, "{}", stopped.text());
    gantry.wait_state("a", "suspended", LONG);
    disk.free(8 << 20);
    wait_health(&gantry, "ok");
    let acts = gantry.rest("GET", "/api/v1/acts?limit=5", None).json();
    let done = |act: &str| {
        let rows = acts["items"].as_array().into_iter().flatten();
        rows.filter(|row| row["act"] == act && row["outcome"] == "done")
            .count()
    };
    assert_eq!((done("key.revoke"), done("suspend")), (1, 1), "{acts:#}");
    drop(disk);
}

// fault F1
#[test]
fn what_is_freed_on_a_small_disk_serves_the_database_first_and_the_next_start_works() {
    needs_root();
    let home = tempfile::tempdir().unwrap();
    let disk = SmallDisk::mount(&home.path().join("data"), "size=24m");
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new())
        .start_in(home);
    gantry.wait_state("a", "ready", LONG);
    echoes(&gantry, 5);
    disk.fill();
    let mut answered = 5;
    let (mut connection, text) = (gantry.connect(), "x".repeat(3_500));
    while echo(&mut connection, &gantry, &text) {
        answered += 1;
        assert!(answered < 20_000, "never refused: {:#}", health(&gantry));
    }
    assert!(answered > 50, "what was set aside is used: {answered}");
    let full = health(&gantry);
    assert_ne!(full["status"], "ok", "{full:#}");
    assert_ne!(full["audit"]["unfolded_records"], 0, "{full:#}");

    // Enough for what waits, if the journal does not take most of it again.
    disk.free(12 << 20);
    let mut last = full;
    let caught_up = eventually(2 * LONG, || {
        last = health(&gantry);
        last["audit"]["unfolded_records"] == 0
    });
    assert!(caught_up.is_some(), "{last:#}");
    let again = eventually(LONG, || echo(&mut gantry.connect(), &gantry, "again"));
    assert!(again.is_some(), "{:#}", health(&gantry));
    answered += 1;

    // Killed on a full disk, it starts again on it.
    disk.fill();
    let mut connection = gantry.connect();
    for _ in 0..3 {
        answered += usize::from(echo(&mut connection, &gantry, "last"));
    }
    let mut gantry = gantry;
    gantry.kill();
    let gantry = gantry.again();
    assert_eq!(
        health(&gantry)["audit"]["damage"].as_array().map(Vec::len),
        Some(0)
    );
    disk.free(8 << 20);
    wait_health(&gantry, "ok");
    assert_eq!(gantry.audit_rows("server=a&status=ok").len(), answered);
    drop(disk);
}
