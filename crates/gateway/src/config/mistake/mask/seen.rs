//! What of a value is shown, by the names that it stands under.

use gantry_model::secret::is_credential;

use crate::config::clients::hide::{ADDRESSES, PRIVATE};
use crate::config::entry::{CALLS, KEYS, LIFE, LIMITS, RESTART, TOOLS};
use crate::config::settings;

/// Keys under which servers stand by name.
const ROOTS: [&str; 6] = [
    "mcpServers",
    "servers",
    "mcpservers",
    "mcp_servers",
    "context_servers",
    "projects",
];

/// What of the values at a place is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// A table whose members are judged by their names.
    Names,
    /// A table whose members are servers, whatever they are called.
    Servers,
    /// Everything.
    Shown,
    /// Numbers and flags, but no texts.
    Other,
    /// The names of flags.
    Words,
    /// The first word, and of the others the names of flags.
    Command,
    /// Scheme and host.
    Address,
    /// Nothing.
    Hidden,
}

impl Seen {
    /// Returns what holds for the value of a member.
    pub(super) fn under(self, name: &str) -> Self {
        match (self, name) {
            (Self::Hidden, _) => Self::Hidden,
            (Self::Servers, _) => Self::Names,
            _ if PRIVATE.contains(&name) => Self::Hidden,
            _ if ROOTS.contains(&name) => Self::Servers,
            _ if ADDRESSES.contains(&name) => Self::Address,
            _ if name == "args" => Self::Words,
            _ if name == "command" => Self::Command,
            _ if is_credential(name) => Self::Hidden,
            _ if is_known(name) => Self::Shown,
            _ => Self::Other,
        }
    }

    /// Returns what holds for the members of a table at this place.
    pub(super) fn inside(self) -> Self {
        if matches!(self, Self::Hidden | Self::Servers) {
            self
        } else {
            Self::Names
        }
    }

    /// Returns what holds where nothing was expected.
    pub(super) fn stricter(self) -> Self {
        if self == Self::Hidden {
            Self::Hidden
        } else {
            Self::Other
        }
    }

    /// Tells whether a word without quotes is shown.
    pub(super) fn shows_bare(self, word: &str) -> bool {
        let plain = matches!(word, "true" | "false" | "null" | "nan" | "inf")
            || word.parse::<f64>().is_ok();
        self == Self::Shown || (plain && self != Self::Hidden)
    }

    /// Returns a text as it is shown, as long as it was.
    pub(super) fn shown(self, text: &str) -> String {
        match self {
            Self::Shown => text.to_owned(),
            Self::Words => words(text),
            Self::Command => {
                let end = text.find(char::is_whitespace).unwrap_or(text.len());
                format!("{}{}", &text[..end], words(&text[end..]))
            }
            Self::Address => address(text),
            Self::Names | Self::Servers | Self::Other | Self::Hidden => hidden(text),
        }
    }
}

/// Tells whether a name is a key of ours.
pub(super) fn is_known(name: &str) -> bool {
    let lists: [&[&str]; 9] = [
        &KEYS,
        &LIMITS,
        &CALLS,
        &LIFE,
        &RESTART,
        &TOOLS,
        &settings::KEYS,
        &ROOTS,
        &["gateway", "version", "id"],
    ];
    lists.iter().any(|list| list.contains(&name))
}

/// Shows the names of flags.
fn words(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for word in text.split_inclusive(char::is_whitespace) {
        let name = match word.find('=') {
            Some(end) => end + 1,
            None => word.trim_end().len(),
        };
        let is_flag = word.starts_with('-')
            && word[..name]
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || "-_=".contains(letter));
        let kept = if is_flag { name } else { 0 };
        shown.push_str(&word[..kept]);
        shown.push_str(&hidden(&word[kept..]));
    }
    shown
}

/// Shows scheme and host.
fn address(text: &str) -> String {
    let Some(start) = text.find("://").map(|scheme| scheme + 3) else {
        return hidden(text);
    };
    let end = text[start..].find(['/', '?', '#', '\\']);
    let end = end.map_or(text.len(), |end| start + end);
    let host = text[start..end].rfind('@').map_or(start, |at| start + at);
    format!(
        "{}{}{}{}",
        &text[..start],
        hidden(&text[start..host]),
        &text[host..end],
        hidden(&text[end..])
    )
}

/// Hides a text but for blanks and the names of variables, letter for letter and byte for byte.
pub(super) fn hidden(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let name = &rest[start + 2..];
        let end =
            name.find(|letter: char| !letter.is_ascii_alphanumeric() && !"_:".contains(letter));
        let end = end.unwrap_or(name.len());
        // Without a brace behind it, it may be anything.
        let kept = match name[end..].chars().next() {
            Some('}') => 3 + end,
            Some('-') if name[..end].ends_with(':') => 3 + end,
            Some(_) | None => 2,
        };
        shown.push_str(&stars(&rest[..start]));
        shown.push_str(&rest[start..start + kept]);
        rest = &rest[start + kept..];
    }
    shown.push_str(&stars(rest));
    shown
}

fn stars(text: &str) -> String {
    let star = |letter: char| match letter.len_utf8() {
        _ if letter.is_whitespace() => letter.to_string(),
        1 => "*".to_owned(),
        2 => "·".to_owned(),
        3 => "•".to_owned(),
        length => "*".repeat(length),
    };
    text.chars().map(star).collect()
}
