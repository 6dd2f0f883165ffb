//! The long runs: many trees, many cycles, with figures.

use std::fs;
use std::time::Duration;

use crate::harness::{eventually, line, open_descriptors, parent, sandbox, script, zombies};

#[tokio::test]
async fn a_thousand_spawns_leave_the_descriptor_count_unchanged() {
    // fault P6
    let sandbox = sandbox();
    drop(sandbox.spawn(&script("true")).await.unwrap());
    eventually("settled", Duration::from_secs(2), || zombies() == 0).await;
    let before = open_descriptors();
    let start = tokio::time::Instant::now();
    let mut spawning = Duration::ZERO;
    for _ in 0..1000 {
        let one = tokio::time::Instant::now();
        let mut spawned = sandbox.spawn(&script("exit 0")).await.unwrap();
        spawning += one.elapsed();
        assert_eq!(spawned.tree.wait().await.code, Some(0));
    }
    println!(
        "spawn {:?}, whole cycle {:?}",
        spawning / 1000,
        start.elapsed() / 1000
    );
    let settled = || zombies() == 0 && open_descriptors() <= before;
    eventually("no zombie, no descriptor", Duration::from_secs(2), settled).await;
}

#[tokio::test]
async fn fifty_residents_are_small() {
    let sandbox = sandbox();
    let mut trees = Vec::new();
    for _ in 0..50 {
        let mut spawned = sandbox.spawn(&script("echo up; read line")).await.unwrap();
        assert_eq!(line(&mut spawned).await, "up");
        trees.push(spawned);
    }
    let sizes: Vec<u64> = trees
        .iter()
        .filter_map(|spawned| {
            let init = parent(spawned.tree.pid())?;
            let rollup = fs::read_to_string(format!("/proc/{init}/smaps_rollup")).ok()?;
            let line = rollup.lines().find(|line| line.starts_with("Pss:"))?;
            line.split_whitespace().nth(1)?.parse().ok()
        })
        .collect();
    let mean = sizes.iter().sum::<u64>() / sizes.len().max(1) as u64;
    println!("{} inits, mean PSS {mean} KiB", sizes.len());
    assert!(mean <= 150, "mean PSS {mean} KiB");
}
