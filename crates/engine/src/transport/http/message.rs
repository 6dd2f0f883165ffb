//! Splits a body or an event into messages of one line each.
//!
//! A value with line breaks between its tokens does not fit a line-framed link, and servers of
//! 2025-03-26 may batch messages. Checks no message: the link does.

use bytes::Bytes;
use gantry_model::jsonrpc::{Limits, Raw, RawKind, minify, validate};

/// Maximum nesting; a deeper body is passed on for the link to refuse.
const DEPTH: usize = 256;

/// Hands over each message of a body, on one line.
pub(crate) fn each_message(body: Bytes, mut take: impl FnMut(Bytes)) {
    let has_breaks = memchr::memchr2(b'\n', b'\r', &body).is_some();
    let is_joined = body.trim_ascii_start().first() == Some(&b'[');
    if !has_breaks && !is_joined {
        return take(body);
    }
    let text = std::str::from_utf8(&body).ok();
    // Invalid JSON must not become valid by removing white space.
    let raw = text.and_then(|text| validate(text, &Limits { max_depth: DEPTH }).ok());
    match raw {
        Some(raw) if raw.kind() == RawKind::Array => {
            for item in raw.items() {
                take(one_line(item));
            }
        }
        Some(raw) => take(one_line(raw)),
        None => take(body),
    }
}

fn one_line(raw: Raw<'_>) -> Bytes {
    let has_breaks = raw.text().contains(['\n', '\r']);
    match has_breaks {
        true => minify(raw.text()).into(),
        false => raw.text().to_owned().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(body: &'static str) -> Vec<String> {
        let mut found = Vec::new();
        each_message(Bytes::from_static(body.as_bytes()), |message| {
            found.push(String::from_utf8(message.to_vec()).unwrap());
        });
        found
    }

    #[test]
    fn every_message_stands_on_one_line() {
        // fault S21
        assert_eq!(messages(r#"{"a":1}"#), [r#"{"a":1}"#]);
        assert_eq!(messages("{\r\n  \"a\": \"x y\"\n}\n"), [r#"{"a":"x y"}"#]);
        assert_eq!(
            messages("[{\"a\":1},\n{\"b\":2}]"),
            [r#"{"a":1}"#, r#"{"b":2}"#]
        );
        // Invalid JSON is passed on unchanged and refused there.
        assert_eq!(messages("{\"a\":1\n2}"), ["{\"a\":1\n2}"]);
    }
}
