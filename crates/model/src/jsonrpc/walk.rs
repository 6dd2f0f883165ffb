//! Steps over JSON text that was already checked, without checking its grammar again.
//!
//! On unchecked text the results may be meaningless, but the steps always end, never panic, and
//! only stop at ASCII bytes; the salvage of ids relies on that.

use super::text::next_special;

/// Returns the index of the first byte from `at` on that is not white space.
#[inline]
pub(super) fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

/// Returns the index after the string whose opening quote is at `at`.
#[inline]
pub(super) fn skip_string(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        at = next_special(bytes, at);
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Returns the index after the value that begins at `at`.
#[inline]
pub(super) fn skip_value(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(at)? {
        b'"' => skip_string(bytes, at),
        b'{' | b'[' => skip_container(bytes, at),
        _ => {
            let length = bytes[at..]
                .iter()
                .position(|byte| matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r'))
                .unwrap_or(bytes.len() - at);
            (length > 0).then_some(at + length)
        }
    }
}

fn skip_container(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    loop {
        match bytes.get(at)? {
            b'"' => {
                at = skip_string(bytes, at)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// The position of an object's member.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemberSpan {
    /// The index of the key's opening quote.
    pub(super) key: usize,
    /// The index after the key's closing quote.
    pub(super) key_end: usize,
    /// The index of the value's first byte.
    pub(super) value: usize,
    /// The index after the value.
    pub(super) value_end: usize,
}

/// Returns the member that begins at or after `at`; `None` at the end of the object.
#[inline]
pub(super) fn next_member(bytes: &[u8], at: usize) -> Option<MemberSpan> {
    let mut key = skip_space(bytes, at);
    if bytes.get(key) == Some(&b',') {
        key = skip_space(bytes, key + 1);
    }
    if bytes.get(key) != Some(&b'"') {
        return None;
    }
    let key_end = skip_string(bytes, key)?;
    let colon = skip_space(bytes, key_end);
    if bytes.get(colon) != Some(&b':') {
        return None;
    }
    let value = skip_space(bytes, colon + 1);
    let value_end = skip_value(bytes, value)?;
    Some(MemberSpan {
        key,
        key_end,
        value,
        value_end,
    })
}
