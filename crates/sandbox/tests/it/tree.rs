//! Trees end: with their server, when told, when dropped, and when their owner is killed.

use std::time::Duration;

use crate::harness::{
    RUNAWAYS, eventually, hosted, line, marked, marker, output, parent, sandbox, script, stat,
};
use crate::owner::{Owner, Rights};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn nothing_survives_a_drop() {
    // fault P3
    let sandbox = sandbox();
    for command in [script(RUNAWAYS), hosted(RUNAWAYS)] {
        let marker = marker(&command);
        let mut spawned = sandbox.spawn(&command).await.unwrap();
        assert_eq!(line(&mut spawned).await, "up");
        assert!(spawned.report.enforced("tree"), "{:?}", spawned.report);
        let there = || marked(&marker).len() >= 8;
        eventually("the tree is there", 5 * SECOND, there).await;
        drop(spawned);
        eventually("the tree is gone", SECOND, || marked(&marker).is_empty()).await;
    }
}

#[tokio::test]
async fn nothing_survives_its_server() {
    let sandbox = sandbox();
    let command = script(&format!("({RUNAWAYS}) & read line; exit 7"));
    let marker = marker(&command);
    let mut spawned = sandbox.spawn(&command).await.unwrap();
    assert_eq!(line(&mut spawned).await, "up");
    drop(spawned.stdin);
    let exit = spawned.tree.wait().await;
    assert_eq!(exit.code, Some(7));
    // Not eventually: a server that is started again must find its ports free.
    assert_eq!(marked(&marker).len(), 0);
}

/// Kills an owner and expects its tree to be gone within a second.
async fn killed_owner_leaves_nothing(rights: Rights, profile: &str, tree_state: &str) {
    let mut owner = Owner::start(rights, profile);
    assert!(
        owner.promise("tree").starts_with(tree_state),
        "{:?}",
        owner.report
    );
    let init = parent(owner.server).unwrap();
    eventually("the tree is there", 5 * SECOND, || {
        marked(&owner.marker).len() >= 8
    })
    .await;
    owner.kill();
    eventually("the tree is gone", SECOND, || {
        marked(&owner.marker).is_empty()
    })
    .await;
    let ended = || stat(init).is_none_or(|fields| fields[0] == "Z");
    eventually("the init is gone", SECOND, ended).await;
}

#[tokio::test]
async fn a_killed_owner_leaves_nothing() {
    // fault P3
    killed_owner_leaves_nothing(Rights::Own, "local", "Enforced").await;
    killed_owner_leaves_nothing(Rights::Own, "hosted", "Enforced").await;
}

#[tokio::test]
async fn a_killed_owner_without_privileges_leaves_nothing() {
    // fault P3
    killed_owner_leaves_nothing(Rights::Nobody, "local", "Enforced").await;
    killed_owner_leaves_nothing(Rights::Nobody, "hosted", "Enforced").await;
}

#[tokio::test]
async fn a_killed_owner_without_namespaces_leaves_nothing() {
    // fault P3, on a host that denies namespaces: the promise is smaller and says so.
    let smaller = "NotEnforced ended by the resident init; not if the init itself is killed";
    killed_owner_leaves_nothing(Rights::NoNamespaces, "local", smaller).await;
    killed_owner_leaves_nothing(Rights::NoNamespaces, "hosted", smaller).await;
    killed_owner_leaves_nothing(Rights::Nothing, "local", smaller).await;
    killed_owner_leaves_nothing(Rights::Nothing, "hosted", smaller).await;
}

#[tokio::test]
async fn a_killed_init_takes_its_tree_along() {
    let sandbox = sandbox();
    let command = script(RUNAWAYS);
    let marker = marker(&command);
    let mut spawned = sandbox.spawn(&command).await.unwrap();
    assert_eq!(line(&mut spawned).await, "up");
    let init = rustix::process::Pid::from_raw(parent(spawned.tree.pid()).unwrap() as i32).unwrap();
    rustix::process::kill_process(init, rustix::process::Signal::KILL).unwrap();
    let exit = spawned.tree.wait().await;
    assert_eq!(exit.signal, Some(9));
    assert_eq!(marked(&marker).len(), 0);
}

#[tokio::test]
async fn term_reaches_every_process() {
    let sandbox = sandbox();
    // The child in another session tells of its TERM; the server waits for it, then ends by itself.
    let command = script(
        "trap 'wait; echo server; exit 3' TERM
         setsid sh -c 'trap \"echo child; exit\" TERM; echo up; while :; do sleep 0.01; done' &
         while :; do sleep 0.01; done",
    );
    let mut spawned = sandbox.spawn(&command).await.unwrap();
    assert_eq!(line(&mut spawned).await, "up");
    spawned.tree.terminate();
    assert_eq!(spawned.tree.wait().await.code, Some(3));
    let mut rest = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut spawned.stdout, &mut rest)
        .await
        .unwrap();
    assert_eq!(rest, "child\nserver\n");
}

#[tokio::test]
async fn a_tree_that_ignores_term_can_be_killed() {
    // fault P4: TERM is a request, KILL is not.
    let sandbox = sandbox();
    let mut spawned = sandbox
        .spawn(&script(
            "trap '' TERM; echo up; while :; do sleep 0.1; done",
        ))
        .await
        .unwrap();
    assert_eq!(line(&mut spawned).await, "up");
    spawned.tree.terminate();
    let waited = tokio::time::timeout(Duration::from_millis(200), spawned.tree.wait()).await;
    assert!(waited.is_err(), "{waited:?}");
    spawned.tree.kill();
    // Cancelled before and called again: the same answer every time.
    for _ in 0..2 {
        assert_eq!(spawned.tree.wait().await.signal, Some(9));
    }
}

#[tokio::test]
async fn a_stopped_server_can_be_ended() {
    // fault P5
    let sandbox = sandbox();
    for terminate in [false, true] {
        let mut spawned = sandbox
            .spawn(&script("echo up; exec sleep 1000"))
            .await
            .unwrap();
        assert_eq!(line(&mut spawned).await, "up");
        let pid = spawned.tree.pid();
        let server = rustix::process::Pid::from_raw(pid as i32).unwrap();
        rustix::process::kill_process(server, rustix::process::Signal::STOP).unwrap();
        eventually("stopped", SECOND, || {
            stat(pid).is_some_and(|fields| fields[0] == "T")
        })
        .await;
        if terminate {
            spawned.tree.terminate();
            assert_eq!(spawned.tree.wait().await.signal, Some(15));
        } else {
            spawned.tree.kill();
            assert_eq!(spawned.tree.wait().await.signal, Some(9));
        }
    }
}

#[tokio::test]
async fn the_end_is_noticed_at_once() {
    // fault P11: far below the second in which callers are told.
    let sandbox = sandbox();
    let mut delays = Vec::new();
    for _ in 0..20 {
        let mut spawned = sandbox.spawn(&script("read line; echo bye")).await.unwrap();
        drop(spawned.stdin);
        let mut bye = [0; 4];
        tokio::io::AsyncReadExt::read_exact(&mut spawned.stdout, &mut bye)
            .await
            .unwrap();
        let said = tokio::time::Instant::now();
        spawned.tree.wait().await;
        delays.push(said.elapsed());
    }
    // The median: single ones suffer from whatever else the machine does.
    delays.sort();
    assert!(
        delays[delays.len() / 2] < Duration::from_millis(50),
        "{delays:?}"
    );
}

#[tokio::test]
async fn tells_how_a_server_ended() {
    let sandbox = sandbox();
    let ended = async |text: &str| {
        let (_, _, exit) = output(&sandbox, &script(text)).await.unwrap();
        (exit.code, exit.signal)
    };
    assert_eq!(ended("exit 0").await, (Some(0), None));
    assert_eq!(ended("exit 41").await, (Some(41), None));
    assert_eq!(ended("kill -SEGV $$").await, (None, Some(11)));
}
