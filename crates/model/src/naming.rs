//! Tool names: the identity `server:tool`, and the exposed name that a client sees.
//!
//! `encode` turns an identity into a name that a target accepts, always the same one; `Names` maps
//! both directions for one view. Whether a tool is offered at all is decided elsewhere.

mod names;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::diagnose::{Diagnose, Fault};
use crate::id::{NameError, ServerName};

pub use self::names::{Collision, Names, Outcome, Rules};

/// The separator of server and tool in an exposed name; no server's name contains it.
const SEPARATOR: &str = "__";

/// `_` and eight hex digits.
const SUFFIX: usize = 9;

/// The minimum length of the server's part when a name is shortened.
const SERVER_KEPT: usize = 16;

/// The default length limit of an exposed name, which every client accepts.
pub const LONGEST_EXPOSED: usize = 64;
/// The configurable range of that limit.
pub const EXPOSED_LENGTHS: std::ops::RangeInclusive<usize> = 32..=128;

/// Returns whether a character is invisible or changes the direction of text: soft hyphen,
/// zero-width and bidirectional characters, line and paragraph separators, blank letters, tags and
/// variation selectors. They make text read differently from its content.
pub const fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns whether a character must not be printed on a terminal: controls (C0, DEL, C1), including
/// line breaks and tabs, and invisible characters.
pub fn is_unprintable(character: char) -> bool {
    character.is_control() || is_invisible(character)
}

/// The identity of a tool: which server, and the server's own name for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolId {
    /// The server that offers it.
    pub server: ServerName,
    /// The server's name for it, byte for byte.
    pub tool: Arc<str>,
}

impl ToolId {
    /// Joins a server's name and its name for a tool.
    pub fn new(server: ServerName, tool: impl Into<Arc<str>>) -> Self {
        Self {
            server,
            tool: tool.into(),
        }
    }
}

impl fmt::Display for ToolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.server, self.tool)
    }
}

/// Why a text is not a tool identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolIdError {
    /// There is no `:`, or nothing after it.
    #[error("`{text}` is not a tool identity such as `server:tool`")]
    Form {
        /// The first characters of the text, escaped.
        text: String,
    },
    /// The part before the `:` is not a server name.
    #[error("the tool identity has no valid server name")]
    Server(#[from] NameError),
}

impl Diagnose for ToolIdError {
    fn code(&self) -> &'static str {
        "tool.identity"
    }

    fn fault(&self) -> Fault {
        Fault::Client
    }
}

impl FromStr for ToolId {
    type Err = ToolIdError;

    /// Splits at the first `:`; a tool's own name may contain more of them.
    fn from_str(text: &str) -> Result<Self, ToolIdError> {
        let refused = || ToolIdError::Form {
            text: text.chars().take(64).flat_map(char::escape_debug).collect(),
        };
        let (server, tool) = text.split_once(':').ok_or_else(refused)?;
        if tool.is_empty() {
            return Err(refused());
        }
        let server = if server == ServerName::NATIVE {
            ServerName::native()
        } else {
            server.parse()?
        };
        Ok(Self::new(server, tool))
    }
}

/// The rules for an exposed name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// MCP clients: up to 128 of letters, digits, `_`, `-` and `.`.
    Mcp,
    /// The Claude API: up to 128, no dots.
    Claude,
    /// The OpenAI API: up to 64, no dots.
    OpenAi,
    /// The Gemini API: up to 128, with dots, starting with a letter or `_`.
    Gemini,
}

impl Target {
    /// Returns the maximum length of a name for this target.
    pub const fn limit(self) -> usize {
        match self {
            Self::Mcp | Self::Claude | Self::Gemini => 128,
            Self::OpenAi => 64,
        }
    }

    /// Returns whether the target accepts this name.
    pub fn accepts(self, name: &str) -> bool {
        (1..=self.limit()).contains(&name.len())
            && name.chars().all(|c| self.allows(c))
            && name.starts_with(|c| self.allows_first(c))
    }

    const fn allows(self, character: char) -> bool {
        match character {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' => true,
            '.' => matches!(self, Self::Mcp | Self::Gemini),
            _ => false,
        }
    }

    const fn allows_first(self, character: char) -> bool {
        match self {
            Self::Gemini => character.is_ascii_alphabetic() || character == '_',
            Self::Mcp | Self::Claude | Self::OpenAi => self.allows(character),
        }
    }
}

/// The form of the names that clients see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Expose {
    /// `server__tool`.
    #[default]
    Qualified,
    /// The server's own name for the tool.
    Bare,
}

/// The policy for two tools with the same exposed name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnCollision {
    /// The first in configuration order keeps it, the second is not exposed.
    #[default]
    Refuse,
    /// The last in configuration order gets it.
    LastWins,
}

/// The requirements for an exposed name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Form {
    /// The target's rules.
    pub target: Target,
    /// The maximum length; less if the target requires it.
    pub longest: usize,
}

impl Form {
    /// Returns the requirements of a target, with its own length limit.
    pub const fn of(target: Target) -> Self {
        Self {
            target,
            longest: target.limit(),
        }
    }

    /// Returns how many characters a name may have.
    pub fn limit(self) -> usize {
        self.longest.clamp(SUFFIX + 1, self.target.limit())
    }

    /// Returns whether a name needs no change.
    pub fn accepts(self, name: &str) -> bool {
        name.len() <= self.limit() && self.target.accepts(name)
    }
}

/// Returns the exposed name `server__tool` in a form that the target accepts.
///
/// A name that had to be changed, or that could be confused with another, ends in `_` and eight hex
/// digits of its identity's SHA-256; no other name does. So two identities share a name only if
/// they share those digits too, and the name depends only on the identity.
pub fn encode(form: Form, server: &ServerName, tool: &str) -> String {
    // `a_` and `b` would look like `a` and `_b`.
    let ambiguous = server.as_str().ends_with('_');
    let plain = format!("{server}{SEPARATOR}{tool}");
    if !ambiguous && is_plain(form, &plain) {
        return plain;
    }
    let fitted = fitted(form.limit() - SUFFIX, server.as_str(), tool);
    hashed(form, &fitted, &format!("{server}:{tool}"))
}

/// Shortens a long server name rather than the tool name, which is more informative.
fn fitted(room: usize, server: &str, tool: &str) -> String {
    let room = room.saturating_sub(SEPARATOR.len());
    let tool_length = tool.chars().count();
    let tool_length = tool_length.min(room.saturating_sub(server.len().min(SERVER_KEPT)));
    let server: String = server.chars().take(room - tool_length).collect();
    format!("{server}{SEPARATOR}{tool}")
}

/// Returns the full name `server__tool` of a tool whose exposed name was shortened; clients that
/// knew it before the limit changed still use it.
pub fn unshortened(form: Form, server: &ServerName, tool: &str) -> Option<String> {
    let plain = format!("{server}{SEPARATOR}{tool}");
    let is_only_long = plain.len() > form.limit()
        && !server.as_str().ends_with('_')
        && is_plain(Form::of(form.target), &plain);
    is_only_long.then_some(plain)
}

/// Returns the exposed name of a tool without its server, in a form that the target accepts.
///
/// It is the same for every server; equal names are resolved by the collision policy.
pub fn encode_bare(form: Form, tool: &str) -> String {
    if is_plain(form, tool) {
        tool.to_owned()
    } else {
        hashed(form, tool, tool)
    }
}

/// Splits a client's name into server and tool by its form alone.
///
/// For messages about servers whose tools are not known (yet); `Names::resolve` is authoritative.
pub fn split(name: &str) -> Option<(&str, &str)> {
    name.split_once(':').or_else(|| name.split_once(SEPARATOR))
}

fn is_plain(form: Form, name: &str) -> bool {
    form.accepts(name) && !looks_hashed(name)
}

fn looks_hashed(name: &str) -> bool {
    let hex = |b: &u8| b.is_ascii_digit() || (b'a'..=b'f').contains(b);
    name.as_bytes()
        .last_chunk::<SUFFIX>()
        .is_some_and(|[underscore, digits @ ..]| *underscore == b'_' && digits.iter().all(hex))
}

fn hashed(form: Form, name: &str, identity: &str) -> String {
    let target = form.target;
    let room = form.limit() - SUFFIX;
    let mut text = String::with_capacity(form.limit());
    if name.starts_with(|c| target.allows(c) && !target.allows_first(c)) {
        text.push('_');
    }
    let legal = name.chars().map(|c| if target.allows(c) { c } else { '_' });
    text.extend(legal.take(room - text.len()));
    let digest = Sha256::digest(identity.as_bytes());
    text.push('_');
    for byte in digest.iter().take(4) {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).expect("four bits are one hex digit"));
        }
    }
    text
}

#[cfg(test)]
mod tests;
