//! What a server is started with, and what is said when it cannot be.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use gantry_sandbox::{Command, SpawnError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::harness::{PATH, eventually, line, open_descriptors, output, sandbox, script, zombies};

fn program(program: &str) -> Command {
    Command {
        program: program.to_owned(),
        args: Vec::new(),
        ..script("")
    }
}

#[tokio::test]
async fn says_what_is_wrong_with_a_program() {
    // fault P1
    let sandbox = sandbox();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str, mode: u32| {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let plain = file("plain", "#!/bin/sh\n", 0o644);
    let orphan = file("orphan", "#!/no/such/interpreter\n", 0o755);
    let garbage = file("garbage", "neither a script nor a binary", 0o755);
    let why = async |name: &str| sandbox.spawn(&program(name)).await.unwrap_err();

    let missing = why("no-such-program").await;
    assert!(
        matches!(missing, SpawnError::ProgramNotFound { .. }),
        "{missing:?}"
    );
    assert_eq!(
        missing.to_string(),
        format!("program `no-such-program` not found (searched `{PATH}`)")
    );
    assert!(matches!(
        why("/no/such/program").await,
        SpawnError::ProgramNotFound { .. }
    ));
    assert!(matches!(why("").await, SpawnError::ProgramNotFound { .. }));
    let denied = why(&plain).await;
    assert!(
        matches!(denied, SpawnError::ProgramNotExecutable { .. }),
        "{denied:?}"
    );
    assert_eq!(
        denied.to_string(),
        format!("program `{plain}` cannot be executed")
    );
    assert!(matches!(
        why(&garbage).await,
        SpawnError::ProgramNotExecutable { .. }
    ));
    assert!(matches!(
        why("/usr").await,
        SpawnError::ProgramNotExecutable { .. }
    ));
    assert!(matches!(
        why(&orphan).await,
        SpawnError::InterpreterMissing { .. }
    ));
}

#[tokio::test]
async fn says_what_is_wrong_with_a_directory() {
    // fault P1
    let sandbox = sandbox();
    let why = async |cwd: &str| {
        sandbox
            .spawn(&Command {
                cwd: PathBuf::from(cwd),
                ..script("")
            })
            .await
            .unwrap_err()
    };
    let missing = why("/no/such/directory").await;
    assert_eq!(
        missing.to_string(),
        "working directory `/no/such/directory` does not exist"
    );
    assert!(matches!(missing, SpawnError::CwdMissing { .. }));
    assert!(matches!(why("/etc/passwd").await, SpawnError::Cwd { .. }));
}

#[tokio::test]
async fn finds_programs_along_the_given_path_only() {
    let sandbox = sandbox();
    let directory = tempfile::tempdir().unwrap();
    let tool = directory.path().join("tool");
    fs::write(&tool, "#!/bin/sh\necho found in $PWD\n").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = program("tool");
    command.env = vec![(
        "PATH".to_owned(),
        format!("/no:{}", directory.path().display()),
    )];
    command.cwd = PathBuf::from("/usr");
    assert_eq!(
        output(&sandbox, &command).await.unwrap().0,
        "found in /usr\n"
    );
    // A path with a slash is taken from the working directory.
    command.program = "./tool".to_owned();
    command.cwd = directory.path().to_owned();
    assert!(
        output(&sandbox, &command)
            .await
            .unwrap()
            .0
            .starts_with("found in ")
    );
}

#[tokio::test]
async fn a_server_gets_exactly_its_environment_and_arguments() {
    // fault P7, row 4.9
    let sandbox = sandbox();
    let mut command = program("/usr/bin/env");
    command.env = vec![
        ("ONLY".to_owned(), "this = and\nthat $HOME".to_owned()),
        ("EMPTY".to_owned(), String::new()),
    ];
    let (out, ..) = output(&sandbox, &command).await.unwrap();
    assert_eq!(out, "ONLY=this = and\nthat $HOME\nEMPTY=\n");
    let mut command = program("/usr/bin/printf");
    command.args = ["%s|", "a b", "", "$(id)", "--"].map(str::to_owned).into();
    assert_eq!(
        output(&sandbox, &command).await.unwrap().0,
        "a b||$(id)|--|"
    );
}

#[tokio::test]
async fn a_server_gets_three_descriptors() {
    // fault P7: also when the gateway has others open that would be inherited.
    let sandbox = sandbox();
    let leaked = rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), 77).unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    // Looked at one by one: a listing would show the descriptor it lists with.
    let look =
        "i=0; while [ $i -lt 200 ]; do [ -e /proc/$$/fd/$i ] && printf '%s ' $i; i=$((i+1)); done";
    let (out, ..) = output(&sandbox, &script(look)).await.unwrap();
    assert_eq!(out, "0 1 2 ");
}

#[tokio::test]
async fn the_job_shows_nowhere() {
    // fault K4: neither arguments nor environment of the init hold the server's.
    let sandbox = sandbox();
    let mut command = script("echo up; read line");
    command
        .env
        .push(("SECRET".to_owned(), "canary-4711".to_owned()));
    let mut spawned = sandbox.spawn(&command).await.unwrap();
    assert_eq!(line(&mut spawned).await, "up");
    let init = crate::harness::parent(spawned.tree.pid()).unwrap();
    let of_init = |file: &str| fs::read(format!("/proc/{init}/{file}")).unwrap_or_default();
    assert_eq!(of_init("cmdline"), b"gantry-init\0");
    assert_eq!(of_init("environ"), b"");
    assert_eq!(of_init("comm"), b"gantry-init\n");
    let maps = String::from_utf8(of_init("maps")).unwrap();
    assert!(!maps.contains("gantry-job"), "{maps}");
}

#[tokio::test]
async fn signals_and_session_are_fresh() {
    let sandbox = sandbox();
    let (out, ..) = output(
        &sandbox,
        &script("cat /proc/self/status; cut -d' ' -f5,6 /proc/$$/stat; echo $$"),
    )
    .await
    .unwrap();
    for clean in [
        "SigBlk:\t0000000000000000",
        "SigIgn:\t0000000000000000",
        "NoNewPrivs:\t1",
    ] {
        assert!(out.contains(clean), "{out}");
    }
    // Group and session are the server's own.
    let lines: Vec<&str> = out.lines().collect();
    let [.., ids, pid] = lines.as_slice() else {
        panic!("{out}")
    };
    assert_eq!(*ids, format!("{pid} {pid}"));
}

#[tokio::test]
async fn cycles_leave_nothing_behind() {
    // fault P6: ended by themselves, dropped while running, and failed to start.
    let sandbox = sandbox();
    output(&sandbox, &script("true")).await.unwrap();
    eventually("settled", Duration::from_secs(2), || zombies() == 0).await;
    let before = open_descriptors();
    for _ in 0..100 {
        output(&sandbox, &script("true")).await.unwrap();
        drop(sandbox.spawn(&script("sleep 1000")).await.unwrap());
        sandbox
            .spawn(&program("/no/such/program"))
            .await
            .unwrap_err();
    }
    let settled = || zombies() == 0 && open_descriptors() <= before;
    eventually("no zombie, no descriptor", Duration::from_secs(2), settled).await;
}

#[tokio::test]
async fn a_cancelled_spawn_leaves_nothing() {
    // fault S18
    let sandbox = sandbox();
    output(&sandbox, &script("true")).await.unwrap();
    let command = script("sleep 1000");
    let marker = crate::harness::marker(&command);
    eventually("settled", Duration::from_secs(2), || zombies() == 0).await;
    let before = open_descriptors();
    for _ in 0..20 {
        let impatient = tokio::time::timeout(Duration::ZERO, sandbox.spawn(&command)).await;
        drop(impatient);
    }
    let gone = || {
        crate::harness::marked(&marker).is_empty() && zombies() == 0 && open_descriptors() <= before
    };
    eventually("nothing left", Duration::from_secs(5), gone).await;
}

#[tokio::test]
async fn the_usual_programs_run() {
    // What people's own servers are made of; those that are not installed here are left out.
    let sandbox = sandbox();
    let directory = tempfile::tempdir().unwrap();
    for (program, text, expected) in [
        (
            "git",
            "git init -q . && git status --porcelain && echo fine",
            "fine",
        ),
        (
            "node",
            "node -e 'const c=require(\"child_process\").execSync(\"echo fine\");process.stdout.write(c)'",
            "fine",
        ),
        (
            "python3",
            "python3 -c 'import subprocess,threading;t=threading.Thread(target=print,args=(\"fine\",));t.start();t.join()'",
            "fine",
        ),
    ] {
        let mut command = script(&format!(
            "command -v {program} >/dev/null || {{ echo fine; exit; }}; {text}"
        ));
        command.cwd = directory.path().to_owned();
        command
            .env
            .push(("HOME".to_owned(), directory.path().display().to_string()));
        let (out, err, exit) = output(&sandbox, &command).await.unwrap();
        assert_eq!(
            (out.trim(), exit.code),
            (expected, Some(0)),
            "{program}: {err}"
        );
    }
}

/// The argument that makes [`starved`] act.
const STARVE: &str = "starve-now";

#[test]
fn running_out_of_descriptors_leaves_nothing() {
    // fault P6: EMFILE at every step of a spawn, in a process of its own.
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["spawn::starved", "--exact", "--nocapture", STARVE])
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn starved() {
    if !std::env::args().any(|argument| argument == STARVE) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let sandbox = sandbox();
        output(&sandbox, &script("true")).await.unwrap();
        eventually("settled", Duration::from_secs(2), || zombies() == 0).await;
        let before = open_descriptors();
        let plenty = getrlimit(Resource::Nofile);
        let (mut failed, mut started) = (0, 0);
        for spare in 0..24 {
            let limit = Rlimit {
                current: Some((before + spare) as u64),
                ..plenty
            };
            setrlimit(Resource::Nofile, limit).unwrap();
            let outcome = sandbox.spawn(&script("sleep 1000")).await;
            setrlimit(Resource::Nofile, plenty).unwrap();
            match outcome {
                Ok(spawned) => {
                    drop(spawned);
                    started += 1;
                }
                Err(error) => {
                    failed += 1;
                    assert!(matches!(error, SpawnError::Setup { .. }), "{error:?}");
                }
            }
            let settled = || zombies() == 0 && open_descriptors() <= before;
            eventually("nothing left", Duration::from_secs(5), settled).await;
        }
        assert!(
            failed > 5 && started > 5,
            "{failed} failed, {started} started"
        );
    });
}
