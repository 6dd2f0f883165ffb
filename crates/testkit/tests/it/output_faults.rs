//! Faults in how bytes leave: noise, pieces, bursts, order, sizes, line ends.

use std::time::Duration;

use gantry_testkit::{Evilpeer, wait};
use serde_json::{Value, json};

use crate::client::Client;

// fault S1
#[test]
fn noise_surrounds_every_message() {
    let mut client = Client::start(&Evilpeer::new().fault("noise").seed(3));
    client.request(1, "ping", json!({}));
    let mut before = 0;
    loop {
        let line = client.line();
        let parsed = serde_json::from_slice::<Value>(&line).unwrap_or_default();
        if parsed["id"] == 1 {
            break;
        }
        before += 1;
    }
    assert_eq!(before, 5, "four lines of banner, one of noise");
}

// fault S2
#[test]
fn a_flood_without_newline_starts_when_triggered() {
    let mut client = Client::legacy(&Evilpeer::new().fault("flood-noline"));
    assert_eq!(client.text(2, "echo", json!({"text": "x"})), "x");
    client.call(3, "trigger", json!({}));
    // A mebibyte more than the pipe holds has been written, and no line has come of it.
    let written = || {
        let figures = std::fs::read_to_string(format!("/proc/{}/io", client.child.id()));
        let figures = figures.unwrap_or_default();
        let line = figures
            .lines()
            .find_map(|line| line.strip_prefix("wchar: "));
        line.and_then(|number| number.parse().ok()).unwrap_or(0u64)
    };
    assert!(wait::eventually(Duration::from_secs(10), || written() > 1 << 20).is_some());
    assert!(!client.has_line());
    let mut plain = Client::legacy(&Evilpeer::new());
    assert_eq!(plain.text(2, "trigger", json!({})), "nothing to trigger");
}

// fault S3
#[test]
fn lines_have_exactly_the_length_asked_for() {
    for modern in [false, true] {
        let start = if modern {
            Client::modern
        } else {
            Client::legacy
        };
        let mut client = start(&Evilpeer::new());
        for bytes in [1000, 65_535, 65_536, 65_537] {
            client.call(2, "big_line", json!({"bytes": bytes}));
            assert_eq!(client.line().len(), bytes);
        }
        let mut client = start(&Evilpeer::new().fault("big=4097"));
        client.call(2, "echo", json!({"text": "x"}));
        assert_eq!(client.line().len(), 4097);
    }
}

// fault S4
#[test]
fn pieces_bursts_and_line_ends_change_no_message() {
    for fault in ["chunk=1", "chunk=random", "burst", "burst=3", "crlf"] {
        let mut client = Client::legacy(&Evilpeer::new().fault(fault).seed(5));
        for id in 2..12 {
            client.call(id, "echo", json!({"text": format!("t{id}")}));
        }
        for id in 2..12 {
            let line = client.line();
            assert_eq!(line.ends_with(b"\r\n"), fault == "crlf");
            let reply: Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(reply["id"], id);
            assert_eq!(reply["result"]["content"][0]["text"], format!("t{id}"));
        }
    }
    let mut client = Client::legacy(&Evilpeer::new().fault("no-final-newline"));
    client.call(2, "echo", json!({"text": "x"}));
    let line = client.line();
    assert!(line.ends_with(b"}"), "{}", String::from_utf8_lossy(&line));
    assert!(client.sees_end());
    assert_eq!(client.exit().code(), Some(0));
}

// fault S10
#[test]
fn shuffled_replies_all_come_each_with_its_own_text() {
    let mut client = Client::legacy(&Evilpeer::new().fault("shuffle=50").seed(7));
    for id in 2..102 {
        client.call(id, "echo", json!({"text": format!("t{id}")}));
    }
    let mut ids = Vec::new();
    for _ in 2..102 {
        let reply = client.message();
        let id = reply["id"].as_u64().unwrap();
        assert_eq!(reply["result"]["content"][0]["text"], format!("t{id}"));
        ids.push(id);
    }
    assert!(!ids.is_sorted());
    ids.sort_unstable();
    assert_eq!(ids, (2..102).collect::<Vec<u64>>());
}

// fault S12
#[test]
fn a_dripping_reply_is_whole_in_the_end() {
    let mut client = Client::legacy(&Evilpeer::new().fault("drip=1"));
    assert_eq!(client.text(2, "echo", json!({"text": "x"})), "x");
}
