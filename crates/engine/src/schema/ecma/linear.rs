//! Translates a pattern into the syntax of the linear engine, where that engine supports it.
//!
//! The output is also valid ECMA-262 with the same meaning where possible: the library parses
//! patterns of property names once more.

use regex_syntax::hir::ClassUnicode;

use super::{Assertion, Node, Regex};

/// Returns the pattern for the linear engine; `None` if it needs backtracking.
pub(in crate::schema) fn linear(regex: &Regex) -> Option<String> {
    let mut out = String::new();
    write(&regex.root, &mut out)?;
    Some(out)
}

fn write(node: &Node, out: &mut String) -> Option<()> {
    match node {
        Node::Empty => {}
        Node::Set(class) => write_set(class, out),
        Node::Sequence(nodes) => nodes.iter().try_for_each(|node| write(node, out))?,
        Node::Either(nodes) => {
            out.push_str("(?:");
            for (index, node) in nodes.iter().enumerate() {
                if index > 0 {
                    out.push('|');
                }
                write(node, out)?;
            }
            out.push(')');
        }
        Node::Capture(_, node) => write_group(node, out)?,
        // Greedy or lazy makes no difference to whether there is a match.
        Node::Repeat { node, min, max, .. } => {
            write_group(node, out)?;
            match (min, max) {
                (0, None) => out.push('*'),
                (1, None) => out.push('+'),
                (0, Some(1)) => out.push('?'),
                (min, None) => out.push_str(&format!("{{{min},}}")),
                (min, Some(max)) => out.push_str(&format!("{{{min},{max}}}")),
            }
        }
        Node::Assert(Assertion::Start) => out.push('^'),
        Node::Assert(Assertion::End) => out.push('$'),
        // ASCII word characters only, as in `\w`.
        Node::Assert(Assertion::Boundary) => out.push_str("(?-u:\\b)"),
        Node::Assert(
            Assertion::LastLineEnd
            | Assertion::LineStart
            | Assertion::LineEnd
            | Assertion::NoBoundary,
        )
        | Node::Atomic(_)
        | Node::Look { .. }
        | Node::Back(_) => return None,
    }
    Some(())
}

fn write_group(node: &Node, out: &mut String) -> Option<()> {
    if matches!(node, Node::Set(_)) {
        return write(node, out);
    }
    out.push_str("(?:");
    write(node, out)?;
    out.push(')');
    Some(())
}

fn write_set(class: &ClassUnicode, out: &mut String) {
    if let [range] = class.ranges()
        && range.start() == range.end()
    {
        return write_character(range.start(), out);
    }
    if class.ranges().is_empty() {
        out.push_str("[^\\x00-\u{10ffff}]");
        return;
    }
    out.push('[');
    for range in class.ranges() {
        write_character(range.start(), out);
        if range.end() != range.start() {
            out.push('-');
            write_character(range.end(), out);
        }
    }
    out.push(']');
}

fn write_character(character: char, out: &mut String) {
    if character.is_ascii() && !character.is_ascii_alphanumeric() {
        out.push_str(&format!("\\x{:02x}", u32::from(character)));
    } else {
        out.push(character);
    }
}
