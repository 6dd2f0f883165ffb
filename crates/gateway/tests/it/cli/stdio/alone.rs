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

use super::{Client, let_go, text};
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

fn kill(gateway: u32) {
    let pid = i32::try_from(gateway).ok().and_then(Pid::from_raw);
    kill_process(pid.unwrap(), Signal::KILL).unwrap();
    // It may answer something before it dies.
    assert!(eventually(LONG, || !alive(gateway)).is_some());
}

/// Starts a client, and with it a gateway that has answered a call; returns the gateway's number, too.
fn started(home: &Path) -> (Client, u32) {
    let mut client = start(home);
    client.initialize("2025-11-25");
    call(&mut client);
    let gateway = running(&home.join("data")).expect("a gateway runs");
    (client, gateway)
}

/// Waits until another gateway than this one runs.
fn another(data: &Path, than: u32) -> u32 {
    let mut now = None;
    let came = eventually(LONG, || {
        now = running(data).filter(|pid| *pid != than && alive(*pid));
        now.is_some()
    });
    assert!(came.is_some(), "no gateway came back");
    now.unwrap()
}

#[test]
fn a_gateway_that_was_started_and_dies_is_started_again() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let (mut client, gateway) = started(home.path());
    let params = json!({"name": "example__echo", "arguments": {"text": "again"}});
    kill(gateway);
    // Who comes while its sockets go may be on a connection that is cut, and is told so; who comes
    // after waits for the next gateway, and hears of no other error.
    let mut asked = 100;
    let answered = eventually(LONG, || {
        asked += 1;
        let answer = client.ask(json!(asked), "tools/call", params.clone());
        let was_cut = answer["error"]["data"]["code"] == "stdio.cut";
        !was_cut && text(&answer) == "again"
    });
    assert!(answered.is_some());
    let again = running(&data).expect("a gateway runs");
    assert_ne!(again, gateway);
    assert!(client.close().success());
    assert!(eventually(LONG, || !alive(again)).is_some());
}

#[test]
fn it_is_started_again_for_clients_that_say_nothing_and_did_not_start_it() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let (first, gateway) = started(home.path());
    // Another client uses it, of the stateless era, and stays when the first has gone.
    let mut second = start(home.path());
    let echo = json!({"name": "example__echo", "arguments": {"text": "hi"}});
    let hello = second.stateless(json!(1), "tools/call", echo.clone());
    assert_eq!(text(&hello), "hi");
    assert!(first.close().success());
    kill(gateway);
    let again = another(&data, gateway);
    let answer = second.stateless(json!(2), "tools/call", echo.clone());
    let cut = answer["error"]["data"]["code"] == "stdio.cut";
    assert!(cut || text(&answer) == "hi", "{answer:#}");
    let answer = second.stateless(json!(3), "tools/call", echo);
    assert_eq!(text(&answer), "hi");
    assert_eq!(running(&data), Some(again));
    assert!(second.close().success());
    assert!(eventually(LONG, || !alive(again)).is_some());
}

// Nobody can come to it any more, and nobody could tell it to end.
#[test]
fn a_gateway_whose_data_folder_is_gone_ends_by_itself() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let (mut client, gateway) = started(home.path());
    // The client is there all the time, and starts no other meanwhile.
    client.signal(Signal::STOP);
    fs::rename(&data, home.path().join("moved")).unwrap();
    let ended = eventually(LONG, || !alive(gateway));
    client.signal(Signal::KILL);
    client.ended(LONG);
    assert!(ended.is_some(), "it lives on without its folder");
    assert!(!data.exists(), "and does not make it again");
}

#[test]
fn a_call_in_flight_when_it_dies_is_told_that_nobody_knows() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let slow = crate::harness::entry(&gantry_testkit::Evilpeer::new());
    let file = json!({"mcpServers": {"a": slow}});
    fs::write(home.path().join(".kode.json"), file.to_string()).unwrap();
    let mut client = start(home.path());
    client.initialize("2025-11-25");
    let gateway = running(&data).expect("a gateway runs");
    let params = json!({"name": "a__slow", "arguments": {"ms": 60_000}});
    client.send(json!("cut"), "tools/call", params);
    let admin = fs::read_to_string(data.join("keys/admin.key")).unwrap();
    let announced: Value =
        serde_json::from_slice(&fs::read(data.join("gateway.json")).unwrap()).unwrap();
    let authority = announced["url"].as_str().unwrap().replace("http://", "");
    let bearer = format!("Bearer {}", admin.trim());
    let busy = eventually(LONG, || {
        let mut connection = crate::harness::Connection::open(&authority).unwrap();
        let headers = [("Authorization", bearer.as_str())];
        let path = "/api/v1/mcp/servers/a";
        let status = connection.request("GET", path, &headers, b"").unwrap();
        status.json()["queue"]["in_flight"] == 1
    });
    assert!(busy.is_some());
    kill(gateway);
    let cut = client.answer(&json!("cut"));
    assert_eq!(cut["error"]["data"]["code"], "stdio.cut", "{cut:#}");
    let hint = cut["error"]["data"]["hint"].as_str().unwrap();
    assert!(hint.contains("not known whether"), "{cut:#}");
    another(&data, gateway);
    let_go(&authority);
    let params = json!({"name": "a__echo", "arguments": {"text": "hi"}});
    assert_eq!(text(&client.ask(json!(2), "tools/call", params)), "hi");
    assert!(client.close().success());
}

#[test]
fn one_that_cannot_start_again_is_not_tried_for_ever_and_says_why() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let (mut client, gateway) = started(home.path());
    fs::write(home.path().join(".kode.json"), "{\n").unwrap();
    kill(gateway);
    let mut next = 100;
    let told = eventually(LONG, || {
        next += 1;
        let params = json!({"name": "example__echo", "arguments": {"text": "x"}});
        let answer = client.ask(json!(next), "tools/call", params);
        let error = &answer["error"];
        let is_down = error["data"]["code"] == "stdio.down";
        is_down && error["message"].as_str().unwrap().contains("did not start")
    });
    assert!(told.is_some(), "the reason was not told");
    // A file that is mended lets the next try succeed.
    fs::remove_file(home.path().join(".kode.json")).unwrap();
    another(&data, gateway);
    call(&mut client);
    assert!(client.close().success());
}

#[test]
fn a_hangup_ends_it_as_a_wish_to_end_does() {
    let gantry = crate::harness::Gantry::start(&["a"]);
    let mut client = Client::start(&gantry.data(), &[]);
    client.initialize("2025-11-25");
    let params = json!({"name": "a__slow", "arguments": {"ms": 60_000}});
    client.send(json!(1), "tools/call", params);
    gantry.wait_status("a", LONG, |status| status["queue"]["in_flight"] == 1);
    client.signal(Signal::HUP);
    assert!(client.ended(LONG).success());
    let free = || gantry.status("a")["queue"]["in_flight"] == 0;
    assert!(eventually(LONG, free).is_some());
}
