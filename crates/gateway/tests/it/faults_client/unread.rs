//! Answers that nobody reads, many of them: bounded in all, fair between agents, and honestly on
//! record.

use std::io::Write as _;

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::eventually;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use serde_json::{Value, json};

use super::{FAR, Posted, Rig, with_long_list};
use crate::harness::{Connection, LONG};

/// The size of a result that is not read: more than the kernel takes on the way.
const BIG: u64 = 7 << 20;
/// Connections that do not read: far more than there is room for.
const READERS: usize = 12;
/// What all unread answers of one agent may take, and what it takes to read and write some at a time: on a
/// busy machine more of them at once.
const MOST_KIB: u64 = 96 << 10;

/// Opens a connection whose receive buffer is as small as it gets.
fn narrow(rig: &Rig) -> Connection {
    let mut connection = rig.gantry.connect();
    set_socket_recv_buffer_size(connection.socket(), 4096).unwrap();
    connection
}

/// Starts a gateway whose far server has a lane for each.
fn rig() -> Rig {
    Rig::new(
        &Evilpeer::new(),
        &json!({"calls": {"concurrency": 64, "queue": 256}}),
    )
    .with_room(128)
}

/// Makes calls with long answers and reads none; returns the connections.
fn leave_unread(rig: &Rig, count: usize) -> Vec<Connection> {
    let mut readers: Vec<Connection> = (0..count).map(|_| narrow(rig)).collect();
    let params = |number: usize| {
        let arguments = json!({"bytes": BIG, "nonce": format!("r{number}")});
        json!({"name": format!("{FAR}__big"), "arguments": arguments})
    };
    let key = &rig.gantry.agent;
    for (number, reader) in readers.iter_mut().enumerate() {
        let call = Posted::stateless(key, "tools/call", params(number));
        match number % 3 {
            0 => call.write(reader),
            1 => call.header("Accept", "text/event-stream").write(reader),
            _ => Posted::new(key, "/api/v1/tools/call", &params(number)).write(reader),
        }
    }
    let ended = |row: &&Value| row["status"] != "running";
    let done = || {
        let rows = rig.gantry.audit_rows("tool=big");
        rows.iter().filter(ended).count() == count
    };
    assert!(eventually(2 * LONG, done).is_some(), "all are on record");
    readers
}

// fault A1, fault T7
#[test]
fn unread_answers_are_bounded_in_all_and_cost_others_nothing() {
    let rig = rig();
    let other = rig.gantry.agent_with("other", &["*"]);
    let before = rig.memory();
    let mut readers = leave_unread(&rig, READERS);
    let grown = gantry_testkit::procs::peak_rss_kib(rig.gantry.pid).saturating_sub(before);
    assert!(grown <= MOST_KIB, "{grown} KiB for {READERS} answers");
    // The server did answer all of them, and what was not delivered is said so.
    assert_eq!(rig.journal().calls(), READERS);
    let rows = rig.gantry.audit_rows("tool=big");
    let delivered = rows.iter().filter(|row| row["status"] == "ok").count();
    let undelivered = |row: &&Value| row["status"] == "error" && row["code"] == "call.undelivered";
    assert_eq!(delivered + rows.iter().filter(undelivered).count(), READERS);
    assert!((4..=6).contains(&delivered), "{delivered} of one agent");
    // Short answers of the same agent come, and so do another's long ones, whole.
    rig.far_is_well();
    rig.neighbour_holds();
    let long = json!({"bytes": BIG, "nonce": "other"});
    let answer = Posted::call(&other, &format!("{FAR}__big"), long.clone()).send(&rig.gantry);
    let text = answer.message()["result"]["content"][0]["text"].take();
    assert!(text.as_str().is_some_and(|text| text.len() as u64 >= BIG));
    // Who reads is told at once, in whichever form it wants its answers.
    let told = rig.call("big", long.clone()).send(&rig.gantry);
    let error = told.message()["error"].take();
    assert_eq!(
        (told.status, &error["code"], &error["data"]["code"]),
        (200, &json!(-31429), &json!("call.undelivered")),
    );
    let rest = json!({"name": format!("{FAR}__big"), "arguments": long});
    let told = Posted::new(&rig.gantry.agent, "/api/v1/tools/call", &rest).send(&rig.gantry);
    assert_eq!(
        (
            told.status,
            &told.json()["code"],
            told.header("retry-after")
        ),
        (429, &json!("call.undelivered"), Some("1")),
    );
    // When the readers are gone, there is room again.
    readers.clear();
    let free = || rig.call("big", long.clone()).send(&rig.gantry).message()["result"].is_object();
    assert!(eventually(LONG, free).is_some());
}

// faults A1, A3: one key takes all the room there is for bodies, and all there is for answers
#[test]
fn one_key_that_fills_all_there_is_stays_below_the_limit() {
    const LONG_BODY: usize = (4 << 20) - 1;
    let rig = rig();
    let before = rig.memory();
    let posted = rig.call("echo", json!({"text": "x"}));
    let framing = format!("Content-Length: {}", LONG_BODY + 1);
    let head = posted.head(&rig.gantry.authority, &framing);
    let body = vec![b' '; LONG_BODY];
    // What has no room is refused while it is still being sent.
    let senders: Vec<Connection> = (0..20)
        .map(|_| {
            let mut sender = rig.gantry.connect();
            let written = sender.socket().write_all(&head);
            drop(written.and_then(|()| sender.socket().write_all(&body)));
            sender
        })
        .collect();
    let readers = leave_unread(&rig, READERS);
    let grown = gantry_testkit::procs::peak_rss_kib(rig.gantry.pid).saturating_sub(before);
    assert!(grown <= 128 << 10, "{grown} KiB");
    rig.neighbour_holds();
    drop((senders, readers));
}

// fault A1: what is no call takes memory too.
#[test]
fn long_lists_that_nobody_reads_are_bounded_too() {
    const LISTS: u64 = 80;
    let rig = rig();
    let calls = 250;
    let text = "x".repeat(4_000);
    let mut session = rig.gantry.initialize();
    for _ in 0..calls {
        let echo = json!({"name": format!("{FAR}__echo"), "arguments": {"text": text}});
        assert!(session.request("tools/call", echo)["result"].is_object());
    }
    let before = rig.memory();
    let bearer = format!("Bearer {}", rig.gantry.agent);
    let headers = [("Authorization", bearer.as_str())];
    let path = "/api/v1/calls?limit=1000";
    let whole = rig.gantry.connect().request("GET", path, &headers, b"");
    let length = whole.unwrap().body.len() as u64 / 1024;
    assert!(
        LISTS * length > MOST_KIB + MOST_KIB / 2,
        "a list of {length} KiB is too short"
    );
    let mut readers: Vec<Connection> = (0..LISTS).map(|_| narrow(&rig)).collect();
    for reader in &mut readers {
        reader.write("GET", path, &headers, b"").unwrap();
    }
    // One after the other is answered, the first ones with as much as their buffers take.
    let last = readers.iter_mut().rev().take(20);
    let last: Vec<u16> = last.map(|reader| reader.head().unwrap().status).collect();
    let refused = last.iter().filter(|status| **status == 429).count();
    let grown = gantry_testkit::procs::peak_rss_kib(rig.gantry.pid).saturating_sub(before);
    assert!(
        grown <= MOST_KIB,
        "{grown} KiB for {LISTS} lists of {length} KiB, {refused} refused"
    );
    drop(readers);
    rig.far_is_well();
}

// fault A1: a list on a stream of events is a copy, which takes memory for each client.
#[test]
fn lists_on_event_streams_that_nobody_reads_are_counted() {
    const STREAMS: usize = 16;
    let folder = tempfile::tempdir().unwrap();
    let gantry = with_long_list(folder.path());
    let list = Posted::stateless(&gantry.agent, "tools/list", json!({}));
    let whole = list.send(&gantry);
    assert!(whole.body.len() > 4 << 20, "{}", whole.body.len());
    let events = list.header("Accept", "text/event-stream");
    let mut readers: Vec<Connection> = (0..STREAMS)
        .map(|_| {
            let mut reader = gantry.connect();
            set_socket_recv_buffer_size(reader.socket(), 4096).unwrap();
            events.write(&mut reader);
            reader
        })
        .collect();
    // What has come of each, without taking it.
    let told: Vec<String> = readers
        .iter_mut()
        .map(|reader| {
            let mut begun = [0; 2048];
            let mut text = String::new();
            let came = eventually(LONG, || {
                let length = reader.socket().peek(&mut begun).unwrap();
                text = String::from_utf8_lossy(&begun[..length]).into_owned();
                text.contains("\"result\"") || text.contains("\"error\"")
            });
            assert!(came.is_some(), "{text}");
            text
        })
        .collect();
    let full = |text: &&String| text.contains("http.answers_full");
    let refused = told.iter().filter(full).count();
    // Half of 96 MiB, and of that seven eighths for long ones.
    assert!((4..=8).contains(&refused), "{refused} of {STREAMS} refused");
    // One that all share takes none, and when the readers are gone there is room again.
    let shared = Posted::stateless(&gantry.agent, "tools/list", json!({})).send(&gantry);
    assert_eq!(shared.body.len(), whole.body.len());
    readers.clear();
    let free = || events.send(&gantry).text().contains("\"result\"");
    assert!(eventually(LONG, free).is_some());
}

// fault A2: what a connection keeps after a long request is small.
#[test]
fn a_connection_that_was_used_for_long_messages_keeps_little() {
    const CONNECTIONS: u64 = 100;
    let rig = rig();
    // The message is short, and its body is long.
    let call = rig.call("echo", json!({"text": "x"})).padded(256 << 10);
    let used = || {
        let mut connection = rig.gantry.connect();
        call.write(&mut connection);
        assert_eq!(connection.answer().unwrap().status, 200);
        connection
    };
    (0..20).for_each(|_| drop(used()));
    let before = rig.memory();
    let open: Vec<Connection> = (0..CONNECTIONS).map(|_| used()).collect();
    // 277 KiB each it was, when buffers stayed as long as they had grown.
    let kept = || rig.memory().saturating_sub(before) / CONNECTIONS;
    let small = eventually(LONG, || kept() <= 100);
    assert!(small.is_some(), "{} KiB for each connection", kept());
    drop(open);
}
