//! Regular expressions of ECMA-262, which is what `pattern` in JSON Schema means.
//!
//! A pattern is parsed once into a tree ([`parse`]). What needs no look-around and no back-reference
//! is written out for the linear engine ([`linear()`]); the rest is compiled into a program for a
//! backtracking matcher ([`program`], [`matcher`]) that charges every step to the budget of the
//! check. Syntax that has one meaning elsewhere and none in ECMA-262 (`(?P<name>…)`, `(?i)`, `\A`)
//! is taken too; what is ambiguous is an error, so that it is left unchecked.
//! Entry points: [`parse`], [`linear()`], [`Program`].

mod classes;
mod linear;
mod matcher;
mod parser;
mod program;

use regex_syntax::hir::ClassUnicode;

pub(super) use self::linear::linear;
pub(super) use self::parser::parse;
pub(super) use self::program::Program;

/// Why a pattern cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PatternError {
    #[error("it is not a regular expression: {0}")]
    Syntax(&'static str),
    #[error("it uses `{0}`, which is not part of ECMA-262")]
    Unsupported(String),
    #[error("it is too large")]
    TooLarge,
}

/// A part of a pattern.
#[derive(Debug, Clone)]
enum Node {
    Empty,
    /// One character of a set; letter case is already folded in.
    Set(ClassUnicode),
    Sequence(Vec<Self>),
    Either(Vec<Self>),
    /// A group that captures, by its number.
    Capture(usize, Box<Self>),
    Repeat {
        node: Box<Self>,
        min: u32,
        max: Option<u32>,
        greedy: bool,
        /// The numbers of the groups inside, from and to: each round forgets what they captured.
        groups: (usize, usize),
    },
    /// Never tried in another way once it has matched.
    Atomic(Box<Self>),
    Look {
        behind: bool,
        negative: bool,
        node: Box<Self>,
    },
    /// What one of these groups captured; the groups of one name are alternatives.
    Back(Vec<usize>),
    Assert(Assertion),
}

/// What holds at a position without taking a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Assertion {
    Start,
    End,
    /// The end, or before a line break that is the last character.
    LastLineEnd,
    LineStart,
    LineEnd,
    Boundary,
    NoBoundary,
}

/// A parsed pattern.
#[derive(Debug, Clone)]
pub(super) struct Regex {
    root: Node,
    /// How many groups capture, the whole match not counted.
    groups: usize,
}

#[cfg(test)]
mod tests;
