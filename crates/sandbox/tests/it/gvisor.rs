//! gVisor as what answers a tree's system calls, proved from inside.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_sandbox::{
    Command, GVisor, Ids, Limits, Mount, MountKind, Network, RootBase, Runtime, SpawnError,
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::harness::{PATIENCE, eventually, line, output, processes, sandbox};
use crate::own_root::{Layers, ids, own, script_in};
use crate::owner::{Owner, Rights};

fn runsc() -> PathBuf {
    PathBuf::from("/usr/bin/runsc")
}

/// A shell script of the image in gVisor.
pub(crate) fn script(layers: &Layers, text: &str) -> Command {
    guest(script_in(layers.root(), text))
}

fn guest(command: Command) -> Command {
    Command {
        runtime: Runtime::GVisor(GVisor { program: runsc() }),
        limits: Limits {
            cpu: None,
            ..command.limits
        },
        ..command
    }
}

#[tokio::test]
async fn is_proved_and_other_programs_are_not() {
    // row 1.18
    let sandbox = sandbox();
    let proof = sandbox.probe_runtime(&runsc()).await.unwrap();
    assert!(proof.release >= 20_240_729, "{proof:?}");
    assert_ne!(
        proof.kernel,
        fs::read_to_string("/proc/version").unwrap().trim()
    );
    // Known by now.
    let start = tokio::time::Instant::now();
    assert_eq!(sandbox.probe_runtime(&runsc()).await.unwrap(), proof);
    assert!(start.elapsed() < Duration::from_millis(100));
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let fake = folder.path().join("runsc");
    fs::copy("/bin/busybox", &fake).unwrap();
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
    let why = sandbox.probe_runtime(&fake).await.unwrap_err();
    assert!(why.contains("does not print a gVisor version"), "{why}");
    let why = sandbox
        .probe_runtime(Path::new("/no/such/runsc"))
        .await
        .unwrap_err();
    assert!(why.contains("No such file"), "{why}");
    let layers = Layers::new();
    let mut command = script(&layers, "true");
    command.runtime = Runtime::GVisor(GVisor { program: fake });
    let error = output(&sandbox, &command).await.unwrap_err();
    assert!(matches!(error, SpawnError::Runtime { .. }), "{error:?}");
}

#[tokio::test]
async fn serves_an_image_with_its_user_its_root_and_its_volumes() {
    // row 1.19
    let layers = Layers::new();
    let volume = tempfile::tempdir().unwrap();
    let data = volume.path().join("data");
    fs::create_dir(&data).unwrap();
    let mut root = layers.root();
    root.mounts.push(Mount {
        target: "/data".into(),
        kind: MountKind::Bind(data.clone()),
        read_only: false,
    });
    let text = "cat /proc/version; id; hostname; cat /etc/motd /etc/hostname; echo $HOME; touch /home/node/x
        echo one > /data/file && cat /data/file; echo t > /tmp/t && cat /tmp/t; touch /data/etc
        dd if=/dev/zero of=/tmp/big bs=1M count=16; cat /secret; exit 7";
    let mut command = guest(script_in(root, text));
    command.user = Some("node".parse().unwrap());
    let (out, err, exit) = output(&sandbox(), &command).await.unwrap();
    let told = out + &err;
    assert!(told.contains("Linux version 4.4.0"), "{told}");
    // With one id the guest is root: what it makes must belong to somebody.
    let many = matches!(ids(), Ids::Range { .. });
    let (who, home) = match many {
        true => ("uid=1000(node) gid=1001(node)", "/home/node"),
        false => ("uid=0(root) gid=0(root)", "/root"),
    };
    assert!(told.contains(who), "{told}");
    let names = format!("inside\nupper\ninside\n{home}\n");
    assert!(told.contains(&names), "{told}");
    assert!(told.contains("one\nt\n"), "{told}");
    assert!(
        told.contains("Read-only file system") && told.contains("No space left"),
        "{told}"
    );
    assert_eq!(exit.code, Some(7), "{told}");
    assert_eq!(
        fs::read_to_string(data.join("file")).unwrap(),
        "one\n",
        "{told}"
    );
    if let Ids::Range { first } = ids() {
        assert!(told.contains("'/secret': Permission denied"), "{told}");
        assert_eq!(fs::metadata(data.join("file")).unwrap().uid(), first + 1000);
    }
}

#[tokio::test]
async fn serves_a_hosted_command_too() {
    let root = own(RootBase::HostParts);
    let text = "cat /proc/version; ls -d /usr/bin/env /boot /srv; touch /etc/x; echo $HOME
        echo kept > $HOME/file && cat $HOME/file; python3 -c 'print(6*7)'";
    let (out, err, exit) = output(&sandbox(), &guest(script_in(root, text)))
        .await
        .unwrap();
    let told = out + &err;
    assert!(
        told.contains("4.4.0") && told.contains("/usr/bin/env\n"),
        "{told}"
    );
    assert!(told.contains("/home/server\nkept\n42\n"), "{told}");
    assert!(
        told.contains("'/boot': No such file") && exit.success(),
        "{told}"
    );
    assert!(told.contains("touch: cannot touch '/etc/x'"), "{told}");
}

#[tokio::test]
async fn passes_pipes_signals_and_exit_codes() {
    let layers = Layers::new();
    let sandbox = sandbox();
    let text = "trap 'echo told; exit 3' TERM; echo up; while :; do sleep 0.05; done";
    let mut spawned = sandbox.spawn(&script(&layers, text)).await.unwrap();
    assert_eq!(line(&mut spawned).await, "up");
    spawned.tree.terminate();
    assert_eq!(spawned.tree.wait().await.code, Some(3));
    let mut spawned = sandbox
        .spawn(&script(&layers, "read line; echo got $line; exit 9"))
        .await
        .unwrap();
    spawned.stdin.write_all(b"hello\n").await.unwrap();
    assert_eq!(line(&mut spawned).await, "got hello");
    assert_eq!(spawned.tree.wait().await.code, Some(9));
    let (.., exit) = output(&sandbox, &script(&layers, "kill -9 $$"))
        .await
        .unwrap();
    assert_eq!(exit.code, Some(137));
    let mut missing = script(&layers, "");
    missing.program = "/no/such/program".to_owned();
    let (_, err, exit) = output(&sandbox, &missing).await.unwrap();
    assert!(
        !exit.success() && err.contains("no such file"),
        "{exit:?} {err}"
    );
}

#[tokio::test]
async fn nothing_but_the_guest_holds_its_pipes() {
    // fault S17
    let layers = Layers::new();
    let text = "trap 'exit 5' TERM; echo up; exec 0<&- 1>&-; while :; do sleep 0.05; done";
    let sandbox = sandbox();
    let mut spawned = sandbox.spawn(&script(&layers, text)).await.unwrap();
    let mut said = String::new();
    let reading = spawned.stdout.read_to_string(&mut said);
    timeout(PATIENCE, reading).await.unwrap().unwrap();
    assert_eq!(said, "up\n");
    let writing = async { while spawned.stdin.write_all(b"x").await.is_ok() {} };
    timeout(PATIENCE, writing).await.unwrap();
    assert!(
        timeout(Duration::ZERO, spawned.tree.wait()).await.is_err(),
        "it runs on"
    );
    spawned.tree.terminate();
    assert_eq!(spawned.tree.wait().await.code, Some(5));
}

// row 1.9
#[tokio::test]
async fn a_guest_that_ends_at_once_is_told_with_its_own_code() {
    let layers = Layers::new();
    let sandbox = sandbox();
    for code in [3, 0, 7] {
        let (.., exit) = output(&sandbox, &script(&layers, &format!("exit {code}")))
            .await
            .unwrap();
        assert_eq!((exit.code, exit.signal), (Some(code), None));
    }
}

#[tokio::test]
async fn the_environment_is_on_no_disk_and_no_command_line() {
    // fault K4
    let layers = Layers::new();
    let mut command = script(&layers, "echo $SECRET; read line");
    command
        .env
        .push(("SECRET".to_owned(), "canary-4242".to_owned()));
    let sandbox = sandbox();
    let mut spawned = sandbox.spawn(&command).await.unwrap();
    assert_eq!(line(&mut spawned).await, "canary-4242");
    let lines = processes().filter_map(|pid| fs::read(format!("/proc/{pid}/cmdline")).ok());
    let shown: Vec<String> = lines
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .filter(|line| line.contains("runsc"))
        .collect();
    assert!(!shown.is_empty());
    assert!(
        !shown.iter().any(|line| line.contains("canary")),
        "{shown:?}"
    );
    for folder in ["/run", "/var/run", "/tmp"] {
        for name in ["config.json", "runsc", "state.json"] {
            assert!(!Path::new(folder).join(name).exists(), "{folder}/{name}");
        }
    }
    // Nobody but root looks into the memory of the mount namespace; the state is there, not here.
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("/state"), "{mounts}");
}

/// The processes that a guest's tree has on the host, known by the init at its top.
fn below(top: u32) -> Vec<u32> {
    let mut found = vec![top];
    loop {
        let more: Vec<u32> = processes()
            .filter(|pid| !found.contains(pid))
            .filter(|pid| {
                crate::harness::parent(*pid).is_some_and(|parent| found.contains(&parent))
            })
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

#[tokio::test]
async fn a_dropped_guest_leaves_nothing() {
    // fault P3
    let layers = Layers::new();
    let sandbox = sandbox();
    let command = script(&layers, "(sleep 1000 &) ; echo up; sleep 1000");
    let mut spawned = sandbox.spawn(&command).await.unwrap();
    assert_eq!(line(&mut spawned).await, "up");
    let init = crate::harness::parent(spawned.tree.pid()).unwrap();
    let tree = below(init);
    assert!(tree.len() >= 3, "{tree:?}");
    drop(spawned);
    let gone = || {
        tree.iter()
            .all(|pid| crate::harness::stat(*pid).is_none_or(|fields| fields[0] == "Z"))
    };
    eventually("the guest is gone", Duration::from_secs(1), gone).await;
}

#[tokio::test]
async fn a_killed_owner_leaves_no_guest() {
    // fault P3
    for rights in [Rights::Own, Rights::Nobody] {
        for profile in ["image", "gvisor"] {
            let mut owner = Owner::start(rights, profile);
            let tree = below(crate::harness::parent(owner.server).unwrap());
            assert!(tree.len() >= 2, "{profile}: {tree:?}");
            owner.kill();
            let gone = || {
                tree.iter()
                    .all(|pid| crate::harness::stat(*pid).is_none_or(|fields| fields[0] == "Z"))
            };
            eventually("the guest is gone", Duration::from_secs(1), gone).await;
        }
    }
}

#[tokio::test]
async fn a_guest_over_its_memory_ends_and_it_is_said() {
    // row 1.17
    let layers = Layers::new();
    let mut command = script(
        &layers,
        "dd if=/dev/zero of=/dev/null bs=400M count=1; echo lived",
    );
    command.limits.memory_bytes = Some(128 << 20);
    let spawned = sandbox().spawn(&command).await.unwrap();
    let held = spawned.report.enforced("memory");
    drop(spawned);
    if held {
        let (out, _, exit) = output(&sandbox(), &command).await.unwrap();
        assert!(!out.contains("lived"), "{out}");
        assert!(exit.oom_killed && !exit.success(), "{exit:?}");
    }
}

#[tokio::test]
async fn a_guest_reaches_no_network_but_its_own() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let layers = Layers::new();
    for network in [Network::None, Network::Inside] {
        let text =
            format!("/bin/busybox nc -w 1 127.0.0.1 {port} </dev/null && echo reached; echo done");
        let mut command = script(&layers, &text);
        command.network = network;
        let (out, err, _) = output(&sandbox(), &command).await.unwrap();
        assert!(
            out.contains("done") && !out.contains("reached"),
            "{out}{err}"
        );
    }
}
