//! URI templates of resources (RFC 6570), as far as needed to decide whether a URI can be an
//! expansion of one.
//!
//! Only finds the server of a URI; the server itself validates it. Matching takes time linear in
//! the URI for each part of the template.

/// The maximum number of parts of a supported template.
const MOST_PARTS: usize = 64;
/// The longest URI that is matched.
const LONGEST_URI: usize = 4096;

/// A template, split into its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(Box<str>),
    /// `{name}`: one or more characters, none of them reserved for the URI's structure.
    Simple,
    /// `{+name}` and `{#name}`: anything.
    Reserved,
    /// `{/name}`, `{.name}`, `{;name}`, `{?name}` and `{&name}`: nothing, or anything after that
    /// character.
    Behind(u8),
}

impl Template {
    /// Parses a template; `None` if it is invalid, or has too many parts.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('{') {
            let (expression, after) = behind.split_once('}')?;
            if !before.is_empty() {
                parts.push(Part::Literal(before.into()));
            }
            parts.push(match *expression.as_bytes().first()? {
                b'+' | b'#' => Part::Reserved,
                operator @ (b'/' | b'.' | b';' | b'?' | b'&') => Part::Behind(operator),
                _ => Part::Simple,
            });
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.into()));
        }
        (parts.len() <= MOST_PARTS).then_some(Self(parts))
    }

    /// Returns whether a URI can be an expansion of the template.
    pub(crate) fn matches(&self, uri: &str) -> bool {
        let uri = uri.as_bytes();
        if uri.len() > LONGEST_URI {
            return false;
        }
        // The positions that the parts so far can reach.
        let mut reached = vec![false; uri.len() + 1];
        reached[0] = true;
        for part in &self.0 {
            reached = part.advance(uri, &reached);
        }
        reached[uri.len()]
    }
}

impl Part {
    fn advance(&self, uri: &[u8], from: &[bool]) -> Vec<bool> {
        let mut to = vec![false; from.len()];
        match self {
            Self::Literal(text) => {
                for start in 0..from.len() {
                    if from[start] && uri[start..].starts_with(text.as_bytes()) {
                        to[start + text.len()] = true;
                    }
                }
            }
            Self::Simple => {
                let mut open = false;
                for (place, &byte) in uri.iter().enumerate() {
                    open = (open || from[place]) && !matches!(byte, b'/' | b'?' | b'#');
                    to[place + 1] = open;
                }
            }
            Self::Reserved => {
                let first = from
                    .iter()
                    .position(|&reached| reached)
                    .unwrap_or(from.len());
                to[first..].fill(true);
            }
            Self::Behind(operator) => {
                to.copy_from_slice(from);
                let starts = |place: &usize| from[*place] && uri[*place] == *operator;
                if let Some(first) = (0..uri.len()).find(starts) {
                    to[first + 1..].fill(true);
                }
            }
        }
        to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_uris_that_a_template_can_make() {
        // rows 2.21 and 2.22
        let matches = |template: &str, uri: &str| Template::parse(template).unwrap().matches(uri);
        assert!(matches("file:///{name}.txt", "file:///notes.txt"));
        assert!(!matches("file:///{name}.txt", "file:///a/b.txt"));
        assert!(!matches("file:///{name}.txt", "file:///.txt"));
        assert!(matches("db://{table}/{row}", "db://users/7"));
        assert!(!matches("db://{table}/{row}", "db://users"));
        assert!(matches("file:///{+path}", "file:///a/b?c#d"));
        assert!(matches("repo://{owner}{/path}{?ref}", "repo://me"));
        assert!(matches(
            "repo://{owner}{/path*}{?ref}",
            "repo://me/a/b?ref=main"
        ));
        assert!(matches("plain://x", "plain://x"));
        assert!(!matches("plain://x", "plain://xy"));
    }

    #[test]
    fn broken_and_hostile_templates_do_no_harm() {
        assert_eq!(Template::parse("a{b"), None);
        assert_eq!(Template::parse("a{}"), None);
        assert_eq!(Template::parse(&"{a}".repeat(1000)), None);
        let hostile = Template::parse(&"{a}".repeat(60)).unwrap();
        assert!(!hostile.matches(&format!("{}/", "x".repeat(4000))));
        assert!(!hostile.matches(&"x".repeat(1 << 20)));
    }
}
