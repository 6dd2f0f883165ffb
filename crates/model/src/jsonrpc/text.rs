//! JSON strings: finding their end fast, checking their escapes, decoding and writing them.
//!
//! Short strings are searched a word at a time, long ones in blocks that the compiler vectorizes.
//! Works on bytes and never reads beyond the closing quote.

use std::borrow::Cow;

use super::error::WireError;

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
const BLOCK: usize = 64;

/// Returns the index of the closing quote and whether the string contains escapes; `from` is the
/// index after the opening quote.
#[inline]
pub(super) fn string_end(bytes: &[u8], from: usize) -> Result<(usize, bool), WireError> {
    let at = next_special(bytes, from);
    if bytes.get(at) == Some(&b'"') {
        return Ok((at, false));
    }
    escaped_end(bytes, at).map(|end| (end, true))
}

/// Continues from the first byte that is not plain.
#[inline(never)]
fn escaped_end(bytes: &[u8], from: usize) -> Result<usize, WireError> {
    let mut at = from;
    loop {
        match bytes.get(at) {
            Some(b'"') => return Ok(at),
            Some(b'\\') => at = next_special(bytes, escape_end(bytes, at)?),
            Some(_) => {
                return Err(WireError::Syntax {
                    expected: "no control character in a string",
                    at,
                });
            }
            None => {
                return Err(WireError::Truncated {
                    expected: "`\"`",
                    at: bytes.len(),
                });
            }
        }
    }
}

/// Returns the index of the next quote, backslash or control character, or the length.
#[inline]
pub(super) fn next_special(bytes: &[u8], from: usize) -> usize {
    // Most strings end within the first words.
    let mut at = from;
    for _ in 0..4 {
        let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) else {
            break;
        };
        let specials = specials_in(u64::from_le_bytes(*word));
        if specials != 0 {
            return at + specials.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    next_special_far(bytes, at)
}

#[inline(never)]
fn next_special_far(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    let mut rest = bytes.get(from..).unwrap_or_default();
    while let Some((block, tail)) = rest.split_first_chunk::<BLOCK>() {
        if has_special(block) {
            break;
        }
        at += BLOCK;
        rest = tail;
    }
    while let Some((word, tail)) = rest.split_first_chunk::<8>() {
        let specials = specials_in(u64::from_le_bytes(*word));
        if specials != 0 {
            return at + specials.trailing_zeros() as usize / 8;
        }
        at += 8;
        rest = tail;
    }
    at + rest
        .iter()
        .position(|&byte| is_special(byte))
        .unwrap_or(rest.len())
}

#[inline]
fn is_special(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20
}

/// Marks special bytes by their high bit. Only the lowest mark is exact (a borrow may mark bytes
/// above it), which suffices.
#[inline]
fn specials_in(word: u64) -> u64 {
    let quote = word ^ (LOW_BITS * b'"' as u64);
    let backslash = word ^ (LOW_BITS * b'\\' as u64);
    let marks = (quote.wrapping_sub(LOW_BITS) & !quote)
        | (backslash.wrapping_sub(LOW_BITS) & !backslash)
        | (word.wrapping_sub(LOW_BITS * 0x20) & !word);
    marks & HIGH_BITS
}

fn has_special(block: &[u8; BLOCK]) -> bool {
    block
        .iter()
        .fold(0, |found, &byte| found | u8::from(is_special(byte)))
        != 0
}

/// Returns the index after the escape that begins at `at`; a surrogate pair counts as one.
fn escape_end(bytes: &[u8], at: usize) -> Result<usize, WireError> {
    match bytes.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') => match hex4(bytes, at + 2)? {
            0xD800..=0xDBFF => {
                let low_follows =
                    bytes.get(at + 6) == Some(&b'\\') && bytes.get(at + 7) == Some(&b'u');
                if low_follows && matches!(hex4(bytes, at + 8)?, 0xDC00..=0xDFFF) {
                    Ok(at + 12)
                } else {
                    Err(WireError::LoneSurrogate { at })
                }
            }
            0xDC00..=0xDFFF => Err(WireError::LoneSurrogate { at }),
            _ => Ok(at + 6),
        },
        Some(_) => Err(WireError::Syntax {
            expected: "a valid escape",
            at,
        }),
        None => Err(WireError::Truncated {
            expected: "an escape",
            at: bytes.len(),
        }),
    }
}

fn hex4(bytes: &[u8], at: usize) -> Result<u32, WireError> {
    let mut value = 0;
    for index in at..at + 4 {
        let digit = bytes
            .get(index)
            .and_then(|&byte| char::from(byte).to_digit(16));
        let Some(digit) = digit else {
            return Err(WireError::Syntax {
                expected: "four hex digits",
                at: index,
            });
        };
        value = value * 16 + digit;
    }
    Ok(value)
}

/// Returns the content of a valid JSON string, escapes decoded.
pub(super) fn decode(inner: &str) -> Cow<'_, str> {
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Cow::Borrowed(inner);
    }
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        let (decoded, length) = decode_escape(&rest.as_bytes()[at..]);
        out.push(decoded);
        rest = rest.get(at + length..).unwrap_or_default();
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Returns the character of the escape at the start of `bytes`, and the escape's length.
fn decode_escape(bytes: &[u8]) -> (char, usize) {
    let simple = match bytes.get(1) {
        Some(b'n') => '\n',
        Some(b't') => '\t',
        Some(b'r') => '\r',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'u') => {
            let first = hex4(bytes, 2).unwrap_or(0xFFFD);
            if !matches!(first, 0xD800..=0xDBFF) {
                return (
                    char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER),
                    6,
                );
            }
            let second = hex4(bytes, 8).unwrap_or(0xFFFD);
            let code = 0x1_0000 + ((first & 0x3FF) << 10) + (second & 0x3FF);
            return (
                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER),
                12,
            );
        }
        Some(&other) => char::from(other),
        None => char::REPLACEMENT_CHARACTER,
    };
    (simple, 2)
}

/// Appends `text` as a JSON string, including quotes.
pub fn quote_into(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let bytes = text.as_bytes();
    let mut copied = 0;
    out.push(b'"');
    loop {
        let at = next_special(bytes, copied);
        out.extend_from_slice(&bytes[copied..at]);
        let Some(&byte) = bytes.get(at) else { break };
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(byte >> 4)]);
                out.push(HEX[usize::from(byte & 15)]);
            }
        }
        copied = at + 1;
    }
    out.push(b'"');
}
