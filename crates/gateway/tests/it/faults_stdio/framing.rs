//! Lines: without end, too long, in pieces, in bursts, with breaks where none belong.

use std::thread;
use std::time::Duration;

use gantry_testkit::journal::{Entry, Journal};
use gantry_testkit::wait::{Stopwatch, eventually};
use gantry_testkit::{Era, Evilpeer, procs};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    CALLS, EVIL, GOOD, Rig, SECOND, all_echoed, all_within, canary, echo, stays_down, table_name,
};
use crate::harness::{LONG, modern};

const LIMIT: u64 = 8 << 20;

/// How many answers come at once.
const BURST: usize = 1000;
/// How long the server thinks about each: twice as long as it may take to read them all.
const THINKS_MS: u64 = 6_000;
const THINKS: Duration = Duration::from_millis(THINKS_MS);

// fault S2
#[test]
fn a_line_without_end_is_cut_and_its_calls_fail_within_a_second() {
    let peer = Evilpeer::new()
        .name("flooder-s2")
        .fault("flood-noline=trigger");
    let rig = Rig::new(&peer, &stays_down());
    let before = rig.peak();
    let (replies, took) = rig.beside_neighbour(|| {
        let slow = |_| json!({"ms": 60_000});
        thread::scope(|scope| {
            let waiting = scope.spawn(|| rig.burst(EVIL, CALLS - 1, "slow", &slow));
            let in_flight = |status: &Value| status["queue"]["in_flight"] == CALLS - 1;
            rig.gantry.wait_status(EVIL, LONG, in_flight);
            let watch = Stopwatch::start();
            let trigger = rig.call(EVIL, "trigger", CALLS, json!({}));
            let mut replies = waiting.join().unwrap();
            replies.push(trigger);
            (replies, watch.elapsed())
        })
    });
    assert!(took <= SECOND, "{took:?}");
    let how = "wrote a line over 8 MiB that is not a message";
    for reply in &replies {
        let message = format!("server `evil` exited during the call ({how})");
        reply.fails(-31502, &message, "server.exited");
    }
    assert_eq!(procs::wait_gone("flooder-s2", SECOND).map(|_| ()), Ok(()));
    let more = rig.peak().saturating_sub(before);
    assert!(more <= (LIMIT >> 10) + (8 << 10), "{more} KiB more");
    let status = rig.gantry.wait_state(EVIL, "backing_off", SECOND);
    assert_eq!(status["last_crash"]["how"], how);
    assert!(
        status["next_try"]["in_ms"].as_u64().unwrap() > 50_000,
        "{status:#}"
    );
    rig.audited(EVIL, &[(CALLS, "error", Some("server.exited"))]);
}

// fault S2
#[test]
fn a_line_without_end_in_the_handshake_is_told_as_the_reason() {
    let peer = Evilpeer::new()
        .name("flooder-start-s2")
        .fault("flood-noline=start");
    let rig = Rig::cold(&peer, &stays_down());
    let before = rig.peak();
    let status = rig.gantry.wait_state(EVIL, "failed", LONG);
    let reason = status["reason"].as_str().unwrap();
    assert!(
        reason.ends_with("wrote a line over 8 MiB that is not a message"),
        "{reason}"
    );
    let gone = procs::wait_gone("flooder-start-s2", SECOND);
    assert_eq!(gone.map(|_| ()), Ok(()));
    let replies = rig.at_once("echo", echo);
    all_within(&replies, SECOND);
    for reply in &replies {
        let message = reply.answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("wrote a line over 8 MiB"), "{message}");
        reply.fails(-31503, message, "server.down");
    }
    // The kernel's figure may fall a little.
    assert!(rig.peak().saturating_sub(before) <= (LIMIT >> 10) + (8 << 10));
    rig.audited(EVIL, &[(CALLS, "error", Some("server.down"))]);
}

// fault S3
#[test]
fn an_answer_over_the_limit_fails_at_once_and_alone() {
    let rig = Rig::new(
        &Evilpeer::new(),
        &json!({"calls": {"timeout": "20s", "timeout_max": "30s"}}),
    )
    // The line, the answer made of it, and what is on its way to the client.
    .with_room(40);
    for bytes in [LIMIT - 1, LIMIT] {
        let reply = rig.call(EVIL, "big_line", 0, json!({"bytes": bytes}));
        let text = reply.text();
        assert!(text.len() as u64 > LIMIT - 1024 && text.bytes().all(|byte| byte == b'x'));
    }
    let mut over = None;
    let others = rig.beside_neighbour(|| {
        thread::scope(|scope| {
            let others = scope.spawn(|| rig.burst(EVIL, CALLS - 1, "echo", &echo));
            over = Some(rig.call(EVIL, "big_line", 0, json!({"bytes": LIMIT + 1})));
            others.join().unwrap()
        })
    });
    all_echoed(&others);
    let over = over.unwrap();
    let message = "response over 8 MiB from server `evil`";
    over.fails(-31502, message, "server.response_too_large");
    assert!(over.cost <= 2 * SECOND, "not by timeout: {:?}", over.cost);
    rig.never_restarted();
    rig.audited(
        EVIL,
        &[
            (CALLS + 1, "ok", None),
            (1, "error", Some("server.response_too_large")),
        ],
    );
}

// fault S4
#[test]
fn pieces_bursts_and_line_ends_change_no_result() {
    let kinds = ["chunk=1", "chunk=random", "burst=1000", "crlf"];
    let eras = [Era::Legacy, Era::Modern];
    let rows: Vec<_> = eras
        .iter()
        .flat_map(|era| kinds.map(|kind| (*era, kind)))
        .collect();
    let peer = |(era, kind): &(Era, &str)| Evilpeer::new().name(GOOD).era(*era).fault(kind);
    let rig = Rig::table(&rows, peer, &json!({}));
    let wanted = rig.call(GOOD, "add", 0, json!({"a": 1, "b": 2.5})).answer;
    for (place, row) in rows.iter().enumerate() {
        let server = table_name(place);
        let replies = rig.at_once_on(&server, CALLS, "echo", echo);
        all_echoed(&replies);
        all_within(&replies, SECOND);
        let added = rig
            .call(&server, "add", 0, json!({"a": 1, "b": 2.5}))
            .answer;
        assert_eq!(
            added["result"]["content"], wanted["result"]["content"],
            "{row:?}"
        );
        let sum = &added["result"]["structuredContent"];
        assert_eq!(*sum, wanted["result"]["structuredContent"], "{row:?}");
        assert_eq!(rig.gantry.status(&server)["noise"]["lines"], 0, "{row:?}");
        rig.audited(&server, &[(CALLS + 1, "ok", None)]);
    }
}

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Returns the arguments of an echo that the server thinks about.
fn considered(number: usize) -> Value {
    json!({"text": canary(number), "delay_ms": THINKS_MS})
}

// fault S4
#[test]
fn a_thousand_answers_in_one_write_are_a_thousand_answers() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let fault = format!("burst={BURST}");
    let peer = Evilpeer::new().fault(&fault).journal(&journal);
    let patient = json!({"concurrency": BURST, "calls": {"timeout": "60s", "timeout_max": "60s"}});
    // A thousand connections with a call each.
    let rig = Rig::new(&peer, &patient).with_room(64);
    let pid = rig.pid();
    let before = procs::writes(pid);
    let replies = thread::scope(|scope| {
        let calls = scope.spawn(|| rig.burst(EVIL, BURST, "echo", &considered));
        // Each call that it reads is one write to its journal, and no answer is due yet.
        let begun = Instant::now();
        let all_read = || procs::writes(pid) - before >= BURST as u64;
        let read = eventually(THINKS / 2, all_read);
        let read = read.expect("all calls are read long before the first answer is due");
        // It stands still from long before the first is due until after the last is: when it goes on,
        // all are due at once. That is less than the 5 s after which a server counts as one that
        // reads no more.
        thread::sleep((read + 2 * SECOND).saturating_sub(begun.elapsed()));
        signal(pid, Signal::STOP);
        thread::sleep((read + THINKS + SECOND / 4).saturating_sub(begun.elapsed()));
        rig.beside_neighbour(|| {
            signal(pid, Signal::CONT);
            calls.join().unwrap()
        })
    });
    all_echoed(&replies);
    assert_eq!(Journal::read(&journal).unwrap().calls(), BURST);
    // One, and one more if it was stopped between the answer of one and of the next.
    let answers = procs::writes(pid) - before - BURST as u64;
    assert!(
        (1..=2).contains(&answers),
        "{BURST} answers in {answers} writes"
    );
    assert_eq!(rig.gantry.status(EVIL)["noise"]["lines"], 0);
    rig.never_restarted();
    rig.audited(EVIL, &[(BURST, "ok", None)]);
}

// fault S4
#[test]
fn a_last_line_without_its_end_counts() {
    let rig = Rig::new(&Evilpeer::new().fault("no-final-newline"), &json!({}));
    let reply = rig.beside_neighbour(|| rig.call(EVIL, "echo", 3, echo(3)));
    all_echoed(&[reply]);
    let again = |status: &Value| status["state"] == "ready" && status["restart_count"] == 1;
    let status = rig.gantry.wait_status(EVIL, LONG, again);
    assert_eq!(status["last_crash"]["how"], "exit code 0");
    rig.audited(EVIL, &[(1, "ok", None)]);
}

/// Posts `tools/call` with params written by hand, and returns the answer.
fn post(rig: &Rig, tool: &str, arguments: &str) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body = format!(
        "{{\"jsonrpc\":\"2.0\",\n\"id\":1,\r\n\"method\":\"tools/call\",\"params\":{{\"name\":\
         \"{EVIL}__{tool}\",\"_meta\":{meta},\"arguments\":{arguments}}}}}"
    );
    let bearer = format!("Bearer {}", rig.gantry.agent);
    let name = format!("{EVIL}__{tool}");
    let headers = [
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
        ("Authorization", &bearer),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", &name),
    ];
    let answer = rig
        .gantry
        .connect()
        .request("POST", "/mcp", &headers, body.as_bytes());
    answer.unwrap().message()
}

// fault S21
#[test]
fn a_request_hidden_behind_a_line_break_stays_one_message() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    for era in [Era::Legacy, Era::Modern] {
        drop(std::fs::remove_file(&journal));
        let rig = Rig::new(&Evilpeer::new().era(era).journal(&journal), &json!({}));
        let hidden = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"crash"}}"#;
        let shapes = [
            format!("\n{hidden}\n"),
            format!("\r\n{hidden}\r"),
            format!("{{\"x\":\n{hidden}\n}}"),
        ];
        rig.beside_neighbour(|| {
            for arguments in &shapes {
                let answer = post(&rig, "mirror", arguments);
                let seen = answer["result"]["content"][0]["text"].as_str().unwrap();
                assert!(!seen.contains(['\n', '\r']), "{seen:?}");
                let seen: Value = serde_json::from_str(seen).unwrap();
                let sent: Value = serde_json::from_str(arguments).unwrap();
                assert_eq!(seen["arguments"], sent);
            }
        });
        let seen = Journal::read(&journal).unwrap();
        assert_eq!(seen.calls(), shapes.len(), "{:?}", seen.entries);
        let garbled = |entry: &&Entry| matches!(entry, Entry::Garbled { .. });
        assert_eq!(
            seen.entries.iter().filter(garbled).count(),
            0,
            "{:?}",
            seen.entries
        );
        rig.never_restarted();
        rig.audited(EVIL, &[(shapes.len(), "ok", None)]);
    }
}

// fault S21
#[test]
fn an_event_hidden_in_a_result_stays_one_event() {
    let kinds = ["newline-result=spaces", "newline-result=cr"];
    let rig = Rig::table(&kinds, |kind| Evilpeer::new().fault(kind), &json!({}));
    for place in 0..kinds.len() {
        let server = table_name(place);
        all_echoed(&rig.at_once_on(&server, CALLS, "echo", echo));
        let params = json!({
            "name": format!("{server}__slow"),
            "arguments": {"ms": 200, "progress": 3},
            "_meta": {"progressToken": "p"},
        });
        let path = "/mcp";
        let agent = &rig.gantry.agent;
        let answer = modern(&mut rig.gantry.connect(), agent, path, "tools/call", params);
        assert_eq!(answer.header("content-type"), Some("text/event-stream"));
        assert!(!answer.text().contains('\r'), "{:?}", answer.text());
        let messages = answer.messages();
        assert_eq!(messages.len(), 4, "{messages:#?}");
        assert_eq!(messages[3]["result"]["content"][0]["text"], "slept 200 ms");
        rig.audited(&server, &[(CALLS + 1, "ok", None)]);
    }
}
