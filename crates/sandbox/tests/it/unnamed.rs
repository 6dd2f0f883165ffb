//! Files that a tree keeps open or mapped although they have no name any more are found from outside.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use gantry_sandbox::{Command, GVisor, Mount, MountKind, Root, RootBase, Runtime};

use crate::harness::{line, sandbox};
use crate::own_root::{Layers, own, script_in};

/// Removes a file of 8 MiB that stays open.
const HIDES: &str = "dd if=/dev/zero of=/data/big bs=65536 count=128 2> /dev/null; \
                     exec 7< /data/big; rm /data/big; echo up; read x";

#[tokio::test]
async fn what_is_open_without_a_name_is_counted() {
    // fault P9
    let layers = Layers::new();
    let runsc = PathBuf::from("/usr/bin/runsc");
    let mut commands = vec![script_in(own(RootBase::HostParts), HIDES)];
    if runsc.exists() {
        commands.push(Command {
            runtime: Runtime::GVisor(GVisor { program: runsc }),
            ..script_in(layers.root(), &HIDES.replace("rm ", "/bin/busybox rm "))
        });
    }
    for mut command in commands {
        // Not in memory: a tmpfs is another kind of file system.
        let data = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(data.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let Root::Own(root) = &mut command.root else {
            unreachable!()
        };
        root.mounts.push(Mount {
            target: PathBuf::from("/data"),
            kind: MountKind::Bind(data.path().to_owned()),
            read_only: false,
        });
        let mut spawned = sandbox().spawn(&command).await.unwrap();
        assert_eq!(line(&mut spawned).await, "up");
        let device = fs::metadata(data.path()).unwrap().dev();
        let (bytes, files) = spawned.tree.meter().unnamed_files(&[device]);
        assert!(bytes >= 8 << 20, "{:?}: {bytes}", command.runtime);
        assert!(files >= 1);
        assert_eq!(spawned.tree.meter().unnamed_files(&[]), (0, 0));
        spawned.tree.kill();
        spawned.tree.wait().await;
        assert_eq!(spawned.tree.meter().unnamed_files(&[device]), (0, 0));
    }
}
