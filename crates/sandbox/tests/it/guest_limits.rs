//! What gVisor holds its guest to by itself: processes, and memory that is shared by name.

use std::path::Path;

use gantry_sandbox::Limits;

use crate::harness::{line, sandbox};
use crate::own_root::Layers;

#[tokio::test]
async fn a_fork_bomb_meets_its_limit_and_the_guest_lives_on() {
    // fault P9, row 1.17
    if !Path::new("/usr/bin/runsc").exists() {
        return;
    }
    let layers = Layers::new();
    let bomb = "(i=0; while [ $i -lt 90 ]; do sleep 20 & i=$((i+1)); done) 2> /tmp/said; \
                cat /tmp/said; echo lives; read x";
    let mut command = crate::gvisor::script(&layers, bomb);
    command.limits = Limits {
        pids: Some(24),
        ..command.limits
    };
    let mut spawned = sandbox().spawn(&command).await.unwrap();
    let said = line(&mut spawned).await;
    assert!(said.contains("can't fork"), "{said}");
    let usage = spawned.tree.usage();
    assert!(usage.pids_limit_hit, "{usage:?}");
    assert!((12..=24).contains(&usage.pids), "{usage:?}");
    let pids = spawned.report.promise("pids").unwrap();
    assert!(pids.detail.contains("24 by the guest's kernel"), "{pids:?}");
    spawned.tree.kill();
    let exit = spawned.tree.wait().await;
    assert!(exit.pids_limit_hit, "{exit:?}");
}

#[tokio::test]
async fn shared_memory_has_a_size() {
    // faults P9 and C10
    if !Path::new("/usr/bin/runsc").exists() {
        return;
    }
    let layers = Layers::new();
    let fill = "dd if=/dev/zero of=/dev/shm/x bs=1048576 count=100 2>&1; ls -l /dev/shm; read x";
    let mut spawned = sandbox()
        .spawn(&crate::gvisor::script(&layers, fill))
        .await
        .unwrap();
    let said = line(&mut spawned).await;
    assert!(said.contains("No space left on device"), "{said}");
    let files = spawned.report.promise("filesystem").unwrap();
    assert!(files.detail.contains("`/dev/shm`"), "{files:?}");
}
