//! Limits bite that tree only, and the exit says which one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_sandbox::{Command, Limits, Network, PromiseState};

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
async fn a_hit_of_long_ago_is_not_why_a_server_ends() {
    // faults P9, P11: the reason is that of this end, not of a worker that ended before.
    let sandbox = sandbox();
    let limits = Limits {
        memory_bytes: Some(32 << 20),
        ..LOCAL
    };
    let text = "sh -c 'x=0123456789abcdef; while :; do x=$x$x; done'; echo up; read line; exit 1";
    let mut spawned = sandbox.spawn(&limited(text, limits)).await.unwrap();
    assert_eq!(line(&mut spawned).await, "up");
    if !spawned.report.enforced("memory") {
        return;
    }
    // Somebody reads the usage now and then; virtual time passes in between.
    spawned.tree.usage();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::time::resume();
    drop(spawned.stdin);
    let exit = spawned.tree.wait().await;
    assert_eq!((exit.code, exit.oom_killed), (Some(1), false), "{exit:?}");
}

#[tokio::test]
async fn buffers_of_sockets_count_as_memory() {
    // fault P9
    let sandbox = sandbox();
    let mut command = limited("", LOCAL);
    command.limits.memory_bytes = Some(128 << 20);
    command.limits.nofile = 4096;
    command.network = Network::Inside;
    command.program = "/usr/bin/python3".to_owned();
    // Connections whose other end never reads: each holds megabytes of buffers.
    let text = "
import socket, sys
l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(512)
kept = []
for _ in range(400):
    try:
        a = socket.socket(); a.connect(l.getsockname()); b, _ = l.accept(); a.setblocking(False)
        kept += [a, b]
        while True: a.send(bytes(65536))
    except BlockingIOError: pass
    except OSError: break
print('up', flush=True); sys.stdin.read()";
    command.args = vec!["-c".to_owned(), text.to_owned()];
    let mut spawned = sandbox.spawn(&command).await.unwrap();
    if !spawned.report.enforced("memory") {
        return;
    }
    // Either it is held within the bound, and the usage shows it, or it is ended for it.
    if line(&mut spawned).await == "up" {
        let used = spawned.tree.usage().memory_bytes;
        let most = (128 + 16 + 16) << 20;
        assert!(used > 4 << 20 && used < most, "{used}");
    } else {
        assert!(spawned.tree.wait().await.oom_killed);
    }
}

#[tokio::test]
async fn no_tree_leaves_its_cgroups_nor_sees_those_of_others() {
    // fault P9, also for a person's own server of a gateway that is root.
    let sandbox = sandbox();
    let mut neighbour = script("echo up; read line");
    neighbour.name = "neighbour-canary".to_owned();
    let mut neighbour = sandbox.spawn(&neighbour).await.unwrap();
    assert_eq!(line(&mut neighbour).await, "up");
    let text = "
        for file in $(find /sys/fs/cgroup -name tasks -o -name cgroup.procs -o -name '*.max' -o -name '*.limit_in_bytes' 2>/dev/null); do
            (echo $$ > $file) 2>/dev/null && echo wrote $file
        done
        find /sys/fs/cgroup -name '*canary*' 2>/dev/null
        mkdir /sys/fs/cgroup/x /sys/fs/cgroup/freezer/x 2>/dev/null && echo made
        cat /proc/self/cgroup > /dev/null; echo done";
    for mut command in [script(text), crate::harness::hosted(text)] {
        command.limits.memory_bytes = Some(256 << 20);
        let (out, err, _) = output(&sandbox, &command).await.unwrap();
        assert_eq!(out, "done\n", "{err}");
    }
    // Its own limits can be read: programs size themselves by them.
    let mut command = script(
        "cat $(find /sys/fs/cgroup -name memory.max -o -name memory.limit_in_bytes) </dev/null",
    );
    command.limits.memory_bytes = Some(256 << 20);
    let spawned = sandbox.spawn(&command).await.unwrap();
    let is_held = spawned.report.enforced("memory");
    drop(spawned);
    let (out, ..) = output(&sandbox, &command).await.unwrap();
    assert_eq!(out.trim() == "268435456", is_held, "{out}");
}

#[tokio::test]
async fn a_child_that_would_freeze_itself_ends_with_its_owner() {
    // fault P3: what is frozen by a version 1 cgroup is not ended by a signal.
    let freeze = "for top in /sys/fs/cgroup/freezer /sys/fs/cgroup; do
            d=$top/frozen-$$; mkdir $d && echo $$ > $d/cgroup.procs && echo FROZEN > $d/freezer.state
        done 2>/dev/null";
    let mut owner = Owner::script(
        Rights::Own,
        "local",
        &format!("({freeze}; exec sleep 1000) &"),
    );
    let there = || !crate::harness::marked(&owner.marker).is_empty();
    eventually("the tree is there", Duration::from_secs(5), there).await;
    owner.kill();
    let gone = || crate::harness::marked(&owner.marker).is_empty();
    eventually("the tree is gone", Duration::from_secs(1), gone).await;
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
    assert_eq!(spawned.report.promises.len(), 14);
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
            .starts_with("NotEnforced runs as the gateway's own uid")
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
