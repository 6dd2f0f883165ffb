//! Server-sent events, as much of them as a gateway uses: the kind and the data of each event.
//!
//! Fed with pieces of a body as they come; a piece may end anywhere. Entry points: [`Events::feed`] and
//! [`Events::feed_named`].

use bytes::Bytes;

/// The longest event that is taken.
const LONGEST: usize = 64 << 20;

/// An event is longer than any message may be.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cli) struct TooLong;

/// What has come of an event so far.
#[derive(Debug, Default)]
pub(in crate::cli) struct Events {
    line: Vec<u8>,
    kind: String,
    data: Vec<u8>,
    has_data: bool,
}

impl Events {
    /// Takes a piece and returns the data of the events that it completes.
    pub(super) fn feed(&mut self, piece: &Bytes) -> Result<Vec<Vec<u8>>, TooLong> {
        let complete = self.feed_named(piece)?;
        Ok(complete.into_iter().map(|(_, data)| data).collect())
    }

    /// Takes a piece and returns the events that it completes, each with its kind.
    pub(in crate::cli) fn feed_named(
        &mut self,
        piece: &Bytes,
    ) -> Result<Vec<(String, Vec<u8>)>, TooLong> {
        let mut complete = Vec::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + self.data.len() + part.len() > LONGEST {
                return Err(TooLong);
            }
            self.line.extend_from_slice(part);
            if part.last() == Some(&b'\n') {
                let line = std::mem::take(&mut self.line);
                complete.extend(self.take(line.trim_ascii_end()));
            }
        }
        Ok(complete)
    }

    fn take(&mut self, line: &[u8]) -> Option<(String, Vec<u8>)> {
        if line.is_empty() {
            let has_data = std::mem::take(&mut self.has_data);
            let kind = std::mem::take(&mut self.kind);
            return has_data.then(|| (kind, std::mem::take(&mut self.data)));
        }
        if let Some(kind) = line.strip_prefix(b"event:") {
            self.kind = String::from_utf8_lossy(kind.trim_ascii()).into_owned();
        }
        if let Some(data) = line.strip_prefix(b"data:") {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
            self.data
                .extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_may_be_cut_anywhere() {
        let text =
            b":\n\nevent: message\ndata: {\"a\":1}\n\ndata:{\r\ndata: }\r\n\r\n: quiet\n\ndata: x";
        for size in 1..text.len() {
            let mut events = Events::default();
            let mut found = Vec::new();
            for piece in text.chunks(size) {
                found.extend(events.feed(&Bytes::copy_from_slice(piece)).unwrap());
            }
            assert_eq!(found, [b"{\"a\":1}".to_vec(), b"{\n}".to_vec()], "{size}");
        }
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut events = Events::default();
        let piece = Bytes::from(vec![b'x'; LONGEST / 2]);
        assert_eq!(events.feed(&piece), Ok(Vec::new()));
        assert_eq!(events.feed(&piece), Ok(Vec::new()));
        assert_eq!(events.feed(&piece), Err(TooLong));
    }
}
