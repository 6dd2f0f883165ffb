//! A segment that is cut off, emptied or removed between two starts, or a database that is removed: told
//! with what it can have held, kept, and shown until an administrator has seen it. A kill alone is none of
//! that.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;

use gantry_testkit::wait::eventually;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{echo, echoes, has_page, health, healthz, wait_health};
use crate::faults_auth::locked::Holder;
use crate::harness::{Gantry, LONG};

const CALLS: usize = 120;

/// Makes calls that are only in the journal, kills the gateway, harms the journal, and starts again.
fn harmed(mut gantry: Gantry, harm: impl Fn(&Path, &Path)) -> Gantry {
    let journal = gantry.data().join("journal");
    let holder = Holder::of(&gantry.data().join("gantry.db"));
    echoes(&gantry, CALLS);
    gantry.kill();
    drop(holder);
    harm(
        &journal,
        &segments(&journal).pop().expect("a segment is in use"),
    );
    gantry.again()
}

fn segments(journal: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(journal).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "seg"))
        .collect();
    paths.sort();
    paths
}

/// Asserts that one thing is wrong and that it is told everywhere; returns it.
fn assert_told(gantry: &Gantry, kind: &str) -> Value {
    let told = wait_health(gantry, "degraded");
    let damage = told["audit"]["damage"].as_array().unwrap();
    assert_eq!(damage.len(), 1, "{told:#}");
    assert_eq!(
        (&damage[0]["kind"], &told["ok"]),
        (&json!(kind), &json!(false)),
        "{told:#}"
    );
    let rows = gantry.audit_rows("server=a").len();
    let lost = (CALLS - rows) as u64;
    let said = damage[0]["calls_at_most"].as_u64().unwrap();
    assert!(
        lost > 0 && said >= lost && said <= lost + 16,
        "{lost} are lost: {told:#}"
    );
    let sentence = damage[0]["detail"].as_str().unwrap();
    assert!(
        sentence.contains(&format!("up to {said} recorded calls are lost")),
        "{sentence}"
    );
    assert_eq!(told["reasons"], json!([sentence]));
    assert_eq!(healthz(gantry), (200, "degraded".to_owned()));
    assert!(gantry.stderr().contains(sentence), "{}", gantry.stderr());
    let doctor = gantry.cli(&["doctor"]);
    let (shown, code) = (
        String::from_utf8_lossy(&doctor.stdout),
        doctor.status.code(),
    );
    assert!(
        shown.contains("--acknowledge") && code == Some(1),
        "{shown}"
    );
    let status = gantry.cli(&["status"]);
    let shown = String::from_utf8_lossy(&status.stdout);
    assert!(shown.contains(&format!("degraded: {sentence}")), "{shown}");
    let events = gantry.rest("GET", "/api/v1/events?limit=1000", None).json();
    let events = events["items"].as_array().unwrap();
    let damaged = events
        .iter()
        .filter(|event| event["kind"] == "journal_damaged");
    assert_eq!(damaged.count(), 1, "{events:#?}");
    // Calls continue.
    assert!(echo(&mut gantry.connect(), gantry, "still"));
    damage[0].clone()
}

// fault D3
#[test]
fn a_segment_that_is_removed_is_told_until_it_is_acknowledged() {
    let gantry = harmed(Gantry::start(&["a"]), |_, segment| {
        fs::remove_file(segment).unwrap()
    });
    gantry.wait_state("a", "ready", LONG);
    assert_told(&gantry, "missing");
    // It is still told after a restart that changes nothing.
    let mut gantry = gantry;
    assert_eq!(gantry.stop(), Some(0));
    let gantry = gantry.again();
    assert_eq!(
        health(&gantry)["audit"]["damage"].as_array().unwrap().len(),
        1
    );
    let agents = gantry.rest_as(&gantry.agent, "POST", "/api/v1/health/acknowledge", None);
    assert_eq!(agents.status, 403);
    let doctor = gantry.cli(&["doctor", "--acknowledge"]);
    let shown = String::from_utf8_lossy(&doctor.stdout);
    assert!(
        shown.contains("Acknowledged 1 report of damage to the audit journal"),
        "{shown}"
    );
    assert_eq!(health(&gantry)["status"], "ok");
    assert_eq!(healthz(&gantry), (200, "ok".to_owned()));
    let mut gantry = gantry;
    gantry.kill();
    assert_eq!(health(&gantry.again())["status"], "ok");
}

// fault D3
#[test]
fn a_segment_that_is_cut_off_or_emptied_is_told_and_kept() {
    for (length, kind) in [(20_000, "truncated"), (0, "unreadable")] {
        let gantry = harmed(Gantry::start(&["a"]), |_, segment| {
            let file = OpenOptions::new().write(true).open(segment).unwrap();
            file.set_len(length).unwrap();
        });
        gantry.wait_state("a", "ready", LONG);
        let damage = assert_told(&gantry, kind);
        let kept = gantry
            .data()
            .join("journal")
            .join(damage["file"].as_str().unwrap());
        assert_eq!(
            fs::metadata(kept).unwrap().len(),
            length,
            "the file is kept as it was"
        );
        let done = gantry
            .rest("POST", "/api/v1/health/acknowledge", None)
            .json();
        assert_eq!(done, json!({"acknowledged": 1}));
        assert_eq!(health(&gantry)["status"], "ok");
    }
}

// fault D3: issue 10, reliability 3
#[test]
fn what_stands_in_the_place_of_a_segment_is_told_and_kept() {
    let link = |segment: &Path| {
        let moved = segment.with_extension("moved");
        fs::rename(segment, &moved).unwrap();
        std::os::unix::fs::symlink(moved, segment).unwrap();
    };
    let folder = |segment: &Path| {
        fs::remove_file(segment).unwrap();
        fs::create_dir(segment).unwrap();
    };
    // A file of the last possible number leaves room for no other.
    let last = |segment: &Path| {
        let copy = segment.with_file_name("journal-ffffffffffffffff.seg");
        fs::copy(segment, copy).unwrap();
        folder(segment);
    };
    let mut gantry = Gantry::start(&["a"]);
    for harm in [&link as &dyn Fn(&Path), &last] {
        gantry = harmed(gantry, |_, segment| harm(segment));
        gantry.wait_state("a", "ready", LONG);
        let told = wait_health(&gantry, "degraded");
        let damage = told["audit"]["damage"].as_array().unwrap();
        let unreadable = damage.iter().find(|one| one["kind"] == "unreadable");
        let file = unreadable.and_then(|one| one["file"].as_str());
        let kept = file.unwrap_or_else(|| panic!("{told:#}"));
        let kept = gantry.data().join("journal").join(kept);
        let is_file = fs::symlink_metadata(kept).unwrap().is_file();
        assert!(!is_file, "it is kept as it was");
        gantry.rest("POST", "/api/v1/health/acknowledge", None);
    }
    gantry.wait_state("a", "ready", LONG);
    echoes(&gantry, 1);
    // Nor is a folder in the way that has the number of a segment that is imported already.
    assert_eq!(gantry.stop(), Some(0));
    let imported = gantry.data().join("journal/journal-0000000000000000.seg");
    fs::create_dir(&imported).unwrap();
    let gantry = gantry.again();
    gantry.wait_state("a", "ready", LONG);
    echoes(&gantry, 1);
    assert!(!imported.exists());
}

// fault D3
#[test]
fn a_journal_that_is_removed_as_a_whole_is_told() {
    let gantry = harmed(Gantry::start(&["a"]), |journal, _| {
        fs::remove_dir_all(journal).unwrap()
    });
    gantry.wait_state("a", "ready", LONG);
    assert_told(&gantry, "missing");
}

// fault D4: what was imported into the database leaves the journal.
#[test]
fn a_database_that_is_removed_is_told_until_it_is_acknowledged() {
    let mut gantry = Gantry::start(&["a"]);
    echoes(&gantry, CALLS);
    assert_eq!(gantry.stop(), Some(0));
    for name in ["gantry.db", "gantry.db-wal", "gantry.db-shm"] {
        match fs::remove_file(gantry.data().join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => panic!("{name}: {error}"),
            _ => {}
        }
    }
    let gantry = gantry.again();
    gantry.wait_state("a", "ready", LONG);
    assert_told(&gantry, "new_database");
    let done = gantry.rest("POST", "/api/v1/health/acknowledge", None);
    assert_eq!(done.json(), json!({"acknowledged": 1}));
    let mut gantry = gantry;
    gantry.kill();
    assert_eq!(health(&gantry.again())["status"], "ok");
}

// fault D2
#[test]
fn a_kill_is_no_damage() {
    let mut gantry = Gantry::start(&["a"]);
    for _ in 0..3 {
        gantry.wait_state("a", "ready", LONG);
        let before = gantry.audit_rows("server=a").len();
        thread::scope(|scope| {
            let killed = &gantry;
            let clients: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(move || {
                        let mut connection = killed.connect();
                        let bearer = format!("Bearer {}", killed.agent);
                        let headers = [
                            ("Authorization", bearer.as_str()),
                            ("Content-Type", "application/json"),
                        ];
                        let body = json!({"name": "echo", "arguments": {"text": "x"}});
                        let body = json!({"method": "tools/call", "params": body}).to_string();
                        let path = "/api/v1/mcp/servers/a/call";
                        let call = || connection.request("POST", path, &headers, body.as_bytes());
                        std::iter::repeat_with(call)
                            .take_while(Result::is_ok)
                            .count()
                    })
                })
                .collect();
            let busy = eventually(LONG, || gantry.audit_rows("server=a").len() > before + 50);
            assert!(busy.is_some());
            gantry.signal(Signal::KILL);
            for client in clients {
                client.join().unwrap();
            }
        });
        gantry.wait(LONG);
        gantry = gantry.again();
        let told = health(&gantry);
        assert_eq!(
            (&told["status"], &told["audit"]["damage"]),
            (&json!("ok"), &json!([])),
            "{told:#}"
        );
    }
    has_page(&gantry, "gateway.died");
}
