//! Faults in the replies and in the course of calls: each test shows that the peer misbehaves as
//! asked, and only then.

use std::time::Duration;

use gantry_testkit::journal::Journal;
use gantry_testkit::{Evilpeer, wait};
use serde_json::json;

use crate::client::{Client, scratch};

// fault S7: limited to one call
#[test]
fn faults_keep_to_their_calls() {
    let mut client = Client::legacy(
        &Evilpeer::new()
            .fault("neither")
            .fault_after(1)
            .fault_calls(1),
    );
    assert_eq!(client.text(2, "echo", json!({"text": "a"})), "a");
    let neither = client.ask(
        3,
        "tools/call",
        json!({"name": "echo", "arguments": {"text": "b"}}),
    );
    assert_eq!(neither, json!({"jsonrpc": "2.0", "id": 3}));
    assert_eq!(client.text(4, "echo", json!({"text": "c"})), "c");
}

#[test]
fn faults_reach_other_replies_only_when_asked() {
    let mut client = Client::start(&Evilpeer::new().fault("wrong-version").everywhere());
    assert_eq!(client.ask(1, "ping", json!({}))["jsonrpc"], "1.0");
    let mut client = Client::start(&Evilpeer::new().fault("wrong-version"));
    assert_eq!(client.ask(1, "ping", json!({}))["jsonrpc"], "2.0");
}

// fault S5
#[test]
fn garbage_comes_as_stray_lines_or_within_the_reply() {
    for kind in [
        "invalid-utf8",
        "nul",
        "bom",
        "surrogate",
        "deep",
        "1e400",
        "2^63",
    ] {
        let mut client = Client::legacy(&Evilpeer::new().fault(&format!("garbage={kind}")));
        client.call(2, "echo", json!({"text": "x"}));
        assert!(
            !client.line().starts_with(br#"{"jsonrpc":"2.0","id":2"#),
            "{kind}"
        );
        assert_eq!(client.message()["id"], 2, "{kind}");
        let mut client = Client::legacy(&Evilpeer::new().fault(&format!("garbage=reply-{kind}")));
        client.call(2, "echo", json!({"text": "x"}));
        let line = client.line();
        let well = serde_json::from_slice::<serde_json::Value>(&line).is_ok();
        assert_eq!(well, kind == "2^63", "{kind}: {}", line.len());
    }
}

// fault S9
#[test]
fn late_and_double_replies() {
    let path = scratch("journal");
    let mut client = Client::legacy(&Evilpeer::new().fault("late=400").journal(&path));
    client.call(2, "echo", json!({"text": "x", "nonce": "l"}));
    client.tell("notifications/cancelled", json!({"requestId": 2}));
    assert!(client.silent_until_ping(3));
    assert_eq!(client.message()["id"], 2, "late, though cancelled");
    assert!(Journal::read(&path).unwrap().cancelled("l"));
    let mut client = Client::legacy(&Evilpeer::new().fault("twice").fault("unknown-id=2"));
    client.call(2, "echo", json!({"text": "x"}));
    let ids: Vec<_> = (0..4).map(|_| client.message()["id"].clone()).collect();
    assert!(
        ids[0] != 2 && ids[1] != 2 && ids[2] == 2 && ids[3] == 2,
        "{ids:?}"
    );
}

// fault S11
#[test]
fn hanging_calls_are_executed_and_never_answered() {
    let path = scratch("journal");
    let mut client = Client::legacy(&Evilpeer::new().fault("hang").journal(&path));
    client.call(2, "echo", json!({"text": "x", "nonce": "h"}));
    assert!(client.silent_until_ping(3));
    client.tell("notifications/cancelled", json!({"requestId": 2}));
    assert!(client.silent_until_ping(4));
    let journal = Journal::read(&path).unwrap();
    assert_eq!((journal.executed("h"), journal.cancelled("h")), (1, true));
    let mut client = Client::legacy(&Evilpeer::new().fault("hang=tools/list"));
    client.request(2, "tools/list", json!({}));
    assert_eq!(client.text(3, "echo", json!({"text": "x"})), "x");
}

// fault S12
#[test]
fn progress_goes_on_for_ever() {
    let mut client = Client::legacy(&Evilpeer::new().fault("progress-forever=1"));
    let call = json!({"name": "echo", "arguments": {"text": "x"}, "_meta": {"progressToken": 9}});
    client.request(2, "tools/call", call);
    for step in 1..=50 {
        assert_eq!(
            client.message()["params"],
            json!({"progressToken": 9, "progress": step})
        );
    }
}

// fault S15
#[test]
fn own_requests_are_sent_and_their_answers_recorded() {
    let path = scratch("journal");
    let mut client = Client::legacy(&Evilpeer::new().fault("requests").journal(&path));
    let mut methods = Vec::new();
    for _ in 0..5 {
        let request = client.message();
        methods.push(request["method"].as_str().unwrap().to_owned());
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": {}});
        client.write(&answer.to_string());
    }
    assert_eq!(
        methods[..3],
        ["ping", "roots/list", "sampling/createMessage"]
    );
    assert!(client.silent_until_ping(9));
    let journal = Journal::read(&path).unwrap();
    for kind in ["ping", "roots", "sampling", "elicitation", "unknown"] {
        assert_eq!(journal.answers(kind).len(), 1, "{kind}");
    }
}

// fault S14
#[test]
fn a_storm_comes_after_the_handshake() {
    let client = Client::legacy(&Evilpeer::new().fault("storm=list_changed"));
    for _ in 0..10_000 {
        assert_eq!(
            client.message()["method"],
            "notifications/tools/list_changed"
        );
    }
}

// fault S13
#[test]
fn a_peer_that_stops_reading_lives_on() {
    let mut client = Client::legacy(&Evilpeer::new().fault("no-read=call"));
    assert_eq!(client.text(2, "echo", json!({"text": "x"})), "x");
    client.request(3, "ping", json!({}));
    client.close();
    let exited = || client.child.try_wait().unwrap().is_some();
    assert!(wait::eventually(Duration::from_millis(50), exited).is_none());
}

// fault S16
#[test]
fn stderr_is_flooded_to_the_promised_amount() {
    let mut client = Client::legacy(&Evilpeer::new().fault("stderr-flood=2"));
    let mut stderr = client.child.stderr.take().unwrap();
    let mut bytes = vec![0; 2 * 1024 * 1024];
    std::io::Read::read_exact(&mut stderr, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == b'e'));
    assert!(client.silent_until_ping(2));
}

// fault S17
#[test]
fn half_dead_peers() {
    let mut client = Client::legacy(&Evilpeer::new().fault("close-stdout"));
    client.call(2, "echo", json!({"text": "x"}));
    assert!(client.sees_end());
    assert!(client.child.try_wait().unwrap().is_none(), "it lives on");
    let mut client = Client::legacy(&Evilpeer::new().fault("exit-after-reply"));
    assert_eq!(client.text(2, "echo", json!({"text": "x"})), "x");
    assert_eq!(client.exit().code(), Some(0));
    let mut client = Client::legacy(&Evilpeer::new().fault("close-stdin"));
    assert_eq!(client.text(2, "echo", json!({"text": "x"})), "x");
    assert!(client.child.try_wait().unwrap().is_none(), "it lives on");
}
