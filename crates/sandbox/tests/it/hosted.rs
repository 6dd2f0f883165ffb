//! What a hosted tree cannot do, tried from inside.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use gantry_sandbox::{Command, Network};

use crate::harness::{hosted, is_root, output, sandbox};

/// Runs a script; returns what it printed.
async fn inside(command: &Command) -> String {
    let (out, err, _) = output(&sandbox(), command).await.unwrap();
    out + &err
}

#[tokio::test]
async fn writes_only_where_it_may() {
    let (outside, inside_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Open to everyone, so that only the sandbox can refuse.
    fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let probe = outside.path().join("probe");
    fs::write(&probe, "old").unwrap();
    fs::set_permissions(&probe, fs::Permissions::from_mode(0o666)).unwrap();
    let (outside, data) = (outside.path().display(), inside_dir.path().display());
    let mut command = hosted(&format!(
        "echo new > {data}/file && echo may-data
         echo new > /tmp/file && echo may-tmp
         echo new > /dev/null && echo may-null
         (echo new > {outside}/file) 2>/dev/null || echo not-create
         (echo new > {outside}/probe) 2>/dev/null || echo not-change
         (rm {outside}/probe) 2>/dev/null || echo not-remove
         (cat {outside}/probe) 2>/dev/null || echo not-read
         (echo x > /etc/gantry-test) 2>/dev/null || echo not-etc"
    ));
    command.writable = vec![inside_dir.path().to_owned()];
    let said = inside(&command).await;
    let expected = "may-data may-tmp may-null not-create not-change not-remove not-read not-etc";
    assert_eq!(
        said.split_whitespace().collect::<Vec<_>>().join(" "),
        expected,
        "{said}"
    );
    assert_eq!(
        fs::read_to_string(inside_dir.path().join("file")).unwrap(),
        "new\n"
    );
    assert_eq!(fs::read_to_string(&probe).unwrap(), "old");
    assert!(!std::path::Path::new("/tmp/file").exists());
}

#[tokio::test]
async fn reads_its_working_directory_and_may_not_write_it() {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(directory.path().join("code"), "hello\n").unwrap();
    let mut command = hosted("cat code; echo x > other || echo refused");
    command.cwd = directory.path().to_owned();
    let said = inside(&command).await;
    assert!(
        said.starts_with("hello\n") && said.contains("refused"),
        "{said}"
    );
    // Listed, it may: and as root the directory's owner is the tree's own user if it was empty.
    let empty = tempfile::tempdir().unwrap();
    let mut command = hosted("echo x > other && cat other");
    command.cwd = empty.path().to_owned();
    command.writable = vec![empty.path().to_owned()];
    assert_eq!(inside(&command).await, "x\n");
}

#[tokio::test]
async fn sees_no_other_process_and_no_other_temporary_file() {
    let file = tempfile::NamedTempFile::new_in("/tmp").unwrap();
    let name = file.path().display();
    let said = inside(&hosted(&format!(
        "ls -d {name} 2>/dev/null; ls /proc | grep -c '^[0-9]'"
    )))
    .await;
    // The init, the shell, ls and grep at most.
    let seen: usize = said.trim().parse().unwrap_or_else(|_| panic!("{said}"));
    assert!(seen <= 5, "{said}");
}

#[tokio::test]
async fn reaches_no_network() {
    // fault C10, for processes
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let text = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached");
    let with_bash = |network| {
        let mut command = hosted(&text);
        command.program = "/bin/bash".to_owned();
        command.network = network;
        command
    };
    assert!(!inside(&with_bash(Network::None)).await.contains("reached"));
    assert!(inside(&with_bash(Network::Full)).await.contains("reached"));
    let devices = inside(&hosted(
        "cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' \\n'",
    ))
    .await;
    assert_eq!(devices, "lo");
}

#[tokio::test]
async fn is_someone_else_without_capabilities() {
    let said = inside(&hosted("id -u; id -G; cat /proc/self/status")).await;
    let mut lines = said.lines();
    let uid: u32 = lines.next().unwrap().parse().unwrap();
    if is_root() {
        assert!((61_000..65_000).contains(&uid), "{uid}");
        assert_eq!(lines.next().unwrap(), uid.to_string());
    }
    for bare in [
        "CapEff:\t0000000000000000",
        "CapPrm:\t0000000000000000",
        "CapBnd:\t0000000000000000",
    ] {
        assert!(said.contains(bare), "{said}");
    }
    assert!(
        said.contains("NoNewPrivs:\t1") && said.contains("Seccomp:\t2"),
        "{said}"
    );
}

#[tokio::test]
async fn cannot_change_the_machine() {
    let said = inside(&hosted(
        "unshare -r true 2>/dev/null || echo no-namespace
         mount -t tmpfs none /mnt 2>/dev/null || echo no-mount
         chroot / true 2>/dev/null || echo no-chroot
         kill -0 1 2>/dev/null || echo no-kill",
    ))
    .await;
    assert!(
        said.starts_with("no-namespace\nno-mount\nno-chroot\n"),
        "{said}"
    );
}

#[tokio::test]
async fn a_missing_writable_path_is_named() {
    let mut command = hosted("true");
    command.writable = vec!["/no/such/path".into()];
    let error = sandbox().spawn(&command).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "writable path `/no/such/path` cannot be used"
    );
}

#[tokio::test]
async fn the_report_is_complete() {
    let sandbox = sandbox();
    let spawned = sandbox.spawn(&hosted("true")).await.unwrap();
    let names: Vec<&str> = spawned
        .report
        .promises
        .iter()
        .map(|promise| promise.name)
        .collect();
    assert_eq!(
        names,
        [
            "tree",
            "memory",
            "cpu",
            "pids",
            "disk",
            "root",
            "filesystem",
            "syscalls",
            "network",
            "ipc",
            "user",
            "environment",
            "descriptors",
            "privileges"
        ]
    );
    assert!(
        spawned
            .report
            .promises
            .iter()
            .all(|promise| !promise.detail.is_empty())
    );
    for always in [
        "tree",
        "disk",
        "ipc",
        "syscalls",
        "network",
        "environment",
        "descriptors",
        "privileges",
    ] {
        assert!(spawned.report.enforced(always), "{:?}", spawned.report);
    }
    assert!(
        sandbox
            .host()
            .fact("pid namespace")
            .is_some_and(|fact| fact.available)
    );
    println!("{:#?}\n{:#?}", sandbox.host(), spawned.report);
}
