//! The same with the disk filled on the way: calls are refused, none is lost, and when there is
//! room again they go on by themselves; and the same with everybody killed as well.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use gantry_testkit::proof;
use gantry_testkit::wait::eventually;
use serde_json::Value;
use tokio::time::Instant;

use super::audit::{FarEnd, Plan, Sent, calls_and_kills, compare, rows};
use super::client::{Client, Fate};
use crate::harness::{Gantry, LONG, needs_root};

const CLIENTS: usize = 4;
/// Calls that must succeed in all.
const CALLS: usize = 5_000;
/// When the disk is filled: after so many.
const FILLED_AT: usize = 1_000;
/// Refusals that are waited for before there is room again.
const REFUSED: usize = 200;
const SERVERS: [&str; 1] = ["a"];
/// Long enough that some thousand calls fill what the journal holds in store.
const TEXT_BYTES: usize = 3_000;

/// A small disk of its own, taken away again when dropped.
struct SmallDisk {
    place: PathBuf,
}

impl SmallDisk {
    fn mount(place: &Path, size: &str) -> Self {
        fs::create_dir(place).unwrap();
        let options = format!("size={size},mode=0700");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "gantry-proof"])
            .arg(place)
            .status();
        assert!(mounted.unwrap().success(), "root mounts a tmpfs");
        Self {
            place: place.to_owned(),
        }
    }

    /// Takes all the room there is; it comes back when what is returned goes.
    fn fill(&self) -> Ballast {
        let place = self.place.join("ballast");
        let mut file = File::create(&place).unwrap();
        for size in [1 << 20, 4096] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        Ballast { place }
    }
}

/// A file that takes all the room of a disk.
struct Ballast {
    place: PathBuf,
}

impl Drop for Ballast {
    fn drop(&mut self) {
        fs::remove_file(&self.place).ok();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a gateway of a failed test may still be in there.
        drop(Command::new("umount").arg("-l").arg(&self.place).status());
    }
}

/// How far the clients are, together.
#[derive(Default)]
struct Progress {
    answered: AtomicUsize,
    refused: AtomicUsize,
}

/// Calls until enough of all clients' calls have succeeded.
fn calls_of(mut client: Client, number: usize, progress: &Progress) -> Sent {
    let padding = "x".repeat(TEXT_BYTES);
    let mut sent = Vec::new();
    while progress.answered.load(Ordering::Relaxed) < CALLS {
        let nonce = format!("c{number}-{}", sent.len());
        let arguments = format!(r#"{{"text":"{nonce} {padding}","nonce":"{nonce}"}}"#);
        let fate = match client.call("a__echo", &arguments) {
            Fate::Result(text) => {
                progress.answered.fetch_add(1, Ordering::Relaxed);
                Fate::Result(text.trim_end_matches('x').trim_end().to_owned())
            }
            other @ (Fate::Cut | Fate::Failed { .. }) => {
                progress.refused.fetch_add(1, Ordering::Relaxed);
                other
            }
        };
        sent.push((nonce, fate));
    }
    sent
}

fn health(gantry: &Gantry) -> Value {
    gantry.rest("GET", "/api/v1/health", None).json()
}

/// Asserts that the health says why calls are refused.
fn is_full(gantry: &Gantry) {
    let full = health(gantry);
    assert_eq!(
        (&full["ok"], &full["audit"]["writable"]),
        (&false.into(), &false.into()),
        "{full:#}"
    );
    let reason = full["audit"]["reason"].as_str().unwrap();
    assert!(reason.contains("No space left on device"), "{reason}");
}

/// Asserts that nothing is wrong with the audit.
fn is_healthy(gantry: &Gantry) {
    let healthy = health(gantry);
    assert_eq!(
        (&healthy["ok"], &healthy["audit"]["writable"]),
        (&true.into(), &true.into()),
        "{healthy:#}"
    );
}

// fault F1
#[test]
fn a_full_disk_refuses_calls_and_loses_none() {
    needs_root();
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let far = FarEnd::new("disk");
    // The disk goes before the gateway, whose home it is in.
    let (gantry, disk) = {
        let disk = SmallDisk::mount(&data, "120m");
        (
            far.servers(Gantry::builder(), &SERVERS).start_in(home),
            disk,
        )
    };
    gantry.wait_state("a", "ready", LONG);
    let progress = Progress::default();
    let begun = Instant::now();
    let reached = |counter: &AtomicUsize, goal: usize, what: &str| {
        let reached = eventually(3 * LONG, || counter.load(Ordering::Relaxed) >= goal);
        assert!(
            reached.is_some(),
            "{counter:?} calls {what}, not {goal}: {:#}",
            health(&gantry)
        );
    };
    let sent: Vec<Sent> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (client, progress) = (Client::new(&gantry), &progress);
                scope.spawn(move || calls_of(client, number, progress))
            })
            .collect();
        reached(&progress.answered, FILLED_AT, "answered");
        let ballast = disk.fill();
        reached(&progress.refused, REFUSED, "refused");
        is_full(&gantry);
        // Many refusals are few lines: the first, and how many more there were.
        let lines = gantry.stderr().matches("request failed").count();
        assert!((1..=20).contains(&lines), "{lines} lines");
        assert_eq!(
            gantry.status("a")["state"],
            "ready",
            "only the calls are refused"
        );
        let so_far = progress.answered.load(Ordering::Relaxed);
        drop(ballast);
        reached(&progress.answered, so_far + 500, "answered");
        clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .collect()
    });
    let took = begun.elapsed();
    let executed = far.executed(&SERVERS);
    let rows = rows(&gantry);
    let kinds = compare(&sent, &executed, &rows);
    let (answered, refused) = (
        progress.answered.load(Ordering::Relaxed),
        progress.refused.load(Ordering::Relaxed),
    );
    eprintln!(
        "{answered} answered, {refused} refused in {took:?}, {} rows: {kinds:?}",
        rows.len()
    );
    assert_eq!(
        kinds.len(),
        1,
        "whatever was recorded was answered well: {kinds:?}"
    );
    is_healthy(&gantry);
}

// fault F1, fault A11, fault P11
#[test]
fn every_call_is_recorded_once_whoever_is_killed_and_however_full_the_disk() {
    needs_root();
    let home = tempfile::tempdir().unwrap();
    let far = FarEnd::new("full");
    let disk = SmallDisk::mount(&home.path().join("data"), "512m");
    let builder = far.servers(Gantry::builder(), &super::audit::SERVERS);
    let gantry = builder.start_in(home);
    // The gateway dies with the disk full, and comes back when it no longer is; not near the end, since
    // what the journal has in store takes some thousand calls to use up.
    let (plan, full_at): (Plan, &[usize]) = proof::count(
        (
            Plan {
                calls: 50_000,
                kills: 20,
            },
            &[3, 7, 11, 15],
        ),
        (
            Plan {
                calls: 14_000,
                kills: 4,
            },
            &[1],
        ),
    );
    let gantry = calls_and_kills(&far, gantry, plan, |kill, progress, gantry| {
        let fills = full_at.contains(&kill);
        progress.long.store(fills, Ordering::Relaxed);
        fills.then(|| {
            let ballast = disk.fill();
            let before = progress.refused.load(Ordering::Relaxed);
            let refused = eventually(3 * LONG, || {
                progress.refused.load(Ordering::Relaxed) >= before + REFUSED
            });
            assert!(refused.is_some(), "{:#}", health(gantry));
            is_full(gantry);
            progress.long.store(false, Ordering::Relaxed);
            ballast
        })
    });
    is_healthy(&gantry);
    // The disk goes before the gateway, whose home it is in.
    drop(disk);
}
