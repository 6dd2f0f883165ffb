//! Clients that do not read what they asked for, or do not send what they announced.
//!
//! The deadlines are the real ones of 30 s, waited for once by all of them together.

use std::io::Write as _;
use std::thread;
use std::time::Duration;

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::eventually;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use serde_json::json;
use tokio::time::Instant;

use super::{FAR, Rig, SECOND};
use crate::harness::{Connection, LONG};

/// Clients that do not read.
const READERS: usize = 6;
/// The size of the results that they do not read: more than the kernel takes on the way.
const BIG: u64 = 7 << 20;
/// How long a client may leave an answer unread, or a body unsent.
const PATIENCE: Duration = Duration::from_secs(30);
/// How much later the gateway may see it on a busy machine.
const LATE: Duration = Duration::from_secs(5);

/// Opens a connection whose receive buffer is as small as it gets.
fn narrow(rig: &Rig) -> Connection {
    let mut connection = rig.gantry.connect();
    set_socket_recv_buffer_size(connection.socket(), 4096).unwrap();
    connection
}

/// Sends one byte a second of a body that would take an hour, and returns the answer and its time.
fn trickle(rig: &Rig) -> (u16, String, Duration) {
    let mut connection = rig.gantry.connect();
    let posted = rig.call("echo", json!({"text": "never sent", "nonce": "trickle"}));
    let head = posted.head(&rig.gantry.authority, "Content-Length: 3600");
    let begun = Instant::now();
    connection.socket().write_all(&head).unwrap();
    let mut pen = connection.socket().try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            while pen.write_all(b" ").is_ok() && begun.elapsed() < 2 * PATIENCE {
                thread::sleep(SECOND);
            }
        });
        let answer = connection.answer().expect("the gateway answers");
        connection.socket().shutdown(std::net::Shutdown::Both).ok();
        (
            answer.status,
            answer.message()["error"]["data"]["code"].to_string(),
            begun.elapsed(),
        )
    })
}

// fault A1, fault A2
#[test]
fn who_neither_reads_nor_sends_for_thirty_seconds_is_cut_off_and_hurts_nobody() {
    // Six results of 7 MiB pass through several hands before they wait for their readers.
    let rig = Rig::new(&Evilpeer::new(), &json!({})).with_room(256);
    let (fds, before) = (rig.quiet_fds(), rig.memory());
    thread::scope(|scope| {
        let trickling = scope.spawn(|| trickle(&rig));
        let mut readers: Vec<Connection> = (0..READERS).map(|_| narrow(&rig)).collect();
        let mut stalled = Instant::now();
        for (number, reader) in readers.iter_mut().enumerate() {
            let posted = rig.call("big", json!({"bytes": BIG, "nonce": format!("r{number}")}));
            // As one document, and as an event.
            match number % 2 {
                0 => posted.write(reader),
                _ => posted.header("Accept", "text/event-stream").write(reader),
            }
        }
        let query = format!("server={FAR}&status=ok");
        // The last answer begins after whoever missed it began to look.
        let answered = eventually(3 * LONG, || {
            let looked = Instant::now();
            let all = rig.gantry.audit_rows(&query).len() == READERS;
            if !all {
                stalled = looked;
            }
            all
        });
        assert!(
            answered.is_some(),
            "every call is answered and recorded, read or not"
        );
        // The result itself and 1 MiB each, and what reading so long lines takes.
        let bound = before + READERS as u64 * (BIG / 1024 + 1024) + (32 << 10);
        let bounded = eventually(5 * SECOND, || rig.memory() <= bound);
        assert!(bounded.is_some(), "{} KiB of {bound}", rig.memory());
        // Neither the neighbour nor the same server's other clients wait for them.
        rig.neighbour_holds();
        rig.far_is_well();

        // Closed by the gateway, with most of the answer unsent: no client has gone yet.
        rig.wait_fds(fds, PATIENCE + LATE);
        let waited = stalled.elapsed();
        assert!(waited >= PATIENCE, "cut off after {waited:?}");
        drop(readers);
        let (status, code, took) = trickling.join().unwrap();
        assert_eq!((status, code.as_str()), (408, "\"http.slow_body\""));
        assert!(took >= PATIENCE && took <= PATIENCE + LATE, "{took:?}");
    });
    rig.neighbour_holds();
    assert_eq!(rig.journal().executed("trickle"), 0);
    rig.audited(&[(READERS + 1, "ok", None)]);
}
