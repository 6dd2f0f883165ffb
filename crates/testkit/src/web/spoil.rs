//! The ways in which an answer over HTTP goes wrong, carried out on the connection. Which one, and
//! when, is decided elsewhere. Those without an end go on until the client is gone.

use std::io;
use std::thread;
use std::time::Duration;

use super::Connection;

/// One way.
#[derive(Clone, Debug)]
pub(crate) enum Spoil {
    /// Closes the connection without a word.
    Hangup,
    /// Never says anything.
    Silent,
    /// Sends its head a byte at a time, with this pause.
    SlowHead(Duration),
    /// JSON without an end.
    EndlessBody,
    /// An event without an end.
    EndlessEvent,
    /// JSON that grows to a gigabyte when it is unpacked.
    GzipBomb,
    /// Comments for ever.
    Comments,
    /// Sends the client elsewhere.
    Redirect(u16, String),
    /// Half an event, then nothing.
    Cut,
    /// Something that is no answer: `html`, `202`, `204`, `empty` or `type`.
    Wrong(String),
    /// A status, and when to come again in seconds.
    Status(u16, Option<u64>),
    /// The session is forgotten first.
    Forget,
}

/// How much a bomb unpacks to.
const BOMB: usize = 1 << 30;
const JSON: (&str, &str) = ("Content-Type", "application/json");
const PAUSE: Duration = Duration::from_millis(10);

impl Spoil {
    /// Spoils the answer to what was just read.
    pub(crate) fn on(&self, connection: &mut Connection) -> io::Result<()> {
        match self {
            Self::Hangup | Self::Forget => Err(connection.cut()),
            Self::Silent => loop {
                wait(connection)?;
            },
            Self::SlowHead(pause) => {
                let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Slow: ";
                for byte in head.iter().chain(b"x".iter().cycle()) {
                    connection.raw(&[*byte])?;
                    thread::sleep(*pause);
                }
                Ok(())
            }
            Self::EndlessBody => {
                connection.begin(200, &[JSON])?;
                connection.piece(b"{\"jsonrpc\":\"2.0\",\"result\":\"")?;
                loop {
                    connection.piece(&[b'x'; 64 << 10])?;
                }
            }
            Self::EndlessEvent => {
                connection.begin_events(&[])?;
                connection.piece(b"event: message\ndata: \"")?;
                loop {
                    connection.piece(&[b'x'; 64 << 10])?;
                }
            }
            Self::GzipBomb => {
                connection.begin(200, &[JSON, ("Content-Encoding", "gzip")])?;
                for piece in bomb(BOMB).chunks(64 << 10) {
                    connection.piece(piece)?;
                }
                connection.end()
            }
            Self::Comments => {
                connection.begin_events(&[])?;
                loop {
                    connection.piece(b": still here\n\n")?;
                    wait(connection)?;
                }
            }
            Self::Redirect(status, to) => connection.answer(*status, &[("Location", to)], b""),
            Self::Cut => {
                connection.begin_events(&[])?;
                connection.piece(b"event: message\ndata: {\"jsonrpc\":")?;
                Err(connection.cut())
            }
            Self::Wrong(how) => wrong(connection, how),
            Self::Status(status, again) => {
                let again = again.map(|seconds| seconds.to_string());
                let mut headers = vec![("Content-Type", "text/plain")];
                headers.extend(again.as_deref().map(|seconds| ("Retry-After", seconds)));
                if *status == 401 {
                    headers.push(("WWW-Authenticate", "Bearer"));
                }
                connection.answer(*status, &headers, b"as asked")
            }
        }
    }
}

fn wrong(connection: &mut Connection, how: &str) -> io::Result<()> {
    match how {
        "202" => connection.answer(202, &[], b""),
        "204" => connection.answer(204, &[], b""),
        "empty" => connection.answer(200, &[JSON], b""),
        "type" => connection.answer(
            200,
            &[("Content-Type", "application/octet-stream")],
            b"\0\x01",
        ),
        _ => {
            let page = b"<html><body><h1>It works!</h1>\x1b[31m</body></html>";
            connection.answer(200, &[("Content-Type", "text/html")], page)
        }
    }
}

fn wait(connection: &mut Connection) -> io::Result<()> {
    thread::sleep(PAUSE);
    match connection.is_gone() {
        true => Err(io::ErrorKind::ConnectionAborted.into()),
        false => Ok(()),
    }
}

/// Returns a gzip stream of a quote and so many letters; its end is missing, which nobody should see.
fn bomb(size: usize) -> Vec<u8> {
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let (mut bits, mut count) = (0_u32, 0);
    let mut put = |bytes: &mut Vec<u8>, value: u32, width: u32| {
        bits |= value << count;
        count += width;
        while count >= 8 {
            bytes.push(bits.to_le_bytes()[0]);
            bits >>= 8;
            count -= 8;
        }
    };
    // A last block with fixed codes, which are written most significant bit first.
    put(&mut bytes, 0b011, 3);
    for letter in *b"\"x" {
        let code = 0x30 + u32::from(letter);
        put(&mut bytes, code.reverse_bits() >> 24, 8);
    }
    for _ in 0..size / 258 {
        // Length 258, distance 1.
        put(&mut bytes, 0b1010_0011, 8);
        put(&mut bytes, 0, 5);
    }
    bytes
}
