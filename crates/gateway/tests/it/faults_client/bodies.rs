//! Bodies that are too large, endless or packed, and heads that are.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::thread;

use gantry_testkit::Evilpeer;
use gantry_testkit::wait::{Stopwatch, eventually};
use serde_json::{Value, json};

use super::{Posted, Rig, SECOND};
use crate::harness::{Answer, Connection, LONG};

/// The largest body that is read.
const LIMIT: usize = 4 << 20;

fn refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    let body = answer.json();
    // On `/mcp` as a JSON-RPC error, elsewhere as a problem document.
    let told = body.pointer("/error/data/code").unwrap_or(&body["code"]);
    assert_eq!(told, code, "{body:#}");
    if let Some(rpc) = body.pointer("/error/code").and_then(Value::as_i64) {
        assert_eq!(rpc, -31000 - i64::from(status));
        assert!(body["id"].is_null());
    }
}

/// Describes the same call on both surfaces.
fn calls(rig: &Rig, nonce: &str) -> [Posted; 2] {
    let arguments = json!({"text": "x", "nonce": nonce});
    let rest = json!({"name": "far__echo", "arguments": arguments});
    let rest = Posted::new(&rig.gantry.agent, "/api/v1/tools/call", &rest);
    [rig.call("echo", arguments), rest]
}

/// Returns a JSON text of exactly that many bytes: the call, then blanks.
fn padded(text: &str, bytes: usize) -> Vec<u8> {
    let mut body = text.as_bytes().to_vec();
    body.resize(bytes, b' ');
    body
}

// fault A3
#[test]
fn a_body_is_read_up_to_four_mebibytes_and_not_a_byte_further() {
    // Whole bodies, as they come and as they are read.
    let rig = Rig::new(&Evilpeer::new(), &json!({})).with_room(64);
    let arguments = json!({"text": "x", "nonce": "n"});
    let rest = json!({"name": "far__echo", "arguments": arguments}).to_string();
    let rest_call = Posted::new(&rig.gantry.agent, "/api/v1/tools/call", &Value::Null);
    let params = json!({"name": "far__echo", "arguments": arguments});
    let mcp =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let mcp_call = Posted::new(&rig.gantry.agent, "/mcp", &Value::Null);
    for (posted, text) in [(mcp_call, mcp), (rest_call, rest)] {
        let whole = posted.clone().body(padded(&text, LIMIT)).send(&rig.gantry);
        assert_eq!(whole.status, 200, "{}", whole.text());
        let over = posted.body(padded(&text, LIMIT + 1)).send(&rig.gantry);
        refused(&over, 413, "http.body_too_large");
    }
    assert_eq!(rig.journal().executed("n"), 2);
    rig.audited(&[(2, "ok", None)]);
}

// fault A3: who sends a long message with a wrong key, or to a wrong place, is told so, and not cut off
// in the middle of it
#[test]
fn a_refusal_comes_in_words_whatever_is_still_being_sent() {
    let rig = Rig::new(&Evilpeer::new(), &json!({}));
    let long = padded("{}", LIMIT);
    for (path, unknown) in [
        ("/mcp/servers/-", "server.unknown"),
        ("/messages?session=none", "session.unknown"),
    ] {
        for (key, status, code) in [
            ("gk_nobodys", 401, "auth.wrong_key"),
            (&*rig.gantry.admin, 403, "auth.admin_key"),
            (&*rig.gantry.agent, 404, unknown),
        ] {
            let posted = Posted::new(key, path, &Value::Null).body(long.clone());
            for last in [false, false, true] {
                let begun = Stopwatch::start();
                let mut connection = rig.gantry.connect();
                let written = posted.try_write(&mut connection);
                // Who pauses for too long is not waited for.
                if written.is_err() && !begun.stood_still().is_zero() && !last {
                    continue;
                }
                written.expect("everything is taken");
                refused(&connection.answer().unwrap(), status, code);
                assert!(begun.elapsed() <= 2 * SECOND, "{:?}", begun.elapsed());
                break;
            }
        }
    }
    rig.neighbour_holds();
}

// fault A3
#[test]
fn a_length_over_the_limit_is_refused_before_the_body_comes() {
    let rig = Rig::new(&Evilpeer::new(), &json!({}));
    for posted in calls(&rig, "announced") {
        for length in ["4194305", "1099511627776"] {
            let framing = format!("Expect: 100-continue\r\nContent-Length: {length}");
            let mut connection = rig.gantry.connect();
            let begun = Stopwatch::start();
            let head = posted.head(&rig.gantry.authority, &framing);
            connection.socket().write_all(&head).unwrap();
            refused(&connection.answer().unwrap(), 413, "http.body_too_large");
            assert!(begun.elapsed() <= SECOND, "{:?}", begun.elapsed());
        }
    }
    rig.nothing_happened();
}

/// Sends chunks until the gateway has had enough; returns its answer and how much was sent.
fn endless(rig: &Rig, posted: &Posted) -> (String, usize) {
    let mut connection = rig.gantry.connect();
    let head = posted.head(&rig.gantry.authority, "Transfer-Encoding: chunked");
    let mut pen = connection.socket().try_clone().unwrap();
    pen.write_all(&head).unwrap();
    thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let mut chunk = b"10000\r\n".to_vec();
            chunk.extend(vec![b' '; 0x10000]);
            chunk.extend(b"\r\n");
            let mut sent = 0;
            while sent < 256 << 20 && pen.write_all(&chunk).is_ok() {
                sent += 0x10000;
            }
            sent
        });
        let mut told = Vec::new();
        // The end may be a reset, since we are still sending.
        drop(connection.socket().read_to_end(&mut told));
        (
            String::from_utf8_lossy(&told).into_owned(),
            sending.join().unwrap(),
        )
    })
}

// fault A3
#[test]
fn endless_chunks_are_cut_off_within_bounded_memory() {
    const CLIENTS: usize = 8;
    // What is asserted below, and the calls that follow.
    let rig = Rig::new(&Evilpeer::new(), &json!({})).with_room(96);
    let (fds, before) = (rig.quiet_fds(), rig.memory());
    let posted = calls(&rig, "endless");
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (rig, posted) = (&rig, &posted[number % 2]);
                scope.spawn(move || endless(rig, posted))
            })
            .collect();
        rig.neighbour_holds();
        for client in clients {
            let (told, sent) = client.join().unwrap();
            assert!(told.starts_with("HTTP/1.1 413 "), "{told}");
            assert!(told.contains("http.body_too_large"), "{told}");
            assert!(sent <= 40 << 20, "{sent} bytes were taken");
        }
    });
    let grown = gantry_testkit::procs::peak_rss_kib(rig.gantry.pid).saturating_sub(before);
    assert!(
        grown <= CLIENTS as u64 * (8 << 10) + (24 << 10),
        "{grown} KiB"
    );
    rig.wait_fds(fds, SECOND);
    rig.nothing_happened();
}

/// Begins requests of an agent's that announce long bodies and do not send them; each is waited for,
/// so that it has its room.
fn announced(rig: &Rig, count: usize) -> Vec<Connection> {
    let posted = &calls(rig, "announced")[0];
    let framing = format!("Expect: 100-continue\r\nContent-Length: {LIMIT}");
    let head = posted.head(&rig.gantry.authority, &framing);
    let begin = |_| {
        let mut connection = rig.gantry.connect();
        connection.socket().write_all(&head).unwrap();
        assert_eq!(connection.head().unwrap().status, 100);
        connection
    };
    (0..count).map(begin).collect()
}

// fault A3, T7
#[test]
fn one_agent_takes_a_part_of_the_room_for_long_bodies_at_most() {
    // 40 MiB of 64.
    const SHARE: usize = 10;
    // As much as one agent's bodies may take, of which none comes but one after the other.
    let rig = Rig::new(&Evilpeer::new(), &json!({})).with_room(64);
    let [mcp, rest] = calls(&rig, "whole");
    let message = {
        let params = json!({"name": "far__echo", "arguments": {"text": "x", "nonce": "whole"}});
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string()
    };
    let long = |key: &str| {
        let posted = Posted::new(key, "/mcp", &Value::Null);
        posted.body(padded(&message, LIMIT)).send(&rig.gantry)
    };
    let held = announced(&rig, SHARE);
    refused(&long(&rig.gantry.agent), 429, "http.bodies_share");
    // Short bodies need no room, and others have theirs.
    assert_eq!(mcp.send(&rig.gantry).status, 200);
    assert_eq!(rest.send(&rig.gantry).status, 200);
    let body = json!({"kind": "agent", "agent": "other"});
    let made = rig.gantry.rest("POST", "/api/v1/keys", Some(&body)).json();
    let grant = json!({"grant": "all"});
    let path = "/api/v1/agents/other";
    let granted = rig.gantry.rest("PATCH", path, Some(&grant));
    assert_eq!(granted.status, 200, "{}", granted.text());
    let answer = long(made["key"].as_str().unwrap());
    assert_eq!(answer.status, 200, "{}", answer.text());
    drop(held);
    let mut freed = 0;
    let free = eventually(LONG, || {
        freed += usize::from(long(&rig.gantry.agent).status == 200);
        freed > 0
    });
    assert!(free.is_some());
    // What was refused never became a call; of those whose body never came nothing is known but that.
    assert_eq!(rig.journal().calls(), 4);
    rig.audited(&[(4, "ok", None)]);
}

/// Packs a text, by the program that everybody has.
fn packed(text: &[u8]) -> Vec<u8> {
    let mut gzip = Command::new("gzip")
        .arg("-9")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = gzip.stdin.take().unwrap();
    let mut output = gzip.stdout.take().unwrap();
    let mut packed = Vec::new();
    thread::scope(|scope| {
        scope.spawn(move || input.write_all(text).unwrap());
        output.read_to_end(&mut packed).unwrap();
    });
    assert!(gzip.wait().unwrap().success());
    packed
}

// fault A3
#[test]
fn a_bomb_is_refused_as_it_is_and_takes_no_room() {
    // Far more than the gateway may need beyond what it needed at the start.
    const UNPACKED: usize = 256 << 20;
    let rig = Rig::new(&Evilpeer::new(), &json!({}));
    let bomb = packed(&vec![b' '; UNPACKED]);
    assert!(bomb.len() < UNPACKED / 500, "{} bytes", bomb.len());
    // One that is too long even as it is: a member behind the other, which any unpacker takes for one.
    let long = bomb.repeat(LIMIT / bomb.len() + 1);
    assert!(long.len() > LIMIT);
    for posted in calls(&rig, "bomb") {
        let packed = posted.header("Content-Encoding", "gzip");
        for (body, status, code) in [
            (&bomb, 415, "http.content_encoding"),
            (&long, 413, "http.body_too_large"),
        ] {
            let begun = Stopwatch::start();
            let answer = packed.clone().body(body.clone()).send(&rig.gantry);
            assert!(begun.elapsed() <= SECOND, "{:?}", begun.elapsed());
            refused(&answer, status, code);
        }
        // Nor is it unpacked where nobody says that it is packed.
        let answer = packed
            .without("Content-Encoding")
            .body(bomb.clone())
            .send(&rig.gantry);
        assert_eq!(answer.status, 400, "{}", answer.text());
    }
    rig.neighbour_holds();
    rig.nothing_happened();
}

// fault A3
#[test]
fn packed_bodies_are_never_unpacked() {
    let rig = Rig::new(&Evilpeer::new(), &json!({}));
    for posted in calls(&rig, "packed") {
        for coding in ["gzip", "deflate", "br", "zstd", "identity, gzip"] {
            let answer = posted
                .clone()
                .header("Content-Encoding", coding)
                .send(&rig.gantry);
            refused(&answer, 415, "http.content_encoding");
        }
        assert_eq!(
            posted
                .header("Content-Encoding", "identity")
                .send(&rig.gantry)
                .status,
            200
        );
    }
    assert_eq!(rig.journal().calls(), 2);
    rig.audited(&[(2, "ok", None)]);
}

// fault A3
#[test]
fn heads_are_bounded_too() {
    let rig = Rig::new(&Evilpeer::new(), &json!({}));
    let [posted, _] = calls(&rig, "head");
    let many = (0..100).fold(posted.clone(), |posted, number| {
        posted.also(&format!("X-{number}"), "x")
    });
    let long = posted.header("X-Long", &"x".repeat(70_000));
    for posted in [many, long] {
        let mut connection = posted.open(&rig.gantry);
        let mut told = String::new();
        drop(connection.socket().read_to_string(&mut told));
        assert!(told.starts_with("HTTP/1.1 431 "), "{told}");
    }
    rig.nothing_happened();
    rig.neighbour_holds();
}
