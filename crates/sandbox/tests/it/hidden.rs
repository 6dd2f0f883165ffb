//! Folders that no tree may see, looked for from inside by every path that leads there.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command as Process;

use gantry_sandbox::{Command, Hidden, PromiseState, Sandbox};
use tempfile::TempDir;

use crate::harness::{hosted, output, sandbox, script};

/// A data folder with a key, a server's own folder and one that is the person's.
fn data() -> (TempDir, Sandbox) {
    let home = tempfile::tempdir().unwrap();
    // Open to everyone, so that only the sandbox can refuse.
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let data = home.path().join("data");
    for folder in ["keys", "servers/a", "servers/b"] {
        fs::create_dir_all(data.join(folder)).unwrap();
    }
    fs::write(data.join("keys/admin.key"), "canary").unwrap();
    fs::write(data.join("servers/b/other"), "canary").unwrap();
    fs::write(data.join("servers/a/own"), "mine").unwrap();
    let hidden = Hidden {
        folders: vec![data.clone()],
        private: vec![data.join("keys")],
        shared: Some(data),
    };
    (home, sandbox().hiding(hidden))
}

async fn said(sandbox: &Sandbox, command: &Command) -> String {
    let (out, err, _) = output(sandbox, command).await.unwrap();
    out + &err
}

fn at(mut command: Command, cwd: &Path) -> Command {
    command.cwd = cwd.to_owned();
    command
}

// fault F5: what only the person may read is not read by a server in the person's name.
#[tokio::test]
async fn a_hidden_folder_is_empty_and_the_servers_own_folder_stays() {
    let (home, sandbox) = data();
    let data = home.path().join("data");
    let shown = data.display();
    let text = format!(
        "cat {shown}/keys/admin.key; ls {shown} {shown}/servers; find {shown} -type f; cat own
         echo x > {shown}/new; echo kept > written; ls {shown}/servers/b"
    );
    let told = said(&sandbox, &at(script(&text), &data.join("servers/a"))).await;
    assert!(!told.contains("canary"), "{told}");
    assert!(told.contains("mine"), "{told}");
    assert_eq!(
        fs::read_to_string(data.join("servers/a/written")).unwrap(),
        "kept\n",
        "{told}"
    );
    assert!(!data.join("new").exists(), "{told}");
    // A folder above it or beside it is as it was.
    let told = said(
        &sandbox,
        &at(script("ls; cat data/keys/*; ls data"), home.path()),
    )
    .await;
    assert!(told.contains("data") && !told.contains("canary"), "{told}");
    assert_eq!(
        fs::read_to_string(data.join("keys/admin.key")).unwrap(),
        "canary",
        "it is there for the gateway"
    );
}

#[tokio::test]
async fn no_other_path_leads_into_a_hidden_folder() {
    let (home, sandbox) = data();
    let data = home.path().join("data");
    symlink(&data, home.path().join("link")).unwrap();
    symlink(data.join("keys/admin.key"), home.path().join("key")).unwrap();
    let text = r"cat link/keys/admin.key key servers/../../data/keys/admin.key
        for proc in /proc/[0-9]*; do
            cat $proc/root$DATA/keys/admin.key $proc/cwd/data/keys/admin.key
        done
        umount $DATA; umount -l $DATA; cat $DATA/keys/admin.key
        unshare -Urm sh -c 'umount -l $DATA; cat $DATA/keys/admin.key'
        unshare -Urm sh -c 'mkdir -p /tmp/x; mount --bind / /mnt; cat /mnt$DATA/keys/admin.key'
        rmdir $DATA; mv $DATA $DATA.away; cat $DATA.away/keys/admin.key
        echo done";
    for mut command in [script(text), hosted(text)] {
        let shown = data.display().to_string();
        command.env.push(("DATA".to_owned(), shown));
        let told = said(&sandbox, &at(command, home.path())).await;
        assert!(told.contains("done") && !told.contains("canary"), "{told}");
    }
    // What was named is what is private, whoever works there.
    for inner in ["", "keys"] {
        let command = at(
            script("cat admin.key keys/admin.key; pwd"),
            &data.join(inner),
        );
        if let Ok((out, err, _)) = output(&sandbox, &command).await {
            assert!(!(out + &err).contains("canary"), "{inner}");
        }
    }
}

#[tokio::test]
async fn a_bind_mount_of_a_hidden_folder_is_hidden_too() {
    if !crate::harness::is_root() {
        return;
    }
    let (home, sandbox) = data();
    let data = home.path().join("data");
    let points = ["whole", "parent", "part"].map(|name| home.path().join(name));
    let sources = [data.clone(), home.path().to_owned(), data.join("keys")];
    struct Bound(Vec<std::path::PathBuf>);
    impl Drop for Bound {
        fn drop(&mut self) {
            for point in self.0.iter().rev() {
                drop(Process::new("umount").arg("-l").arg(point).status());
            }
        }
    }
    let mut bound = Bound(Vec::new());
    for (source, point) in sources.iter().zip(&points) {
        fs::create_dir(point).unwrap();
        let mounted = Process::new("mount")
            .arg("--bind")
            .arg(source)
            .arg(point)
            .status();
        assert!(mounted.unwrap().success());
        bound.0.push(point.clone());
    }
    let text =
        "cat whole/keys/admin.key parent/data/keys/admin.key part/admin.key; ls parent; echo done";
    let told = said(&sandbox, &at(script(text), home.path())).await;
    assert!(told.contains("done") && !told.contains("canary"), "{told}");
}

#[tokio::test]
async fn the_report_says_whether_the_folder_is_hidden() {
    let (home, hiding) = data();
    let command = at(script("true"), home.path());
    let spawned = hiding.spawn(&command).await.unwrap();
    let promise = spawned.report.promise("data_folder").unwrap();
    assert_eq!(
        promise.state,
        PromiseState::Enforced,
        "{:?}",
        spawned.report
    );
    let spawned = sandbox().spawn(&command).await.unwrap();
    assert_eq!(spawned.report.promise("data_folder"), None);
}
