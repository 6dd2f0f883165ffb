//! Limits as files, in fake hierarchies.

use std::path::Path;

use super::*;

const HYBRID: &str = "\
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

#[test]
fn finds_our_own_group_in_every_hierarchy() {
    let cgroup = "4:memory:/service/a\n3:cpuset:/\n1:cpu:/\n0::/\n";
    let found = hierarchies(HYBRID, cgroup);
    let places: Vec<_> = found
        .iter()
        .map(|found| {
            (
                found.version,
                found.own.to_str().unwrap(),
                found.controllers.as_slice(),
            )
        })
        .collect();
    assert_eq!(
        places,
        [
            (Version::V2, "/sys/fs/cgroup/unified/", &Controller::ALL[..]),
            (Version::V1, "/sys/fs/cgroup/cpu/", &[Controller::Cpu][..]),
            (
                Version::V1,
                "/sys/fs/cgroup/memory/service/a",
                &[Controller::Memory][..]
            ),
        ]
    );
}

#[test]
fn covers_every_mount_of_cgroups() {
    assert_eq!(tops(HYBRID), [Path::new("/sys/fs/cgroup")]);
    let elsewhere = "\
9 8 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup rw
9 8 0:1 / /mnt/a\\040b rw - cgroup cgroup rw,cpu
9 8 0:1 / /mnt/a\\040b/c rw - cgroup2 cgroup rw
9 8 0:1 / /mnt/d rw - ext4 /dev/x rw
";
    assert_eq!(
        tops(elsewhere),
        [Path::new("/mnt/a b"), Path::new("/sys/fs/cgroup")]
    );
}

#[test]
fn a_container_sees_its_own_group_as_the_root() {
    let mountinfo = "9 8 0:1 /docker/ab /sys/fs/cgroup ro,nosuid master:1 - cgroup2 cgroup rw";
    let own = |cgroup| hierarchies(mountinfo, cgroup)[0].own.clone();
    assert_eq!(own("0::/docker/ab/sub\n"), Path::new("/sys/fs/cgroup/sub"));
    assert_eq!(own("0::/../..\n"), Path::new("/sys/fs/cgroup"));
}

/// A directory with the files a kernel would put there.
fn fake(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in files {
        fs::write(directory.path().join(name), content).unwrap();
    }
    directory
}

fn limits() -> Limits {
    Limits {
        cpu: Some(0.5),
        memory_bytes: Some(1 << 20),
        pids: Some(7),
        nofile: 10,
    }
}

#[test]
fn writes_limits_in_both_versions() {
    for (version, expected) in [
        (
            Version::V1,
            &[
                ("memory.limit_in_bytes", "1048576"),
                ("memory.memsw.limit_in_bytes", "1048576"),
                ("memory.kmem.tcp.limit_in_bytes", "4194304"),
                ("cpu.cfs_period_us", "100000"),
                ("cpu.cfs_quota_us", "50000"),
                ("pids.max", "7"),
            ][..],
        ),
        (
            Version::V2,
            &[
                ("memory.max", "1048576"),
                ("memory.swap.max", "0"),
                ("cpu.max", "50000 100000"),
                ("pids.max", "7"),
            ][..],
        ),
    ] {
        let empty: Vec<_> = expected.iter().map(|(name, _)| (*name, "")).collect();
        let directory = fake(&empty);
        for controller in Controller::ALL {
            group::set_limit(directory.path(), version, controller, &limits()).unwrap();
        }
        for (name, content) in expected {
            assert_eq!(
                fs::read_to_string(directory.path().join(name)).unwrap(),
                *content
            );
        }
    }
}

#[test]
fn a_limit_without_its_file_is_an_error() {
    let directory = fake(&[]);
    for controller in Controller::ALL {
        group::set_limit(directory.path(), Version::V2, controller, &limits()).unwrap_err();
    }
}

#[test]
fn enables_only_what_the_group_offers() {
    let directory = fake(&[
        ("cgroup.controllers", "cpu pids"),
        ("cgroup.subtree_control", "cpu"),
    ]);
    parent::enable(directory.path(), Controller::Cpu).unwrap();
    parent::enable(directory.path(), Controller::Memory).unwrap_err();
    let control = directory.path().join("cgroup.subtree_control");
    assert_eq!(fs::read_to_string(&control).unwrap(), "cpu");
    parent::enable(directory.path(), Controller::Pids).unwrap();
    assert_eq!(fs::read_to_string(&control).unwrap(), "+pids");
}

#[test]
fn names_are_safe_as_directories() {
    assert_eq!(safe_name("a/../b c.d_e-1"), "a____b_c_d_e-1");
    assert_eq!(safe_name(&"x".repeat(300)).len(), 64);
}
