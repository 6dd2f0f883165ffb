//! Redacts known secrets, and Gantry's own keys, in every form in which they occur (`forms`).
//!
//! One pass over a text finds the first bytes of any form, which is then compared; texts with unusual
//! escapes are also searched as a reader decodes them (`decoded`). Without guarantee: short values are not searched, and unusual encodings are not found. Works on a whole
//! text: a value that is split over two texts is not found in either.

mod decoded;
mod forms;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use memchr::memchr_iter;

use self::decoded::{Decoded, Nested, is_encoded};
use self::forms::Form;
use super::{REDACTED, SecretText, own};

/// Shorter values are not searched: they would match by accident.
const SHORTEST: usize = 6;

/// The longest JSON escape, `\u` and four digits, after its backslash.
const LONGEST_ESCAPE: usize = 5;

static OWN_KEYS: LazyLock<Arc<Redactor>> = LazyLock::new(|| Arc::new(Redactor::new([])));

/// How many bytes of each form the first pass compares: enough to be rare, few enough to be small.
const FIRST_LOOK: usize = 8;

/// How much of a text is decoded at once, which bounds the memory for it.
const DECODED_AT_ONCE: usize = 256 << 10;
/// The maximum number of characters that an escape takes for one, in JSON within JSON.
const MOST_PER_CHARACTER: usize = 12;

/// Up to this many prefixes, a full transition table is still small, and the fastest.
const MOST_IN_TABLE: usize = 1024;

/// Finds and replaces the values of one server's secrets, and Gantry's own keys.
#[derive(Clone)]
pub struct Redactor {
    forms: Vec<Form>,
    /// Finds the prefix of any of the forms, numbered like them, or of one of Gantry's own keys.
    beginnings: Option<AhoCorasick>,
    /// Whether JSON escapes any of the values.
    nested: Nested,
}

impl Redactor {
    /// Prepares the search for these values; values of fewer than six characters are ignored.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a SecretText>) -> Self {
        let (mut forms, mut nested) = (Vec::new(), Nested::Ignored);
        for value in values {
            let value = value.expose();
            if Nested::of(value.trim()) == Nested::Counts {
                nested = Nested::Counts;
            }
            // Programs drop the final line break of a file before they use, and echo, the value.
            for value in [value, value.trim()] {
                if value.chars().count() >= SHORTEST {
                    forms::collect(value, &mut forms);
                }
            }
        }
        forms.sort_unstable();
        forms.dedup();
        let known = forms.iter().map(|form| form.text.as_bytes());
        let beginnings = known.chain(own::beginnings()).map(|form| {
            let end = form.len().min(FIRST_LOOK);
            &form[..end]
        });
        let kind = (forms.len() <= MOST_IN_TABLE).then_some(AhoCorasickKind::DFA);
        // Without it every text is searched in full.
        let beginnings = AhoCorasick::builder().kind(kind).build(beginnings).ok();
        Self {
            forms,
            beginnings,
            nested,
        }
    }

    /// Returns a redactor for Gantry's own keys only.
    pub fn own_keys() -> &'static Arc<Self> {
        &OWN_KEYS
    }

    /// Returns the length of the longest form. Code that cuts a text must examine this many bytes
    /// after the cut, or the beginning of a secret may remain.
    pub fn longest(&self) -> usize {
        let lengths = self.forms.iter().map(|form| form.text.len());
        lengths.fold(own::LONGEST, usize::max)
    }

    /// Returns the text without secrets; copied only if it contains any.
    ///
    /// The text may be plain or the content of a JSON string, whose escapes stay intact. Use
    /// `redact_json` for a JSON document.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if !self.may_hide(text) {
            return Cow::Borrowed(text);
        }
        let found = merged(self.find(text).chain(own_in(text)).collect());
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        Cow::Owned(replace(text, found))
    }

    /// Returns the JSON text, which may be truncated, without secrets, and as valid as before.
    pub fn redact_json<'a>(&self, json: &'a str) -> Cow<'a, str> {
        match self.redact_counted(json) {
            Some((clean, _)) => Cow::Owned(clean),
            None => Cow::Borrowed(json),
        }
    }

    /// Returns the JSON text without secrets and the number of redactions; `None` if there are
    /// none.
    ///
    /// Only strings are changed: numbers stay, and members keep their names, except for Gantry's
    /// own keys in them. A match that spans two strings is kept, since no value does that.
    pub fn redact_counted(&self, json: &str) -> Option<(String, usize)> {
        if !self.may_hide(json) {
            return None;
        }
        let known: Vec<Range<usize>> = self.find(json).collect();
        let own: Vec<Range<usize>> = own_in(json).collect();
        if known.is_empty() && own.is_empty() {
            return None;
        }
        let quotes = Quotes::of(json);
        // Asked once for each string: many values may be in one, before much white space.
        let mut names = HashMap::new();
        let is_value = |range: &Range<usize>| {
            let end = quotes.after(range.end);
            !*names
                .entry(end)
                .or_insert_with(|| quotes.is_name(json, end))
        };
        let known = known.into_iter().filter(is_value);
        let in_string = |range: &Range<usize>| quotes.inside(range.start) && !quotes.any_in(range);
        let found = merged(known.chain(own).filter(in_string).collect());
        let count = found.len();
        (count > 0).then(|| (replace(json, found), count))
    }

    /// Returns whether a text may contain a secret: a quick check before an exact one.
    pub fn may_hide(&self, text: impl AsRef<[u8]>) -> bool {
        let (text, beginnings) = (text.as_ref(), self.beginnings.as_ref());
        beginnings.is_none_or(|beginnings| beginnings.is_match(text))
            || (!self.forms.is_empty() && is_encoded(text, self.nested))
    }

    /// Returns the ranges of known values, unsorted, extended to whole escapes.
    fn find(&self, text: &str) -> impl Iterator<Item = Range<usize>> {
        let mut found = self.find_in(text.as_bytes());
        if !self.forms.is_empty() && is_encoded(text.as_bytes(), self.nested) {
            found.extend(self.find_decoded(text.as_bytes()));
        }
        found.into_iter().map(move |range| widen(text, range))
    }

    fn find_in(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        match &self.beginnings {
            Some(beginnings) => {
                let starts = beginnings.find_overlapping_iter(bytes);
                let found = starts.filter_map(|start| {
                    let form = self.forms.get(start.pattern().as_usize())?;
                    form.at(bytes, start.start())
                });
                found.collect()
            }
            None => {
                let each = self.forms.iter();
                each.flat_map(|form| form.find(bytes)).collect()
            }
        }
    }

    /// Returns the ranges of values that are found once the text is decoded, piece by piece. Pieces
    /// overlap by the longest form.
    fn find_decoded(&self, text: &[u8]) -> Vec<Range<usize>> {
        let overlap = MOST_PER_CHARACTER * self.longest();
        let step = DECODED_AT_ONCE.max(overlap);
        let mut found = Vec::new();
        for start in (0..text.len()).step_by(step) {
            let end = text.len().min(start + step + overlap);
            for decoded in Decoded::of(&text[start..end], self.nested) {
                let ranges = self.find_in(&decoded.bytes).into_iter();
                let ranges = ranges.map(|range| decoded.origin(&range));
                found.extend(ranges.map(|range| range.start + start..range.end + start));
            }
        }
        found
    }
}

/// Returns the ranges of Gantry's own keys, extended to whole escapes.
fn own_in(text: &str) -> impl Iterator<Item = Range<usize>> {
    own::find(text).map(move |range| widen(text, range))
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

/// Sorts ranges and merges overlapping ones.
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

fn replace(text: &str, ranges: Vec<Range<usize>>) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut copied = 0;
    for range in ranges {
        clean.push_str(&text[copied..range.start]);
        clean.push_str(REDACTED);
        copied = range.end;
    }
    clean.push_str(&text[copied..]);
    clean
}

/// Extends a range so that it begins and ends outside of JSON escapes.
///
/// Half an escape would break the JSON around it; in plain text this removes one or two more
/// characters.
fn widen(text: &str, range: Range<usize>) -> Range<usize> {
    let start = escape_around(text, range.start).map_or(range.start, |escape| escape.start);
    let end = escape_around(text, range.end).map_or(range.end, |escape| escape.end);
    start..end
}

/// Returns the escape that contains this position: after its backslash and before its end.
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

/// The positions of the quotes of a JSON text.
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
        self.after(place) % 2 == 1
    }

    /// Returns the number of the first quote from this position on.
    fn after(&self, place: usize) -> usize {
        self.0.partition_point(|quote| *quote < place)
    }

    /// Returns whether the string that ends with this quote is the name of a member.
    fn is_name(&self, json: &str, end: usize) -> bool {
        let after = self.0.get(end).and_then(|quote| json.get(quote + 1..));
        after.is_some_and(|after| after.trim_start().starts_with(':'))
    }

    fn any_in(&self, range: &Range<usize>) -> bool {
        let next = self.after(range.start);
        self.0.get(next).is_some_and(|quote| *quote < range.end)
    }
}
