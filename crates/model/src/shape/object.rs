//! JSON objects and arrays, written member by member around raw values.

use crate::jsonrpc::{Raw, RawBuf, quote_into};

/// An object under construction; members are in insertion order.
pub(super) struct Object(Vec<u8>);

impl Object {
    pub(super) fn new() -> Self {
        Self(Vec::from(b"{"))
    }

    /// Starts an object with its `type`.
    pub(super) fn of_type(kind: &str) -> Self {
        Self::new().text("type", kind)
    }

    pub(super) fn raw(mut self, key: &str, value: Raw<'_>) -> Self {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        quote_into(&mut self.0, key);
        self.0.push(b':');
        self.0.extend_from_slice(value.text().as_bytes());
        self
    }

    pub(super) fn buf(self, key: &str, value: &RawBuf) -> Self {
        self.raw(key, value.as_raw())
    }

    pub(super) fn text(self, key: &str, value: &str) -> Self {
        self.buf(key, &RawBuf::string(value))
    }

    /// Adds a text unless it is `None`.
    pub(super) fn some_text(self, key: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.text(key, value),
            None => self,
        }
    }

    pub(super) fn done(mut self) -> RawBuf {
        self.0.push(b'}');
        written(self.0)
    }
}

/// Writes an array of values.
pub(super) fn array(items: impl IntoIterator<Item = RawBuf>) -> RawBuf {
    let mut out = Vec::from(b"[");
    for item in items {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(item.text().as_bytes());
    }
    out.push(b']');
    written(out)
}

fn written(bytes: Vec<u8>) -> RawBuf {
    RawBuf::trusted(String::from_utf8(bytes).expect("JSON is written from strings"))
}
