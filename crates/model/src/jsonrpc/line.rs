//! Messages for line-framed links (stdio, SSE): one message per line, by construction.
//!
//! A raw value may contain line breaks between its tokens, and with them a whole hidden message
//! (fault S21). A [`OneLine`] can only be created here, where such a value is minified first, so a
//! link that accepts nothing else is safe.

use super::RequestId;
use super::walk::{skip_space, skip_string};
use super::write::{Payload, write_error, write_notification, write_request, write_result};

/// A whole message on one line, with its final line feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneLine(Vec<u8>);

impl OneLine {
    /// Writes a request with an id of the gateway.
    pub fn request(id: u64, method: &str, params: Option<Payload<'_>>) -> Self {
        Self::write(params, |out| write_request(out, id, method, params))
    }

    /// Writes a notification.
    pub fn notification(method: &str, params: Option<Payload<'_>>) -> Self {
        Self::write(params, |out| write_notification(out, method, params))
    }

    /// Writes a response with a result.
    pub fn result(id: RequestId<'_>, result: Payload<'_>) -> Self {
        Self::write(Some(result), |out| write_result(out, id, result))
    }

    /// Writes a response with an error.
    pub fn error(
        id: Option<RequestId<'_>>,
        code: i64,
        message: &str,
        data: Option<Payload<'_>>,
    ) -> Self {
        Self::write(data, |out| write_error(out, id, code, message, data))
    }

    /// Returns the message and its final line feed.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the message and its final line feed, with their memory.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Returns the message without the line feed.
    pub fn message(&self) -> &[u8] {
        &self.0[..self.0.len() - 1]
    }

    fn write(payload: Option<Payload<'_>>, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut out = Vec::new();
        write(&mut out);
        if payload.is_some_and(|payload| !payload.is_one_line()) {
            out = minified(&out);
        }
        out.push(b'\n');
        Self(out)
    }
}

/// Returns valid JSON without the white space between its tokens.
pub fn minify(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for (start, end) in runs(json.as_bytes()) {
        out.push_str(&json[start..end]);
    }
    out
}

fn minified(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() + 1);
    for (start, end) in runs(json) {
        out.extend_from_slice(&json[start..end]);
    }
    // Valid JSON has no line breaks left here; this makes sure.
    for byte in &mut out {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    out
}

/// Returns the ranges between white space; strings are kept whole.
fn runs(json: &[u8]) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = skip_space(json, at);
        let mut end = start;
        while let Some(byte) = json.get(end) {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' => break,
                b'"' => end = skip_string(json, end).unwrap_or(json.len()),
                _ => end += 1,
            }
        }
        at = end;
        (end > start).then_some((start, end))
    })
}
