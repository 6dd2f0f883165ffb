//! Roots of a tree's own: what is in them, what is not, and who one is there. As root with a range of ids,
//! and as a plain user with one.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use gantry_sandbox::{
    Command, Exit, Hidden, Ids, Mount, MountKind, Network, OwnRoot, Root, RootBase, Scratch,
    SpawnError, Syscalls,
};

mod denied;
mod images;

pub(crate) use images::Layers;

use crate::harness::{HOSTED, MARKER, is_root, output, sandbox, unique};

/// A range of ids that no other test has.
pub(crate) fn ids() -> Ids {
    if is_root() {
        Ids::Range { first: 1_310_720 }
    } else {
        Ids::Gateway
    }
}

pub(crate) fn own(base: RootBase) -> OwnRoot {
    OwnRoot {
        base,
        mounts: Vec::new(),
        hostname: "inside".to_owned(),
        scratch: Scratch {
            folder: None,
            bytes: 4 << 20,
            inodes: 256,
        },
        writable: false,
    }
}

/// A shell script in a root of its own.
pub(crate) fn script_in(root: OwnRoot, text: &str) -> Command {
    Command {
        name: "own".to_owned(),
        program: "/bin/sh".to_owned(),
        args: vec!["-c".to_owned(), text.to_owned()],
        env: vec![(MARKER.to_owned(), unique())],
        limits: HOSTED,
        root: Root::Own(root),
        ids: ids(),
        syscalls: Syscalls::AllowList,
        ..Command::default()
    }
}

/// A shell script of the host's shell.
fn hosted_parts(text: &str) -> Command {
    script_in(own(RootBase::HostParts), text)
}

pub(crate) async fn said(command: &Command) -> String {
    let (out, err, _) = output(&sandbox(), command).await.unwrap();
    out + &err
}

#[tokio::test]
async fn a_hosted_command_sees_programs_and_nothing_else_of_the_host() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let foreign = folder.path().join("foreign");
    fs::write(&foreign, "canary").unwrap();
    fs::set_permissions(&foreign, fs::Permissions::from_mode(0o666)).unwrap();
    let _listener = UnixListener::bind(folder.path().join("socket")).unwrap();
    fs::set_permissions(
        folder.path().join("socket"),
        fs::Permissions::from_mode(0o666),
    )
    .unwrap();
    let before = fs::metadata(&foreign).unwrap();
    let path = folder.path().display();
    let text = format!(
        "cat {path}/foreign; chmod 600 {path}/foreign; touch {path}/foreign; python3 -c 'import os; os.setxattr(\"{path}/foreign\", \"user.x\", b\"y\")'
         python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{path}/socket\"); print(\"reached\")'
         chmod 777 /usr/bin/env; touch /usr/bin/env; touch /etc/passwd /x /etc/x
         ls /sys /sys/fs/cgroup /boot /var/lib /srv /mnt /media
         ls -a / | tr '\n' ' '
         ls /home; cat /proc/self/mountinfo"
    );
    let told = said(&hosted_parts(&text)).await;
    assert!(
        !told.contains("canary") && !told.contains("reached"),
        "{told}"
    );
    let refused = ["Read-only file system", "Permission denied"];
    let refused: usize = refused.map(|word| told.matches(word).count()).iter().sum();
    assert_eq!(refused, 5, "{told}");
    assert!(
        told.contains("ls: cannot access '/sys': No such file"),
        "{told}"
    );
    for gone in ["/boot", "/srv", "/mnt", "/var/lib", "/media"] {
        assert!(
            told.contains(&format!("'{gone}': No such file")),
            "{gone}: {told}"
        );
    }
    assert!(told.contains(" var server\n"), "{told}");
    assert!(
        !told.contains("cgroup ") && !told.contains("sysfs"),
        "{told}"
    );
    let after = fs::metadata(&foreign).unwrap();
    assert_eq!(
        (before.mode(), before.mtime_nsec(), before.ctime_nsec()),
        (after.mode(), after.mtime_nsec(), after.ctime_nsec())
    );
}

#[tokio::test]
async fn a_hosted_command_is_somebody_with_a_home_and_a_machine_of_its_own() {
    let text = "id -un; id -u; id -G; hostname; pwd; echo $HOME $TMPDIR $PATH; cat /proc/self/cgroup
        echo kept > $HOME/file && cat $HOME/file; echo x > /tmp/y && echo tmp; echo x > /var/tmp/z && echo var
        cat /etc/hostname; wc -c < /proc/cmdline; cat /proc/kcore /proc/keys | wc -c; ls /proc/acpi | wc -l
        echo 1 > /proc/sys/kernel/panic; echo b > /proc/sysrq-trigger; cat /proc/self/status | grep -E 'Cap|NoNew|Groups'
        ls /dev | tr '\n' ' '; echo; echo to-null > /dev/null; head -c 4 /dev/urandom | wc -c; cat /proc/self/uid_map";
    let told = said(&hosted_parts(text)).await;
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[..3], ["server", "1000", "1000"], "{told}");
    assert_eq!(lines[3..5], ["inside", "/"], "{told}");
    assert_eq!(
        lines[5],
        "/home/server /tmp /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    );
    for clean in [
        "kept\ntmp\nvar\ninside\n0\n0\n0\n",
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Groups:\t \n",
    ] {
        assert!(told.contains(clean), "{clean}: {told}");
    }
    for line in told.lines().filter(|line| line.contains(":/")) {
        assert!(
            line.ends_with(":/") || line.starts_with("/home"),
            "a cgroup that is not its own: {told}"
        );
    }
    assert!(!told.contains("gantry-"), "{told}");
    assert!(
        told.contains("/proc/sys/kernel/panic: Read-only file system"),
        "{told}"
    );
}

#[tokio::test]
async fn its_own_folder_is_there_and_what_lies_beside_it_is_not() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("code")).unwrap();
    fs::create_dir(at("data")).unwrap();
    fs::write(
        at("code/program"),
        "#!/bin/sh\necho ran; ls ..; cat other; echo x > x; echo new > $DATA/file",
    )
    .unwrap();
    fs::set_permissions(at("code/program"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(at("code/other"), "beside\n").unwrap();
    fs::write(at("foreign"), "canary").unwrap();
    let mut command = hosted_parts("");
    command.program = at("code/program").display().to_string();
    command.args.clear();
    command.cwd = at("code");
    command.writable = vec![at("data")];
    command
        .env
        .push(("DATA".to_owned(), at("data").display().to_string()));
    let told = said(&command).await;
    assert!(told.starts_with("ran\ncode\ndata\nbeside\n"), "{told}");
    assert!(
        told.contains("Read-only") || told.contains("Permission denied"),
        "{told}"
    );
    assert_eq!(
        fs::read_to_string(at("data/file")).unwrap(),
        "new\n",
        "{told}"
    );
    if is_root() {
        let Ids::Range { first } = ids() else {
            panic!()
        };
        assert_eq!(fs::metadata(at("data/file")).unwrap().uid(), first + 1000);
    }
    // Only the program is known: nothing beside it.
    command.cwd = PathBuf::from("/");
    let told = said(&command).await;
    assert!(told.contains("ran") && !told.contains("beside"), "{told}");
}

#[tokio::test]
async fn what_is_hidden_stays_hidden_in_a_folder_that_is_shown() {
    // fault F5
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let data = home.path().join("data");
    fs::create_dir_all(data.join("keys")).unwrap();
    fs::create_dir_all(data.join("servers/a")).unwrap();
    fs::write(data.join("keys/admin.key"), "canary").unwrap();
    fs::write(data.join("servers/a/own"), "mine\n").unwrap();
    fs::write(home.path().join("seen"), "seen\n").unwrap();
    let sandbox = sandbox().hiding(Hidden {
        folders: vec![data.clone()],
        private: vec![data.join("keys")],
        shared: Some(data.clone()),
    });
    let told = async |cwd: PathBuf| {
        let mut command = hosted_parts("cat seen own data/keys/admin.key admin.key; ls data");
        command.cwd = cwd;
        match output(&sandbox, &command).await {
            Ok((out, err, _)) => out + &err,
            Err(error) => error.to_string(),
        }
    };
    let around = told(home.path().to_owned()).await;
    assert!(
        around.contains("seen\n") && !around.contains("canary"),
        "{around}"
    );
    let own = told(data.join("servers/a")).await;
    assert!(own.contains("mine\n"), "{own}");
    for private in ["", "keys"] {
        let told = told(data.join(private)).await;
        assert!(told.contains("does not exist"), "{told}");
    }
}

#[tokio::test]
async fn the_scratch_is_bounded() {
    // row 1.17
    let layers = Layers::new();
    let text = "dd if=/dev/zero of=/tmp/big bs=1M count=64; i=0; while [ $i -lt 400 ]; do touch /tmp/$i || break; i=$((i+1)); done; echo at $i";
    let told = said(&script_in(layers.root(), text)).await;
    assert_eq!(told.matches("No space left").count(), 2, "{told}");
    let told = said(&hosted_parts(
        "dd if=/dev/zero of=$HOME/big bs=1M count=64; echo more > /tmp/x || echo full",
    ))
    .await;
    assert!(
        told.contains("No space left") && told.contains("full"),
        "{told}"
    );
    // A folder that somebody else has bounded serves as well.
    let scratch = tempfile::tempdir().unwrap();
    let mut root = layers.root();
    root.scratch.folder = Some(scratch.path().canonicalize().unwrap());
    assert_eq!(
        said(&script_in(root, "echo t > /tmp/t; cat /tmp/t")).await,
        "t\n"
    );
    assert_eq!(
        fs::read_to_string(scratch.path().join("tmp/t")).unwrap(),
        "t\n"
    );
}

#[tokio::test]
async fn says_what_is_wrong_with_a_root() {
    let why = async |root: OwnRoot| {
        output(&sandbox(), &script_in(root, "true"))
            .await
            .unwrap_err()
    };
    let missing = own(RootBase::Layers {
        base: "/no/such".into(),
        lower: vec!["a".to_owned()],
    });
    let error = why(missing).await;
    assert_eq!(error.to_string(), "cannot mount the layers in `/no/such`");
    let layers = Layers::new();
    for target in ["/", "data", "/a/../b"] {
        let mut root = layers.root();
        root.mounts.push(Mount {
            target: target.into(),
            kind: MountKind::Tmpfs {
                bytes: 1,
                inodes: 1,
            },
            read_only: false,
        });
        let error = why(root).await;
        assert!(
            matches!(error, SpawnError::Target { .. }),
            "{target}: {error:?}"
        );
    }
    let mut command = script_in(layers.root(), "");
    command.program = "/no/such/program".to_owned();
    let error = output(&sandbox(), &command).await.unwrap_err();
    assert!(
        matches!(error, SpawnError::ProgramNotFound { .. }),
        "{error:?}"
    );
    let ended: Exit = output(&sandbox(), &script_in(layers.root(), "exit 7"))
        .await
        .unwrap()
        .2;
    assert_eq!(ended.code, Some(7));
}

#[tokio::test]
async fn the_environment_is_nowhere_but_in_the_process() {
    // fault K4
    let layers = Layers::new();
    let mut command = script_in(
        layers.root(),
        "echo $SECRET; cat /proc/1/cmdline /proc/1/environ; echo; read line",
    );
    command
        .env
        .push(("SECRET".to_owned(), "canary-0815".to_owned()));
    let mut spawned = sandbox().spawn(&command).await.unwrap();
    assert_eq!(crate::harness::line(&mut spawned).await, "canary-0815");
    let init = crate::harness::parent(spawned.tree.pid()).unwrap();
    for pid in [init, spawned.tree.pid()] {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(!String::from_utf8_lossy(&line).contains("canary"));
    }
    std::io::stdout().flush().unwrap();
}

// All trees share the host's terminals.
#[tokio::test]
async fn terminals_are_bounded() {
    let open = "import os
try:
    while True: os.openpty()
except OSError as error: print(error.strerror)
import glob; print(len(glob.glob('/dev/pts/[0-9]*')))";
    let mut command = hosted_parts("");
    (command.program, command.args) = ("python3".into(), vec!["-c".into(), open.into()]);
    assert_eq!(said(&command).await, "No space left on device\n64\n");
}

#[tokio::test]
async fn network_inside_is_a_loopback_of_its_own() {
    let mut command = hosted_parts("cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' \\n'");
    command.network = Network::Inside;
    assert_eq!(said(&command).await, "lo");
}
