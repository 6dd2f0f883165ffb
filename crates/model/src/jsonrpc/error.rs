//! Why a message was refused, where in its bytes, and the JSON-RPC code of the response.
//!
//! Created by the scanner and the envelope only; the texts never repeat more than a short, escaped
//! piece of the peer's message.

use super::{INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR};
use crate::diagnose::{Diagnose, Fault};

/// Why a message was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The bytes are not UTF-8.
    #[error("the message is not UTF-8 at byte {at}")]
    NotUtf8 {
        /// The first byte that is not.
        at: usize,
    },
    /// The message is too long for 32-bit offsets.
    #[error("the message has {length} bytes, more than can be handled")]
    TooLarge {
        /// Its length in bytes.
        length: usize,
    },
    /// The grammar of RFC 8259 is broken.
    #[error("expected {expected} at byte {at}")]
    Syntax {
        /// The expected token.
        expected: &'static str,
        /// The position.
        at: usize,
    },
    /// The text stops in the middle of a value.
    #[error("the message ends at byte {at}, expected {expected}")]
    Truncated {
        /// The expected token.
        expected: &'static str,
        /// Where the text ends.
        at: usize,
    },
    /// A `\u` escape names half a surrogate pair.
    #[error("lone surrogate escape at byte {at}")]
    LoneSurrogate {
        /// Where the escape begins.
        at: usize,
    },
    /// Too many objects and arrays inside each other.
    #[error("nested deeper than {limit} levels at byte {at}")]
    TooDeep {
        /// The deepest level allowed.
        limit: usize,
        /// Where the first level too many opens.
        at: usize,
    },
    /// The same key twice in one object.
    #[error("duplicate key `{key}` at byte {at}")]
    DuplicateKey {
        /// The key, decoded, escaped for display and cut.
        key: String,
        /// Where the second one begins.
        at: usize,
    },
    /// Valid JSON, but neither an object nor an array.
    #[error("a message must be a JSON object")]
    NotAnObject,
    /// A JSON-RPC batch.
    #[error("batches are not accepted")]
    Batch,
    /// A member that is not part of any message.
    #[error("unknown member `{name}` at byte {at}")]
    UnknownMember {
        /// Its name, escaped for display and cut.
        name: String,
        /// Where it begins.
        at: usize,
    },
    /// A member that differs from a known one only in case.
    #[error("unknown member `{name}` at byte {at}, did you mean `{meant}`?")]
    WrongCase {
        /// Its name, escaped for display and cut.
        name: String,
        /// The known member.
        meant: &'static str,
        /// Where it begins.
        at: usize,
    },
    /// `jsonrpc` is absent or not `"2.0"`.
    #[error("member `jsonrpc` must be \"2.0\"")]
    WrongVersion,
    /// The id is `null`.
    #[error("member `id` must not be null")]
    NullId,
    /// The id is neither a string nor a number.
    #[error("member `id` must be a string or a number")]
    BadId,
    /// A response without an id.
    #[error("an answer needs an `id`")]
    MissingId,
    /// The method is not a string.
    #[error("member `method` must be a string")]
    BadMethod,
    /// The params are an array.
    #[error("positional params are not accepted, send an object")]
    PositionalParams,
    /// The params are neither an object nor an array.
    #[error("member `params` must be an object")]
    BadParams,
    /// The error is not an object.
    #[error("member `error` must be an object")]
    BadError,
    /// Both `result` and `error`.
    #[error("an answer has both `result` and `error`")]
    ResultAndError,
    /// Neither `method` nor `result` nor `error`.
    #[error("a message needs one of `method`, `result` and `error`")]
    Nothing,
    /// Members of a request and of a response together.
    #[error("member `{member}` does not belong in {place}")]
    Misplaced {
        /// The misplaced member.
        member: &'static str,
        /// The kind of message that contains it.
        place: &'static str,
    },
}

impl WireError {
    /// Returns the JSON-RPC code of the response to the sender.
    pub fn rpc_code(&self) -> i64 {
        match self {
            Self::NotUtf8 { .. }
            | Self::Syntax { .. }
            | Self::Truncated { .. }
            | Self::LoneSurrogate { .. } => PARSE_ERROR,
            Self::PositionalParams | Self::BadParams => INVALID_PARAMS,
            Self::TooLarge { .. }
            | Self::TooDeep { .. }
            | Self::DuplicateKey { .. }
            | Self::NotAnObject
            | Self::Batch
            | Self::UnknownMember { .. }
            | Self::WrongCase { .. }
            | Self::WrongVersion
            | Self::NullId
            | Self::BadId
            | Self::MissingId
            | Self::BadMethod
            | Self::BadError
            | Self::ResultAndError
            | Self::Nothing
            | Self::Misplaced { .. } => INVALID_REQUEST,
        }
    }
}

impl Diagnose for WireError {
    fn code(&self) -> &'static str {
        match self {
            Self::NotUtf8 { .. } => "wire.utf8",
            Self::TooLarge { .. } => "wire.too_large",
            Self::Syntax { .. } => "wire.syntax",
            Self::Truncated { .. } => "wire.truncated",
            Self::LoneSurrogate { .. } => "wire.surrogate",
            Self::TooDeep { .. } => "wire.too_deep",
            Self::DuplicateKey { .. } => "wire.duplicate_key",
            Self::Batch => "wire.batch",
            Self::UnknownMember { .. } | Self::WrongCase { .. } => "wire.unknown_member",
            Self::PositionalParams | Self::BadParams => "wire.params",
            Self::NotAnObject
            | Self::WrongVersion
            | Self::NullId
            | Self::BadId
            | Self::MissingId
            | Self::BadMethod
            | Self::BadError
            | Self::ResultAndError
            | Self::Nothing
            | Self::Misplaced { .. } => "wire.envelope",
        }
    }

    fn fault(&self) -> Fault {
        Fault::Client
    }
}

/// Returns `text` for an error message: control characters escaped, truncated to 64 characters.
pub(super) fn shown(text: &str) -> String {
    const LONGEST: usize = 64;
    let mut out: String = text
        .chars()
        .take(LONGEST)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(LONGEST).is_some() {
        out.push('…');
    }
    out
}
