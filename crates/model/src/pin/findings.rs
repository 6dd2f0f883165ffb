//! Indications that a server's text tries to instruct the model that reads it (fault L1), and
//! invisible characters (fault L2). Simple rules: they point a person to a text and prove nothing.
//! Entry points: [`find_in_definition`] and [`find_in_text`].

use serde::{Deserialize, Serialize};

use crate::hidden;
use crate::jsonrpc::{Raw, RawKind};

/// The most findings that are kept of one definition.
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

/// Looks at every string of a definition, the names of members included.
pub fn find_in_definition(definition: Raw<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    walk("", definition, &mut found);
    found
}

/// Looks at one text.
pub fn find_in_text(path: &str, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    look(path, text, &mut found);
    found
}

fn walk(path: &str, raw: Raw<'_>, found: &mut Vec<Finding>) {
    if found.len() >= MOST_FINDINGS {
        return;
    }
    match raw.kind() {
        RawKind::Object => {
            for member in raw.members() {
                let key = member.key.string().unwrap_or_default();
                let inner = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
                look(&inner, &key, found);
                walk(&inner, member.value, found);
            }
        }
        RawKind::Array => {
            for (at, item) in raw.items().enumerate() {
                walk(&format!("{path}/{at}"), item, found);
            }
        }
        RawKind::String => {
            if let Some(text) = raw.string() {
                look(path, &text, found);
            }
        }
        RawKind::Number | RawKind::Boolean | RawKind::Null => {}
    }
}

fn look(path: &str, text: &str, found: &mut Vec<Finding>) {
    let mut note = |rule: &str, at: usize, text: &str| {
        if found.len() < MOST_FINDINGS {
            found.push(Finding {
                rule: rule.to_owned(),
                path: hidden::shown(path),
                text: around(text, at),
            });
        }
    };
    let cleaned = hidden::clean(text);
    if let Some((_, removed)) = &cleaned {
        note(removed.rule(), removed.first, text);
    }
    let plain = cleaned.as_ref().map_or(text, |(clean, _)| clean);
    // Folded like this a phrase is found over line breaks and double spaces.
    let folded = plain
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .to_lowercase();
    for (rule, phrases) in RULES {
        let at = phrases.iter().find_map(|phrase| position(&folded, phrase));
        if let Some(at) = at {
            note(rule, at, &folded);
        }
    }
}

/// Finds a phrase; one of letters only as a word of its own.
fn position(text: &str, phrase: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = text[from..].find(phrase).map(|at| at + from) {
        let is_letter = |character: Option<char>| character.is_some_and(char::is_alphanumeric);
        let begins_inside =
            phrase.starts_with(char::is_alphanumeric) && is_letter(text[..at].chars().next_back());
        let ends_inside = phrase.ends_with(char::is_alphanumeric)
            && is_letter(text[at + phrase.len()..].chars().next());
        if !begins_inside && !ends_inside {
            return Some(at);
        }
        from = at + phrase.len();
    }
    None
}

fn around(text: &str, at: usize) -> String {
    let begin = text[..at.min(text.len())].chars().rev().take(SHOWN / 4);
    let begin = at.min(text.len()) - begin.map(char::len_utf8).sum::<usize>();
    hidden::shown(&text[begin..].chars().take(SHOWN).collect::<String>())
}
