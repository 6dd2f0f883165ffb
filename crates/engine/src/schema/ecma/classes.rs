//! Character classes: the sets that patterns can name.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};

use super::PatternError;

/// Returns the set of these ranges.
pub(super) fn set(ranges: &[(char, char)]) -> ClassUnicode {
    ClassUnicode::new(
        ranges
            .iter()
            .map(|&(start, end)| ClassUnicodeRange::new(start, end)),
    )
}

/// Returns the set of one character.
pub(super) fn single(character: char) -> ClassUnicode {
    set(&[(character, character)])
}

/// Returns the set of all characters.
pub(super) fn any() -> ClassUnicode {
    set(&[('\0', char::MAX)])
}

/// Returns the set for `.`: everything but line breaks.
pub(super) fn no_line_break() -> ClassUnicode {
    negated(set(&LINE_BREAKS))
}

/// Returns the set for `\d`, `\w`, `\s` and their negations.
pub(super) fn shorthand(letter: char) -> Option<ClassUnicode> {
    let plain = match letter.to_ascii_lowercase() {
        'd' => set(&[('0', '9')]),
        'w' => set(&[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')]),
        's' => set(&SPACES),
        _ => return None,
    };
    Some(if letter.is_ascii_uppercase() {
        negated(plain)
    } else {
        plain
    })
}

/// Returns the characters with a Unicode property, as in `\p{…}`.
pub(super) fn property(name: &str) -> Result<ClassUnicode, PatternError> {
    let unknown = || PatternError::Unsupported(format!("\\p{{{name}}}"));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_=-: ".contains(c);
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(unknown());
    }
    let hir = regex_syntax::parse(&format!("\\p{{{name}}}")).map_err(|_| unknown())?;
    match hir.into_kind() {
        HirKind::Class(Class::Unicode(class)) => Ok(class),
        // A property of a single character is parsed as a literal.
        HirKind::Literal(literal) => {
            let text = std::str::from_utf8(&literal.0).ok();
            let character = text.and_then(|text| text.chars().next());
            character.map(single).ok_or_else(unknown)
        }
        HirKind::Empty
        | HirKind::Class(Class::Bytes(_))
        | HirKind::Look(_)
        | HirKind::Repetition(_)
        | HirKind::Capture(_)
        | HirKind::Concat(_)
        | HirKind::Alternation(_) => Err(unknown()),
    }
}

/// Returns the complement of a set.
pub(super) fn negated(mut class: ClassUnicode) -> ClassUnicode {
    class.negate();
    class
}

/// Returns a set extended by the other letter case of each character.
pub(super) fn folded(mut class: ClassUnicode) -> ClassUnicode {
    // Fails only if the Unicode tables are missing; then case is not folded.
    drop(class.try_case_fold_simple());
    class
}

const LINE_BREAKS: [(char, char); 3] = [('\n', '\n'), ('\r', '\r'), ('\u{2028}', '\u{2029}')];

/// White space and line terminators of ECMA-262.
const SPACES: [(char, char); 10] = [
    ('\t', '\r'),
    (' ', ' '),
    ('\u{a0}', '\u{a0}'),
    ('\u{1680}', '\u{1680}'),
    ('\u{2000}', '\u{200a}'),
    ('\u{2028}', '\u{2029}'),
    ('\u{202f}', '\u{202f}'),
    ('\u{205f}', '\u{205f}'),
    ('\u{3000}', '\u{3000}'),
    ('\u{feff}', '\u{feff}'),
];
