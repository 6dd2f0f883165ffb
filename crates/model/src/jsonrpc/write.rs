//! Writes messages: the envelope is always new, params and results are copied byte for byte.
//!
//! These writers are for links with their own framing (HTTP bodies); line-framed links use
//! [`OneLine`](super::OneLine) instead, which cannot contain a line break.

use super::text::quote_into;
use super::{Edit, Raw, RawBuf, RequestId};

/// The content of a message: a raw value, or an object that is changed while it is written.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    /// An unchanged value.
    Raw(Raw<'a>),
    /// An object with changes.
    Edit(&'a Edit<'a>),
}

impl Payload<'_> {
    /// Appends the value to `out`.
    pub fn write_into(self, out: &mut Vec<u8>) {
        match self {
            Self::Raw(raw) => out.extend_from_slice(raw.text().as_bytes()),
            Self::Edit(edit) => edit.write_into(out),
        }
    }

    pub(super) fn is_one_line(self) -> bool {
        match self {
            Self::Raw(raw) => raw.is_one_line(),
            Self::Edit(edit) => edit.is_one_line(),
        }
    }

    fn size_hint(self) -> usize {
        match self {
            Self::Raw(raw) => raw.text().len(),
            Self::Edit(edit) => edit.size_hint(),
        }
    }
}

impl<'a> From<Raw<'a>> for Payload<'a> {
    fn from(raw: Raw<'a>) -> Self {
        Self::Raw(raw)
    }
}

impl<'a> From<&'a RawBuf> for Payload<'a> {
    fn from(buffer: &'a RawBuf) -> Self {
        Self::Raw(buffer.as_raw())
    }
}

impl<'a> From<&'a Edit<'a>> for Payload<'a> {
    fn from(edit: &'a Edit<'a>) -> Self {
        Self::Edit(edit)
    }
}

/// Appends a request with an id of the gateway.
pub fn write_request(out: &mut Vec<u8>, id: u64, method: &str, params: Option<Payload<'_>>) {
    reserve(out, method.len() + 80, params);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    push_u64(out, id);
    out.extend_from_slice(b",\"method\":");
    quote_into(out, method);
    push_member(out, b",\"params\":", params);
    out.push(b'}');
}

/// Appends a notification.
pub fn write_notification(out: &mut Vec<u8>, method: &str, params: Option<Payload<'_>>) {
    reserve(out, method.len() + 60, params);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":");
    quote_into(out, method);
    push_member(out, b",\"params\":", params);
    out.push(b'}');
}

/// Appends a response with a result; the id is the requester's, byte for byte.
pub fn write_result(out: &mut Vec<u8>, id: RequestId<'_>, result: Payload<'_>) {
    reserve(out, id.raw().len() + 40, Some(result));
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.raw().as_bytes());
    push_member(out, b",\"result\":", Some(result));
    out.push(b'}');
}

/// Appends a response with an error; the id is `null` if the requester's could not be read.
pub fn write_error(
    out: &mut Vec<u8>,
    id: Option<RequestId<'_>>,
    code: i64,
    message: &str,
    data: Option<Payload<'_>>,
) {
    let id = id.map_or("null", |id| id.raw());
    reserve(out, id.len() + message.len() + 90, data);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(b",\"error\":{\"code\":");
    if code < 0 {
        out.push(b'-');
    }
    push_u64(out, code.unsigned_abs());
    out.extend_from_slice(b",\"message\":");
    quote_into(out, message);
    push_member(out, b",\"data\":", data);
    out.extend_from_slice(b"}}");
}

fn reserve(out: &mut Vec<u8>, envelope: usize, payload: Option<Payload<'_>>) {
    out.reserve(envelope + payload.map_or(0, Payload::size_hint));
}

fn push_member(out: &mut Vec<u8>, key: &[u8], value: Option<Payload<'_>>) {
    if let Some(value) = value {
        out.extend_from_slice(key);
        value.write_into(out);
    }
}

fn push_u64(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

#[cfg(test)]
mod tests;
