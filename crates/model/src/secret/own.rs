//! Gantry's own keys, known by their format: whoever's they are, they are shown to nobody.
//!
//! A key is a prefix and 32 random bytes in base64. It is found as it is, and in base64, as a file that
//! holds one comes back as a blob. One search for each, no more. Entry point: [`find`].

use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem::Finder;

/// How keys of administrators begin.
pub const ADMIN_KEY: &str = "gantry_admin_";
/// How keys of agents begin.
pub const AGENT_KEY: &str = "gantry_agent_";

/// What both begin with.
const COMMON: &str = "gantry_a";
/// The same in base64, as far as it does not depend on what follows.
const ENCODED: &str = "Z2FudHJ5X2";
/// The letters behind the prefix: 32 bytes in base64.
const LETTERS: usize = 43;
/// The least length of a whole key in base64.
const ENCODED_LENGTH: usize = (ADMIN_KEY.len() + LETTERS) * 4 / 3;
/// The longest form in which a key is found.
pub(super) const LONGEST: usize = ENCODED_LENGTH + 4;

static PLAIN: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(COMMON));
static IN_BASE64: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(ENCODED));

/// Returns where keys are in a text.
pub(super) fn find(text: &str) -> impl Iterator<Item = Range<usize>> {
    let key = |rest: &str| {
        let prefixes = [ADMIN_KEY, AGENT_KEY];
        let prefix = prefixes
            .into_iter()
            .find(|prefix| rest.starts_with(prefix))?;
        let letters = run(&rest[prefix.len()..], b"-_");
        (letters >= LETTERS).then(|| prefix.len() + letters)
    };
    let encoded = |rest: &str| {
        let letters = run(rest.get(..LONGEST).unwrap_or(rest), b"+/-_=");
        (letters >= ENCODED_LENGTH).then_some(letters)
    };
    each(text, &PLAIN, key).chain(each(text, &IN_BASE64, encoded))
}

/// Returns what is found of one kind: `length` tells how long it is from where its beginning was found.
/// The search goes on behind it, so that all of it takes time linear in the text.
fn each<'t>(
    text: &'t str,
    beginning: &'static Finder<'static>,
    length: impl Fn(&str) -> Option<usize> + 't,
) -> impl Iterator<Item = Range<usize>> + 't {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let start = from + beginning.find(text.as_bytes().get(from..)?)?;
            let found = length(text.get(start..)?);
            from = start + found.unwrap_or(beginning.needle().len());
            if found.is_some() {
                return Some(start..from);
            }
        }
    })
}

/// Returns how many letters, digits and such signs a text begins with.
fn run(text: &str, signs: &[u8]) -> usize {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || signs.contains(byte);
    text.bytes().take_while(is_letter).count()
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::secret::Redactor;

    const KEY: &str = "gantry_admin_0123456789abcdefghijABCDEFGHIJ-_0123456789x";

    #[test]
    fn keys_are_hidden_by_their_format_alone() {
        let nothing_known = Redactor::default();
        let agent = KEY.replace("admin", "agent");
        for text in [
            KEY,
            &agent,
            &format!("{KEY}{KEY}"),
            &STANDARD.encode(format!("{KEY}\n")),
        ] {
            let shown = nothing_known.redact(text).into_owned();
            assert!(
                shown.starts_with("[redacted]") && shown.len() < 16,
                "{shown}"
            );
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

    #[test]
    fn a_text_made_of_beginnings_takes_linear_time() {
        for beginning in ["gantry_admin_", "Z2FudHJ5X2", "gantry_admin_x "] {
            let text = beginning.repeat(400_000);
            assert!(find(&text).count() <= text.len() / LETTERS);
        }
    }

    #[test]
    fn what_only_begins_like_a_key_stays() {
        for text in [
            "gantry_admin_",
            "gantry_agent_configuration_loader and more",
            "gantry_admin_0123456789abcdefghijABCDEFGHIJ-_0123456789",
            "gantry_api_0123456789abcdefghijABCDEFGHIJ-_0123456789x",
            "Z2FudHJ5X2F",
        ] {
            assert_eq!(find(text).count(), 0, "{text}");
        }
    }
}
