//! Every promise, with its protection taken away: the report must say so.
//!
//! Each owner is a process of its own under a stricter host, made with limits of namespaces or a filter
//! that refuses a system call to it and to all it starts.

use crate::denied::Denied;
use crate::owner::{Owner, Rights};

/// Starts a hosted tree under an owner that lacks something; returns what it reports.
fn without(rights: Rights, denied: Denied) -> Owner {
    Owner::denied(rights, "hosted", denied)
}

/// Expects a promise not to hold, for a reason.
#[track_caller]
fn broken(owner: &Owner, name: &str, why: &str) {
    let promise = owner.promise(name);
    assert!(
        promise.starts_with("NotEnforced") && promise.contains(why),
        "{name}: {promise}"
    );
}

#[track_caller]
fn kept(owner: &Owner, name: &str, how: &str) {
    let promise = owner.promise(name);
    assert!(
        promise.starts_with("Enforced") && promise.contains(how),
        "{name}: {promise}"
    );
}

#[test]
fn everything_holds_where_nothing_is_denied() {
    let owner = without(Rights::Own, Denied::Nothing);
    kept(&owner, "tree", "own /proc");
    kept(&owner, "network", "own network namespace");
    kept(&owner, "ipc", "own IPC namespace");
    kept(&owner, "syscalls", "seccomp");
    kept(&owner, "descriptors", "1024");
    assert!(
        owner
            .promise("environment")
            .contains("only PATH, GANTRY_TEST_MARKER"),
        "{:?}",
        owner.report
    );
    assert!(
        !owner
            .report
            .iter()
            .any(|line| line.contains("nothing inherited"))
    );
}

#[test]
fn without_namespaces_neither_tree_nor_network_nor_ipc_are_its_own() {
    let owner = without(Rights::NoNamespaces, Denied::Nothing);
    broken(&owner, "tree", "no PID namespace");
    assert!(!owner.promise("tree").contains("own /proc"));
    broken(
        &owner,
        "network",
        "local sockets of the host can be reached",
    );
    broken(&owner, "ipc", "shares semaphores");
    let owner = without(Rights::Own, Denied::Unshare);
    broken(&owner, "tree", "no PID namespace");
    broken(
        &owner,
        "network",
        "no network namespace (Operation not permitted",
    );
    broken(&owner, "ipc", "Operation not permitted");
}

#[test]
fn without_mount_namespaces_proc_is_the_hosts() {
    for owner in [
        without(Rights::Without("mnt"), Denied::Nothing),
        without(Rights::Own, Denied::Mount),
    ] {
        let tree = owner.promise("tree");
        assert!(
            tree.starts_with("Enforced") && tree.contains("the host's /proc is visible"),
            "{tree}"
        );
        // Nothing in memory was mounted: it is not said to be.
        assert!(
            !owner.promise("disk").contains("in memory"),
            "{:?}",
            owner.report
        );
        assert!(
            !owner.promise("filesystem").contains("an own /tmp"),
            "{:?}",
            owner.report
        );
    }
    // A person's own server could leave its limits there.
    if crate::harness::is_root() {
        let owner = Owner::denied(Rights::Own, "local", Denied::Mount);
        broken(&owner, "pids", "the tree can leave it");
    }
}

#[test]
fn without_network_namespaces_local_sockets_are_open() {
    let owner = without(Rights::Without("net"), Denied::Nothing);
    broken(
        &owner,
        "network",
        "local sockets of the host can be reached",
    );
    assert!(
        owner
            .promise("dial")
            .contains("no network namespace of its own")
    );
    // Nor is there a filter: then everything is.
    let owner = Owner::denied(Rights::Without("net"), "hosted", Denied::Seccomp);
    broken(&owner, "network", "everything can be reached");
}

#[test]
fn without_ipc_namespaces_semaphores_are_shared() {
    broken(
        &without(Rights::Without("ipc"), Denied::Nothing),
        "ipc",
        "shares semaphores",
    );
}

#[test]
fn without_seccomp_no_call_is_refused() {
    broken(
        &without(Rights::Own, Denied::Seccomp),
        "syscalls",
        "seccomp",
    );
}

#[test]
fn without_landlock_files_and_disk_are_open() {
    let owner = without(Rights::Own, Denied::Landlock);
    broken(&owner, "filesystem", "Landlock");
    broken(&owner, "disk", "whatever its user may write");
}

#[test]
fn without_a_loopback_it_is_not_promised() {
    let owner = without(Rights::Own, Denied::Loopback);
    kept(&owner, "network", "without a loopback");
}

#[test]
fn without_limits_none_is_promised() {
    let owner = without(Rights::Own, Denied::DescriptorLimit);
    broken(&owner, "descriptors", "not limited");
    let owner = without(Rights::Nobody, Denied::Nothing);
    for limit in ["memory", "cpu"] {
        let promise = owner.promise(limit);
        assert!(
            !promise.starts_with("Enforced") || promise.contains("cgroup"),
            "{promise}"
        );
    }
    broken(&owner, "user", "runs as the gateway's own uid 65534");
    // No cgroup and no user of its own: nobody counts its processes.
    let owner = without(Rights::Nothing, Denied::Nothing);
    broken(&owner, "pids", "");
}
