//! Redacts known secrets, and Gantry's own keys, in every form in which they occur (`forms`).
//!
//! One pass over a text finds the first bytes of any form; what begins there is compared. It is a net,
//! not a promise: short values are not looked for, and what a server encodes in a way of its own is
//! not found. Works on a whole text: a value that is split over two texts is not found in either.

mod forms;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use memchr::memchr_iter;

use self::forms::Form;
use super::{REDACTED, SecretText, own};

/// Shorter values are not looked for: they would turn up everywhere by accident.
const SHORTEST: usize = 6;

/// The longest JSON escape, `\u` and four digits, after its backslash.
const LONGEST_ESCAPE: usize = 5;

static OWN_KEYS: LazyLock<Arc<Redactor>> = LazyLock::new(|| Arc::new(Redactor::new([])));

/// How much of each form the pass over a text compares: enough to be rare, little enough to be small.
const FIRST_LOOK: usize = 8;

/// With so many beginnings a table of all transitions is still small, and the fastest.
const MOST_IN_TABLE: usize = 1024;

/// Finds and replaces the values of one server's secrets, and keys of our own.
#[derive(Clone)]
pub struct Redactor {
    forms: Vec<Form>,
    /// Finds the beginning of any of the forms, numbered like them, or of a key of our own.
    beginnings: Option<AhoCorasick>,
}

impl Redactor {
    /// Prepares to find these values; those of fewer than six characters are left out.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a SecretText>) -> Self {
        let mut forms = Vec::new();
        for value in values {
            let value = value.expose();
            // Files end in a line break that programs drop before they use, and echo, the value.
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
        // Without one every text is searched closely.
        let beginnings = AhoCorasick::builder().kind(kind).build(beginnings).ok();
        Self { forms, beginnings }
    }

    /// Returns what removes keys of our own and nothing else, for what no server has secrets in.
    pub fn own_keys() -> &'static Arc<Self> {
        &OWN_KEYS
    }

    /// Returns the length of the longest form in which something is found. Who cuts a text must look
    /// at as much behind the cut, or the beginning of a secret stays.
    pub fn longest(&self) -> usize {
        let lengths = self.forms.iter().map(|form| form.text.len());
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
        let found = merged(self.find(text).chain(own_in(text)).collect());
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        Cow::Owned(replace(text, found))
    }

    /// Returns the JSON text, which may be cut off, without the secrets, and as valid as it was.
    pub fn redact_json<'a>(&self, json: &'a str) -> Cow<'a, str> {
        match self.redact_counted(json) {
            Some((clean, _)) => Cow::Owned(clean),
            None => Cow::Borrowed(json),
        }
    }

    /// Returns the JSON text without the secrets and how many places were redacted; nothing if there
    /// are none.
    ///
    /// Only strings are touched: a number stays the number that it is, and a member keeps its name, or
    /// nobody would find it; only a key of our own is taken out of that, too. What only looks like a
    /// secret because it reaches from one string into the next stays, since no value does that.
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
        let is_value = |range: &Range<usize>| !quotes.is_name(json, range.end);
        let known = known.into_iter().filter(is_value);
        let in_string = |range: &Range<usize>| quotes.inside(range.start) && !quotes.any_in(range);
        let found = merged(known.chain(own).filter(in_string).collect());
        let count = found.len();
        (count > 0).then(|| (replace(json, found), count))
    }

    /// Tells whether there may be something to hide in a text: a quick look before a close one.
    pub fn may_hide(&self, text: impl AsRef<[u8]>) -> bool {
        let beginnings = self.beginnings.as_ref();
        beginnings.is_none_or(|beginnings| beginnings.is_match(text.as_ref()))
    }

    /// Returns where known values are, in no order, widened to whole escapes.
    fn find(&self, text: &str) -> impl Iterator<Item = Range<usize>> {
        let bytes = text.as_bytes();
        let found: Vec<Range<usize>> = match &self.beginnings {
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
        };
        found.into_iter().map(move |range| widen(text, range))
    }
}

/// Returns where keys of our own are, widened to whole escapes.
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
