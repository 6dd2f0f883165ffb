//! Reads lines from a server's stdout and hands each to an `Inbox`, with a budget per turn, so that
//! a flood from one server does not starve other tasks. A line over the limit is not kept: the
//! inbox gets its first and last bytes, and an endless line ends the reading.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

use crate::transport::pace::Pace;

const SMALL_BUFFER: usize = 8 * 1024;
const LARGE_BUFFER: usize = 256 * 1024;
/// From this length on a line gets the maximum buffer at once: growing step by step copies it
/// repeatedly.
const LONG_LINE: usize = 1 << 20;
/// How many bytes of an overlong line's beginning and end are kept to find its id.
const KEPT: usize = 256;
/// How long an overlong line may go on before it counts as endless.
const OVERLONG_TIME: Duration = Duration::from_millis(800);

/// Receives the lines of a child.
pub(crate) trait Inbox {
    /// Takes one line, without its line break.
    fn line(&self, line: Bytes);

    /// Reports a line over the limit, first with its beginning, and again with its end if it was
    /// skipped.
    fn overlong(&self, part: Overlong<'_>) -> Overflow;

    /// Returns how long reading pauses, for a child that floods: its pipe fills, and only it waits.
    fn rest(&self) -> Option<Duration> {
        None
    }
}

/// How to handle a line over the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// It is read to its end and not kept.
    Skip,
    /// It is kept nevertheless, up to this many bytes.
    Keep(usize),
    /// It is not a message; reading ends.
    End,
}

/// What is known of a line over the limit.
#[derive(Debug)]
pub(crate) enum Overlong<'a> {
    /// The limit was passed; this is the line's beginning.
    Begins { bytes: &'a [u8], allowed: usize },
    /// The line is over; this is how it ended.
    Ends(&'a [u8]),
}

/// The reading end of a link, over any byte stream.
pub(crate) struct LineReader<R> {
    stream: R,
    buffer: BytesMut,
    /// How much of `buffer` is known to hold no line break.
    scanned: usize,
    limit: usize,
    /// Maximum length of the current line: the limit, or more if the inbox allowed it.
    allowed: usize,
    overlong: Option<Skipping>,
    pace: Pace,
}

/// An overlong line that is being skipped.
struct Skipping {
    since: Instant,
    skipped: usize,
    /// How much may be skipped before the line counts as endless.
    most: usize,
    tail: Vec<u8>,
}

/// Why the reading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The child closed its stdout.
    Eof,
    /// A line had no end, or was refused by the inbox.
    Endless,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(stream: R, limit: usize) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            scanned: 0,
            limit,
            allowed: limit,
            overlong: None,
            pace: Pace::default(),
        }
    }

    /// Reads until the child closes its end or writes an endless line.
    pub(crate) async fn run(mut self, inbox: &impl Inbox) -> End {
        loop {
            if self.buffer.capacity() - self.buffer.len() < SMALL_BUFFER / 2 {
                self.buffer.reserve(self.room());
            }
            // A short read means that the pipe is empty; `read_buf` then avoids another read to
            // find that out.
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return self.end(inbox),
                Ok(_) => {}
            }
            if !self.hand_over(inbox).await {
                return End::Endless;
            }
        }
    }

    /// Returns how much buffer to reserve for the next read.
    fn room(&self) -> usize {
        match self.buffer.len() {
            ..=SMALL_BUFFER => SMALL_BUFFER,
            length if length > LONG_LINE => (self.allowed + LARGE_BUFFER)
                .saturating_sub(length)
                .max(LARGE_BUFFER),
            _ => LARGE_BUFFER,
        }
    }

    /// Handles the end of the stream; a last line without a line break counts too.
    fn end(mut self, inbox: &impl Inbox) -> End {
        if !self.buffer.is_empty() && self.overlong.is_none() {
            let last = self.buffer.split().freeze();
            inbox.line(trimmed(last));
        }
        End::Eof
    }

    /// Hands over every whole line in the buffer; false if the reading must end.
    async fn hand_over(&mut self, inbox: &impl Inbox) -> bool {
        while let Some(at) = memchr::memchr(b'\n', &self.buffer[self.scanned..]) {
            let line = self.buffer.split_to(self.scanned + at + 1);
            self.scanned = 0;
            let allowed = std::mem::replace(&mut self.allowed, self.limit);
            match self.overlong.take() {
                Some(mut skipping) => {
                    skipping.keep(&line);
                    if inbox.overlong(Overlong::Ends(&skipping.tail)) == Overflow::End {
                        return false;
                    }
                }
                None if line.len() > allowed => match leave(inbox, &line, allowed) {
                    Overflow::Keep(most) if line.len() <= most => {
                        inbox.line(trimmed(line.freeze()));
                    }
                    Overflow::Keep(_) | Overflow::Skip => {
                        let ends = &line[line.len().saturating_sub(KEPT)..];
                        if inbox.overlong(Overlong::Ends(ends)) == Overflow::End {
                            return false;
                        }
                    }
                    Overflow::End => return false,
                },
                None => inbox.line(trimmed(line.freeze())),
            }
            self.pace.took(|| inbox.rest()).await;
        }
        self.scanned = self.buffer.len();
        self.bound(inbox)
    }

    /// Keeps the buffer within the limit; false if an overlong line does not end.
    fn bound(&mut self, inbox: &impl Inbox) -> bool {
        if self.overlong.is_none() && self.buffer.len() > self.allowed {
            match leave(inbox, &self.buffer, self.allowed) {
                Overflow::Keep(most) if most > self.allowed => self.allowed = most,
                Overflow::Keep(_) | Overflow::Skip => {
                    self.overlong = Some(Skipping {
                        since: Instant::now(),
                        skipped: 0,
                        most: self.limit + self.allowed,
                        tail: Vec::with_capacity(KEPT),
                    });
                }
                Overflow::End => return false,
            }
        }
        if let Some(skipping) = &mut self.overlong {
            skipping.keep(&self.buffer);
            skipping.skipped += self.buffer.len();
            self.buffer.advance(self.buffer.len());
            self.scanned = 0;
            if skipping.skipped > skipping.most || skipping.since.elapsed() > OVERLONG_TIME {
                return false;
            }
        }
        if self.buffer.is_empty() && self.buffer.capacity() > LARGE_BUFFER {
            self.buffer = BytesMut::new();
        }
        true
    }
}

impl Skipping {
    fn keep(&mut self, bytes: &[u8]) {
        self.tail
            .extend_from_slice(&bytes[bytes.len().saturating_sub(KEPT)..]);
        let surplus = self.tail.len().saturating_sub(KEPT);
        self.tail.drain(..surplus);
    }
}

/// Asks the inbox how to handle a line longer than `allowed`.
fn leave(inbox: &impl Inbox, line: &[u8], allowed: usize) -> Overflow {
    inbox.overlong(Overlong::Begins {
        bytes: &line[..KEPT.min(line.len())],
        allowed,
    })
}

/// Takes off the line break and a carriage return before it.
fn trimmed(mut line: Bytes) -> Bytes {
    if line.last() == Some(&b'\n') {
        line.truncate(line.len() - 1);
    }
    if line.last() == Some(&b'\r') {
        line.truncate(line.len() - 1);
    }
    line
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};
    use tokio::io::AsyncWriteExt;
    use tokio::net::unix::pipe;

    use super::*;

    #[derive(Default)]
    struct Kept {
        lines: RefCell<Vec<Vec<u8>>>,
        overlong: RefCell<Vec<String>>,
        /// How long a line that begins with `long` may be.
        long: usize,
    }

    impl Inbox for Kept {
        fn line(&self, line: Bytes) {
            self.lines.borrow_mut().push(line.to_vec());
        }

        fn overlong(&self, part: Overlong<'_>) -> Overflow {
            let part = match part {
                Overlong::Begins { bytes, .. } if bytes.starts_with(b"long") => {
                    return Overflow::Keep(self.long);
                }
                Overlong::Begins { bytes, .. } => {
                    format!("begins {}", String::from_utf8_lossy(&bytes[..4]))
                }
                Overlong::Ends(bytes) => {
                    format!(
                        "ends {}",
                        String::from_utf8_lossy(&bytes[bytes.len() - 4..]).trim_end()
                    )
                }
            };
            self.overlong.borrow_mut().push(part);
            Overflow::Skip
        }
    }

    async fn read(chunks: Vec<Vec<u8>>, limit: usize) -> (Kept, End) {
        let (mut sender, receiver) = pipe::pipe().unwrap();
        let kept = Kept {
            long: 3 * limit,
            ..Kept::default()
        };
        let write = async move {
            for chunk in chunks {
                if sender.write_all(&chunk).await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        let ((), end) = tokio::join!(write, LineReader::new(receiver, limit).run(&kept));
        (kept, end)
    }

    #[tokio::test]
    async fn lines_are_the_same_however_they_are_chunked() {
        // fault S4
        let text = b"{\"a\":1}\r\n\n{\"b\":2}\n{\"c\":3}".to_vec();
        let expected = [&b"{\"a\":1}"[..], b"", b"{\"b\":2}", b"{\"c\":3}"];
        for size in [1, 2, 3, 7, 100] {
            let (kept, end) = read(text.chunks(size).map(<[u8]>::to_vec).collect(), 1000).await;
            assert_eq!(*kept.lines.borrow(), expected);
            assert_eq!(end, End::Eof);
        }
    }

    /// The maximum line length in tests that cut lines anywhere.
    const SHORT: usize = 20;

    /// Returns lines of all lengths around the limit, with carriage returns anywhere. None is so long
    /// that it could be taken for an endless one.
    fn short_lines() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let byte = prop_oneof![Just(b'\r'), b' '..=u8::MAX];
        let line = proptest::collection::vec(byte, 0..=2 * SHORT);
        proptest::collection::vec(line, 0..12)
    }

    /// Cuts a text into pieces of these lengths, cyclically.
    fn cut(text: &[u8], lengths: &[usize]) -> Vec<Vec<u8>> {
        let mut rest = text;
        let mut pieces = Vec::new();
        for length in lengths.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, tail) = rest.split_at(rest.len().min(*length));
            pieces.push(piece.to_vec());
            rest = tail;
        }
        pieces
    }

    /// Returns the expected lines of a text, without a reader.
    fn heard(text: &[u8]) -> Kept {
        let kept = Kept::default();
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            if line.len() > SHORT {
                kept.overlong(Overlong::Begins {
                    bytes: line,
                    allowed: SHORT,
                });
                if line.ends_with(b"\n") {
                    kept.overlong(Overlong::Ends(line));
                }
            } else {
                let line = line.strip_suffix(b"\n").unwrap_or(line);
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                kept.line(Bytes::copy_from_slice(line));
            }
        }
        kept
    }

    proptest! {
        // fault S4
        #[test]
        fn lines_are_the_same_wherever_they_are_cut(
            lines in short_lines(),
            is_ended in any::<bool>(),
            lengths in proptest::collection::vec(1..=3 * SHORT, 1..12),
        ) {
            let mut text = lines.join(&b'\n');
            if is_ended {
                text.push(b'\n');
            }
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                // The duration of an overlong line does not matter here.
                .start_paused(true)
                .build()
                .unwrap();
            let (kept, end) = runtime.block_on(read(cut(&text, &lengths), SHORT));
            let wanted = heard(&text);
            prop_assert_eq!(kept.lines, wanted.lines);
            prop_assert_eq!(kept.overlong, wanted.overlong);
            prop_assert_eq!(end, End::Eof);
        }
    }

    #[tokio::test]
    async fn a_line_at_the_limit_passes_and_one_over_it_is_reported() {
        // fault S3
        for (length, whole) in [(99, true), (100, true), (101, false)] {
            let mut line = vec![b'x'; length - 1];
            line.push(b'\n');
            let after = b"next\n".to_vec();
            let (kept, end) = read(vec![line, after], 100).await;
            assert_eq!(
                kept.lines.borrow().len(),
                if whole { 2 } else { 1 },
                "{length}"
            );
            assert_eq!(
                kept.overlong.borrow().len(),
                if whole { 0 } else { 2 },
                "{length}"
            );
            assert_eq!(end, End::Eof);
        }
    }

    #[tokio::test]
    async fn a_line_that_may_be_longer_is_kept_up_to_its_own_limit() {
        // fault S19
        for (length, whole) in [(300, true), (301, false)] {
            let mut line = b"long".to_vec();
            line.resize(length - 1, b'x');
            line.push(b'\n');
            for size in [1, 50, 1000] {
                let chunks = line.chunks(size).map(<[u8]>::to_vec);
                let after = vec![vec![b'y'; 101], b"\nnext\n".to_vec()];
                let (kept, end) = read(chunks.chain(after).collect(), 100).await;
                let lines: Vec<usize> = kept.lines.borrow().iter().map(Vec::len).collect();
                let wanted = if whole { vec![299, 4] } else { vec![4] };
                assert_eq!(lines, wanted, "{length} in pieces of {size}");
                // The next line has the normal limit again.
                assert!(kept.overlong.borrow().contains(&"begins yyyy".to_owned()));
                assert_eq!(end, End::Eof);
            }
        }
    }

    #[tokio::test]
    async fn an_endless_line_ends_the_reading_with_a_bounded_buffer() {
        // fault S2
        let (kept, end) = read((0..100).map(|_| vec![b'x'; 4096]).collect(), 64 * 1024).await;
        assert_eq!(end, End::Endless);
        assert!(kept.lines.borrow().is_empty());
    }
}
