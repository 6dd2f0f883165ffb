//! Roots from images: layers, flat folders, their users, hostile links, volumes.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use gantry_sandbox::{Ids, Mount, MountKind, OwnRoot, RootBase, SpawnError};
use tempfile::TempDir;

use super::{ids, own, said, script_in};
use crate::harness::{is_root, output, sandbox};

/// An image made by hand: three layers with busybox, of which the upper ones change and remove.
pub(crate) struct Layers {
    pub(crate) folder: TempDir,
}

impl Layers {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let layers = Self { folder };
        let at = |path: &str| layers.at(path);
        for path in [
            "a/bin",
            "a/etc",
            "a/home/node",
            "a/gone",
            "a/data",
            "b/etc",
            "c/srv",
        ] {
            fs::create_dir_all(at(path)).unwrap();
        }
        let busybox = at("a/bin/busybox");
        fs::copy("/bin/busybox", &busybox).expect("busybox-static is installed");
        for name in [
            "sh", "cat", "ls", "id", "hostname", "dd", "touch", "chmod", "sleep", "stat", "env",
        ] {
            std::os::unix::fs::symlink("busybox", at(&format!("a/bin/{name}"))).unwrap();
        }
        let write = |path: &str, text: &str| fs::write(at(path), text).unwrap();
        write(
            "a/etc/passwd",
            "root:x:0:0::/root:/bin/sh\nnode:x:1000:1001::/home/node:/bin/sh\n",
        );
        write("a/etc/group", "root:x:0:\nnode:x:1001:\nadm:x:4:node\n");
        write("a/etc/motd", "lower\n");
        write("b/etc/motd", "upper\n");
        write("a/gone/file", "canary\n");
        write("a/secret", "of the image's root\n");
        fs::set_permissions(at("a/secret"), fs::Permissions::from_mode(0o600)).unwrap();
        // A directory that replaces another, as the unpacker marks it.
        fs::create_dir(at("c/gone")).unwrap();
        rustix::fs::setxattr(
            at("c/gone"),
            "user.overlay.opaque",
            b"y",
            rustix::fs::XattrFlags::empty(),
        )
        .unwrap();
        if is_root() {
            // As the layer store keeps them: the image's own numbers.
            for (path, id) in [("a/home/node", 1000), ("a/data", 1000)] {
                std::os::unix::fs::chown(at(path), Some(id), Some(id + 1)).ok();
            }
            fs::set_permissions(layers.folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        }
        layers
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    pub(crate) fn root(&self) -> OwnRoot {
        own(RootBase::Layers {
            base: self.folder.path().canonicalize().unwrap(),
            lower: ["c", "b", "a"].map(str::to_owned).into(),
        })
    }
}

#[tokio::test]
async fn layers_are_one_root_and_cannot_be_changed() {
    let layers = Layers::new();
    let text = "cat /etc/motd; ls /gone | wc -l; ls -a / | tr '\n' ' '; echo
        id; hostname; cat /etc/hostname; cat /secret; stat -c %u:%g /home/node /secret
        touch /x /etc/motd; echo t > /tmp/t && cat /tmp/t; echo $HOME; cat /proc/self/mountinfo";
    let told = said(&script_in(layers.root(), text)).await;
    assert!(told.starts_with("upper\n0\n"), "{told}");
    assert!(told.contains("uid=0(root) gid=0(root)"), "{told}");
    assert!(
        told.contains("inside\ninside\nof the image's root\n"),
        "{told}"
    );
    let owners = if is_root() {
        "1000:1001\n0:0\n"
    } else {
        "0:0\n0:0\n"
    };
    assert!(told.contains(owners), "{told}");
    assert_eq!(told.matches("Read-only file system").count(), 2, "{told}");
    assert!(
        told.contains("\nt\n/root\n") || told.contains("\nt\n/\n"),
        "{told}"
    );
    assert!(
        !told.contains(layers.folder.path().to_str().unwrap()),
        "{told}"
    );
    assert!(!layers.at("a/x").exists() && !layers.at("c/x").exists());
    assert_eq!(
        fs::read_to_string(layers.at("b/etc/motd")).unwrap(),
        "upper\n"
    );
}

#[tokio::test]
async fn a_root_that_may_be_changed_keeps_its_changes_to_itself() {
    let layers = Layers::new();
    let mut root = layers.root();
    root.writable = true;
    let text = "echo changed > /etc/motd; cat /etc/motd; echo x > /new && cat /new; dd if=/dev/zero of=/big bs=1M count=8";
    let told = said(&script_in(root.clone(), text)).await;
    assert!(
        told.starts_with("changed\nx\n") && told.contains("No space left"),
        "{told}"
    );
    let told = said(&script_in(root, "cat /etc/motd; ls /new")).await;
    assert!(
        told.starts_with("upper\n") && told.contains("No such file"),
        "{told}"
    );
}

#[tokio::test]
async fn a_flat_folder_is_a_root_too() {
    let layers = Layers::new();
    let flat = layers.at("a");
    let text = "cat /etc/motd; cat /etc/hostname; touch /x; echo t > /tmp/t && cat /tmp/t; echo s > /dev/shm/s && cat /dev/shm/s";
    let base = RootBase::Folder(flat.canonicalize().unwrap());
    let told = said(&script_in(own(base), text)).await;
    assert!(told.starts_with("lower\ninside\n"), "{told}");
    assert!(
        told.contains("Read-only file system") && told.ends_with("t\ns\n")
            || told.contains("t\ns\n"),
        "{told}"
    );
    assert!(!flat.join("x").exists());
}

#[tokio::test]
async fn the_user_of_an_image_is_looked_up_in_its_root() {
    let layers = Layers::new();
    let ran_as = async |user: &str| {
        let mut command = script_in(layers.root(), "id; echo $HOME");
        command.user = Some(user.parse().unwrap());
        output(&sandbox(), &command).await
    };
    for (user, expected) in [
        ("node", "uid=1000(node) gid=1001(node)"),
        ("1000", "uid=1000(node) gid=1001(node)"),
        ("node:adm", "uid=1000(node) gid=4(adm)"),
        ("7:8", "uid=7 gid=8"),
        ("0", "uid=0(root) gid=0(root)"),
    ] {
        let (out, err, _) = ran_as(user).await.unwrap();
        assert!(out.starts_with(expected), "{user}: {out}{err}");
        if user.contains("node") || user == "1000" {
            assert!(out.ends_with("/home/node\n"), "{user}: {out}");
        }
    }
    for user in ["nobody-there", "node:nogroup-there", "70000"] {
        let error = ran_as(user).await.unwrap_err();
        assert!(
            matches!(error, SpawnError::UserUnknown { .. }),
            "{user}: {error:?}"
        );
    }
}

#[tokio::test]
async fn hostile_links_of_an_image_lead_nowhere_but_into_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("foreign"), "canary").unwrap();
    let layers = Layers::new();
    let outside = folder.path().canonicalize().unwrap();
    // Mount points and the files of users that are links out of the root.
    for name in ["proc", "dev", "tmp", "volume"] {
        std::os::unix::fs::symlink(&outside, layers.at(&format!("c/{name}"))).unwrap();
    }
    fs::create_dir_all(layers.at("c/etc")).unwrap();
    std::os::unix::fs::symlink(outside.join("foreign"), layers.at("c/etc/resolv.conf")).unwrap();
    let data = tempfile::tempdir().unwrap();
    let mut root = layers.root();
    root.mounts.push(Mount {
        target: PathBuf::from("/volume/data"),
        kind: MountKind::Bind(data.path().to_owned()),
        read_only: false,
    });
    let outcome = output(
        &sandbox(),
        &script_in(root, "cat /etc/resolv.conf; ls -R /volume /tmp; echo done"),
    )
    .await;
    let names: Vec<_> = fs::read_dir(&outside)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["foreign"], "nothing was made outside");
    match outcome {
        Ok((out, err, _)) => assert!(!(out + &err).contains("canary")),
        Err(error) => assert!(matches!(error, SpawnError::Root { .. }), "{error:?}"),
    }
}

#[tokio::test]
async fn volumes_are_bound_and_belong_to_the_user() {
    // row 1.19
    let layers = Layers::new();
    let volumes = tempfile::tempdir().unwrap();
    for name in ["data", "other", "read"] {
        fs::create_dir(volumes.path().join(name)).unwrap();
    }
    fs::write(volumes.path().join("read/file"), "old\n").unwrap();
    fs::set_permissions(
        volumes.path().join("read/file"),
        fs::Permissions::from_mode(0o666),
    )
    .unwrap();
    let mount = |name: &str, read_only| Mount {
        target: Path::new("/").join(name),
        kind: MountKind::Bind(volumes.path().join(name)),
        read_only,
    };
    let mut root = layers.root();
    root.mounts = vec![
        mount("data", false),
        mount("other", false),
        mount("read", true),
    ];
    root.mounts.push(Mount {
        target: "/memory".into(),
        kind: MountKind::Tmpfs {
            bytes: 1 << 20,
            inodes: 16,
        },
        read_only: false,
    });
    let text = "echo one > /data/file; echo two > /other/file; cat /read/file; echo x > /read/file
        dd if=/dev/zero of=/memory/big bs=1M count=3; i=0; while [ $i -lt 40 ]; do touch /memory/$i; i=$((i+1)); done
        cp /bin/busybox /data/suid; chmod 6755 /data/suid; stat -c %a /data/suid; cat /proc/self/mountinfo";
    let mut command = script_in(root, text);
    command.user = Some("node".parse().unwrap());
    let told = said(&command).await;
    let read = |name: &str| fs::read_to_string(volumes.path().join(name)).unwrap_or_default();
    assert_eq!(
        (read("data/file").as_str(), read("other/file").as_str()),
        ("one\n", "two\n"),
        "{told}"
    );
    assert_eq!(read("read/file"), "old\n");
    assert!(
        told.contains("old\n") && told.contains("Read-only file system"),
        "{told}"
    );
    assert!(told.matches("No space left").count() > 10, "{told}");
    for line in told
        .lines()
        .filter(|line| line.contains(" /data ") || line.contains(" /memory "))
    {
        assert!(line.contains("nosuid") && line.contains("nodev"), "{line}");
    }
    if let Ids::Range { first } = ids() {
        let owner = |name: &str| fs::metadata(volumes.path().join(name)).unwrap().uid();
        assert_eq!(
            (owner("data"), owner("other")),
            (first + 1000, first + 1000),
            "{told}"
        );
        assert_eq!(owner("data/file"), first + 1000);
    }
}

#[tokio::test]
async fn as_many_layers_as_images_have_are_put_together() {
    let layers = Layers::new();
    let lower: Vec<String> = (0..127)
        .map(|index| format!("{index:064}"))
        .chain(["a".to_owned()])
        .collect();
    for name in &lower[..127] {
        fs::create_dir_all(layers.at(name).join("many")).unwrap();
        fs::write(layers.at(name).join("many").join(&name[60..]), "").unwrap();
    }
    let base = layers.folder.path().canonicalize().unwrap();
    let root = |lower| {
        own(RootBase::Layers {
            base: base.clone(),
            lower,
        })
    };
    let told = said(&script_in(root(lower), "set -- /many/*; echo $#")).await;
    assert_eq!(told, "127\n");
    for name in ["", "../a", "/etc", "a/../../b"] {
        let command = script_in(root(vec![name.to_owned()]), "true");
        let error = output(&sandbox(), &command).await.unwrap_err();
        assert!(
            matches!(error, SpawnError::Target { .. }),
            "{name}: {error:?}"
        );
    }
    // A name is a name, not an option of a mount.
    let command = script_in(root(vec!["a,upperdir=/etc".to_owned()]), "true");
    let error = output(&sandbox(), &command).await.unwrap_err();
    assert!(matches!(error, SpawnError::Root { .. }), "{error:?}");
    let error = output(&sandbox(), &script_in(root(Vec::new()), "true"))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "an image with 0 layers cannot be mounted: expected 1 to 500"
    );
}

#[tokio::test]
async fn the_report_says_whose_ids_it_has() {
    let layers = Layers::new();
    let spawned = sandbox()
        .spawn(&script_in(layers.root(), "true"))
        .await
        .unwrap();
    let user = spawned.report.promise("user").unwrap();
    let expected = if is_root() {
        "ids of its own, 1310720 to"
    } else {
        "the gateway's own uid 65534, uid 0 inside"
    };
    assert!(user.detail.contains(expected), "{user:?}");
    assert_eq!(spawned.report.enforced("user"), is_root(), "{user:?}");
    assert!(spawned.report.enforced("root"), "{:?}", spawned.report);
    let host = sandbox();
    for fact in ["own root", "overlay"] {
        assert!(
            host.host().fact(fact).is_some_and(|fact| fact.available),
            "{:?}",
            host.host()
        );
    }
    assert_eq!(host.host().fact("id range").unwrap().available, is_root());
}
