//! Far servers whose answers have no end: read as far as a bound, and not kept. fault H5
//!
//! Every bomb goes on for as long as somebody reads it, so that a gateway which did not stop would
//! need far more memory than it may.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::peer::{Peer, Reply, Seen, event, legacy};
use super::scene::{Failed, Scene};
use super::sse_peer::SsePeer;
use super::{SECOND, entry, with};
use crate::faults_client;
use crate::harness::LONG;

/// What the gateway may need for one answer of 8 MiB, or one event of 16: that much, the same again
/// while the room for it doubles, and what lies in between.
const ROOM: u64 = 64;

/// Writes something again and again, as long as the other side takes it.
fn for_ever(mut piece: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        piece()?;
    }
}

/// Calls a far server that answers calls with a bomb, and returns what was said.
fn bombed(entry: Value, wanted: &str) -> (Scene, Failed) {
    let scene = Scene::new(&[("far", entry)]);
    let failed = scene.fails("far", "error", wanted);
    assert!(failed.took < 8 * SECOND, "{:?}", failed.took);
    scene.is_over(ROOM);
    (scene, failed)
}

/// Does so over streamable HTTP, with time enough to need far more than the bound.
fn bombed_by(reply: impl Fn(&Seen) -> Reply + Send + Sync + 'static) {
    let far = Peer::start(move |seen| match seen.method() {
        "tools/call" => reply(seen),
        _ => legacy(seen),
    });
    let patient = json!({"calls": {"timeout": "20s", "timeout_max": "30s"},
        "life": {"health_every": "60s"}});
    let (scene, failed) = bombed(
        with(entry(&far.url("/mcp")), &patient),
        "server.response_too_large",
    );
    assert!(failed.message().contains("MiB"), "{}", failed.error);
    assert_eq!(scene.gantry.status("far")["restart_count"], 0);
}

#[test]
fn a_document_without_end_is_given_up_at_eight_mib() {
    bombed_by(|_| {
        Reply::Raw(Box::new(|to: &mut dyn Write| {
            to.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n\"")?;
            for_ever(|| to.write_all(&[b'x'; 64 << 10]))
        }))
    });
}

#[test]
fn an_event_without_end_is_given_up_at_sixteen_mib() {
    bombed_by(|_| {
        Reply::Events(Box::new(|to: &mut dyn Write| {
            let line = format!("data: {}\n", "x".repeat(64 << 10));
            for_ever(|| event(to, &line))
        }))
    });
}

#[test]
fn a_line_without_end_is_given_up_at_sixteen_mib() {
    bombed_by(|_| {
        Reply::Events(Box::new(|to: &mut dyn Write| {
            event(to, "data: ")?;
            let more = "x".repeat(64 << 10);
            for_ever(|| event(to, &more))
        }))
    });
}

#[test]
fn a_compressed_bomb_is_measured_when_it_is_unpacked() {
    // 1 GiB of zeros in 1 MiB.
    let bomb = std::process::Command::new("sh")
        .args(["-c", "head -c 1073741824 /dev/zero | gzip -1"])
        .output()
        .unwrap()
        .stdout;
    assert!(bomb.len() < 8 << 20);
    bombed_by(move |_| {
        let mut answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
            bomb.len()
        )
        .into_bytes();
        answer.extend_from_slice(&bomb);
        Reply::bytes(answer)
    });
}

#[test]
fn an_event_over_sixteen_mib_ends_an_sse_stream() {
    let far = SsePeer::with(|seen| match seen.method() {
        "tools/call" => {
            Some(seen.result(json!({"content": [{"type": "text", "text": "x".repeat(17 << 20)}]})))
        }
        _ => None,
    });
    let calm = json!({"type": "sse", "life": {"health_every": "60s"}});
    let (scene, failed) = bombed(with(entry(&far.peer.url("/sse")), &calm), "remote.session");
    let told = failed.message();
    assert!(
        told.contains("cannot go on: it sent an event over 16 MiB"),
        "{told}"
    );
    // The next stream is another one.
    scene.gantry.wait_status("far", LONG, |status| {
        status["state"] == "ready" && status["restart_count"] == 1
    });
}

#[test]
fn a_place_to_post_to_without_end_is_given_up() {
    let far = SsePeer::with(|seen| {
        (seen.verb == "GET").then(|| {
            Reply::Events(Box::new(|to: &mut dyn Write| {
                event(to, "event: endpoint\ndata: /")?;
                let more = "x".repeat(64 << 10);
                for_ever(|| event(to, &more))
            }))
        })
    });
    let scene = Scene::beside(&[(
        "far",
        with(entry(&far.peer.url("/sse")), &json!({"type": "sse"})),
    )]);
    let status = scene.gantry.wait_state("far", "failed", LONG);
    let told = status["reason"].as_str().unwrap();
    assert!(
        told.contains("cannot go on: its event has no end"),
        "{told}"
    );
    // A place is short, so that little is read of it.
    scene.is_over(faults_client::ROOM);
}
