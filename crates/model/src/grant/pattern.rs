//! Names with `*` for any run of characters, and nothing else that is special.

use memchr::memmem;

/// A name, a pattern of names, or all of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// `*`: every name.
    All,
    /// No `*` in it: this name only.
    Exact(Box<str>),
    /// Some `*` in it, each standing for any run of characters, or for none.
    Glob(Box<str>),
}

impl Pattern {
    /// Parses a pattern; every text is one.
    pub fn new(text: &str) -> Self {
        match text {
            "*" => Self::All,
            glob if glob.contains('*') => Self::Glob(glob.into()),
            name => Self::Exact(name.into()),
        }
    }

    /// Returns the text it was parsed from.
    pub fn as_str(&self) -> &str {
        match self {
            Self::All => "*",
            Self::Exact(text) | Self::Glob(text) => text,
        }
    }

    /// Returns whether it matches this name, in time linear in both.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Exact(text) => **text == *name,
            Self::Glob(text) => matches_glob(text, name),
        }
    }
}

/// Matches each piece between two `*` at its first position, which never rules out a later one.
fn matches_glob(glob: &str, name: &str) -> bool {
    let (Some((first, rest)), Some((_, last))) = (glob.split_once('*'), glob.rsplit_once('*'))
    else {
        return glob == name;
    };
    let Some(mut open) = name
        .strip_prefix(first)
        .and_then(|name| name.strip_suffix(last))
    else {
        return false;
    };
    let middle = rest.strip_suffix(last).unwrap_or_default();
    for piece in middle.split('*') {
        let Some(place) = memmem::find(open.as_bytes(), piece.as_bytes()) else {
            return false;
        };
        open = &open[place + piece.len()..];
    }
    true
}
