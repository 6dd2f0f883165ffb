//! Gantry's own keys, detected by their format and redacted everywhere.
//!
//! A key is a prefix and 32 random bytes in base64. It is found as plain text, and inside base64,
//! since a file with a key may be returned as a blob: there the prefix has three spellings,
//! depending on its offset. One search for each. Entry points: [`find`] and, for a quick check,
//! [`beginnings`].

use std::ops::Range;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use memchr::memmem::Finder;

use super::detect::is_words;

/// The prefix of administrators' keys.
pub const ADMIN_KEY: &str = "gantry_admin_";
/// The prefix of agents' keys.
pub const AGENT_KEY: &str = "gantry_agent_";

/// The common prefix.
const COMMON: &str = "gantry_a";
/// The length of the part after the prefix: 32 bytes in base64.
const LETTERS: usize = 43;
/// How many characters of it identify a truncated key.
const FEWEST_LETTERS: usize = 20;
/// The length of a key in base64.
const ENCODED_LETTERS: usize = (ADMIN_KEY.len() + LETTERS) * 4 / 3 + 3;
/// The longest line break inside base64: an escape in JSON inside JSON, and blanks.
const LONGEST_BREAK: usize = 16;
/// The longest form of a key.
pub(super) const LONGEST: usize = ENCODED_LETTERS + 2 * LONGEST_BREAK;

static PLAIN: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(COMMON));
static IN_BASE64: LazyLock<[Encoded; 3]> = LazyLock::new(|| [0, 1, 2].map(Encoded::new));

/// The prefix in base64, at one of three byte offsets.
struct Encoded {
    /// The part that does not depend on neighbouring bytes. It is the same in both alphabets.
    middle: Finder<'static>,
    /// How many bits of the prefix's first character precede the middle.
    skipped: u32,
}

impl Encoded {
    fn new(before: usize) -> Self {
        let bytes = [&[0; 2][..before], COMMON.as_bytes()].concat();
        let letters = STANDARD_NO_PAD.encode(&bytes);
        let (first, last) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
        let middle = &letters.as_bytes()[first..last];
        Self {
            middle: Finder::new(middle).into_owned(),
            // The rest of a character that begins before the middle is skipped.
            skipped: [0, 4, 6][before],
        }
    }

    /// Returns the range of the base64 text with a key whose middle was found at `start`.
    fn around(&self, text: &str, start: usize) -> Option<Range<usize>> {
        let rest = &text[start..];
        let (bytes, ends) = decode(rest, self.skipped);
        let key = std::str::from_utf8(&bytes).ok()?;
        let first = usize::from(self.skipped > 0);
        let letters = [ADMIN_KEY, AGENT_KEY]
            .iter()
            .find_map(|prefix| key.strip_prefix(&prefix[first..]))?;
        let end = is_key(letters).then(|| ends.last().copied()).flatten()?;
        // The rest of the base64 could not be decoded, so all of it is redacted.
        let before = text[..start].bytes().rev();
        let before = before.take_while(|byte| value_of(*byte).is_some()).count();
        let after = rest[end..].bytes();
        let after = after.take_while(|byte| value_of(*byte).is_some()).count();
        let padding = rest[end + after..].bytes().take(2);
        let padding = padding.take_while(|byte| *byte == b'=').count();
        Some(start - before..start + end + after + padding)
    }
}

/// Returns byte strings of which every text with a key contains one.
pub(super) fn beginnings<'a>() -> impl Iterator<Item = &'a [u8]> {
    let encoded = IN_BASE64.iter().map(|form| form.middle.needle());
    std::iter::once(PLAIN.needle()).chain(encoded)
}

/// Returns the ranges of keys in a text.
pub(super) fn find(text: &str) -> impl Iterator<Item = Range<usize>> {
    let plain = |text: &str, start: usize| {
        let rest = &text[start..];
        let mut prefixes = [ADMIN_KEY, AGENT_KEY].into_iter();
        let prefix = prefixes.find(|prefix| rest.starts_with(prefix))?;
        let letters = run(&rest[prefix.len()..]);
        is_key(letters).then(|| start..start + prefix.len() + letters.len())
    };
    let encoded = IN_BASE64.iter().flat_map(move |form| {
        each(text, &form.middle, move |text, start| {
            form.around(text, start)
        })
    });
    each(text, &PLAIN, plain).chain(encoded)
}

/// Returns the matches of one kind; `around` computes the range of a match from its start. The
/// search continues after each match, so the total time is linear.
fn each<'t>(
    text: &'t str,
    beginning: &'static Finder<'static>,
    around: impl Fn(&str, usize) -> Option<Range<usize>> + 't,
) -> impl Iterator<Item = Range<usize>> + 't {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let start = from + beginning.find(text.as_bytes().get(from..)?)?;
            let found = around(text, start);
            let behind = start + beginning.needle().len();
            from = found.as_ref().map_or(behind, |found| found.end);
            if found.is_some() {
                return found;
            }
        }
    })
}

/// Returns whether these characters after a prefix are a key, or most of one, and not a name.
fn is_key(letters: &str) -> bool {
    let is_name =
        || is_words(letters, "-_") && !letters.bytes().any(|byte| byte.is_ascii_uppercase());
    letters.len() >= LETTERS || (letters.len() >= FEWEST_LETTERS && !is_name())
}

/// Returns the key characters at the start of a text.
fn run(text: &str) -> &str {
    let length = text.bytes().take_while(|byte| is_letter(*byte)).count();
    &text[..length]
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// Decodes base64 at the start of a text, across line breaks, up to the length of a key: the bytes
/// after the first `skipped` bits, and where in the text each of them ends.
fn decode(text: &str, skipped: u32) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    let (mut bits, mut held, mut skip) = (0_u32, 0_u32, skipped);
    let mut place = 0;
    for _ in 0..ENCODED_LETTERS {
        place += line_break(&text.as_bytes()[place..]);
        let Some(value) = text.as_bytes().get(place).and_then(|byte| value_of(*byte)) else {
            break;
        };
        place += 1;
        bits = (bits << 6) | u32::from(value);
        held += 6;
        let gone = skip.min(held);
        (skip, held) = (skip - gone, held - gone);
        bits &= (1 << held) - 1;
        if held >= 8 {
            held -= 8;
            let byte = (bits >> held).to_le_bytes()[0];
            if !is_letter(byte) {
                break;
            }
            bytes.push(byte);
            ends.push(place);
        }
    }
    (bytes, ends)
}

/// Returns the length of a line break at the start of a text, plain or escaped as in JSON.
fn line_break(text: &[u8]) -> usize {
    let mut length = 0;
    while let Some(rest) = text.get(length..) {
        let slashes = rest.iter().take_while(|byte| **byte == b'\\').count();
        let step = match rest.get(slashes) {
            Some(b'n' | b'r') if slashes > 0 => slashes + 1,
            Some(b'\n' | b'\r') if slashes == 0 => 1,
            Some(b' ' | b'\t') if slashes == 0 && length > 0 => 1,
            _ => break,
        };
        if length + step > LONGEST_BREAK {
            break;
        }
        length += step;
    }
    length
}

/// Returns the value of a base64 character, in either alphabet.
fn value_of(letter: u8) -> Option<u8> {
    match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE, URL_SAFE_NO_PAD};

    use super::*;
    use crate::secret::Redactor;

    const KEY: &str = "gantry_admin_0123456789abcdefghijABCDEFGHIJ-_0123456789x";

    #[test]
    fn keys_are_hidden_by_their_format_alone() {
        let nothing_known = Redactor::own_keys();
        let agent = KEY.replace("admin", "agent");
        for text in [
            KEY,
            &agent,
            &format!("{KEY}{KEY}"),
            &STANDARD.encode(format!("{KEY}\n")),
        ] {
            assert_eq!(nothing_known.redact(text), "[redacted]");
        }
        let json = format!(
            r#"{{"{KEY}":["Bearer {KEY}","\n{agent}\n"],"blob":"{}"}}"#,
            STANDARD.encode(KEY)
        );
        assert_eq!(
            nothing_known.redact_json(&json),
            r#"{"[redacted]":["Bearer [redacted]","\n[redacted]\n"],"blob":"[redacted]"}"#
        );
    }

    // fault K3: a file with a key in it, whatever stands around the key
    #[test]
    fn keys_are_found_anywhere_in_base64() {
        let nothing_known = Redactor::own_keys();
        let agent = KEY.replace("admin", "agent");
        for key in [KEY, &agent] {
            for before in 0..9 {
                let file = format!("{}{key}\"}}\n?>~ÿ", "?>~ÿ".repeat(9).split_at(before * 5).0);
                let alphabets = [&STANDARD, &URL_SAFE, &URL_SAFE_NO_PAD];
                for blob in alphabets.map(|alphabet| alphabet.encode(&file)) {
                    let json = format!(r#"{{"blob":"{blob}","text":"\n{blob}\n"}}"#);
                    let shown = nothing_known.redact_json(&json);
                    // What is left of an escape before it goes with it.
                    let clean = r#"{"blob":"[redacted]","text":"[redacted]\n"}"#;
                    assert_eq!(shown, clean, "{before}");
                }
            }
            for file in [
                format!("# agent\nGANTRY_KEY={key}\nMODE=x\n"),
                format!(r#"{{"headers":{{"Authorization":"Bearer {key}"}}}}"#),
            ] {
                let blob = STANDARD.encode(&file);
                assert_eq!(nothing_known.redact(&blob), "[redacted]");
                let cut = &blob[..blob.len() - 24];
                assert_eq!(nothing_known.redact(cut), "[redacted]");
            }
        }
    }

    #[test]
    fn keys_are_found_in_base64_of_many_lines() {
        let blob = STANDARD.encode(format!("{}{KEY}", "x".repeat(24)));
        let (first, second) = blob.split_at(64);
        for end in ["\n", "\r\n", "\n  ", r"\n", r"\r\n", r"\\n"] {
            let shown = Redactor::own_keys()
                .redact(&format!("{first}{end}{second}"))
                .into_owned();
            assert_eq!(shown, "[redacted]", "{end:?}");
        }
    }

    // fault K3: who has most of a key has it soon
    #[test]
    fn a_key_that_was_cut_off_is_hidden_too() {
        for letters in FEWEST_LETTERS..=LETTERS {
            let cut = &KEY[..ADMIN_KEY.len() + letters];
            assert_eq!(Redactor::own_keys().redact(cut), "[redacted]");
            let blob = STANDARD.encode(format!("k={cut}"));
            assert_eq!(
                Redactor::own_keys().redact(&blob),
                "[redacted]",
                "{letters}"
            );
        }
    }

    #[test]
    fn a_text_made_of_beginnings_takes_linear_time() {
        let each = beginnings().map(|form| std::str::from_utf8(form).unwrap());
        let repeated = ["gantry_admin_", "gantry_admin_x ", "Z2FudHJ5X2\n\n\n\n"];
        for beginning in each.chain(repeated) {
            let text = beginning.repeat(400_000);
            assert!(find(&text).count() <= text.len() / LETTERS);
        }
    }

    #[test]
    fn what_only_begins_like_a_key_stays() {
        let about = "use gantry_agent_configuration_loader, and gantry_admin_key: &str";
        let blobs = ["", "a", "ab"].map(|before| STANDARD.encode(format!("{before}{about}")));
        for text in [
            "gantry_admin_",
            about,
            &blobs[0],
            &blobs[1],
            &blobs[2],
            "gantry_admin_0123456789abcdefghi",
            "gantry_agent_reconnects_total_seconds_bucket2",
            "gantry_api_0123456789abcdefghijABCDEFGHIJ-_0123456789x",
            "Z2FudHJ5X2F",
        ] {
            assert_eq!(find(text).count(), 0, "{text}");
        }
    }
}
