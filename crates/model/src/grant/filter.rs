//! The filter over the granted tools of an agent (row 2.16): patterns over `server:tool`.
//!
//! A filter only narrows: what is not granted stays refused. It applies to tools only; prompts and
//! resources follow their grants alone. Entry point: `ToolFilter::allows`.

use super::rule::LONGEST_ITEM;
use super::{GrantError, Pattern, parse_server, shown};
use crate::id::ServerName;

/// A pattern of tools, `server:tool` with `*` on either side.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ToolPattern {
    server: Pattern,
    tool: Pattern,
    text: Box<str>,
}

impl ToolPattern {
    /// Splits at the first `:`; without one the pattern applies to tools of every server.
    fn new(text: &str) -> Result<Self, GrantError> {
        let (server, tool) = text.split_once(':').unwrap_or(("*", text));
        let refused = |why| {
            Err(GrantError::Item {
                text: shown(text),
                why,
            })
        };
        if tool.is_empty() {
            return refused("it must not be empty");
        }
        if text.len() > LONGEST_ITEM {
            return refused("it is longer than 2048 bytes");
        }
        if text.chars().any(char::is_control) {
            return refused("it contains control characters");
        }
        Ok(Self {
            server: parse_server(server)?,
            tool: Pattern::new(tool),
            text: text.into(),
        })
    }

    fn matches(&self, server: &ServerName, tool: &str) -> bool {
        self.server.matches(server.as_str()) && self.tool.matches(tool)
    }
}

/// Which of the granted tools an agent sees and calls: those included, but none excluded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ToolFilter {
    include: Vec<ToolPattern>,
    exclude: Vec<ToolPattern>,
}

impl ToolFilter {
    /// Parses the patterns. Without any to include, everything granted is included.
    pub fn new<T: AsRef<str>>(
        include: impl IntoIterator<Item = T>,
        exclude: impl IntoIterator<Item = T>,
    ) -> Result<Self, GrantError> {
        Ok(Self {
            include: parse(include)?,
            exclude: parse(exclude)?,
        })
    }

    /// Returns the patterns of included tools, as given to `new`.
    pub fn include(&self) -> impl Iterator<Item = &str> {
        self.include.iter().map(|pattern| &*pattern.text)
    }

    /// Returns the patterns of excluded tools, as given to `new`.
    pub fn exclude(&self) -> impl Iterator<Item = &str> {
        self.exclude.iter().map(|pattern| &*pattern.text)
    }

    /// Returns whether nothing is hidden.
    pub fn is_empty(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Returns the pattern that includes a tool and the one that excludes it, if there are such.
    pub fn naming(&self, server: &ServerName, tool: &str) -> (Option<&str>, Option<&str>) {
        fn first<'a>(
            patterns: &'a [ToolPattern],
            server: &ServerName,
            tool: &str,
        ) -> Option<&'a str> {
            let mut patterns = patterns.iter();
            let found = patterns.find(|pattern| pattern.matches(server, tool));
            found.map(|pattern| &*pattern.text)
        }
        let of = |patterns| first(patterns, server, tool);
        (of(&self.include), of(&self.exclude))
    }

    /// Returns whether a tool passes; one that is both included and excluded does not.
    pub fn allows(&self, server: &ServerName, tool: &str) -> bool {
        let is_in = |patterns: &[ToolPattern]| patterns.iter().any(|one| one.matches(server, tool));
        (self.include.is_empty() || is_in(&self.include)) && !is_in(&self.exclude)
    }
}

/// Sorts the patterns, so that equal filters are equal however they were written.
fn parse<T: AsRef<str>>(
    patterns: impl IntoIterator<Item = T>,
) -> Result<Vec<ToolPattern>, GrantError> {
    let patterns = patterns
        .into_iter()
        .map(|text| ToolPattern::new(text.as_ref()));
    let mut patterns: Vec<_> = patterns.collect::<Result<_, _>>()?;
    patterns.sort_by(|left, right| left.text.cmp(&right.text));
    patterns.dedup();
    Ok(patterns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str]) -> ToolFilter {
        ToolFilter::new(include.iter().copied(), exclude.iter().copied()).unwrap()
    }

    fn allows(filter: &ToolFilter, identity: &str) -> bool {
        let (server, tool) = identity.split_once(':').unwrap();
        let server = match server {
            ServerName::NATIVE => ServerName::native(),
            name => name.parse().unwrap(),
        };
        filter.allows(&server, tool)
    }

    // row 2.16
    #[test]
    fn exclusion_wins_and_no_inclusion_means_all() {
        let none = filter(&[], &[]);
        assert!(none.is_empty() && allows(&none, "files:read"));
        let read = filter(&["files:read_*", "native:*"], &["*:read_secret"]);
        assert!(allows(&read, "files:read_file") && allows(&read, "native:add"));
        assert!(!allows(&read, "files:read_secret") && !allows(&read, "files:write"));
        assert!(!allows(&read, "other:read_file"));
        let all_but = filter(&[], &["delete_*", "team-*:*"]);
        assert!(allows(&all_but, "files:read"));
        assert!(!allows(&all_but, "files:delete_all") && !allows(&all_but, "team-a:read"));
    }

    #[test]
    fn a_tools_own_name_may_hold_a_colon() {
        let one = filter(&["files:a:b"], &[]);
        assert!(allows(&one, "files:a:b") && !allows(&one, "files:a"));
    }

    #[test]
    fn patterns_are_kept_as_written_in_one_order() {
        let one = filter(&["b:*", "a", "b:*"], &[]);
        assert_eq!(one, filter(&["a", "b:*"], &[]));
        assert_eq!(one.include().collect::<Vec<_>>(), ["a", "b:*"]);
    }

    #[test]
    fn patterns_that_name_nothing_are_refused() {
        for bad in ["", "files:", "no server:x", "files:a\u{7}"] {
            assert!(ToolFilter::new([bad], []).is_err(), "{bad:?}");
        }
    }
}
