//! `gantry stdio` where no gateway runs: it starts one, shares it, and the last one out ends it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use gantry_testkit::procs::alive;
use gantry_testkit::wait::eventually;
use insta::assert_snapshot;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Client, text};
use crate::cli::{settings, told};
use crate::harness::{LONG, PROGRAM};

fn running(data: &Path) -> Option<u32> {
    let announced = fs::read(data.join("gateway.json")).ok()?;
    let announced: Value = serde_json::from_slice(&announced).ok()?;
    u32::try_from(announced["pid"].as_u64()?).ok()
}

fn start(home: &Path) -> Client {
    let mut command = Command::new(PROGRAM);
    command
        .args(["stdio", "--data"])
        .arg(home.join("data"))
        .env("HOME", home)
        .current_dir(home);
    Client::spawn(&mut command)
}

fn call(client: &mut Client) {
    let params = json!({"name": "example__echo", "arguments": {"text": "hi"}});
    assert_eq!(text(&client.ask(json!(1), "tools/call", params)), "hi");
}

#[test]
fn a_gateway_is_started_shared_and_ended_by_the_last() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    // Two at once start one gateway.
    let (mut one, mut two) = (start(home.path()), start(home.path()));
    one.initialize("2025-11-25");
    two.initialize("2025-11-25");
    // Listed once, right after the start, everything is there.
    let tools = one.ask(json!("t"), "tools/list", json!({}));
    assert_eq!(
        tools["result"]["tools"].as_array().map(Vec::len),
        Some(3),
        "{tools:#}"
    );
    let gateway = running(&data).expect("a gateway runs");
    call(&mut one);
    call(&mut two);
    assert!(one.close().success());
    call(&mut two);
    assert_eq!(running(&data), Some(gateway));
    // However the last one ends.
    two.signal(Signal::KILL);
    two.ended(LONG);
    let gone = eventually(LONG, || !alive(gateway) && running(&data).is_none());
    assert!(gone.is_some(), "the gateway outlived its clients");
    // And the next one begins anew.
    let mut three = start(home.path());
    three.initialize("2025-11-25");
    call(&mut three);
    let again = running(&data).expect("a gateway runs");
    assert_ne!(again, gateway);
    assert!(three.close().success());
    assert!(eventually(LONG, || !alive(again)).is_some());
}

#[test]
fn a_gateway_that_cannot_start_says_why() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let tried = || {
        let output = Command::new(PROGRAM)
            .args(["stdio", "--log", "warn", "--data"])
            .arg(&data)
            .env_clear()
            .env("HOME", home.path())
            .env("NO_COLOR", "1")
            .current_dir(home.path())
            .output()
            .unwrap();
        assert!(output.stdout.is_empty(), "stdout is for messages");
        told(&output)
    };
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    settings().bind(|| {
        assert_snapshot!(tried(), @"
        --- stderr
        error: the data folder `[home]/data` is open to others (mode 0755), and keys are kept there
        hint: run `chmod 700 '[home]/data'`
        --- exit 1
        ");
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
        // The person's own file, which nobody has to approve.
        fs::write(home.path().join(".kode.json"), "{\n").unwrap();
        assert_snapshot!(tried(), @"
        --- stderr
        error: the gateway for `[home]/data` did not start (exit status: 2)
          because:  ╭─[[home]/.kode.json:1:1]
          because:  1 │ {
          because:  · ┬
          because:  · ╰── here
          because:  ╰────
          because:  help: close the object with `}`
        hint: run `gantry up` in the same folder to see all of it
        --- exit 3
        ");
    });
}

#[test]
fn a_gateway_that_was_started_and_dies_is_started_again() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let mut client = start(home.path());
    client.initialize("2025-11-25");
    call(&mut client);
    let gateway = running(&data).expect("a gateway runs");
    let pid = i32::try_from(gateway).ok().and_then(Pid::from_raw);
    kill_process(pid.unwrap(), Signal::KILL).unwrap();
    let mut next = 100;
    let answered = eventually(LONG, || {
        next += 1;
        let params = json!({"name": "example__echo", "arguments": {"text": "again"}});
        let answer = client.ask(json!(next), "tools/call", params);
        answer["result"]["content"][0]["text"] == "again"
    });
    assert!(answered.is_some(), "no gateway came back");
    let again = running(&data).expect("a gateway runs");
    assert_ne!(again, gateway);
    assert!(client.close().success());
    assert!(eventually(LONG, || !alive(again)).is_some());
}
