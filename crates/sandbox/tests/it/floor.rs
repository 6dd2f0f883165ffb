//! With a floor nothing runs that is not held whole: each step is denied once the host has been found to
//! give it, and not one instruction of the program runs. fault C12, row 1.18

use std::path::{Path, PathBuf};

use gantry_sandbox::{Command, Floor, Mount, MountKind, Root};

use crate::denied::Denied;
use crate::harness::is_root;
use crate::owner::{Owner, Rights};

/// Has a command leave a mark when it runs, and demands that everything holds before.
pub(crate) fn demand(command: &mut Command, mark: &Path) {
    let Root::Own(root) = &mut command.root else {
        panic!("only with a root of its own");
    };
    root.mounts.push(Mount {
        target: PathBuf::from("/mark"),
        kind: MountKind::Bind(mark.to_owned()),
        read_only: false,
    });
    let script = command.args.last_mut().unwrap();
    *script = format!("echo > /mark/ran; {script}");
    command.floor = Floor::Whole;
}

/// Denies something to an owner; returns why its program did not run.
#[track_caller]
fn refused(rights: Rights, profile: &str, denied: Denied) -> String {
    let owner = Owner::denied(rights, profile, denied);
    assert_eq!(
        owner.promise("ran"),
        "false",
        "{denied:?}: {:?}",
        owner.report
    );
    owner.promise("refused").to_owned()
}

#[test]
fn with_everything_given_it_runs() {
    for profile in ["image-whole-late", "gvisor-whole-late"] {
        for rights in [Rights::Own, Rights::Nobody] {
            let owner = Owner::denied(rights, profile, Denied::Nothing);
            assert_eq!(owner.promise("ran"), "true", "{:?}", owner.report);
        }
    }
}

#[test]
fn a_step_that_fails_at_the_last_moment_ends_the_start() {
    let whole = "required protections are missing: ";
    let root = "this host does not support a separate root: ";
    for (denied, begin, why) in [
        (Denied::Seccomp, whole, "syscalls (seccomp: "),
        (Denied::Landlock, whole, "filesystem (Landlock: "),
        (Denied::LandlockHolds, whole, "filesystem (Landlock: "),
        (Denied::CgroupNamespace, whole, "no cgroup namespace"),
        (Denied::HostName, whole, "host name"),
        (Denied::DescriptorLimit, whole, "limits ("),
        (Denied::Mount, "cannot separate the mounts", ""),
        (Denied::MountAttributes, "cannot ", ""),
        (Denied::PivotRoot, root, "Operation not permitted"),
        (Denied::Unshare, "", ""),
        (Denied::Capabilities, "cannot drop capabilities", ""),
        (Denied::BoundingSet, "cannot become the tree's own user", ""),
        (
            Denied::NoNewPrivileges,
            "cannot renounce new privileges",
            "",
        ),
    ] {
        for rights in [Rights::Own, Rights::Nobody] {
            let said = refused(rights, "image-whole-late", denied);
            assert!(
                said.starts_with(begin) && said.contains(why),
                "{denied:?} {rights:?}: {said}"
            );
        }
    }
}

#[test]
fn ids_and_limits_of_a_gateway_that_is_root_are_part_of_it() {
    if !is_root() {
        return;
    }
    for (denied, why) in [
        (Denied::EnterNamespace, "cannot become the tree's own user"),
        (Denied::Groups, "cannot become the tree's own user"),
        (Denied::CgroupJoin, "limits (it cannot join its cgroup: "),
    ] {
        let said = refused(Rights::Own, "image-whole-late", denied);
        assert!(said.contains(why), "{denied:?}: {said}");
    }
}

#[test]
fn what_the_host_never_had_is_found_before_the_start() {
    for (rights, denied, why) in [
        (
            Rights::Own,
            Denied::Seccomp,
            "syscalls (seccomp: Operation not permitted",
        ),
        (Rights::Nobody, Denied::Seccomp, "syscalls (seccomp: "),
        (
            Rights::Own,
            Denied::NetworkNamespace,
            "network (no network namespace: ",
        ),
        (Rights::Own, Denied::IpcNamespace, "ipc (no ipc namespace: "),
        (Rights::Without("mnt"), Denied::Nothing, "a separate root: "),
    ] {
        let said = refused(rights, "image-whole", denied);
        assert!(said.contains(why), "{rights:?} {denied:?}: {said}");
    }
}

#[test]
fn gvisor_runs_no_guest_either() {
    for denied in [
        Denied::Unshare,
        Denied::Mount,
        Denied::NoNewPrivileges,
        Denied::DescriptorLimit,
        Denied::Seccomp,
    ] {
        let owner = Owner::denied(Rights::Own, "gvisor-whole-late", denied);
        assert_eq!(
            owner.promise("ran"),
            "false",
            "{denied:?}: {:?}",
            owner.report
        );
    }
}
