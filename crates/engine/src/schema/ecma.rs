//! Regular expressions of ECMA-262, the dialect of `pattern` in JSON Schema.
//!
//! A pattern is parsed once into a tree ([`parse`]). Patterns without look-around and
//! back-references are translated for the linear engine ([`linear()`]); others are compiled into a
//! program for a backtracking matcher ([`program`], [`matcher`]) that charges every step to the
//! budget of the check. Syntax of other dialects that has no meaning in ECMA-262 (`(?P<name>…)`,
//! `(?i)`, `\A`) is accepted; ambiguous syntax is an error, and the pattern is not checked.
//! Entry points: [`parse`], [`linear()`], [`Program`].

mod classes;
mod linear;
mod matcher;
mod parser;
mod program;

use regex_syntax::hir::ClassUnicode;

pub(super) use self::linear::linear;
pub(super) use self::parser::{LONGEST, parse};
pub(super) use self::program::Program;

/// Why a pattern cannot be checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PatternError {
    #[error("it is not a regular expression: {0}")]
    Syntax(&'static str),
    #[error("it uses `{0}`, which is not part of ECMA-262")]
    Unsupported(String),
    #[error("it is too large")]
    TooLarge,
}

/// A node of the syntax tree.
#[derive(Debug, Clone)]
enum Node {
    Empty,
    /// One character of a set; letter case is already folded in.
    Set(ClassUnicode),
    Sequence(Vec<Self>),
    Either(Vec<Self>),
    /// A capturing group, by its number.
    Capture(usize, Box<Self>),
    Repeat {
        node: Box<Self>,
        min: u32,
        max: Option<u32>,
        greedy: bool,
        /// The range of group numbers inside; each iteration resets their captures.
        groups: (usize, usize),
    },
    /// An atomic group: no backtracking into it once it has matched.
    Atomic(Box<Self>),
    Look {
        behind: bool,
        negative: bool,
        node: Box<Self>,
    },
    /// A back-reference. Several groups if they share a name; at most one of them has captured.
    Back(Vec<usize>),
    Assert(Assertion),
}

/// A condition on a position that consumes no character.
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
    /// The number of capturing groups, without the whole match.
    groups: usize,
}

#[cfg(test)]
mod tests;
