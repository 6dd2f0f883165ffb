//! Raw JSON: a slice of text known to be one valid value, read without building a tree.
//!
//! A [`Raw`] comes from [`parse`](super::parse) or [`validate`](super::validate), or is written by
//! Gantry; it remembers whether it may contain line breaks, so that writing it to a line-framed
//! link is free when it does not. [`RawBuf`] is the same with its own memory.

use std::borrow::Cow;

use super::text::{decode, quote_into};
use super::walk::{next_member, skip_space, skip_value};

/// A slice of text that is one valid JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raw<'a> {
    text: &'a str,
    one_line: bool,
}

/// The six kinds of JSON values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawKind {
    /// An object.
    Object,
    /// An array.
    Array,
    /// A string.
    String,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// `null`.
    Null,
}

impl<'a> Raw<'a> {
    /// The object without members.
    pub const EMPTY_OBJECT: Raw<'static> = Raw {
        text: "{}",
        one_line: true,
    };
    /// The value `true`.
    pub const TRUE: Raw<'static> = Raw {
        text: "true",
        one_line: true,
    };
    /// The value `null`.
    pub const NULL: Raw<'static> = Raw {
        text: "null",
        one_line: true,
    };

    /// The string `complete`, the usual type of a result.
    pub const COMPLETE: Raw<'static> = Raw {
        text: "\"complete\"",
        one_line: true,
    };
    /// The string `private`, the cache scope of all responses.
    pub const PRIVATE: Raw<'static> = Raw {
        text: "\"private\"",
        one_line: true,
    };

    /// Wraps text that is known to be one valid JSON value: written by Gantry, or already checked.
    pub fn trusted(text: &'a str) -> Self {
        debug_assert!(
            super::validate(text, &super::Limits { max_depth: 1 << 16 }).is_ok(),
            "trusted text is valid JSON"
        );
        Self {
            text: text.trim_ascii(),
            one_line: is_one_line(text),
        }
    }

    /// Wraps text that is known to be one valid JSON value, for reading only: skips the search for
    /// line breaks.
    pub fn known(text: &'a str) -> Self {
        Self {
            text: text.trim_ascii(),
            one_line: false,
        }
    }

    pub(super) fn scanned(text: &'a str, line_breaks: bool) -> Self {
        Self {
            text,
            one_line: !line_breaks,
        }
    }

    /// Returns the text, byte for byte as it was received.
    #[inline]
    pub fn text(self) -> &'a str {
        self.text
    }

    /// Returns whether the text certainly contains no line break.
    #[inline]
    pub fn is_one_line(self) -> bool {
        self.one_line
    }

    /// Returns what kind of value it is.
    pub fn kind(self) -> RawKind {
        match self.text.as_bytes().first() {
            Some(b'{') => RawKind::Object,
            Some(b'[') => RawKind::Array,
            Some(b'"') => RawKind::String,
            Some(b't' | b'f') => RawKind::Boolean,
            Some(b'n') | None => RawKind::Null,
            Some(_) => RawKind::Number,
        }
    }

    /// Returns whether it is an object.
    #[inline]
    pub fn is_object(self) -> bool {
        self.text.starts_with('{')
    }

    /// Returns whether it is `null`.
    pub fn is_null(self) -> bool {
        self.text == "null"
    }

    /// Returns the decoded text of a string.
    pub fn string(self) -> Option<Cow<'a, str>> {
        let inner = self.text.strip_prefix('"')?.strip_suffix('"')?;
        Some(decode(inner))
    }

    /// Returns whether it is a string with exactly this text.
    pub fn is_string(self, text: &str) -> bool {
        self.string().is_some_and(|own| own == text)
    }

    /// Returns the value of a boolean.
    pub fn boolean(self) -> Option<bool> {
        match self.text {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// Returns the value of a number that is written as an integer and fits.
    pub fn integer(self) -> Option<i64> {
        self.text.parse().ok()
    }

    /// Returns the value of an object's member; `None` if it is not an object.
    pub fn get(self, key: &str) -> Option<Self> {
        self.members()
            .find(|member| member.is(key))
            .map(|member| member.value)
    }

    /// Returns the members of an object in their order; none if it is not an object.
    #[inline]
    pub fn members(self) -> Members<'a> {
        let at = if self.is_object() { 1 } else { self.text.len() };
        Members { raw: self, at }
    }

    /// Returns the items of an array in their order; none if it is not an array.
    pub fn items(self) -> Items<'a> {
        let at = if self.text.starts_with('[') {
            1
        } else {
            self.text.len()
        };
        Items { raw: self, at }
    }

    /// Deserializes the value with serde.
    pub fn deserialize<T: serde::Deserialize<'a>>(self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.text)
    }

    /// Copies the value.
    pub fn to_buf(self) -> RawBuf {
        RawBuf {
            text: self.text.to_owned(),
            one_line: self.one_line,
        }
    }

    fn slice(self, start: usize, end: usize) -> Self {
        Self {
            text: &self.text[start..end],
            one_line: self.one_line,
        }
    }
}

/// A member of a raw object.
#[derive(Debug, Clone, Copy)]
pub struct Member<'a> {
    /// The key as written in the text, including quotes.
    pub key: Raw<'a>,
    /// The value.
    pub value: Raw<'a>,
}

impl Member<'_> {
    /// Returns whether the decoded key is `name`.
    #[inline]
    pub fn is(&self, name: &str) -> bool {
        let inner = &self.key.text[1..self.key.text.len() - 1];
        inner == name || (inner.len() > name.len() && self.key.is_string(name))
    }
}

/// The members of a raw object; see [`Raw::members`].
#[derive(Debug, Clone)]
pub struct Members<'a> {
    raw: Raw<'a>,
    at: usize,
}

impl<'a> Iterator for Members<'a> {
    type Item = Member<'a>;

    #[inline]
    fn next(&mut self) -> Option<Member<'a>> {
        let span = next_member(self.raw.text.as_bytes(), self.at)?;
        self.at = span.value_end;
        Some(Member {
            key: Raw {
                text: &self.raw.text[span.key..span.key_end],
                one_line: true,
            },
            value: self.raw.slice(span.value, span.value_end),
        })
    }
}

/// The items of a raw array; see [`Raw::items`].
#[derive(Debug, Clone)]
pub struct Items<'a> {
    raw: Raw<'a>,
    at: usize,
}

impl<'a> Iterator for Items<'a> {
    type Item = Raw<'a>;

    fn next(&mut self) -> Option<Raw<'a>> {
        let bytes = self.raw.text.as_bytes();
        let mut start = skip_space(bytes, self.at);
        if bytes.get(start) == Some(&b',') {
            start = skip_space(bytes, start + 1);
        }
        let end = skip_value(bytes, start)?;
        self.at = end;
        Some(self.raw.slice(start, end))
    }
}

/// One valid JSON value with its own memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawBuf {
    text: String,
    one_line: bool,
}

impl RawBuf {
    /// Creates a JSON string.
    pub fn string(text: &str) -> Self {
        let mut out = Vec::with_capacity(text.len() + 2);
        quote_into(&mut out, text);
        Self::written(out, true)
    }

    /// Creates a JSON number.
    pub fn integer(value: i64) -> Self {
        Self {
            text: value.to_string(),
            one_line: true,
        }
    }

    /// Serializes a value with serde.
    pub fn serialize<T: serde::Serialize>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_string(value).map(|text| Self {
            text,
            one_line: true,
        })
    }

    /// Wraps text that is known to be one valid JSON value: written by Gantry, or already checked.
    pub fn trusted(text: String) -> Self {
        let one_line = Raw::trusted(&text).is_one_line();
        Self { text, one_line }
    }

    pub(super) fn written(bytes: Vec<u8>, one_line: bool) -> Self {
        let text = String::from_utf8(bytes).expect("JSON is written from strings");
        Self { text, one_line }
    }

    /// Returns the value as a slice.
    #[inline]
    pub fn as_raw(&self) -> Raw<'_> {
        Raw {
            text: &self.text,
            one_line: self.one_line,
        }
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the text with its memory.
    pub fn into_text(self) -> String {
        self.text
    }
}

pub(super) fn is_one_line(text: &str) -> bool {
    memchr::memchr2(b'\n', b'\r', text.as_bytes()).is_none()
}
