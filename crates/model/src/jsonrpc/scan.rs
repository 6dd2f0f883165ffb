//! A strict validator of JSON text: one pass, no recursion, no tree, no number conversion.
//!
//! Accepts RFC 8259 without duplicate keys, lone surrogates and deep nesting, and notes line
//! breaks between tokens. The envelope drives it member by member; [`validate`] checks a whole
//! text of any shape.

use std::cell::RefCell;

use super::error::WireError;
use super::keys::{Frame, Scratch};
use super::text::string_end;
use super::{Limits, Raw};

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Checks that `text` is one valid JSON value without duplicate keys, and returns it as raw JSON.
pub fn validate<'a>(text: &'a str, limits: &Limits) -> Result<Raw<'a>, WireError> {
    scan(text, limits, |scanner| {
        scanner.token();
        let start = scanner.at;
        scanner.value(0)?;
        let end = scanner.at;
        scanner.end()?;
        Ok(Raw::scanned(&text[start..end], scanner.line_breaks))
    })
}

/// Runs `work` with a scanner over `text`, using this thread's scratch space.
pub(super) fn scan<'t, T>(
    text: &'t str,
    limits: &Limits,
    work: impl FnOnce(&mut Scanner<'t, '_>) -> Result<T, WireError>,
) -> Result<T, WireError> {
    if text.len() >= u32::MAX as usize {
        return Err(WireError::TooLarge { length: text.len() });
    }
    SCRATCH.with_borrow_mut(|scratch| {
        let max_depth = limits.max_depth;
        let mut scanner = Scanner {
            text,
            at: 0,
            line_breaks: false,
            max_depth,
            scratch,
        };
        let outcome = work(&mut scanner);
        scanner.scratch.reset();
        outcome
    })
}

/// A position in a text; everything before it is valid.
pub(super) struct Scanner<'t, 's> {
    text: &'t str,
    /// The index of the next byte.
    pub(super) at: usize,
    /// Whether there was a line break between two tokens so far.
    pub(super) line_breaks: bool,
    max_depth: usize,
    scratch: &'s mut Scratch,
}

impl Scanner<'_, '_> {
    /// Skips white space and returns the next byte without consuming it, or 0 at the end.
    #[inline]
    pub(super) fn token(&mut self) -> u8 {
        match self.text.as_bytes().get(self.at) {
            Some(&byte) if byte > b' ' => byte,
            Some(_) => self.token_behind_space(),
            None => 0,
        }
    }

    #[inline(never)]
    fn token_behind_space(&mut self) -> u8 {
        let bytes = self.text.as_bytes();
        let mut at = self.at;
        let found = loop {
            match bytes.get(at) {
                Some(b' ' | b'\t') => {}
                Some(b'\n' | b'\r') => self.line_breaks = true,
                Some(&byte) => break byte,
                None => break 0,
            }
            at += 1;
        };
        self.at = at;
        found
    }

    /// Consumes `byte` if it is the next token.
    #[inline]
    pub(super) fn take(&mut self, byte: u8, expected: &'static str) -> Result<(), WireError> {
        if self.token() == byte && self.at < self.text.len() {
            self.at += 1;
            Ok(())
        } else {
            Err(self.unexpected(expected))
        }
    }

    /// Checks that nothing but white space follows.
    pub(super) fn end(&mut self) -> Result<(), WireError> {
        self.token();
        if self.at == self.text.len() {
            Ok(())
        } else {
            Err(self.unexpected("nothing more"))
        }
    }

    /// Consumes a string and returns the range between its quotes, and whether it contains escapes.
    #[inline]
    pub(super) fn string(&mut self) -> Result<((usize, usize), bool), WireError> {
        if self.token() != b'"' {
            return Err(self.unexpected("a string"));
        }
        let start = self.at + 1;
        let (end, escaped) = string_end(self.text.as_bytes(), start)?;
        self.at = end + 1;
        Ok(((start, end), escaped))
    }

    /// Consumes one whole value inside `outside` open objects and arrays.
    pub(super) fn value(&mut self, outside: usize) -> Result<(), WireError> {
        let floor = self.scratch.depth();
        loop {
            let opened = match self.token() {
                b'"' => {
                    let (end, _) = string_end(self.text.as_bytes(), self.at + 1)?;
                    self.at = end + 1;
                    false
                }
                b'{' => self.open(outside, b'}')?,
                b'[' => self.open(outside, b']')?,
                b'-' | b'0'..=b'9' => {
                    self.number()?;
                    false
                }
                b't' => self.literal("true")?,
                b'f' => self.literal("false")?,
                b'n' => self.literal("null")?,
                _ => return Err(self.unexpected("a value")),
            };
            if opened {
                continue;
            }
            loop {
                if self.scratch.depth() == floor {
                    return Ok(());
                }
                let Some(frame) = self.scratch.top() else {
                    return Ok(());
                };
                match (self.token(), frame) {
                    (b',', Frame::Object(_)) => {
                        self.at += 1;
                        self.key()?;
                        break;
                    }
                    (b',', Frame::Array) => {
                        self.at += 1;
                        break;
                    }
                    (b']', Frame::Array) | (b'}', Frame::Object(_)) => {
                        self.at += 1;
                        self.scratch.close(self.text)?;
                    }
                    (_, Frame::Array) => return Err(self.unexpected("`,` or `]`")),
                    (_, Frame::Object(_)) => return Err(self.unexpected("`,` or `}`")),
                }
            }
        }
    }

    /// Consumes an opening bracket; returns whether something follows inside it.
    #[inline]
    fn open(&mut self, outside: usize, closing: u8) -> Result<bool, WireError> {
        if outside + self.scratch.depth() >= self.max_depth {
            return Err(WireError::TooDeep {
                limit: self.max_depth,
                at: self.at,
            });
        }
        self.at += 1;
        if self.token() == closing {
            self.at += 1;
            return Ok(false);
        }
        if closing == b'}' {
            self.scratch.open_object();
            self.key()?;
        } else {
            self.scratch.open_array();
        }
        Ok(true)
    }

    /// Consumes a key of the innermost object, and its colon.
    #[inline]
    fn key(&mut self) -> Result<(), WireError> {
        if self.token() != b'"' {
            return Err(self.unexpected("a key"));
        }
        let start = self.at + 1;
        let (end, escaped) = string_end(self.text.as_bytes(), start)?;
        self.at = end + 1;
        self.scratch.insert(self.text, (start, end), escaped)?;
        self.take(b':', "`:`")
    }

    fn literal(&mut self, word: &'static str) -> Result<bool, WireError> {
        if self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(false)
        } else {
            Err(self.unexpected("a value"))
        }
    }

    fn number(&mut self) -> Result<(), WireError> {
        if self.peek() == b'-' {
            self.at += 1;
        }
        if self.peek() == b'0' {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == b'.' {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.at += 1;
            if matches!(self.peek(), b'+' | b'-') {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), WireError> {
        if !self.peek().is_ascii_digit() {
            return Err(self.unexpected("a digit"));
        }
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        Ok(())
    }

    #[inline]
    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    #[cold]
    pub(super) fn unexpected(&self, expected: &'static str) -> WireError {
        if self.at >= self.text.len() {
            WireError::Truncated {
                expected,
                at: self.text.len(),
            }
        } else {
            WireError::Syntax {
                expected,
                at: self.at,
            }
        }
    }
}

#[cfg(test)]
mod tests;
