//! Parses a pattern: ECMA-262 with whole characters (the flag `u`), as leniently as Annex B.

mod escapes;

use std::collections::HashMap;

use regex_syntax::hir::ClassUnicode;

use super::{Assertion, Node, PatternError, Regex, classes};

/// The longest accepted pattern, in bytes.
pub(in crate::schema) const LONGEST: usize = 16 << 10;
/// The deepest nesting of groups: each level takes stack.
const DEEPEST: usize = 64;

/// Parses a pattern.
pub(in crate::schema) fn parse(pattern: &str) -> Result<Regex, PatternError> {
    if pattern.len() > LONGEST {
        return Err(PatternError::TooLarge);
    }
    let mut parser = Parser {
        rest: pattern,
        flags: Flags::default(),
        groups: 0,
        names: HashMap::new(),
        references: Vec::new(),
        depth: 0,
    };
    let root = parser.alternatives()?;
    if !parser.rest.is_empty() {
        return Err(PatternError::Syntax("unmatched `)`"));
    }
    let mut regex = Regex {
        root,
        groups: parser.groups,
    };
    for reference in &parser.references {
        match reference {
            Reference::Number(number) if *number > parser.groups => {
                return Err(PatternError::Unsupported(format!("\\{number}")));
            }
            Reference::Name(name) if !parser.names.contains_key(name) => {
                return Err(PatternError::Syntax("it refers to a group of no such name"));
            }
            Reference::Number(_) | Reference::Name(_) => {}
        }
    }
    resolve(&mut regex.root, &parser.references, &parser.names);
    Ok(regex)
}

/// A back-reference, resolved once all groups are known.
enum Reference {
    Number(usize),
    Name(String),
}

/// Replaces indexes into `references` by the numbers of the groups.
fn resolve(node: &mut Node, references: &[Reference], names: &HashMap<String, Vec<usize>>) {
    match node {
        Node::Back(groups) => {
            let reference = groups.first().and_then(|&place| references.get(place));
            *groups = match reference {
                Some(Reference::Number(number)) => vec![*number],
                Some(Reference::Name(name)) => names.get(name).cloned().unwrap_or_default(),
                None => Vec::new(),
            };
        }
        Node::Sequence(nodes) | Node::Either(nodes) => {
            for node in nodes {
                resolve(node, references, names);
            }
        }
        Node::Capture(_, node)
        | Node::Repeat { node, .. }
        | Node::Atomic(node)
        | Node::Look { node, .. } => resolve(node, references, names),
        Node::Empty | Node::Set(_) | Node::Assert(_) => {}
    }
}

#[derive(Clone, Copy, Default)]
struct Flags {
    /// `i`: ignores letter case.
    any_case: bool,
    /// `s`: `.` matches line breaks, too.
    all: bool,
    /// `m`: `^` and `$` match at the ends of each line.
    lines: bool,
}

struct Parser<'p> {
    rest: &'p str,
    flags: Flags,
    groups: usize,
    names: HashMap<String, Vec<usize>>,
    references: Vec<Reference>,
    depth: usize,
}

impl<'p> Parser<'p> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let mut characters = self.rest.chars();
        let character = characters.next();
        self.rest = characters.as_str();
        character
    }

    fn eat(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Consumes the text up to `end`, and `end` itself; returns the text.
    fn until(&mut self, end: char) -> Option<&'p str> {
        let (text, rest) = self.rest.split_once(end)?;
        self.rest = rest;
        Some(text)
    }

    fn alternatives(&mut self) -> Result<Node, PatternError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(PatternError::TooLarge);
        }
        let flags = self.flags;
        let mut nodes = vec![self.sequence()?];
        while self.eat("|") {
            nodes.push(self.sequence()?);
        }
        // Flags set inside a group end with the group.
        self.flags = flags;
        self.depth -= 1;
        if nodes.len() == 1 {
            return Ok(nodes.remove(0));
        }
        Ok(either(nodes))
    }

    fn sequence(&mut self) -> Result<Node, PatternError> {
        let mut nodes = Vec::new();
        while let Some(character) = self.peek() {
            if character == '|' || character == ')' {
                break;
            }
            let before = self.groups;
            let node = self.term()?;
            let node = self.repeated(node, before)?;
            if !matches!(node, Node::Empty) {
                nodes.push(node);
            }
        }
        Ok(match nodes.len() {
            0 => Node::Empty,
            1 => nodes.remove(0),
            _ => Node::Sequence(nodes),
        })
    }

    fn term(&mut self) -> Result<Node, PatternError> {
        let lines = self.flags.lines;
        match self.next() {
            Some('^') if lines => Ok(Node::Assert(Assertion::LineStart)),
            Some('^') => Ok(Node::Assert(Assertion::Start)),
            Some('$') if lines => Ok(Node::Assert(Assertion::LineEnd)),
            Some('$') => Ok(Node::Assert(Assertion::End)),
            Some('.') if self.flags.all => Ok(Node::Set(classes::any())),
            Some('.') => Ok(Node::Set(classes::no_line_break())),
            Some('(') => self.group(),
            Some('[') => self.class(),
            Some('\\') => self.escape(),
            Some('*' | '+' | '?') => Err(PatternError::Syntax("there is nothing to repeat")),
            Some('{') if bounds(self.rest).is_some() => {
                Err(PatternError::Syntax("there is nothing to repeat"))
            }
            Some(character) => Ok(self.literal(character)),
            None => Ok(Node::Empty),
        }
    }

    fn literal(&self, character: char) -> Node {
        Node::Set(self.cased(classes::single(character)))
    }

    fn cased(&self, class: ClassUnicode) -> ClassUnicode {
        if self.flags.any_case {
            classes::folded(class)
        } else {
            class
        }
    }

    /// Parses the quantifier after a term.
    fn repeated(&mut self, node: Node, groups_before: usize) -> Result<Node, PatternError> {
        let (min, max) = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => match bounds(&self.rest[1..]) {
                Some((min, max, length)) => {
                    self.rest = &self.rest[length..];
                    (min, max)
                }
                // `{,5}` means "up to five" in other dialects, but is literal text in ECMA-262.
                None if self.rest.starts_with("{,") => {
                    return Err(PatternError::Unsupported("{,".to_owned()));
                }
                None => return Ok(node),
            },
            _ => return Ok(node),
        };
        self.next();
        if max.is_some_and(|max| max < min) {
            return Err(PatternError::Syntax(
                "the bounds of a repetition are reversed",
            ));
        }
        let is_ahead = matches!(node, Node::Look { behind: false, .. });
        if matches!(node, Node::Assert(_)) || (matches!(node, Node::Look { .. }) && !is_ahead) {
            return Err(PatternError::Syntax("there is nothing to repeat"));
        }
        let greedy = !self.eat("?");
        let possessive = greedy && self.eat("+");
        if self.rest.starts_with(['*', '+', '?']) || bounded(self.rest) {
            return Err(PatternError::Syntax("there is nothing to repeat"));
        }
        let repeat = Node::Repeat {
            node: Box::new(node),
            min,
            max,
            greedy,
            groups: (groups_before, self.groups),
        };
        Ok(if possessive {
            Node::Atomic(Box::new(repeat))
        } else {
            repeat
        })
    }

    /// Parses a group after its opening parenthesis.
    fn group(&mut self) -> Result<Node, PatternError> {
        let look = [
            ("?=", false, false),
            ("?!", false, true),
            ("?<=", true, false),
            ("?<!", true, true),
        ];
        for (text, behind, negative) in look {
            if self.eat(text) {
                let node = Box::new(self.inside()?);
                return Ok(Node::Look {
                    behind,
                    negative,
                    node,
                });
            }
        }
        if self.eat("?:") {
            return self.inside();
        } else if self.eat("?>") {
            return Ok(Node::Atomic(Box::new(self.inside()?)));
        } else if self.eat("?#") {
            let comment = self.until(')');
            return comment.map(|_| Node::Empty).ok_or(UNCLOSED);
        } else if self.eat("?P=") {
            let name = self.until(')').ok_or(UNCLOSED)?;
            return self.back(Reference::Name(name.to_owned()));
        } else if self.eat("?<") || self.eat("?P<") {
            let name = self.until('>').ok_or(UNCLOSED)?.to_owned();
            if !is_name(&name) {
                return Err(PatternError::Syntax("a group has an invalid name"));
            }
            self.groups += 1;
            let number = self.groups;
            self.names.entry(name).or_default().push(number);
            return Ok(Node::Capture(number, Box::new(self.inside()?)));
        } else if self.eat("?") {
            return self.flagged();
        }
        self.groups += 1;
        let number = self.groups;
        Ok(Node::Capture(number, Box::new(self.inside()?)))
    }

    fn inside(&mut self) -> Result<Node, PatternError> {
        let node = self.alternatives()?;
        if self.eat(")") {
            Ok(node)
        } else {
            Err(UNCLOSED)
        }
    }

    /// Parses flags, which apply to the group that begins here or to the rest of the enclosing one.
    fn flagged(&mut self) -> Result<Node, PatternError> {
        let before = self.flags;
        let mut flags = before;
        let mut on = true;
        loop {
            match self.next() {
                Some('-') if on => on = false,
                Some('i') => flags.any_case = on,
                Some('s') => flags.all = on,
                Some('m') => flags.lines = on,
                // These flags are always on.
                Some('u' | 'a') => {}
                Some(')') => {
                    self.flags = flags;
                    return Ok(Node::Empty);
                }
                Some(':') => {
                    self.flags = flags;
                    let node = self.inside();
                    self.flags = before;
                    return node;
                }
                Some(other) => return Err(PatternError::Unsupported(format!("(?{other}"))),
                None => return Err(UNCLOSED),
            }
        }
    }

    fn back(&mut self, reference: Reference) -> Result<Node, PatternError> {
        if self.flags.any_case {
            let what = "a back-reference in any letter case";
            return Err(PatternError::Unsupported(what.to_owned()));
        }
        self.references.push(reference);
        Ok(Node::Back(vec![self.references.len() - 1]))
    }
}

/// The error of a group without a closing parenthesis.
const UNCLOSED: PatternError = PatternError::Syntax("a group does not end");

/// Joins alternatives; single characters are merged into one set.
fn either(nodes: Vec<Node>) -> Node {
    let is_set = |node: &Node| matches!(node, Node::Set(_));
    if !nodes.iter().all(is_set) {
        return Node::Either(nodes);
    }
    let mut joined = ClassUnicode::empty();
    for node in &nodes {
        if let Node::Set(class) = node {
            joined.union(class);
        }
    }
    Node::Set(joined)
}

/// Parses the bounds of a repetition after the opening brace: minimum, maximum, and the length of
/// the text up to the closing brace.
fn bounds(text: &str) -> Option<(u32, Option<u32>, usize)> {
    let (text, _) = text.split_once('}')?;
    let count = |digits: &str| -> Option<u32> {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        // A larger number is as good as no bound.
        is_number.then(|| digits.parse().unwrap_or(u32::MAX))
    };
    let length = text.len() + 1;
    match text.split_once(',') {
        None => count(text).map(|exact| (exact, Some(exact), length)),
        Some((min, "")) => count(min).map(|min| (min, None, length)),
        Some((min, max)) => Some((count(min)?, Some(count(max)?), length)),
    }
}

fn bounded(rest: &str) -> bool {
    rest.strip_prefix('{')
        .is_some_and(|rest| bounds(rest).is_some())
}

fn is_name(name: &str) -> bool {
    let mut characters = name.chars();
    let first = characters.next();
    first.is_some_and(|first| first.is_alphabetic() || first == '_' || first == '$')
        && characters.all(|other| other.is_alphanumeric() || other == '_' || other == '$')
}
