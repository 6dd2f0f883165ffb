//! Parses `text/event-stream` incrementally, with a size limit per event.
//!
//! Never interprets the data of an event, and never waits: the reader of the stream pushes bytes
//! and takes complete events. Entry points: [`Events::push`] and [`Events::next_event`].

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};

/// The longest `retry` of a server that is respected.
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// The longest id of an event that is kept.
const LONGEST_ID: usize = 1024;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its name; empty is `message`.
    pub name: String,
    /// Its data, lines joined by line feeds.
    pub data: Bytes,
}

/// The error of an event or a line that exceeds the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endless;

/// A parser of an event stream.
#[derive(Debug)]
pub struct Events {
    buffer: BytesMut,
    /// How many bytes of `buffer` are known to contain no line end.
    scanned: usize,
    /// Whether the last line ended with a carriage return, so that a following line feed belongs to
    /// it.
    after_return: bool,
    begun: bool,
    name: String,
    data: BytesMut,
    has_data: bool,
    /// The id of the event that is being parsed.
    next_id: Option<String>,
    limit: usize,
    last_id: Option<String>,
    retry: Option<Duration>,
}

impl Events {
    /// Creates a parser with a limit of bytes per event.
    pub fn new(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            scanned: 0,
            after_return: false,
            begun: false,
            name: String::new(),
            data: BytesMut::new(),
            has_data: false,
            next_id: None,
            limit,
            last_id: None,
            retry: None,
        }
    }

    /// Changes the limit of bytes per event.
    pub fn bound(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Discards an incomplete event, before the bytes of a reopened stream.
    pub fn resume(&mut self) {
        self.buffer.clear();
        self.scanned = 0;
        (self.after_return, self.begun) = (false, false);
        self.name.clear();
        self.data.clear();
        self.has_data = false;
        self.next_id = None;
    }

    /// Returns the id of the last complete event, for resuming.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// Returns how long to wait before the stream is resumed, as the server requests.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Returns the next complete event; `None` until more bytes arrive.
    pub fn next_event(&mut self) -> Result<Option<Event>, Endless> {
        while let Some(line) = self.line() {
            if line.is_empty() {
                if let Some(event) = self.dispatch() {
                    return Ok(Some(event));
                }
                continue;
            }
            self.field(&line);
            if self.data.len() > self.limit {
                return Err(Endless);
            }
        }
        if self.buffer.len() + self.data.len() > self.limit {
            return Err(Endless);
        }
        Ok(None)
    }

    /// Takes the next complete line from the buffer, without its end.
    fn line(&mut self) -> Option<Bytes> {
        if self.after_return && !self.buffer.is_empty() {
            self.after_return = false;
            if self.buffer[0] == b'\n' {
                self.buffer.advance(1);
                self.scanned = 0;
            }
        }
        if !self.begun && self.buffer.len() >= 3 {
            self.begun = true;
            if self.buffer.starts_with(b"\xef\xbb\xbf") {
                self.buffer.advance(3);
                self.scanned = 0;
            }
        }
        let found = memchr::memchr2(b'\n', b'\r', &self.buffer[self.scanned..]);
        let Some(found) = found else {
            self.scanned = self.buffer.len();
            return None;
        };
        let end = self.scanned + found;
        (self.scanned, self.begun) = (0, true);
        let mut line = self.buffer.split_to(end + 1);
        self.after_return = line[end] == b'\r';
        line.truncate(end);
        Some(line.freeze())
    }

    fn field(&mut self, line: &[u8]) {
        let (name, value) = match memchr::memchr(b':', line) {
            // A comment, which only keeps the connection open.
            Some(0) => return,
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                if self.has_data {
                    self.data.extend_from_slice(b"\n");
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => self.name = String::from_utf8_lossy(value).chars().take(64).collect(),
            b"id" if is_id(value) => {
                self.next_id = std::str::from_utf8(value).ok().map(str::to_owned);
            }
            b"retry" => {
                let text = std::str::from_utf8(value).ok();
                let wait = text.and_then(|text| text.parse().ok());
                let wait = wait.map(|ms| Duration::from_millis(ms).min(LONGEST_RETRY));
                self.retry = wait.or(self.retry);
            }
            _ => {}
        }
    }

    /// Ends an event; without data there is no event, but its id counts.
    fn dispatch(&mut self) -> Option<Event> {
        let name = std::mem::take(&mut self.name);
        if let Some(id) = self.next_id.take() {
            self.last_id = Some(id);
        }
        if !std::mem::take(&mut self.has_data) {
            return None;
        }
        Some(Event {
            name,
            data: self.data.split().freeze(),
        })
    }
}

/// Returns whether an id can be sent back in a header.
fn is_id(value: &[u8]) -> bool {
    let visible = |byte: &u8| matches!(byte, b' '..=b'~');
    !value.is_empty() && value.len() <= LONGEST_ID && value.iter().all(visible)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, any, prop_assert_eq, prop_oneof, proptest};

    use super::*;

    /// Reads a whole stream that arrives in pieces of this length.
    fn read(text: &[u8], piece: usize) -> Result<Vec<(String, String)>, Endless> {
        let mut events = Events::new(64);
        let mut found = Vec::new();
        for piece in text.chunks(piece.max(1)) {
            events.push(piece);
            while let Some(event) = events.next_event()? {
                let data = String::from_utf8_lossy(&event.data).into_owned();
                found.push((event.name, data));
            }
        }
        Ok(found)
    }

    #[test]
    fn events_are_read_with_any_line_ends() {
        let event = |name: &str, data: &str| (name.to_owned(), data.to_owned());
        let text =
            b"\xef\xbb\xbfevent: endpoint\rdata: /m\r\r: keep alive\r\n\r\ndata: a\ndata:b\n\n";
        for piece in 1..text.len() {
            let expected = vec![event("endpoint", "/m"), event("", "a\nb")];
            assert_eq!(read(text, piece), Ok(expected), "{piece}");
        }
    }

    #[test]
    fn ids_and_waits_are_kept_and_bounded() {
        let mut events = Events::new(64);
        events.push(b"id: 7\nretry: 250\ndata: \n\nid: a\0b\nretry: x\n\n");
        let empty = Event {
            name: String::new(),
            data: Bytes::new(),
        };
        assert_eq!(events.next_event(), Ok(Some(empty)));
        assert_eq!(events.next_event(), Ok(None));
        assert_eq!(events.last_id(), Some("7"));
        assert_eq!(events.retry(), Some(Duration::from_millis(250)));
        events.push(b"retry: 99999999\n");
        assert_eq!(events.next_event(), Ok(None));
        assert_eq!(events.retry(), Some(LONGEST_RETRY));
    }

    #[test]
    fn a_cut_event_counts_for_nothing() {
        // fault H6
        let mut events = Events::new(64);
        events.push(b"id: 7\ndata: a\n\nevent: x\nid: 8\ndata: b\nda");
        let event = |data: &'static [u8]| Event {
            name: String::new(),
            data: Bytes::from_static(data),
        };
        assert_eq!(events.next_event(), Ok(Some(event(b"a"))));
        assert_eq!(events.next_event(), Ok(None));
        assert_eq!(events.last_id(), Some("7"));
        events.resume();
        events.push(b"\xef\xbb\xbfdata: c\n\nid: 9\n\n");
        assert_eq!(events.next_event(), Ok(Some(event(b"c"))));
        assert_eq!(events.last_id(), Some("7"));
        assert_eq!(events.next_event(), Ok(None));
        assert_eq!(events.last_id(), Some("9"));
    }

    #[test]
    fn an_event_without_end_is_given_up() {
        // fault H5
        assert_eq!(read(&[b'x'; 100], 7), Err(Endless));
        let lines = b"data: xxxxxxxxxxxxxxx\n".repeat(8);
        assert_eq!(read(&lines, 7), Err(Endless));
        let comments = b": keep alive\n".repeat(100);
        assert_eq!(read(&comments, 7), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            bytes in proptest::collection::vec(
                prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), Just(b'd'), any::<u8>()], 0..60),
            piece in 1_usize..9,
        ) {
            let text = [b"data: ".as_slice(), &bytes].concat();
            prop_assert_eq!(read(&text, piece), read(&text, text.len()));
        }
    }
}
