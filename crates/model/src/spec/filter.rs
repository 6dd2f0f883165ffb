//! Which tools of a server are offered: names and patterns to take, and to leave out.
//!
//! Holds for everybody, before any grant: what is left out is neither listed nor called.

use serde::{Deserialize, Serialize};

use crate::grant::Pattern;

/// Which tools of a server are offered; all of them if nothing is said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolFilter {
    /// Only tools that one of these names; `*` stands for any run of characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include: Option<Vec<String>>,
    /// None of these, whatever `include` says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
}

impl ToolFilter {
    /// Tells whether every tool is offered.
    pub fn is_empty(&self) -> bool {
        self.include.is_none() && self.exclude.is_empty()
    }

    /// Returns why a tool is left out, or nothing if it is offered.
    pub fn leaves_out(&self, tool: &str) -> Option<String> {
        let names = |pattern: &&String| Pattern::new(pattern).matches(tool);
        if let Some(pattern) = self.exclude.iter().find(names) {
            return Some(format!("`tools.exclude` has `{}`", pattern.escape_debug()));
        }
        match &self.include {
            Some(include) if !include.iter().any(|pattern| names(&pattern)) => {
                Some("`tools.include` does not name it".to_owned())
            }
            Some(_) | None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_has_its_reason() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let filter = ToolFilter {
            include: Some(list(&["read_*", "echo"])),
            exclude: list(&["*_all"]),
        };
        assert_eq!(filter.leaves_out("echo"), None);
        assert_eq!(filter.leaves_out("read_one"), None);
        assert_eq!(
            filter.leaves_out("read_all").unwrap(),
            "`tools.exclude` has `*_all`"
        );
        assert_eq!(
            filter.leaves_out("write").unwrap(),
            "`tools.include` does not name it"
        );
        assert!(ToolFilter::default().leaves_out("x").is_none());
    }
}
