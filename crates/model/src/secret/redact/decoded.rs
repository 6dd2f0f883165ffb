//! Texts as a reader decodes them: a value may be written with escapes that its writer did not need,
//! such as `\u0073` or `%73` for `s`, or in base64 that is broken into lines. The search in a text as
//! it stands does not find these.
//!
//! Entry points: [`is_encoded`], which is quick, and [`Decoded::of`].

use std::ops::Range;

use memchr::{memchr_iter, memchr3_iter};

/// This many characters of base64 before a line break are a line of a longer text.
const LINE: usize = 48;
/// How often a text is decoded: a JSON string may contain JSON.
const MOST_LAYERS: usize = 3;

/// A decoded text, and where each of its bytes comes from.
pub(super) struct Decoded {
    pub(super) bytes: Vec<u8>,
    /// Where each byte begins in the original text; one more for its end.
    starts: Vec<u32>,
}

impl Decoded {
    /// Returns what a text is decoded to, layer by layer; nothing if it has none of these escapes.
    pub(super) fn of(text: &[u8], nested: Nested) -> Vec<Self> {
        let mut layers: Vec<Self> = Vec::new();
        while layers.len() < MOST_LAYERS {
            let outer = layers.last();
            let bytes = outer.map_or(text, |outer| &outer.bytes);
            if !is_encoded(bytes, nested) {
                break;
            }
            let next = decode(bytes);
            let next = match outer {
                None => next,
                Some(outer) => Self {
                    starts: next
                        .starts
                        .iter()
                        .map(|start| outer.starts[*start as usize])
                        .collect(),
                    bytes: next.bytes,
                },
            };
            layers.push(next);
        }
        layers
    }

    /// Returns the range of the original text that a range of bytes comes from.
    pub(super) fn origin(&self, range: &Range<usize>) -> Range<usize> {
        self.starts[range.start] as usize..self.starts[range.end] as usize
    }
}

/// Whether escaped backslashes count as escapes: they do for values that JSON escapes, whose forms
/// are for JSON in one JSON string, and not for deeper ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nested {
    /// They do.
    Counts,
    /// They do not, so that most texts are not decoded.
    Ignored,
}

impl Nested {
    /// Returns whether they count for a value.
    pub(super) fn of(value: &str) -> Self {
        let is_escaped = |letter: char| {
            letter.is_control() || !letter.is_ascii() || r#""\/<>&'"#.contains(letter)
        };
        match value.contains(is_escaped) {
            true => Self::Counts,
            false => Self::Ignored,
        }
    }
}

/// Returns whether a text has escapes that its writer did not need, or base64 in lines.
pub(super) fn is_encoded(text: &[u8], nested: Nested) -> bool {
    let has_escape = memchr3_iter(b'\\', b'%', b'&', text).any(|at| {
        let rest = &text[at + 1..];
        match text[at] {
            b'\\' => match rest.first() {
                Some(b'u' | b'x') => {
                    let found = escape(&text[at..]).and_then(|found| found.ascii());
                    found.is_some_and(|byte| byte >= b' ')
                }
                Some(b'\\') => nested == Nested::Counts,
                Some(b'n' | b'r') => is_line(&text[..at]),
                _ => false,
            },
            b'&' => escape(&text[at..]).is_some(),
            // Other characters are escaped in every URL, for which there are forms.
            _ => {
                let found = escape(&text[at..]).and_then(|found| found.ascii());
                found.is_some_and(is_plain)
            }
        }
    });
    has_escape || memchr_iter(b'\n', text).any(|at| is_line(&text[..at]))
}

/// Returns whether a byte needs no escape in a URL, is a sign of base64, or begins another escape.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=-_.~!$*%".contains(&byte)
}

/// Returns whether a text ends with a line of base64.
fn is_line(before: &[u8]) -> bool {
    let line = before.len().checked_sub(LINE).map(|start| &before[start..]);
    line.is_some_and(|line| line.iter().all(|byte| is_base64(*byte)))
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte)
}

fn decode(text: &[u8]) -> Decoded {
    let mut decoded = Decoded {
        bytes: Vec::with_capacity(text.len()),
        starts: Vec::with_capacity(text.len() + 1),
    };
    let mut at = 0;
    while at < text.len() {
        let taken = match text[at] {
            b'\\' | b'%' | b'&' => escape(&text[at..]),
            _ => None,
        };
        let found = taken.unwrap_or_else(|| Escape::byte(text[at], 1));
        let is_break = matches!(found.bytes(), b"\n" | b"\r");
        if !(is_break && is_line(&decoded.bytes)) {
            for byte in found.bytes() {
                decoded.bytes.push(*byte);
                decoded.starts.push(at as u32);
            }
        }
        at += found.length;
    }
    decoded.starts.push(text.len() as u32);
    decoded
}

/// An escape: what it stands for, in UTF-8, and its length.
struct Escape {
    utf8: [u8; 4],
    count: usize,
    length: usize,
}

impl Escape {
    fn byte(byte: u8, length: usize) -> Self {
        Self {
            utf8: [byte, 0, 0, 0],
            count: 1,
            length,
        }
    }

    fn character(code: u32, length: usize) -> Option<Self> {
        let mut utf8 = [0; 4];
        let count = char::from_u32(code)?.encode_utf8(&mut utf8).len();
        Some(Self {
            utf8,
            count,
            length,
        })
    }

    fn bytes(&self) -> &[u8] {
        &self.utf8[..self.count]
    }

    /// Returns the ASCII character that it stands for.
    fn ascii(&self) -> Option<u8> {
        self.utf8.first().copied().filter(u8::is_ascii)
    }
}

/// Reads the escape that a text begins with.
fn escape(text: &[u8]) -> Option<Escape> {
    match (text[0], text.get(1)?) {
        (b'\\', b'u') => utf16(text),
        (b'\\', b'x') => Some(Escape::byte(octet(text.get(2..4)?)?, 4)),
        (b'\\', b'n') => Some(Escape::byte(b'\n', 2)),
        (b'\\', b'r') => Some(Escape::byte(b'\r', 2)),
        (b'\\', b't') => Some(Escape::byte(b'\t', 2)),
        (b'\\', byte @ (b'\\' | b'/' | b'"' | b'\'')) => Some(Escape::byte(*byte, 2)),
        (b'%', _) => Some(Escape::byte(octet(text.get(1..3)?)?, 3)),
        (b'&', _) => {
            let (code, length) = entity(text)?;
            Escape::character(code, length)
        }
        _ => None,
    }
}

/// Reads `\u` and four digits, or two of these that stand for one character.
fn utf16(text: &[u8]) -> Option<Escape> {
    let first = number(text.get(2..6)?, 16)?;
    if !(0xd800..0xdc00).contains(&first) {
        return Escape::character(first, 6);
    }
    let second = text.get(6..12)?.strip_prefix(b"\\u")?;
    let second = number(second, 16)?
        .checked_sub(0xdc00)
        .filter(|low| *low < 0x400)?;
    Escape::character(0x1_0000 + ((first - 0xd800) << 10) + second, 12)
}

fn octet(digits: &[u8]) -> Option<u8> {
    u8::try_from(number(digits, 16)?).ok()
}

/// Reads a character reference of HTML or XML.
fn entity(text: &[u8]) -> Option<(u32, usize)> {
    let end = text.iter().take(10).position(|byte| *byte == b';')?;
    let code = match &text[1..end] {
        b"amp" => u32::from(b'&'),
        b"lt" => u32::from(b'<'),
        b"gt" => u32::from(b'>'),
        b"quot" => u32::from(b'"'),
        b"apos" => u32::from(b'\''),
        [b'#', b'x' | b'X', digits @ ..] => number(digits, 16)?,
        [b'#', digits @ ..] => number(digits, 10)?,
        _ => return None,
    };
    Some((code, end + 1))
}

fn number(digits: &[u8], radix: u32) -> Option<u32> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_alphanumeric);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    u32::from_str_radix(text, radix).ok()
}
