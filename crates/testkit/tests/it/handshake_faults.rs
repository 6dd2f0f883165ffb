//! Faults at the start: handshake, list, process, and the end of input.

use std::time::Duration;

use gantry_testkit::journal::Journal;
use gantry_testkit::{Era, Evilpeer, wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::client::{Client, scratch};

// fault S18
#[test]
fn handshakes_are_spoiled_in_both_eras() {
    for era in [Era::Legacy, Era::Modern, Era::Dual] {
        let method = if era == Era::Modern {
            "server/discover"
        } else {
            "initialize"
        };
        let peer = || Evilpeer::new().era(era);
        let start = |peer: &Evilpeer| {
            if era == Era::Modern {
                Client::modern(peer)
            } else {
                Client::start(peer)
            }
        };
        let mut client = start(&peer().fault("init-error"));
        assert_eq!(client.ask(1, method, json!({}))["error"]["code"], -32603);
        let mut client = start(&peer().fault("init-wrong-version"));
        assert!(
            client.ask(1, method, json!({}))["result"]
                .to_string()
                .contains("1999-01-01")
        );
        let mut client = start(&peer().fault("init-garbage"));
        client.request(1, method, json!({}));
        assert!(serde_json::from_slice::<serde_json::Value>(&client.line()).is_err());
        let mut client = start(&peer().fault("init-hang"));
        client.request(1, method, json!({}));
        client.request(2, "nope", json!({}));
        assert_eq!(client.message()["id"], 2);
    }
    let mut client = Client::start(&Evilpeer::new().era(Era::Legacy).fault("discover-exit"));
    client.request(1, "server/discover", json!({}));
    assert_eq!(client.exit().code(), Some(1));
    let mut client = Client::modern(&Evilpeer::new().fault("discover-hang"));
    client.request(1, "server/discover", json!({}));
    assert!(client.ask(2, "tools/list", json!({}))["result"]["tools"].is_array());
}

// fault S19
#[test]
fn lists_are_spoiled() {
    let list = |fault: &str| {
        let mut client = Client::legacy(&Evilpeer::new().fault(fault));
        client.ask(2, "tools/list", json!({"cursor": null}))
    };
    let count = |fault: &str| list(fault)["result"]["tools"].as_array().unwrap().len();
    assert_eq!(list("list-loop")["result"]["nextCursor"], "round-and-round");
    assert_eq!(list("list-error")["error"]["code"], -32603);
    assert_eq!(count("list-huge=2000"), 2019);
    assert_eq!(count("list-dup"), 20);
    assert_eq!(count("list-badschema"), 35);
    let big = list("list-bigdesc=100000")["result"]["tools"][19]["description"].clone();
    assert_eq!(big.as_str().unwrap().len(), 100_000);
}

// fault S20
#[test]
fn an_echo_gives_back_what_it_gets() {
    let mut client = Client::start(&Evilpeer::new().fault("echo"));
    client.write("{\"any\":\"line\"}");
    assert_eq!(client.line(), b"{\"any\":\"line\"}\n");
}

// fault P2
#[test]
fn starts_that_end_at_once() {
    let path = scratch("journal");
    let mut client = Client::start(&Evilpeer::new().fault("exit0").journal(&path));
    assert_eq!(client.exit().code(), Some(0));
    let mut client = Client::start(&Evilpeer::new().fault("crash-start=7").journal(&path));
    assert_eq!(client.exit().code(), Some(7));
    let mut client = Client::start(&Evilpeer::new().fault("crash-after=20").journal(&path));
    assert_eq!(client.exit().code(), Some(1));
    assert_eq!(client.stderr(), "boom\n");
    assert_eq!(Journal::read(&path).unwrap().starts(), 3);
}

// fault P4
#[test]
fn deaf_peers_survive_the_end_of_input_and_term() {
    let mut client = Client::legacy(
        &Evilpeer::new()
            .fault("ignore-eof")
            .fault("ignore-term")
            .fault("slow-start=1"),
    );
    assert_eq!(client.text(2, "echo", json!({"text": "x"})), "x");
    client.close();
    let pid = Pid::from_raw(i32::try_from(client.child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let exited = || client.child.try_wait().unwrap().is_some();
    assert!(wait::eventually(Duration::from_millis(100), exited).is_none());
}

#[test]
fn mistakes_on_the_command_line_are_named() {
    let run = |arguments: &[&str]| {
        let program = gantry_testkit::bin::evilpeer();
        let output = std::process::Command::new(program)
            .args(arguments)
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, text) = run(&["--fault", "nope"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("no fault `nope`"), "{text}");
    let (code, text) = run(&["--help"]);
    assert_eq!(code, Some(0));
    for fault in [
        "noise",
        "flood-noline",
        "garbage",
        "list-badschema",
        "slow-start",
    ] {
        assert!(text.contains(fault), "{fault}");
    }
}
