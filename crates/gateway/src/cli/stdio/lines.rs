//! Reads lines from stdin and writes lines to stdout, each on its own thread.
//!
//! A blocked thread does not keep the program from ending. Lines and both queues are bounded.
//! Nothing else in `gantry stdio` touches stdin or stdout. Entry points: [`read`] and [`write()`].

use std::io::{self, BufRead, BufReader, Read as _};
use std::thread;

use tokio::sync::{mpsc, oneshot};

use crate::cli::output::{Output, Stream};
use crate::http::limits::BODY_BYTES;

/// Maximum number of queued lines; with the line limit at most 64 MiB.
const WAITING_IN: usize = 16;
/// Maximum number of messages queued for the client.
const WAITING_OUT: usize = 64;

/// A line from the client, without its line break.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// All of it.
    Whole(Vec<u8>),
    /// The beginning of an oversized line.
    TooLong(Vec<u8>),
}

/// Reads lines until the end of the input.
pub(super) fn read() -> mpsc::Receiver<Line> {
    let (tx, rx) = mpsc::channel(WAITING_IN);
    thread::spawn(move || {
        let mut input = BufReader::new(io::stdin().lock());
        while let Ok(Some(line)) = next(&mut input, BODY_BYTES) {
            if tx.blocking_send(line).is_err() {
                return;
            }
        }
    });
    rx
}

fn next(input: &mut impl BufRead, limit: usize) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let read = input.by_ref().take(most).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(Some(Line::Whole(line)));
    }
    if line.len() <= limit {
        return Ok(Some(Line::Whole(line)));
    }
    loop {
        let buffer = input.fill_buf()?;
        let Some(end) = buffer.iter().position(|byte| *byte == b'\n') else {
            let length = buffer.len();
            if length == 0 {
                return Ok(Some(Line::TooLong(line)));
            }
            input.consume(length);
            continue;
        };
        input.consume(end + 1);
        return Ok(Some(Line::TooLong(line)));
    }
}

/// Returns the queue of messages, and a signal that the last one is written.
pub(super) fn write(output: &'static Output) -> (mpsc::Sender<Vec<u8>>, oneshot::Receiver<()>) {
    let (tx, mut rx) = mpsc::channel::<Vec<u8>>(WAITING_OUT);
    let (done, written) = oneshot::channel();
    thread::spawn(move || {
        while let Some(message) = rx.blocking_recv() {
            if !output.write_now(Stream::Stdout, &on_one_line(message)) {
                break;
            }
        }
        drop(rx);
        done.send(()).ok();
    });
    (tx, written)
}

/// Terminates a message as a line; in JSON a line break can only be between tokens.
fn on_one_line(mut message: Vec<u8>) -> Vec<u8> {
    message.retain(|byte| !matches!(byte, b'\n' | b'\r'));
    message.push(b'\n');
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(mut text: &[u8], limit: usize) -> Vec<Line> {
        std::iter::from_fn(|| next(&mut text, limit).unwrap()).collect()
    }

    #[test]
    fn lines_are_bounded_and_a_long_one_costs_only_itself() {
        let whole = |text: &str| Line::Whole(text.into());
        assert_eq!(lines(b"a\n\nbc", 3), [whole("a"), whole(""), whole("bc")]);
        let long = Line::TooLong(b"abcd".to_vec());
        assert_eq!(lines(b"abcdefgh\nxyz\n", 3), [long, whole("xyz")]);
        assert_eq!(lines(b"abcdefgh", 3).len(), 1);
    }

    // fault S21
    #[test]
    fn a_message_is_one_line() {
        assert_eq!(on_one_line(b"{\n\"a\":\r1}".to_vec()), b"{\"a\":1}\n");
    }
}
