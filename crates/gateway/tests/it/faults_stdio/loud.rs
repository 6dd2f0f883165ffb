//! Servers that say more than they should: on stdout, on stderr, by notification, by request.

use std::thread;
use std::time::Duration;

use gantry_testkit::journal::Journal;
use gantry_testkit::wait::{Stopwatch, eventually};
use gantry_testkit::{Era, Evilpeer, procs, proof};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{CALLS, EVIL, Rig, SECOND, all_echoed, all_within, echo, stays_down};
use crate::harness::LONG;

/// In what pieces of time a server's unasked lines are counted.
const SLOT: Duration = Duration::from_millis(50);
/// How many of them are read in each: 1,000, and the turn of 128 that ends behind them.
const LINES_PER_SLOT: u64 = 1_000 + 128;
/// What may be written and not be judged yet: 256 KiB in the pipe, and what is in one read and in one
/// write.
const ON_THE_WAY: u64 = (256 + 64) << 10;

// fault S1
#[test]
fn stray_lines_are_skipped_counted_and_the_last_twenty_kept() {
    let rig = Rig::new(&Evilpeer::new().fault("noise"), &json!({}));
    let made = rig.call(EVIL, "noise", 0, json!({"lines": 40}));
    assert_eq!(made.text(), "made noise");
    let replies = rig.at_once("echo", echo);
    all_echoed(&replies);
    all_within(&replies, SECOND);
    let status = rig.gantry.status(EVIL);
    let noise = &status["noise"];
    assert!(
        noise["lines"].as_u64().unwrap() >= 40 + CALLS as u64,
        "{noise}"
    );
    let last = noise["last"].as_array().unwrap();
    assert_eq!(last.len(), 20);
    let shown: Vec<&str> = last.iter().filter_map(Value::as_str).collect();
    assert!(
        shown.iter().all(|line| !line.contains(char::is_control)),
        "{shown:?}"
    );
    assert!(
        shown.contains(&"Traceback (most recent call last):"),
        "{shown:?}"
    );
    rig.never_restarted();
    rig.audited(EVIL, &[(CALLS + 1, "ok", None)]);
}

// fault S1
#[test]
fn more_than_a_mebibyte_of_noise_a_second_ends_the_server() {
    let peer = Evilpeer::new().name("flooder-s1").fault("noise=flood");
    let watch = Stopwatch::start();
    let rig = Rig::cold(&peer, &stays_down());
    let wrote = "wrote over 1 MiB a second to stdout that is not a message";
    let told = |status: &Value| {
        status["reason"]
            .as_str()
            .is_some_and(|why| why.contains(wrote))
    };
    let status = rig.gantry.wait_status(EVIL, LONG, told);
    // It writes six times as much as it may, and has not been let do so for long.
    let at = |kind: &str| {
        let path = "/api/v1/mcp/servers/evil/events?limit=1000";
        let events = rig.gantry.rest("GET", path, None).json();
        let mut events = events["items"].as_array().unwrap().clone().into_iter();
        let found = events.find(|event| event["kind"] == kind);
        found.and_then(|event| event["at_ms"].as_u64())
    };
    let over = status["since_ms"].as_u64().unwrap();
    let lived = Duration::from_millis(over - at("starting").unwrap());
    let most = 5 * SECOND + watch.stood_still();
    assert!(lived <= most, "it wrote for {lived:?}");
    assert!(
        ["failed", "backing_off"].contains(&status["state"].as_str().unwrap()),
        "{status:#}"
    );
    assert_eq!(procs::wait_gone("flooder-s1", SECOND).map(|_| ()), Ok(()));
    let replies = rig.at_once("echo", echo);
    all_within(&replies, SECOND);
    for reply in &replies {
        let message = reply.answer["error"]["message"]
            .as_str()
            .unwrap_or_default();
        assert!(message.starts_with("server `evil` is down: "), "{message}");
        assert!(
            message.contains(wrote) && message.contains("; next try in "),
            "{message}"
        );
        reply.fails(-31503, message, "server.down");
    }
    rig.audited(EVIL, &[(CALLS, "error", Some("server.down"))]);
}

/// Returns how many bytes one line of a storm of messages has.
fn storm_line() -> u64 {
    let params = json!({"level": "info", "data": "one of very many"});
    let line = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params});
    line.to_string().len() as u64 + 1
}

/// Asserts that a storm is read at its pace: the server cannot write what nobody reads.
fn storm_is_paced(rig: &Rig) {
    let pid = rig.pid();
    let (begun, before) = (Instant::now(), procs::written_bytes(pid));
    // Two seconds in which it is let write.
    eventually(2 * SECOND, || false);
    let written = procs::written_bytes(pid) - before;
    let whole = begun.elapsed().as_millis() / SLOT.as_millis();
    // One slot had begun before, and one is not over.
    let slots = u64::try_from(whole).unwrap() + 2;
    let most = slots * LINES_PER_SLOT * storm_line() + ON_THE_WAY;
    assert!(
        (ON_THE_WAY..=most).contains(&written),
        "{written} bytes, at most {most}"
    );
}

/// Asserts that only so much of a storm is heard in a second: for the rest of it the storm is read as
/// before, and no line of it gets into the log.
fn storm_is_dropped(rig: &Rig) {
    let pid = rig.pid();
    let newest = || {
        let path = "/api/v1/mcp/servers/evil/logs?lines=1";
        let logs = rig.gantry.rest("GET", path, None).json();
        assert_eq!(logs["items"][0]["stream"], "message", "{logs:#}");
        logs["items"][0]["at_ms"].as_u64().unwrap()
    };
    let mut seen = Vec::new();
    let dropped = eventually(LONG, || {
        let (heard, before) = (newest(), procs::written_bytes(pid));
        thread::sleep(Duration::from_millis(400));
        let written = procs::written_bytes(pid) - before;
        let later = newest() - heard;
        seen.push((written, later));
        written > ON_THE_WAY && later == 0
    });
    assert!(
        dropped.is_some(),
        "bytes written, and milliseconds to the newest line: {seen:?}"
    );
}

// fault S14
#[test]
fn a_storm_of_notifications_is_dropped_beyond_its_budget() {
    let rig = Rig::new(&Evilpeer::new().fault("storm=message"), &json!({}));
    let before = rig.peak();
    for _ in 0..3 {
        let replies = rig.at_once("echo", echo);
        all_echoed(&replies);
        all_within(&replies, SECOND);
    }
    storm_is_paced(&rig);
    storm_is_dropped(&rig);
    rig.never_restarted();
    let more = rig.peak().saturating_sub(before);
    assert!(more < 16 << 10, "{more} KiB more");
    assert!(
        rig.gantry.stderr().len() < 64 << 10,
        "the storm does not reach our log"
    );
    rig.audited(EVIL, &[(3 * CALLS, "ok", None)]);
}

// fault S14
#[test]
fn a_storm_of_changed_lists_costs_one_refresh_a_second() {
    let peer = Evilpeer::new().era(Era::Legacy).fault("storm=list_changed");
    let rig = Rig::new(&peer, &json!({}));
    let tools = rig.gantry.status(EVIL)["tools"].as_u64().unwrap();
    let begun = Instant::now();
    let mut grown = 0;
    while begun.elapsed() < Duration::from_millis(2500) {
        let reply = rig.call(EVIL, "grow", 0, json!({}));
        assert!(
            reply.text().starts_with("grown_") && reply.cost <= SECOND,
            "{reply:?}"
        );
        // It paces the loop, and shows that the server still answers in its time.
        let paced = rig.call(EVIL, "echo", 0, json!({"text": "x", "delay_ms": 50}));
        assert!(paced.text() == "x" && paced.cost <= SECOND, "{paced:?}");
        grown += 1;
    }
    all_echoed(&rig.at_once("echo", echo));
    rig.gantry
        .wait_status(EVIL, LONG, |status| status["tools"] == tools + grown);
    let events = rig
        .gantry
        .rest("GET", "/api/v1/mcp/servers/evil/events?limit=1000", None)
        .json();
    let seconds = begun.elapsed().as_secs();
    let refreshed = |event: &&Value| event["kind"] == "catalog_changed";
    let refreshes = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(refreshed)
        .count() as u64;
    assert!(
        (1..=seconds + 2).contains(&refreshes),
        "{refreshes} in {seconds} s, {grown} grown"
    );
    rig.never_restarted();
    rig.audited(EVIL, &[(2 * grown as usize + CALLS, "ok", None)]);
}

// fault S15
#[test]
fn requests_of_a_server_are_refused_except_ping() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let peer = Evilpeer::new().fault("requests=all").journal(&journal);
    let rig = Rig::new(&peer, &json!({}));
    let replies = rig.at_once("echo", echo);
    all_echoed(&replies);
    all_within(&replies, SECOND);
    let kinds = ["ping", "roots", "sampling", "elicitation", "unknown"];
    let answered = eventually(SECOND, || {
        let seen = Journal::read(&journal).unwrap();
        kinds.iter().all(|kind| seen.answers(kind).len() == 1)
    });
    let seen = Journal::read(&journal).unwrap();
    assert!(answered.is_some(), "{:?}", seen.entries);
    let answer = |kind: &str| serde_json::from_str::<Value>(seen.answers(kind)[0]).unwrap();
    assert_eq!(
        answer("ping"),
        json!({"jsonrpc": "2.0", "id": "evil-ping", "result": {}})
    );
    for kind in &kinds[1..] {
        let error =
            json!({"code": -32601, "message": "this gateway declared no client capabilities"});
        let wanted = json!({"jsonrpc": "2.0", "id": format!("evil-{kind}"), "error": error});
        assert_eq!(answer(kind), wanted);
    }
    assert_eq!(rig.gantry.status(EVIL)["refused_requests"], 4);
    rig.never_restarted();
    rig.audited(EVIL, &[(CALLS, "ok", None)]);
}

// fault S15
#[test]
fn a_flood_of_requests_is_answered_only_so_often() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let peer = Evilpeer::new().fault("requests=flood").journal(&journal);
    let begun = Instant::now();
    let rig = Rig::new(&peer, &json!({}));
    all_echoed(&rig.at_once("echo", echo));
    let answers = || Journal::read(&journal).unwrap().answers("flood").len() as u64;
    let all = |status: &Value| status["refused_requests"].as_u64().unwrap() + answers() == 10_000;
    rig.gantry.wait_status(EVIL, LONG, all);
    all_echoed(&rig.at_once("echo", echo));
    let most = 20 * (begun.elapsed().as_secs() + 2);
    assert!(
        (1..=most).contains(&answers()),
        "{} answers, at most {most}",
        answers()
    );
    rig.never_restarted();
    rig.audited(EVIL, &[(2 * CALLS, "ok", None)]);
}

// fault S16
#[test]
fn endless_stderr_is_drained_into_a_small_ring() {
    let flood: u64 = proof::count(2 << 30, 128 << 20);
    let fault = format!("stderr-flood={}", flood >> 20);
    let rig = Rig::new(&Evilpeer::new().fault(&fault), &json!({}));
    let before = rig.peak();
    let pid = rig.pid();
    for _ in 0..2 {
        let replies = rig.at_once("echo", echo);
        all_echoed(&replies);
        all_within(&replies, SECOND);
    }
    // All of it is taken: who does not drain it stops the server at 64 KiB.
    let begun = Instant::now();
    let drained = eventually(24 * LONG, || procs::written_bytes(pid) > flood);
    eprintln!("{flood} bytes of stderr in {:?}", begun.elapsed());
    assert!(drained.is_some(), "{} bytes", procs::written_bytes(pid));
    let logs = rig
        .gantry
        .rest("GET", "/api/v1/mcp/servers/evil/logs?lines=10000", None);
    let lines = logs.json()["items"].as_array().unwrap().clone();
    let kept: usize = lines
        .iter()
        .map(|line| line["text"].as_str().unwrap().len())
        .sum();
    assert!((1..=64 << 10).contains(&kept), "{kept} bytes kept");
    assert!(
        lines.iter().all(|line| line["stream"] == "stderr"),
        "{lines:#?}"
    );
    let more = rig.peak().saturating_sub(before);
    assert!(more < 8 << 10, "{more} KiB more");
    assert!(
        rig.gantry.stderr().len() < 64 << 10,
        "it does not reach our log"
    );
    rig.never_restarted();
    rig.audited(EVIL, &[(2 * CALLS, "ok", None)]);
}

// fault S16
#[test]
fn escapes_on_stderr_are_shown_harmless() {
    let rig = Rig::new(&Evilpeer::new().fault("stderr-escapes"), &json!({}));
    all_echoed(&rig.at_once("echo", echo));
    let mut lines = Vec::new();
    let shown = eventually(LONG, || {
        let path = "/api/v1/mcp/servers/evil/logs?lines=50";
        let logs = rig.gantry.rest("GET", path, None).json();
        lines = logs["items"].as_array().unwrap().clone();
        !lines.is_empty()
    });
    assert!(shown.is_some());
    for line in &lines {
        let text = line["text"].as_str().unwrap();
        assert!(!text.contains(char::is_control), "{text:?}");
        assert!(
            text.starts_with("\\u{1b}]0;owned\\u{7}\\u{1b}[2J"),
            "{text:?}"
        );
        assert!(
            text.contains("fake prompt$ ") && text.ends_with(" end"),
            "{text:?}"
        );
    }
    let printed = rig.gantry.cli(&["logs", EVIL]);
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(
        printed.contains("fake prompt$") && !printed.contains('\u{1b}'),
        "{printed:?}"
    );
    rig.never_restarted();
    rig.audited(EVIL, &[(CALLS, "ok", None)]);
}
