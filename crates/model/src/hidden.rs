//! Characters that people do not see and models or terminals obey: escape sequences of terminals,
//! zero-width and bidirectional controls, tag characters (fault L2). Found and taken out of texts, and of
//! the string values of JSON; names of members and numbers are never touched.
//!
//! What ordinary text needs stays: one joiner, mark or variation selector beside a character that shows,
//! line breaks and tabs, the flags that are written with tags. A text in ASCII without escapes is let
//! through after one pass. Entry points: [`clean`] and [`clean_json`].

use memchr::memmem;

use crate::jsonrpc::{Raw, RawKind, quote_into};
use crate::naming::is_unprintable;

const ESCAPE: char = '\u{1b}';
/// The flags of England, Scotland and Wales: a black flag and tags.
const FLAGS: [&str; 3] = [
    "\u{1f3f4}\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}",
    "\u{1f3f4}\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}",
    "\u{1f3f4}\u{e0067}\u{e0062}\u{e0077}\u{e006c}\u{e0073}\u{e007f}",
];

/// What was taken out of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Removed {
    /// Escape sequences of terminals, and other control characters.
    pub controls: usize,
    /// Characters that show nothing or turn the text around.
    pub invisible: usize,
    /// Where the first of them begins, in bytes.
    pub first: usize,
}

impl Removed {
    /// Returns how many places were changed.
    pub fn count(&self) -> usize {
        self.controls + self.invisible
    }

    /// Returns the rule that a finding about it names.
    pub(crate) fn rule(&self) -> &'static str {
        match self.invisible {
            0 => "control_characters",
            _ => "invisible_characters",
        }
    }

    fn add(&mut self, other: Self) {
        self.controls += other.controls;
        self.invisible += other.invisible;
    }
}

/// Returns the text without what is hidden in it, and how much that was; nothing if all can stay.
pub fn clean(text: &str) -> Option<(String, Removed)> {
    if !is_suspect(text.as_bytes()) {
        return None;
    }
    let mut out = String::new();
    let mut removed = Removed::default();
    let mut kept_to = 0;
    let mut at = 0;
    // The last character that shows, and whether something invisible followed it.
    let mut before: Option<char> = None;
    let mut is_marked = false;
    while let Some(character) = text[at..].chars().next() {
        let mut end = at + character.len_utf8();
        let is_flag = |flag: &&&str| text[at..].starts_with(**flag);
        let is_gone = if let Some(flag) = FLAGS.iter().find(is_flag) {
            end = at + flag.len();
            false
        } else if character == ESCAPE || character == '\u{9b}' {
            end = at + escape_length(&text[at..]);
            true
        } else if character.is_control() {
            !matches!(character, '\n' | '\r' | '\t')
        } else if is_joiner(character) {
            let next = text[end..].chars().next();
            is_marked || !is_joined(character, before, next)
        } else {
            is_hidden(character)
        };
        if is_gone {
            if removed.count() == 0 {
                removed.first = at;
            }
            match character.is_control() {
                true => removed.controls += 1,
                false => removed.invisible += 1,
            }
            out.push_str(&text[kept_to..at]);
            kept_to = end;
        }
        if is_joiner(character) || is_gone {
            is_marked = true;
        } else {
            (before, is_marked) = (Some(character), false);
        }
        at = end;
    }
    if removed.count() == 0 {
        return None;
    }
    out.push_str(&text[kept_to..]);
    Some((out, removed))
}

/// Returns JSON text whose string values have nothing hidden in them, and how much was taken out;
/// nothing if all can stay. The text must be valid.
pub fn clean_json(json: &str) -> Option<(String, Removed)> {
    clean_strings(json, false)
}

/// The same for the texts of a definition only: descriptions and titles at any depth. Constants and
/// enumerated values stay.
pub fn clean_texts(json: &str) -> Option<(String, Removed)> {
    clean_strings(json, true)
}

fn clean_strings(json: &str, texts_only: bool) -> Option<(String, Removed)> {
    if !may_hide(json.as_bytes()) {
        return None;
    }
    let mut out = Vec::new();
    let mut removed = Removed::default();
    let mut kept_to = 0;
    values(Raw::known(json), texts_only, &mut |string: Raw<'_>| {
        let text = string.text();
        if !may_hide(text.as_bytes()) {
            return;
        }
        let Some(decoded) = string.string() else {
            return;
        };
        let Some((clean, gone)) = clean(&decoded) else {
            return;
        };
        let begin = text.as_ptr() as usize - json.as_ptr() as usize;
        out.extend_from_slice(&json.as_bytes()[kept_to..begin]);
        quote_into(&mut out, &clean);
        kept_to = begin + text.len();
        removed.add(gone);
    });
    if removed.count() == 0 {
        return None;
    }
    out.extend_from_slice(&json.as_bytes()[kept_to..]);
    let clean = String::from_utf8(out).expect("JSON text is cut at its quotes");
    Some((clean, removed))
}

/// Returns whether there may be something hidden in JSON text: it is not ASCII, or has `\u` escapes.
pub fn may_hide(json: &[u8]) -> bool {
    !json.is_ascii() || memmem::find(json, b"\\u").is_some()
}

/// Returns whether a text has a control character or the first bytes of a character that may have to go.
fn is_suspect(text: &[u8]) -> bool {
    let next = |at: usize| text.get(at).copied().unwrap_or(0);
    text.iter().enumerate().any(|(at, byte)| match byte {
        0..=0x1f => !matches!(byte, b'\n' | b'\r' | b'\t'),
        0x7f => true,
        0xc2 => next(at + 1) < 0xa0,
        0xd8 => next(at + 1) == 0x9c,
        0xe1 => next(at + 1) == 0xa0,
        0xe2 => match next(at + 1) {
            0x80 => matches!(next(at + 2), 0x8b..=0x8f | 0xaa..=0xae),
            0x81 => next(at + 2) >= 0xa0,
            _ => false,
        },
        0xef => matches!(next(at + 1), 0xb8 | 0xbb | 0xbf),
        0xf0 => next(at + 1) == 0x9d && next(at + 2) == 0x85,
        0xf3 => next(at + 1) == 0xa0,
        _ => false,
    })
}

/// Returns a text as it can be shown: what is hidden is written as an escape.
pub fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match is_unprintable(character) {
            true => shown.extend(character.escape_unicode()),
            false => shown.push(character),
        }
    }
    shown
}

/// Returns JSON text on one line with what is hidden written as JSON's own escapes: the same value,
/// of which everything is seen.
pub fn escape_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        match is_unprintable(character) {
            true => {
                let units = character.encode_utf16(&mut [0; 2]).to_vec();
                escaped.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
            }
            false => escaped.push(character),
        }
    }
    escaped
}

/// Goes through the string values of JSON, in order; the depth is bounded where it was parsed.
fn values<'a>(raw: Raw<'a>, texts_only: bool, visit: &mut impl FnMut(Raw<'a>)) {
    const TEXTS: [&str; 3] = ["description", "title", "$comment"];
    match raw.kind() {
        RawKind::Object => raw.members().for_each(|member| {
            let is_string = member.value.kind() == RawKind::String;
            if !is_string {
                values(member.value, texts_only, visit);
            } else if !texts_only || TEXTS.iter().any(|text| member.is(text)) {
                visit(member.value);
            }
        }),
        RawKind::Array => raw.items().for_each(|item| values(item, texts_only, visit)),
        RawKind::String if texts_only => {}
        RawKind::String => visit(raw),
        RawKind::Number | RawKind::Boolean | RawKind::Null => {}
    }
}

/// Returns the length of the escape sequence at the beginning of a text; of the escape alone if none
/// follows.
fn escape_length(text: &str) -> usize {
    let mut characters = text.char_indices();
    let introducer = match characters.next() {
        Some((_, '\u{9b}')) => Some((1, '[')),
        _ => characters.next(),
    };
    let ended = |end: Option<(usize, char)>| end.map(|(at, last)| at + last.len_utf8());
    match introducer {
        // Parameters, then one final byte.
        Some((at, '[')) => {
            let end = characters.find(|(_, next)| !matches!(next, ' '..='?'));
            match end {
                Some((at, '@'..='~')) => at + 1,
                Some((at, _)) => at,
                None => text.len().max(at + 1),
            }
        }
        // A string that ends with BEL or ESC \.
        Some((at, ']' | 'P' | 'X' | '^' | '_')) => {
            let rest = &text[at + 1..];
            let bell = rest.find('\u{7}').map(|end| at + 2 + end);
            let terminator = rest.find("\u{1b}\\").map(|end| at + 3 + end);
            match (bell, terminator) {
                (Some(bell), Some(terminator)) => bell.min(terminator),
                (Some(end), None) | (None, Some(end)) => end,
                (None, None) => at + 1,
            }
        }
        // Character sets and the like: one more byte.
        Some((_, '(' | ')' | '#' | '%' | ' ')) => ended(characters.next()).unwrap_or(text.len()),
        Some((at, next)) if next.is_ascii_graphic() => at + 1,
        Some(_) | None => text.chars().next().map_or(0, char::len_utf8),
    }
}

/// Tells characters that some scripts and emoji need beside others, and that show nothing alone.
fn is_joiner(character: char) -> bool {
    matches!(character,
        '\u{200c}'..='\u{200f}' | '\u{61c}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

/// Returns whether a joiner is where it belongs: a variation selector behind any character, the others
/// beside one that is not ASCII.
fn is_joined(joiner: char, before: Option<char>, next: Option<char>) -> bool {
    match joiner {
        '\u{fe00}'..='\u{fe0f}' => before.is_some_and(|before| !before.is_whitespace()),
        _ => [before, next]
            .into_iter()
            .flatten()
            .any(|beside| !beside.is_ascii() && !is_hidden(beside)),
    }
}

/// Tells characters that have no place in any text. Soft hyphens, blank letters of Hangul and line
/// separators are ordinary, if rare.
fn is_hidden(character: char) -> bool {
    matches!(character,
        '\u{180e}' | '\u{200b}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests;
