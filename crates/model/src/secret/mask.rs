//! Hides apparent credentials in JSON, by the names of its members.
//!
//! Scans the text once, without parsing it into values, so that it may be truncated anywhere. A
//! heuristic for undeclared secrets, without guarantee.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;

use super::names::mentions_credential;
use super::{REDACTED, is_credential};

/// How deep JSON inside JSON strings is followed.
const DEEPEST: u32 = 2;

/// Returns the JSON text, which may be truncated, with the string values of credentials masked.
///
/// Strings inside an array or object under such a name are masked too, and so are members of JSON
/// inside a string, as many tools return it. Numbers stay: `max_tokens` is not a credential.
pub fn mask_members(json: &str) -> Cow<'_, str> {
    mask(json, 0)
}

fn mask(json: &str, nesting: u32) -> Cow<'_, str> {
    let bytes = json.as_bytes();
    let mut edits = Edits {
        text: json,
        done: String::new(),
        copied: 0,
    };
    let mut depth = 0_usize;
    // Whether the next value belongs to a credential's name.
    let mut named = false;
    // The depth of the array or object in which all strings are masked.
    let mut within: Option<usize> = None;
    let mut place = 0;
    while let Some(byte) = bytes.get(place) {
        place += 1;
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if named && within.is_none() {
                    within = Some(depth);
                }
                named = false;
            }
            b'}' | b']' => {
                if within == Some(depth) {
                    within = None;
                }
                depth = depth.saturating_sub(1);
                named = false;
            }
            b',' => named = false,
            b'"' => {
                let (end, has_quotes) = string_end(bytes, place);
                let content = place..end;
                place = (end + 1).min(bytes.len());
                let text = &json[content.clone()];
                if let Some(colon) = colon_after(bytes, place) {
                    named = names_credential(text);
                    place = colon + 1;
                } else if named || within.is_some() {
                    edits.put(content, REDACTED);
                    named = false;
                } else if has_quotes && let Some(masked) = mask_inside(text, nesting) {
                    edits.put(content, &masked);
                }
            }
            _ => {}
        }
    }
    edits.finish()
}

/// The changed copy so far; nothing is copied before the first change.
struct Edits<'a> {
    text: &'a str,
    done: String,
    copied: usize,
}

impl<'a> Edits<'a> {
    fn put(&mut self, range: Range<usize>, with: &str) {
        if range.is_empty() {
            return;
        }
        self.done.push_str(&self.text[self.copied..range.start]);
        self.done.push_str(with);
        self.copied = range.end;
    }

    fn finish(mut self) -> Cow<'a, str> {
        if self.copied == 0 {
            return Cow::Borrowed(self.text);
        }
        self.done.push_str(&self.text[self.copied..]);
        Cow::Owned(self.done)
    }
}

/// Returns where the string that starts here ends (at its quote or where the text is truncated),
/// and whether it contains escaped quotes.
fn string_end(bytes: &[u8], start: usize) -> (usize, bool) {
    let (mut place, mut has_quotes) = (start, false);
    while let Some(step) = bytes
        .get(place..)
        .and_then(|rest| memchr2(b'"', b'\\', rest))
    {
        place += step;
        if bytes[place] == b'"' {
            return (place, has_quotes);
        }
        has_quotes |= bytes.get(place + 1) == Some(&b'"');
        place += 2;
    }
    (bytes.len(), has_quotes)
}

fn colon_after(bytes: &[u8], place: usize) -> Option<usize> {
    let blank = bytes[place..]
        .iter()
        .take_while(|byte| byte.is_ascii_whitespace())
        .count();
    (bytes.get(place + blank) == Some(&b':')).then_some(place + blank)
}

/// Returns whether the name of a member, as written in JSON, names a credential.
fn names_credential(name: &str) -> bool {
    match name.contains('\\').then(|| unescape(name)).flatten() {
        Some(plain) => is_credential(&plain),
        None => is_credential(name),
    }
}

/// Masks JSON that is the content of a string, and escapes it again.
fn mask_inside(content: &str, nesting: u32) -> Option<String> {
    if nesting >= DEEPEST || !mentions_credential(content.as_bytes()) {
        return None;
    }
    let plain = unescape(content)?;
    match mask(&plain, nesting + 1) {
        Cow::Borrowed(_) => None,
        Cow::Owned(masked) => {
            let quoted = serde_json::to_string(&masked).expect("a string is always JSON");
            Some(quoted[1..quoted.len() - 1].to_owned())
        }
    }
}

/// Decodes a JSON string; a truncated escape at its end is dropped.
fn unescape(content: &str) -> Option<String> {
    let parse = |text: &str| serde_json::from_str::<String>(&format!("\"{text}\"")).ok();
    parse(content).or_else(|| content.rfind('\\').and_then(|cut| parse(&content[..cut])))
}
