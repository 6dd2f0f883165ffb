//! Requests whose end can be read in two ways, and heads that are none: on raw sockets.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use gantry_testkit::Evilpeer;
use serde_json::json;

use super::{Rig, SECOND};

/// A call that nobody judged, hidden behind or within another request.
const HIDDEN: &str = r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"far__echo","arguments":{"text":"hidden"}}}"#;

/// Writes bytes and returns all that comes back until the gateway closes the connection.
fn exchanged(rig: &Rig, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(&rig.gantry.authority).unwrap();
    stream.set_read_timeout(Some(SECOND * 15)).unwrap();
    // It may be cut off before all is written; what it was told before that is there all the same.
    drop(stream.write_all(bytes));
    let mut said = Vec::new();
    let closed = stream.read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said).into_owned();
    // A connection that is cut off with bytes of ours unread is closed too.
    if let Err(error) = closed {
        assert_eq!(
            error.kind(),
            std::io::ErrorKind::ConnectionReset,
            "still open after {said}"
        );
    }
    said
}

fn statuses(said: &str) -> Vec<&str> {
    let lines = said.lines().filter(|line| line.starts_with("HTTP/1.1 "));
    lines.map(|line| &line[9..12]).collect()
}

// fault H11
#[test]
fn a_request_with_two_ends_is_refused_or_read_one_way_and_the_connection_closed() {
    let rig = Rig::new(&Evilpeer::new(), &json!({}));
    let host = &rig.gantry.authority;
    let key = &rig.gantry.agent;
    let hidden = format!(
        "POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\nAccept: application/json\r\nContent-Length: {}\r\n\r\n{HIDDEN}",
        HIDDEN.len()
    );
    let post = |framing: &str, body: &str| {
        format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nAccept: application/json\r\n{framing}\r\n{body}"
        )
    };
    let pieces = "0\r\n\r\n";
    let length = format!("Content-Length: {}\r\n", pieces.len());
    let chunked = "Transfer-Encoding: chunked\r\n";
    let rows = [
        // The length counts for nothing; what follows the last piece is not read.
        (format!("{length}{chunked}"), "401"),
        (format!("{chunked}{length}"), "401"),
        ("Transfer-Encoding: gzip, chunked\r\n".to_owned(), "400"),
        ("Transfer-Encoding: chunked, identity\r\n".to_owned(), "400"),
        ("Transfer-Encoding: xchunked\r\n".to_owned(), "400"),
        (format!("{chunked}{chunked}"), "400"),
        (format!("{length}Content-Length: 70\r\n"), "400"),
        ("Content-Length: +5\r\n".to_owned(), "400"),
        (" Transfer-Encoding: chunked\r\n".to_owned(), "400"),
        ("Transfer-Encoding : chunked\r\n".to_owned(), "400"),
        ("X: a\r\n Transfer-Encoding: chunked\r\n".to_owned(), "400"),
        ("X: a\rTransfer-Encoding: chunked\r\n".to_owned(), "400"),
        // Lines that end with a line feed alone are lines, and say as much as any.
        (format!("{length}X: a\nTransfer-Encoding: chunked\n"), "401"),
    ];
    for (framing, wanted) in rows {
        let said = exchanged(&rig, (post(&framing, pieces) + &hidden).as_bytes());
        assert_eq!(statuses(&said), [wanted], "{framing:?}: {said}");
    }
    rig.nothing_happened();
    rig.neighbour_holds();
}

// fault H11
#[test]
fn the_second_version_of_http_is_not_spoken_and_its_floods_end_at_once() {
    let rig = Rig::new(&Evilpeer::new(), &json!({}));
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let reset = [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8];
    let continued = [0, 0, 1, 9, 0, 0, 0, 0, 1, 0x82];
    for frame in [&reset[..], &continued[..]] {
        let flood = [&preface[..], &frame.repeat(5_000)].concat();
        let said = exchanged(&rig, &flood);
        assert!(!said.contains(" 200 "), "{said}");
    }
    rig.nothing_happened();
    rig.neighbour_holds();
}
