//! Redacts known secrets, and Gantry's own keys, in every form in which they occur: plain, in base64,
//! in URLs and in JSON strings.
//!
//! Works on a whole text: a value that is split over two texts is not found in either.

use std::borrow::Cow;
use std::fmt;
use std::fmt::Write;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use aho_corasick::AhoCorasick;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use memchr::{memchr_iter, memmem};

use super::{REDACTED, SecretText, own};

/// Shorter values are not looked for: they would turn up everywhere by accident.
const SHORTEST: usize = 6;

/// Shorter lines of a value of many lines are not looked for by themselves.
const SHORTEST_LINE: usize = 16;

/// The longest JSON escape, `\u` and four digits, after its backslash.
const LONGEST_ESCAPE: usize = 5;

/// Shorter values are left alone in the names of members: they may be there by accident, and nobody
/// finds a member under another name.
const SHORTEST_IN_NAMES: usize = 16;

static OWN_KEYS: LazyLock<Arc<Redactor>> = LazyLock::new(|| Arc::new(Redactor::new([])));

/// How much of each form the first look compares: enough to be rare, little enough to be small.
const FIRST_LOOK: usize = 8;

/// Finds and replaces the values of one server's secrets, and keys of our own.
#[derive(Clone)]
pub struct Redactor {
    forms: Vec<memmem::Finder<'static>>,
    /// Finds the beginning of any of them, or of a key of our own, in one pass. Most texts have
    /// none, and are not searched for each form by itself.
    beginnings: Option<AhoCorasick>,
}

impl Redactor {
    /// Prepares to find these values; those of fewer than six characters are left out.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a SecretText>) -> Self {
        let mut forms: Vec<String> = Vec::new();
        for value in values {
            let value = value.expose();
            // Files end in a line break that programs drop before they use, and echo, the value.
            for value in [value, value.trim()] {
                if value.chars().count() >= SHORTEST {
                    collect_forms(value, &mut forms);
                }
            }
        }
        forms.sort_unstable();
        forms.dedup();
        let known = forms.iter().map(String::as_bytes);
        let beginnings = known.chain(own::beginnings()).map(|form| {
            let end = form.len().min(FIRST_LOOK);
            &form[..end]
        });
        // Without one every text is searched closely.
        let beginnings = AhoCorasick::new(beginnings).ok();
        let finder = |form: String| memmem::Finder::new(form.as_bytes()).into_owned();
        Self {
            forms: forms.into_iter().map(finder).collect(),
            beginnings,
        }
    }

    /// Returns what removes keys of our own and nothing else, for what no server has secrets in.
    pub fn own_keys() -> &'static Arc<Self> {
        &OWN_KEYS
    }

    /// Returns the length of the longest form in which something is found. Who cuts a text must look
    /// at as much behind the cut, or the beginning of a secret stays.
    pub fn longest(&self) -> usize {
        let lengths = self.forms.iter().map(|form| form.needle().len());
        lengths.fold(own::LONGEST, usize::max)
    }

    /// Returns the text without the secrets; it is copied only if there are any in it.
    ///
    /// The text may be plain or the inside of a JSON string, whose escapes stay whole. Use
    /// `redact_json` for a JSON document.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if !self.may_hide(text) {
            return Cow::Borrowed(text);
        }
        let found: Vec<Range<usize>> = self.find(text).collect();
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        replace(text, merged(found))
    }

    /// Returns the JSON text, which may be cut off, without the secrets, and as valid as it was.
    ///
    /// Only strings are touched: a number stays the number that it is, and what only looks like a
    /// secret because it reaches from one string into the next stays, since no value does that.
    pub fn redact_json<'a>(&self, json: &'a str) -> Cow<'a, str> {
        if !self.may_hide(json) {
            return Cow::Borrowed(json);
        }
        let found: Vec<Range<usize>> = self.find(json).collect();
        if found.is_empty() {
            return Cow::Borrowed(json);
        }
        let quotes = Quotes::of(json);
        let fits = |range: &Range<usize>| {
            quotes.inside(range.start)
                && !quotes.any_in(range)
                && (range.len() >= SHORTEST_IN_NAMES || !quotes.is_name(json, range.end))
        };
        let found: Vec<Range<usize>> = found.into_iter().filter(fits).collect();
        if found.is_empty() {
            return Cow::Borrowed(json);
        }
        replace(json, merged(found))
    }

    /// Tells whether there may be something to hide in a text: a quick look before a close one.
    pub fn may_hide(&self, text: impl AsRef<[u8]>) -> bool {
        let beginnings = self.beginnings.as_ref();
        beginnings.is_none_or(|beginnings| beginnings.is_match(text.as_ref()))
    }

    /// Returns where secrets are, in no order, widened to whole escapes.
    fn find(&self, text: &str) -> impl Iterator<Item = Range<usize>> {
        let known = self.forms.iter().flat_map(move |form| {
            let length = form.needle().len();
            form.find_iter(text.as_bytes())
                .map(move |start| widen(text, start..start + length))
        });
        known.chain(own::find(text).map(|range| widen(text, range)))
    }
}

impl Default for Redactor {
    fn default() -> Self {
        Self::own_keys().as_ref().clone()
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} forms)", self.forms.len())
    }
}

/// Sorts ranges and joins those that overlap.
fn merged(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, kept| {
        let overlaps = next.start < kept.end;
        if overlaps {
            kept.end = kept.end.max(next.end);
        }
        overlaps
    });
    ranges
}

fn replace(text: &str, ranges: Vec<Range<usize>>) -> Cow<'_, str> {
    let mut clean = String::with_capacity(text.len());
    let mut copied = 0;
    for range in ranges {
        clean.push_str(&text[copied..range.start]);
        clean.push_str(REDACTED);
        copied = range.end;
    }
    clean.push_str(&text[copied..]);
    Cow::Owned(clean)
}

fn collect_forms(value: &str, forms: &mut Vec<String>) {
    forms.push(value.to_owned());
    forms.push(STANDARD_NO_PAD.encode(value));
    forms.push(URL_SAFE_NO_PAD.encode(value));
    // By RFC 3986, with capitals and without; as browsers encode a component, and a form.
    forms.push(url_encoded(value, "-._~", b"0123456789ABCDEF"));
    forms.push(url_encoded(value, "-._~", b"0123456789abcdef"));
    forms.push(url_encoded(value, "-._~!'()*", b"0123456789ABCDEF"));
    forms.push(url_encoded(value, "-._*", b"0123456789ABCDEF").replace("%20", "+"));
    forms.extend(json_escaped(value));
    if value.contains('\n') {
        // Logs are read by the line, and so is a key file that someone prints.
        let lines = value.lines().map(str::trim);
        let telling =
            lines.filter(|line| line.len() >= SHORTEST_LINE && !line.starts_with("-----"));
        forms.extend(telling.map(str::to_owned));
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

/// Returns the value as different writers put it into a JSON string.
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
    // JSON inside a JSON string, as tools like to answer.
    let twice = inside(&plain);
    let ascii_twice = inside(&ascii);
    [plain, ascii, safe_for_html, slashes, twice, ascii_twice]
}

/// Widens a range so that it begins and ends outside of JSON escapes.
///
/// Half an escape would break the JSON around it; in plain text a character or two more are lost.
fn widen(text: &str, range: Range<usize>) -> Range<usize> {
    let start = escape_around(text, range.start).map_or(range.start, |escape| escape.start);
    let end = escape_around(text, range.end).map_or(range.end, |escape| escape.end);
    start..end
}

/// Returns the escape that this place is inside of: after its backslash and before its end.
fn escape_around(text: &str, place: usize) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let earliest = place.saturating_sub(LONGEST_ESCAPE);
    let backslash = earliest + memchr::memrchr(b'\\', &bytes[earliest..place])?;
    let run = bytes[..=backslash]
        .iter()
        .rev()
        .take_while(|byte| **byte == b'\\')
        .count();
    if run.is_multiple_of(2) {
        return None;
    }
    let after = &bytes[backslash + 1..];
    let length = match after.first() {
        Some(b'u') => {
            1 + after[1..]
                .iter()
                .take(4)
                .take_while(|b| b.is_ascii_hexdigit())
                .count()
        }
        Some(byte) if byte.is_ascii() => 1,
        _ => 0,
    };
    let end = backslash + 1 + length;
    (place < end).then_some(backslash..end)
}

/// Where the strings of a JSON text begin and end.
struct Quotes(Vec<usize>);

impl Quotes {
    fn of(json: &str) -> Self {
        let bytes = json.as_bytes();
        let mut places: Vec<usize> = Vec::new();
        for place in memchr_iter(b'"', bytes) {
            let since = places.last().map_or(0, |last| last + 1);
            let run = bytes[since..place]
                .iter()
                .rev()
                .take_while(|byte| **byte == b'\\')
                .count();
            if places.len().is_multiple_of(2) || run.is_multiple_of(2) {
                places.push(place);
            }
        }
        Self(places)
    }

    fn inside(&self, place: usize) -> bool {
        self.0.partition_point(|quote| *quote < place) % 2 == 1
    }

    /// Tells whether the string that goes on here is the name of a member.
    fn is_name(&self, json: &str, place: usize) -> bool {
        let next = self.0.partition_point(|quote| *quote < place);
        let after = self.0.get(next).and_then(|quote| json.get(quote + 1..));
        after.is_some_and(|after| after.trim_start().starts_with(':'))
    }

    fn any_in(&self, range: &Range<usize>) -> bool {
        let next = self.0.partition_point(|quote| *quote < range.start);
        self.0.get(next).is_some_and(|quote| *quote < range.end)
    }
}
