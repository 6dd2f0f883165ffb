//! Finds the id in a message that was refused, so that the right call can be failed.
//!
//! The text is untrusted: the id may only end a call of the peer that sent it, or be echoed in an
//! error response. Never used to deliver a result.

use super::walk::{next_member, skip_space, skip_value};
use super::{RequestId, WireError};

/// Returns the id of a refused message, if there is exactly one before the point where the text
/// becomes invalid.
pub fn salvage_id(bytes: &[u8]) -> Option<RequestId<'_>> {
    let start = skip_space(bytes, 0);
    if bytes.get(start) != Some(&b'{') {
        return None;
    }
    let mut at = start + 1;
    let mut found = None;
    while let Some(span) = next_member(bytes, at) {
        if &bytes[span.key..span.key_end] == b"\"id\"" {
            if found.is_some() {
                return None;
            }
            found = Some(checked(&bytes[span.value..span.value_end])?);
        }
        at = span.value_end;
    }
    found
}

/// Returns the id for the error response to a refused message: its own if only its params are
/// wrong; otherwise `None`, as JSON-RPC requires.
pub fn answered_id<'a>(bytes: &'a [u8], error: &WireError) -> Option<RequestId<'a>> {
    let is_request = matches!(error, WireError::BadParams | WireError::PositionalParams);
    is_request.then(|| salvage_id(bytes))?
}

/// The content of a response with the id `null`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unaddressed {
    /// A result, which JSON-RPC allows only with an id.
    Result,
    /// An error with this code.
    Error(i64),
}

/// Returns the content of a refused message if it is a response with the id `null`.
pub fn salvage_unaddressed(bytes: &[u8]) -> Option<Unaddressed> {
    let text = std::str::from_utf8(bytes).ok()?;
    let message = super::validate(text, &super::Limits::default()).ok()?;
    if !message.get("id")?.is_null() || message.get("method").is_some() {
        return None;
    }
    match (message.get("result"), message.get("error")) {
        (Some(_), None) => Some(Unaddressed::Result),
        (None, Some(error)) => {
            let code = error.get("code")?.text().parse().ok()?;
            Some(Unaddressed::Error(code))
        }
        (Some(_), Some(_)) | (None, None) => None,
    }
}

/// Returns the id at the very end of a message whose beginning is lost: the last or the second to
/// last member before the final brace.
pub fn salvage_id_from_tail(tail: &[u8]) -> Option<RequestId<'_>> {
    const KEY: &[u8] = b"\"id\"";
    let tail = tail.trim_ascii_end();
    let body = tail.strip_suffix(b"}")?;
    let key = memchr::memmem::rfind(body, KEY)?;
    if key > 0 && body[key - 1] == b'\\' {
        return None;
    }
    let colon = skip_space(body, key + KEY.len());
    if body.get(colon) != Some(&b':') {
        return None;
    }
    let value = skip_space(body, colon + 1);
    let end = skip_value(body, value)?;
    let rest = skip_space(body, end);
    let behind = match next_member(body, rest) {
        Some(member) if &body[member.key..member.key_end] == b"\"jsonrpc\"" => {
            skip_space(body, member.value_end)
        }
        Some(_) => return None,
        None => rest,
    };
    if behind != body.len() {
        return None;
    }
    checked(&body[value..end])
}

fn checked(value: &[u8]) -> Option<RequestId<'_>> {
    let text = std::str::from_utf8(value).ok()?;
    RequestId::read(super::validate(text, &super::Limits::default()).ok()?)
}
