//! Indications that a server's text tries to instruct the model that reads it (fault L1), and
//! invisible characters (fault L2). Simple rules: they point a person to a text and prove nothing.
//! Entry points: [`find_in_definition`] and [`find_in_text`].

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use serde::{Deserialize, Serialize};

use crate::hidden;
use crate::jsonrpc::{Raw, RawKind, pointer_step};

/// The maximum number of findings that are kept of one definition.
pub const MOST_FINDINGS: usize = 20;
/// How many characters around a finding are shown.
const SHOWN: usize = 80;

/// Something in a text that a person should look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Which rule found it, such as `override`.
    pub rule: String,
    /// Where, as a JSON pointer into the definition.
    pub path: String,
    /// The text around it, cut.
    pub text: String,
}

/// The rules: a name, and phrases in lower case of which one must occur, with single spaces.
const RULES: &[(&str, &[&str])] = &[
    (
        "override",
        &[
            "ignore previous",
            "ignore all previous",
            "ignore any previous",
            "ignore the previous",
            "ignore prior",
            "ignore all prior",
            "ignore your instructions",
            "ignore the above",
            "ignore everything above",
            "disregard previous",
            "disregard all",
            "disregard the",
            "disregard your",
            "disregard any",
            "forget your instructions",
            "forget all previous",
            "override your instructions",
            "new instructions:",
            "your new instructions",
            "system prompt",
            "you are now",
        ],
    ),
    (
        "secrecy",
        &[
            "do not tell the user",
            "don't tell the user",
            "never tell the user",
            "do not inform the user",
            "don't inform the user",
            "do not mention this",
            "don't mention this",
            "do not mention to the user",
            "do not mention that",
            "do not reveal",
            "without telling the user",
            "without informing the user",
            "without asking the user",
            "hide this from",
            "keep this secret",
            "the user must not",
            "the user should not know",
        ],
    ),
    (
        "markup",
        &[
            "<important>",
            "</important>",
            "<system>",
            "</system>",
            "<secret>",
            "<instructions>",
            "<|im_start|>",
            "<|system|>",
            "[system]",
            "[inst]",
            "<!--",
            "### system",
            "### instruction",
        ],
    ),
    (
        "other_tools",
        &[
            "before using this tool",
            "before you use this tool",
            "before calling this tool",
            "before using any other tool",
            "before any other tool",
            "instead of any other",
            "instead of the other",
            "do not use any other tool",
            "never use any other tool",
            "always call this tool",
            "always use this tool first",
            "must call this tool",
            "must first call",
            "when this tool is available",
            "when using other tools",
            "when any other tool",
        ],
    ),
    (
        "sensitive_files",
        &[
            ".ssh/",
            "id_rsa",
            "id_ed25519",
            ".aws/credentials",
            "/etc/passwd",
            "/etc/shadow",
            ".cursor/mcp.json",
            "claude_desktop_config",
            ".mcp.json",
            ".netrc",
            ".kube/config",
            ".git-credentials",
        ],
    ),
    (
        "exfiltration",
        &[
            "pass its content",
            "pass its contents",
            "pass the content",
            "include its content",
            "include the content of",
            "include the contents of",
            "include the full conversation",
            "include the conversation",
            "entire conversation",
            "conversation history",
            "send the result to",
            "send all",
            "send a copy",
            "bcc",
            "as a side note",
            "as sidenote",
            "base64 encode the",
        ],
    ),
];

/// The phrases of all rules, in their order; each is the pattern of this number in [`SEARCH`].
static PHRASES: LazyLock<Vec<Phrase>> = LazyLock::new(|| {
    let of_rule = |(rule, (_, phrases)): (usize, &(&str, &'static [&'static str]))| {
        let phrases = phrases.iter();
        phrases.map(move |text| Phrase { rule, text })
    };
    RULES.iter().enumerate().flat_map(of_rule).collect()
});

/// Finds all phrases in one pass: a server may list megabytes of text.
static SEARCH: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let phrases = PHRASES.iter().map(|phrase| phrase.text);
    AhoCorasick::builder()
        .kind(Some(AhoCorasickKind::DFA))
        .build(phrases)
        .expect("the rules have few phrases")
});

/// A phrase of a rule.
struct Phrase {
    /// The number of its rule.
    rule: usize,
    text: &'static str,
}

/// The place of a value in a definition; written out only for what is found there.
#[derive(Clone, Copy)]
enum Pointer<'a> {
    Root,
    Member(&'a Self, &'a str),
    Item(&'a Self, usize),
}

impl Pointer<'_> {
    /// Returns the JSON pointer.
    fn text(self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Member(outer, name) => {
                let name = pointer_step(name);
                format!("{}/{name}", outer.text())
            }
            Self::Item(outer, at) => format!("{}/{at}", outer.text()),
        }
    }
}

/// Looks at every string of a definition, the names of members included.
pub fn find_in_definition(definition: Raw<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    walk(Pointer::Root, definition, &mut found);
    found
}

/// Looks at one text.
pub fn find_in_text(member: &str, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    look(Pointer::Member(&Pointer::Root, member), text, &mut found);
    found
}

fn walk(place: Pointer<'_>, raw: Raw<'_>, found: &mut Vec<Finding>) {
    if found.len() >= MOST_FINDINGS {
        return;
    }
    match raw.kind() {
        RawKind::Object => {
            for member in raw.members() {
                let key = member.key.string().unwrap_or_default();
                let inner = Pointer::Member(&place, &key);
                look(inner, &key, found);
                walk(inner, member.value, found);
            }
        }
        RawKind::Array => {
            for (at, item) in raw.items().enumerate() {
                walk(Pointer::Item(&place, at), item, found);
            }
        }
        RawKind::String => {
            if let Some(text) = raw.string() {
                look(place, &text, found);
            }
        }
        RawKind::Number | RawKind::Boolean | RawKind::Null => {}
    }
}

fn look(place: Pointer<'_>, text: &str, found: &mut Vec<Finding>) {
    let mut note = |rule: &str, at: usize, text: &str| {
        if found.len() < MOST_FINDINGS {
            found.push(Finding {
                rule: rule.to_owned(),
                path: hidden::shown(&place.text()),
                text: around(text, at),
            });
        }
    };
    let cleaned = hidden::clean(text);
    if let Some((_, removed)) = &cleaned {
        note(removed.rule(), removed.first, text);
    }
    let folded = folded(cleaned.as_ref().map_or(text, |(clean, _)| clean));
    for ((rule, _), at) in RULES.iter().zip(matches(&folded)) {
        if let Some(at) = at {
            note(rule, at, &folded);
        }
    }
}

/// Returns a text in lower case with single spaces, so that a phrase is found over line breaks.
fn folded(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    let mut is_apart = false;
    for character in text.chars() {
        if character.is_whitespace() {
            is_apart = true;
            continue;
        }
        if is_apart && !folded.is_empty() {
            folded.push(' ');
        }
        is_apart = false;
        match character.is_ascii() {
            true => folded.push(character.to_ascii_lowercase()),
            false => folded.extend(character.to_lowercase()),
        }
    }
    folded
}

/// Returns for each rule where its first phrase begins.
fn matches(text: &str) -> [Option<usize>; RULES.len()] {
    let mut found = [None; RULES.len()];
    for place in SEARCH.find_overlapping_iter(text) {
        let phrase = &PHRASES[place.pattern().as_usize()];
        let first = &mut found[phrase.rule];
        // Matches come by their ends: a longer phrase that begins earlier may come later.
        let is_first = first.is_none_or(|first| place.start() < first);
        if is_first && is_whole(text, phrase.text, place.start()) {
            *first = Some(place.start());
        }
    }
    found
}

/// Returns whether a phrase that begins or ends with a letter is not part of a longer word.
fn is_whole(text: &str, phrase: &str, at: usize) -> bool {
    let is_letter = |character: Option<char>| character.is_some_and(char::is_alphanumeric);
    let begins_inside =
        phrase.starts_with(char::is_alphanumeric) && is_letter(text[..at].chars().next_back());
    let ends_inside = phrase.ends_with(char::is_alphanumeric)
        && is_letter(text[at + phrase.len()..].chars().next());
    !begins_inside && !ends_inside
}

fn around(text: &str, at: usize) -> String {
    let begin = text[..at.min(text.len())].chars().rev().take(SHOWN / 4);
    let begin = at.min(text.len()) - begin.map(char::len_utf8).sum::<usize>();
    hidden::shown(&text[begin..].chars().take(SHOWN).collect::<String>())
}
