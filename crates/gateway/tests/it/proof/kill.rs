//! kill -9 of the gateway, and one second later nothing that it started is left.
//!
//! Fifty servers, each a tree of five: a child, a grandchild in a session of its own, a daemon that
//! left its parents by two forks, and one deaf to TERM and HUP. With each tree goes its init.

use std::time::Duration;

use gantry_testkit::procs::{self, Process};
use gantry_testkit::wait::{Stopwatch, eventually};
use gantry_testkit::{Evilpeer, proof};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::own_marker;
use crate::harness::{Builder, Gantry, LONG, NOBODY, Programs, needs_root};

const SERVERS: usize = 50;
const TREE: usize = 5;
const SECOND: Duration = Duration::from_secs(1);
/// How long fifty trees may take to come up on a busy machine.
const UP: Duration = Duration::from_secs(60);

/// In a user namespace of its own in which no further namespace can be made.
const DENIED: [&str; 7] = ["unshare", "-U", "-r", "sh", "-c", DENY, "sh"];
const DENY: &str = "echo 0 > /proc/sys/user/max_user_namespaces && \
    echo 0 > /proc/sys/user/max_pid_namespaces && exec \"$@\"";

/// Describes a gateway with that many trees.
fn forest(programs: &Programs, marker: &str, servers: usize) -> Builder {
    let mut builder = Gantry::builder().program(&programs.gantry());
    for number in 0..servers {
        let entry = programs.entry(&Evilpeer::new().in_tree(marker));
        builder = builder.entry(&format!("tree-{number}"), entry);
    }
    builder
}

/// Waits until every server is ready and every process of its tree is there.
fn grown(gantry: &Gantry, marker: &str, servers: usize) {
    let mut last = Value::Null;
    let ready = eventually(UP, || {
        last = gantry.rest("GET", "/api/v1/health", None).json()["servers"].take();
        last["ready"] == servers
    });
    assert!(ready.is_some(), "not all servers are ready: {last}");
    if let Err(seen) = procs::wait_count(marker, servers * TREE, LONG) {
        panic!("{} processes of {}: {seen:#?}", seen.len(), servers * TREE);
    }
}

/// Kills the gateway and returns how long its last descendant lived on.
fn kill_and_wait(gantry: &mut Gantry, marker: &str, least: usize) -> Duration {
    let before = procs::descendants_of(gantry.pid);
    assert!(
        before.len() >= least,
        "{} descendants, not {least}",
        before.len()
    );
    let begun = Stopwatch::start();
    gantry.signal(Signal::KILL);
    if let Err(left) = procs::wait_gone(marker, SECOND) {
        panic!(
            "{} of {} live on after a second: {left:#?}",
            left.len(),
            before.len()
        );
    }
    let all_gone = eventually(SECOND.saturating_sub(begun.elapsed()), || {
        !before.iter().any(lives)
    });
    let took = begun.elapsed();
    let left: Vec<_> = before.iter().filter(|process| lives(process)).collect();
    assert!(
        all_gone.is_some(),
        "not all are gone after a second: {left:#?}"
    );
    gantry.wait(LONG);
    took
}

fn lives(process: &Process) -> bool {
    let now = procs::look(process.pid);
    now.is_some_and(|now| now.command == process.command && !matches!(now.state, 'Z' | 'X'))
}

/// Grows the forest and kills the gateway, again and again on one data folder.
fn rounds(builder: Builder, marker: &str) {
    let rounds = proof::count(20, 2);
    let mut slowest = Duration::ZERO;
    let begun = Instant::now();
    let mut gantry = builder.start();
    for round in 1..=rounds {
        grown(&gantry, marker, SERVERS);
        // With each tree there is its init.
        slowest = slowest.max(kill_and_wait(&mut gantry, marker, SERVERS * (TREE + 1)));
        if round < rounds {
            gantry = gantry.again();
        }
    }
    let each = begun.elapsed() / u32::try_from(rounds).unwrap();
    eprintln!("{marker}: {rounds} of {rounds} left nothing, slowest {slowest:?}; {each:?} a round");
}

// fault P3
#[test]
fn nothing_outlives_a_gateway_of_root() {
    needs_root();
    let marker = own_marker("kill-root");
    let programs = Programs::copied();
    rounds(forest(&programs, &marker, SERVERS), &marker);
}

// fault P3
#[test]
fn nothing_outlives_a_gateway_of_an_unprivileged_user() {
    needs_root();
    let marker = own_marker("kill-nobody");
    let programs = Programs::copied();
    rounds(forest(&programs, &marker, SERVERS).user(NOBODY), &marker);
}

// fault P3
#[test]
fn nothing_outlives_a_gateway_without_namespaces_unless_the_init_is_killed_too() {
    needs_root();
    let marker = own_marker("kill-denied");
    let programs = Programs::copied();
    rounds(forest(&programs, &marker, SERVERS).under(&DENIED), &marker);
}

/// Returns what a server was promised under this name: state and detail.
fn promise(status: &Value, name: &str) -> (String, String) {
    let promises = status["isolation"]
        .as_array()
        .unwrap_or_else(|| panic!("{status:#}"));
    let found = promises
        .iter()
        .find(|promise| promise["name"] == name)
        .unwrap();
    let word = |key: &str| found[key].as_str().unwrap().to_owned();
    (word("state"), word("detail"))
}

// fault P3
#[test]
fn where_namespaces_are_denied_the_status_says_what_is_not_promised() {
    needs_root();
    let marker = own_marker("denied-status");
    let programs = Programs::copied();
    let gantry = forest(&programs, &marker, 1).under(&DENIED).start();
    let status = gantry.wait_state("tree-0", "ready", LONG);
    let (state, detail) = promise(&status, "tree");
    assert_eq!(state, "not_enforced");
    let begins = "ended by the resident init; not if the init itself is killed (no PID namespace: ";
    assert!(detail.starts_with(begins), "{detail}");
    let health = gantry.rest("GET", "/api/v1/health", None).json();
    let facts = health["host"].as_array().unwrap();
    let fact = facts
        .iter()
        .find(|fact| fact["name"] == "pid namespace")
        .unwrap();
    assert_eq!(fact["available"], json!(false), "{fact}");
    assert!(fact["detail"].as_str().is_some_and(|why| !why.is_empty()));
    let told = eventually(LONG, || gantry.stdout().contains("not enforced: "));
    assert!(
        told.is_some(),
        "`gantry up` says it, too:\n{}",
        gantry.stdout()
    );
    assert!(gantry.stdout().contains(&detail), "{}", gantry.stdout());
}

// fault P3
#[test]
fn where_namespaces_are_given_the_status_says_so() {
    needs_root();
    let programs = Programs::copied();
    for user in [0, NOBODY] {
        let marker = own_marker("given-status");
        let gantry = forest(&programs, &marker, 1).user(user).start();
        let status = gantry.wait_state("tree-0", "ready", LONG);
        let (state, detail) = promise(&status, "tree");
        assert_eq!(state, "enforced", "as user {user}: {detail}");
        assert!(
            detail.starts_with("PID namespace: ends with its init"),
            "{detail}"
        );
    }
}

// fault P3
#[test]
fn without_namespaces_a_tree_still_goes_with_its_server_by_order_and_with_the_gateway() {
    needs_root();
    let programs = Programs::copied();
    let marker = own_marker("denied-holds");
    let name = |number: usize| format!("{marker}-{number}.");
    let all_grown = |gantry: &Gantry| {
        (0..3).for_each(|number| {
            gantry.wait_state(&format!("tree-{number}"), "ready", LONG);
            procs::wait_count(&name(number), TREE, LONG).unwrap();
        })
    };
    let mut builder = Gantry::builder().program(&programs.gantry()).under(&DENIED);
    for number in 0..3 {
        let entry = programs.entry(&Evilpeer::new().in_tree(&name(number)));
        builder = builder.entry(&format!("tree-{number}"), entry);
    }
    let mut gantry = builder.start();
    all_grown(&gantry);
    // The server is killed: the rest of its tree goes, the others stay, a new tree comes.
    let first = gantry.status("tree-0");
    let old = procs::with_marker(&name(0));
    let pid = i32::try_from(first["pid"].as_u64().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let gone = eventually(SECOND, || !old.iter().any(lives));
    assert!(gone.is_some(), "{old:#?}");
    let again = |status: &Value| status["state"] == "ready" && status["pid"] != first["pid"];
    gantry.wait_status("tree-0", LONG, again);
    all_grown(&gantry);
    // By order.
    let old = procs::with_marker(&name(1));
    let restarted = gantry.rest("POST", "/api/v1/mcp/servers/tree-1/restart", None);
    assert_eq!(restarted.status, 200, "{}", restarted.text());
    assert!(
        !old.iter().any(lives),
        "a restart begins when the old tree is gone: {old:#?}"
    );
    all_grown(&gantry);
    // With the gateway.
    assert_eq!(gantry.stop(), Some(0), "{}", gantry.stderr());
    (0..3).for_each(|number| assert_eq!(procs::with_marker(&name(number)), []));
}
