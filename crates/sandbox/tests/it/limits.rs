//! Limits bite that tree only, and the exit says which one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_sandbox::{Command, Limits, PromiseState};

use crate::harness::{LOCAL, eventually, line, output, sandbox, script};
use crate::owner::{Owner, Rights};

fn limited(text: &str, limits: Limits) -> Command {
    Command {
        limits,
        ..script(text)
    }
}

#[tokio::test]
async fn memory_is_limited() {
    // fault P9
    let sandbox = sandbox();
    let limits = Limits {
        memory_bytes: Some(32 << 20),
        ..LOCAL
    };
    // A shell variable that doubles without end.
    let command = limited("x=0123456789abcdef; while :; do x=$x$x; done", limits);
    let mut spawned = sandbox.spawn(&command).await.unwrap();
    let exit = spawned.tree.wait().await;
    if spawned.report.enforced("memory") {
        assert!(exit.oom_killed, "{exit:?} {:?}", spawned.report);
    } else {
        assert!(!exit.success(), "{exit:?}");
    }
}

#[tokio::test]
async fn processes_are_limited() {
    // fault P9: a fork bomb hits its own limit and nothing else.
    let sandbox = sandbox();
    let limits = Limits {
        pids: Some(20),
        ..LOCAL
    };
    let command = limited(
        "i=0; while [ $i -lt 60 ]; do sleep 1000 & i=$((i+1)); done; echo made $i",
        limits,
    );
    let mut spawned = sandbox.spawn(&command).await.unwrap();
    let exit = spawned.tree.wait().await;
    if spawned.report.enforced("pids") {
        assert!(!exit.success(), "{exit:?}");
        assert!(
            exit.pids_limit_hit
                || spawned
                    .report
                    .promise("pids")
                    .unwrap()
                    .detail
                    .contains("own user")
        );
    }
}

#[tokio::test]
async fn processor_time_is_limited() {
    // fault P9
    let sandbox = sandbox();
    let limits = Limits {
        cpu: Some(0.2),
        ..LOCAL
    };
    let mut spawned = sandbox
        .spawn(&limited("echo up; while :; do :; done", limits))
        .await
        .unwrap();
    assert_eq!(line(&mut spawned).await, "up");
    let begun = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let used = spawned.tree.usage().cpu;
    let time = begun.elapsed();
    if spawned.report.enforced("cpu") {
        assert!(
            used > Duration::ZERO && used < time / 2,
            "{used:?} of {time:?}"
        );
    }
}

#[tokio::test]
async fn descriptors_are_limited() {
    let sandbox = sandbox();
    let limits = Limits {
        nofile: 64,
        ..LOCAL
    };
    let (out, ..) = output(&sandbox, &limited("ulimit -n; ulimit -c", limits))
        .await
        .unwrap();
    assert_eq!(out, "64\n0\n");
}

#[tokio::test]
async fn usage_is_told() {
    let sandbox = sandbox();
    let text = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; sleep 1000 & echo up; wait";
    let mut spawned = sandbox.spawn(&script(text)).await.unwrap();
    assert_eq!(line(&mut spawned).await, "up");
    let told = || {
        let usage = spawned.tree.usage();
        usage.pids == 2 && usage.memory_bytes > 100_000 && usage.cpu > Duration::ZERO
    };
    eventually("usage", Duration::from_secs(5), told).await;
    spawned.tree.kill();
    spawned.tree.wait().await;
    assert_eq!(spawned.tree.limits(), &LOCAL);
}

#[tokio::test]
async fn what_is_not_asked_is_said() {
    let sandbox = sandbox();
    let spawned = sandbox.spawn(&script("true")).await.unwrap();
    let state = |name| spawned.report.promise(name).unwrap().state;
    assert_eq!(state("memory"), PromiseState::NotAsked);
    assert_eq!(state("cpu"), PromiseState::NotAsked);
    assert_eq!(
        spawned.report.promise("network").unwrap().detail,
        "allowed by profile local"
    );
    assert_eq!(state("network"), PromiseState::NotAsked);
    assert_eq!(spawned.report.promises.len(), 11);
}

#[tokio::test]
async fn what_a_user_without_rights_cannot_have_is_said() {
    // faults C9, P9: an unsupported limit is a visible fact, never silent.
    let owner = Owner::start(Rights::Nobody, "hosted");
    assert!(owner.promise("tree").starts_with("Enforced"));
    assert!(
        owner.promise("pids").starts_with("Enforced"),
        "{:?}",
        owner.report
    );
    assert!(
        owner
            .promise("user")
            .starts_with("NotEnforced runs as the gateway's uid")
    );
    let memory = owner.promise("memory");
    if memory.starts_with("NotEnforced") {
        assert!(
            memory.contains("cgroup") && memory.contains("each process alone"),
            "{memory}"
        );
    }
}

#[tokio::test]
async fn what_a_dead_owner_left_is_swept() {
    // Only root has cgroups here for certain; without them there is nothing to leave.
    let mut owner = Owner::start(Rights::Own, "hosted");
    let name = format!("gantry-test-{}-", owner.process.id());
    let left = || directories("/sys/fs/cgroup".as_ref(), &name);
    assert!(!left().is_empty() || !crate::harness::is_root());
    owner.kill();
    let gone = || {
        drop(sandbox());
        left().is_empty()
    };
    eventually("no cgroup is left", Duration::from_secs(5), gone).await;
}

/// The directories below one whose name starts so; not deeper than cgroups of services go.
fn directories(below: &Path, start: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![(below.to_owned(), 0)];
    while let Some((directory, depth)) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(start) {
                found.push(entry.path());
            } else if depth < 6 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push((entry.path(), depth + 1));
            }
        }
    }
    found
}
