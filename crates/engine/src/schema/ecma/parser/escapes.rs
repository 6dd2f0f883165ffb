//! Parses escapes (after a backslash) and classes in brackets.

use regex_syntax::hir::ClassUnicode;

use super::{Parser, Reference, UNCLOSED};
use crate::schema::ecma::{Assertion, Node, PatternError, classes};

impl Parser<'_> {
    /// Parses an escape outside of a class.
    pub(super) fn escape(&mut self) -> Result<Node, PatternError> {
        let assertion = match self.peek() {
            Some('b') => Some(Assertion::Boundary),
            Some('B') => Some(Assertion::NoBoundary),
            Some('A') => Some(Assertion::Start),
            Some('z') => Some(Assertion::End),
            Some('Z') => Some(Assertion::LastLineEnd),
            _ => None,
        };
        if let Some(assertion) = assertion {
            self.next();
            return Ok(Node::Assert(assertion));
        }
        if self.eat("k<") {
            let name = self.until('>').ok_or(UNCLOSED)?;
            return self.back(Reference::Name(name.to_owned()));
        }
        if self.rest.starts_with(|c: char| ('1'..='9').contains(&c)) {
            let end = self.rest.find(|c: char| !c.is_ascii_digit());
            let (digits, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
            self.rest = rest;
            let number = digits.parse().map_err(|_| PatternError::TooLarge)?;
            return self.back(Reference::Number(number));
        }
        let class = self.escaped()?;
        Ok(Node::Set(self.cased(class.into_class())))
    }

    /// Parses an escape that is a character or a set of characters.
    fn escaped(&mut self) -> Result<Item, PatternError> {
        let letter = self
            .next()
            .ok_or(PatternError::Syntax("it ends with a backslash"))?;
        let unsupported = || PatternError::Unsupported(format!("\\{letter}"));
        if let Some(class) = classes::shorthand(letter) {
            return Ok(Item::Class(class));
        }
        let character = match letter {
            't' => '\t',
            'n' => '\n',
            'v' => '\u{b}',
            'f' => '\u{c}',
            'r' => '\r',
            '0' if !self.rest.starts_with(|c: char| c.is_ascii_digit()) => '\0',
            'c' => {
                let control = self.peek().filter(char::is_ascii_alphabetic);
                let control = control.ok_or_else(unsupported)?;
                self.next();
                char::from(control as u8 % 32)
            }
            'x' if self.rest.starts_with('{') => self.braced().ok_or_else(unsupported)?,
            'x' => {
                let code = self.digits(2).ok_or_else(unsupported)?;
                char::from_u32(code).ok_or_else(unsupported)?
            }
            'u' if self.rest.starts_with('{') => self.braced().ok_or_else(unsupported)?,
            'u' => self.unit().ok_or_else(unsupported)?,
            'p' | 'P' => {
                let name = if self.eat("{") {
                    self.until('}').ok_or_else(unsupported)?
                } else {
                    let end = self.rest.chars().next().map_or(0, char::len_utf8);
                    let (name, rest) = self.rest.split_at(end);
                    self.rest = rest;
                    name
                };
                let (name, opposite) = match name.strip_prefix('^') {
                    Some(name) => (name, letter == 'p'),
                    None => (name, letter == 'P'),
                };
                let class = classes::property(name)?;
                return Ok(Item::Class(if opposite {
                    classes::negated(class)
                } else {
                    class
                }));
            }
            // An escaped letter or digit has a meaning in some dialect, so it is ambiguous.
            other if other.is_ascii_alphanumeric() => return Err(unsupported()),
            other => other,
        };
        Ok(Item::Character(character))
    }

    fn digits(&mut self, count: usize) -> Option<u32> {
        let digits = self.rest.get(..count)?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        self.rest = &self.rest[count..];
        u32::from_str_radix(digits, 16).ok()
    }

    fn braced(&mut self) -> Option<char> {
        self.eat("{");
        let digits = self.until('}')?;
        let code = u32::from_str_radix(digits, 16).ok()?;
        char::from_u32(code)
    }

    /// Parses four hex digits; a surrogate pair makes one character.
    fn unit(&mut self) -> Option<char> {
        let first = self.digits(4)?;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first);
        }
        if !self.eat("\\u") {
            return None;
        }
        let second = self.digits(4)?;
        let low = second.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
        char::from_u32(0x10000 + ((first - 0xd800) << 10) + low)
    }

    /// Parses a class after its opening bracket.
    pub(super) fn class(&mut self) -> Result<Node, PatternError> {
        if self.rest.starts_with("[:") || self.rest.starts_with("^[:") {
            return Err(PatternError::Unsupported("[[:".to_owned()));
        }
        let is_negated = self.eat("^");
        let mut class = ClassUnicode::empty();
        loop {
            if self.eat("]") {
                break;
            }
            let first = self.item()?;
            let Item::Character(start) = first else {
                class.union(&first.into_class());
                continue;
            };
            let is_range = self.rest.starts_with('-') && !self.rest.starts_with("-]");
            if !is_range {
                class.union(&classes::single(start));
                continue;
            }
            self.eat("-");
            match self.item()? {
                Item::Character(end) if end < start => {
                    return Err(PatternError::Syntax("a range in a class is reversed"));
                }
                Item::Character(end) => class.union(&classes::set(&[(start, end)])),
                // A set cannot be the end of a range: all three stand for themselves.
                set => {
                    class.union(&classes::single(start));
                    class.union(&classes::single('-'));
                    class.union(&set.into_class());
                }
            }
        }
        // Fold case before negating: a negated class excludes both cases.
        let class = self.cased(class);
        Ok(Node::Set(if is_negated {
            classes::negated(class)
        } else {
            class
        }))
    }

    fn item(&mut self) -> Result<Item, PatternError> {
        match self.next() {
            None => Err(PatternError::Syntax("a class does not end")),
            Some('\\') if self.eat("b") => Ok(Item::Character('\u{8}')),
            Some('\\') => self.escaped(),
            Some(character) => Ok(Item::Character(character)),
        }
    }
}

/// An element of a class.
enum Item {
    Character(char),
    Class(ClassUnicode),
}

impl Item {
    fn into_class(self) -> ClassUnicode {
        match self {
            Self::Character(character) => classes::single(character),
            Self::Class(class) => class,
        }
    }
}
