//! `treegen` and the eyes on `/proc`.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gantry_testkit::procs::{self, Process};
use gantry_testkit::wait::eventually;
use gantry_testkit::{Evilpeer, bin};
use rustix::process::{Pid, Signal, kill_process};

use crate::client::Client;

const LIMIT: Duration = Duration::from_secs(10);

/// The marker of a test's processes, which end with the test, however it ends.
struct Marker(String);

impl Marker {
    fn new(name: &str) -> Self {
        Self(format!("gantry-{name}-{}", std::process::id()))
    }

    fn kill_all(&self) {
        for process in procs::with_marker(&self.0) {
            signal(&process, Signal::KILL);
        }
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        self.kill_all();
    }
}

fn treegen(marker: &str, more: &[&str]) -> Child {
    Command::new(bin::treegen())
        .args(["--marker", marker, "--lifetime", "60"])
        .args(more)
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until a tree is whole: its first process becomes a waiting one when all others are there.
/// Before that, those that only fork and leave count for a moment too.
fn whole(marker: &str, count: usize) -> Vec<Process> {
    let mut tree = Vec::new();
    let reached = eventually(LIMIT, || {
        tree = procs::with_marker(marker);
        let waits = |process: &Process| process.command.contains("--mode waiting");
        tree.len() == count && tree.iter().any(waits)
    });
    assert!(reached.is_some(), "{count} members: {tree:#?}");
    tree
}

fn signal(process: &Process, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(process.pid).unwrap()).unwrap();
    // It may have ended by itself since it was seen.
    kill_process(pid, signal).ok();
}

// fault P3
#[test]
fn a_tree_has_five_members_of_the_promised_kinds() {
    let marker = Marker::new("five");
    let mut first = treegen(&marker.0, &[]);
    let tree = whole(&marker.0, 5);
    let root = first.id();
    let below = procs::descendants_of(root);
    assert_eq!(
        procs::children_of(root).len(),
        2,
        "child and deaf child: {below:#?}"
    );
    assert_eq!(below.len(), 3, "and the child's child: {below:#?}");
    let own = procs::look(root).unwrap().session;
    assert_eq!(
        tree.iter().filter(|process| process.session == own).count(),
        3
    );
    let daemon = tree
        .iter()
        .find(|process| process.command.contains("daemon"))
        .unwrap();
    assert_ne!(daemon.parent, root);
    assert_eq!(daemon.session, daemon.pid);
    for process in &tree {
        signal(process, Signal::TERM);
    }
    first.wait().unwrap();
    let left = procs::wait_count(&marker.0, 1, LIMIT).expect("all but the deaf one");
    assert!(left[0].command.contains("deaf"));
    assert!(procs::wait_gone(&marker.0, Duration::from_millis(20)).is_err());
    marker.kill_all();
    procs::wait_gone(&marker.0, LIMIT).expect("killed processes go");
}

#[test]
fn depth_adds_members() {
    let marker = Marker::new("deep");
    let mut first = treegen(&marker.0, &["--depth", "3"]);
    whole(&marker.0, 8);
    marker.kill_all();
    procs::wait_gone(&marker.0, LIMIT).expect("killed processes go");
    first.wait().unwrap();
}

#[test]
fn a_server_can_be_the_first_of_its_tree() {
    let marker = Marker::new("server");
    let mut client = Client::legacy(&Evilpeer::new().in_tree(&marker.0));
    assert_eq!(
        procs::with_marker(&marker.0).len(),
        5,
        "the tree is complete before it serves"
    );
    client.assert_no_files_of_its_own(2);
    let pid = client.child.id();
    assert!(procs::alive(pid));
    assert!(procs::open_fds(pid) >= 3);
    assert!(procs::rss_kib(pid) > 0 && procs::peak_rss_kib(pid) >= procs::rss_kib(pid));
    assert!(procs::pss_kib(pid) > 0);
    client.close();
    assert!(client.exit().success());
    assert_eq!(
        procs::with_marker(&marker.0).len(),
        4,
        "its tree outlives it"
    );
    marker.kill_all();
    procs::wait_gone(&marker.0, LIMIT).expect("killed processes go");
    assert!(!procs::alive(pid));
}

#[test]
fn zombies_are_seen_until_waited_for() {
    let mut child = Command::new(bin::evilpeer())
        .arg("--help")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    let mine = std::process::id();
    let is_zombie = || {
        procs::zombies_of(mine)
            .iter()
            .any(|process| process.pid == pid)
    };
    assert!(gantry_testkit::wait::eventually(LIMIT, is_zombie).is_some());
    assert!(!procs::alive(pid));
    child.wait().unwrap();
    assert!(!is_zombie());
}
