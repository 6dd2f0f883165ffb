//! The forms in which a value occurs: plain, in base64 at each of its three offsets, in hex, in URLs
//! and in JSON strings. Entry points: [`collect`] and [`Form::at`].

use std::fmt::Write;
use std::ops::Range;

use base64::Engine;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use memchr::memmem;
use zeroize::Zeroize;

use crate::hex::hex;

/// Shorter lines of a multi-line value are not searched separately.
const SHORTEST_LINE: usize = 16;

/// One form of one value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Form {
    pub(super) text: String,
    /// Whether the character before it contains bits of the value, too.
    before: bool,
    /// Whether the character after it does.
    after: bool,
}

impl Form {
    fn new(text: String) -> Self {
        Self {
            text,
            before: false,
            after: false,
        }
    }

    /// Returns the range of the form, if it begins here.
    pub(super) fn at(&self, text: &[u8], start: usize) -> Option<Range<usize>> {
        let rest = text.get(start..)?;
        if !rest.starts_with(self.text.as_bytes()) {
            return None;
        }
        let end = start + self.text.len();
        let is_letter = |place: usize| text.get(place).is_some_and(|byte| is_base64(*byte));
        let before = self.before && start > 0 && is_letter(start - 1);
        let after = self.after && is_letter(end);
        Some(start - usize::from(before)..end + usize::from(after))
    }

    /// Returns all matches of the form.
    pub(super) fn find(&self, text: &[u8]) -> Vec<Range<usize>> {
        let starts = memmem::find_iter(text, self.text.as_bytes());
        starts.filter_map(|start| self.at(text, start)).collect()
    }
}

impl Drop for Form {
    fn drop(&mut self) {
        self.text.zeroize();
    }
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte)
}

/// Adds all forms of a value.
pub(super) fn collect(value: &str, forms: &mut Vec<Form>) {
    forms.push(Form::new(value.to_owned()));
    for offset in 0..3 {
        let standard = in_base64(value, offset, &STANDARD_NO_PAD);
        if standard.text.contains('/') {
            // Escaped as by some JSON writers.
            forms.push(Form {
                text: standard.text.replace('/', "\\/"),
                ..standard
            });
        }
        forms.push(standard);
        forms.push(in_base64(value, offset, &URL_SAFE_NO_PAD));
    }
    let mut texts = vec![hex(value.as_bytes())];
    texts.push(texts[0].to_uppercase());
    // By RFC 3986, in upper and lower case; and as browsers encode a component and a form.
    texts.push(url_encoded(value, "-._~", b"0123456789ABCDEF"));
    texts.push(url_encoded(value, "-._~", b"0123456789abcdef"));
    texts.push(url_encoded(value, "-._~!'()*", b"0123456789ABCDEF"));
    texts.push(url_encoded(value, "-._*", b"0123456789ABCDEF").replace("%20", "+"));
    texts.extend(json_escaped(value));
    if value.contains('\n') {
        // Logs are read line by line, and so is a printed key file.
        let lines = value.lines().map(str::trim);
        let telling =
            lines.filter(|line| line.len() >= SHORTEST_LINE && !line.starts_with("-----"));
        texts.extend(telling.map(str::to_owned));
    }
    forms.extend(texts.into_iter().map(Form::new));
}

/// Returns the base64 characters that depend on the value alone, at one of three byte offsets.
fn in_base64(value: &str, offset: usize, alphabet: &GeneralPurpose) -> Form {
    let bytes = [&[0; 2][..offset], value.as_bytes()].concat();
    let letters = alphabet.encode(&bytes);
    let (first, last) = ((offset * 8).div_ceil(6), bytes.len() * 8 / 6);
    Form {
        text: letters[first..last].to_owned(),
        before: offset > 0,
        after: !(bytes.len() * 8).is_multiple_of(6),
    }
}

fn url_encoded(value: &str, unreserved: &str, digits: &[u8; 16]) -> String {
    let mut text = String::with_capacity(value.len() * 3);
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || unreserved.contains(char::from(byte)) {
            text.push(char::from(byte));
        } else {
            text.push('%');
            text.push(char::from(digits[usize::from(byte >> 4)]));
            text.push(char::from(digits[usize::from(byte & 15)]));
        }
    }
    text
}

/// Returns the value as different writers escape it in a JSON string.
fn json_escaped(value: &str) -> impl IntoIterator<Item = String> {
    let inside = |text: &str| {
        let quoted = serde_json::to_string(text).expect("a string is always JSON");
        quoted[1..quoted.len() - 1].to_owned()
    };
    let plain = inside(value);
    let mut ascii = String::new();
    for character in plain.chars() {
        if character.is_ascii() {
            ascii.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                write!(ascii, "\\u{unit:04x}").expect("writing to a string does not fail");
            }
        }
    }
    let safe_for_html = plain
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026");
    let slashes = plain.replace('/', "\\/");
    // JSON inside a JSON string, as many tools return it.
    let twice = inside(&plain);
    let ascii_twice = inside(&ascii);
    [plain, ascii, safe_for_html, slashes, twice, ascii_twice]
}
