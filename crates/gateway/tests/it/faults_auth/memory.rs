//! The gateway's memory holds keys: it is never dumped, and no process of the same user looks into it.
//! fault F5

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use gantry_testkit::Evilpeer;

use crate::harness::{Gantry, LONG, NOBODY, Programs, needs_root};

// fault F5
#[test]
fn the_gateway_leaves_no_core_and_cannot_be_looked_into() {
    needs_root();
    let programs = Programs::copied();
    let gantry = Gantry::builder()
        .program(&programs.gantry())
        .user(NOBODY)
        .entry("a", programs.entry(&Evilpeer::new()))
        .start();
    // Namespaces, limits and restarts go on working.
    let status = gantry.wait_state("a", "ready", LONG);
    let promises = status["isolation"].as_array().unwrap();
    let tree = promises.iter().find(|one| one["name"] == "tree").unwrap();
    assert_eq!(tree["state"], "enforced", "{status:#}");
    let restarted = gantry.rest("POST", "/api/v1/mcp/servers/a/restart", None);
    assert_eq!(restarted.status, 200, "{}", restarted.text());
    gantry.wait_state("a", "ready", LONG);

    let limits = fs::read_to_string(format!("/proc/{}/limits", gantry.pid)).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    let numbers: Vec<&str> = core.split_whitespace().skip(4).take(2).collect();
    assert_eq!(numbers, ["0", "0"], "{core}");
    // What cannot be dumped belongs to root in `/proc`, whoever runs it.
    let memory = fs::metadata(format!("/proc/{}/mem", gantry.pid)).unwrap();
    assert_eq!(memory.uid(), 0, "its own user may open it");
    let mut look = Command::new("setpriv");
    look.args(["--reuid", "65534", "--clear-groups", "cat"])
        .arg(format!("/proc/{}/environ", gantry.pid));
    let looked = look.output().unwrap();
    assert!(!looked.status.success(), "{looked:?}");
}
