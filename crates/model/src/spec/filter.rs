//! Which tools of a server are offered: names and patterns to include and exclude.
//!
//! Applies to all callers, before any grant: an excluded tool is neither listed nor called.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::calls::OutputCheck;
use super::options::{Kind, ServerOption, option, plain};
use super::period;
use crate::grant::Pattern;

/// Which tools of a server are offered; by default all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolFilter {
    /// Only tools that match one of these; `*` matches any characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include: Option<Vec<String>>,
    /// No tools that match one of these, even if included.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Settings of single tools, by the server's own names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, ToolSettings>,
}

/// The settings of one tool. row 3.4
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolSettings {
    /// Its timeout, instead of the server's.
    #[serde(with = "period::option", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Whether repeating a call has no further effect, so that an interrupted call may be retried.
    pub idempotent: bool,
    /// What happens to results that do not fit its output schema, in the place of the server's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_check: Option<OutputCheck>,
}

impl ToolFilter {
    /// Returns whether everything has its default.
    pub fn is_empty(&self) -> bool {
        self.include.is_none() && self.exclude.is_empty() && self.settings.is_empty()
    }

    /// Returns why a tool is excluded; `None` if it is offered.
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

/// The options of a server's tools.
pub(super) static OPTIONS: &[ServerOption] = &[
    option(
        "tools.include",
        Kind::Texts,
        "Only tools that match one of these patterns; `*` matches any characters.",
        |spec| plain(&mut spec.tools.include),
    )
    .absent("all"),
    option(
        "tools.exclude",
        Kind::Texts,
        "Never tools that match one of these patterns, even if `tools.include` does.",
        |spec| plain(&mut spec.tools.exclude),
    )
    .absent("none"),
    option(
        "tools.settings",
        Kind::Tools,
        "Settings of single tools, by their own names: `timeout` and `output_check` in the place of the \
         server's, and `idempotent`: whether a call that was cut off may be made once more.",
        |spec| plain(&mut spec.tools.settings),
    )
    .absent("none"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_has_its_reason() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let filter = ToolFilter {
            include: Some(list(&["read_*", "echo"])),
            exclude: list(&["*_all"]),
            ..ToolFilter::default()
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

    #[test]
    fn settings_of_tools_survive_their_stored_form() {
        // row 3.4
        let text = r#"{"settings":{"search":{"timeout":"5s","idempotent":true},"x":{"idempotent":false,"output_check":"warn"}}}"#;
        let filter: ToolFilter = serde_json::from_str(text).unwrap();
        let search = &filter.settings["search"];
        assert_eq!(
            (search.timeout, search.idempotent),
            (Some(Duration::from_secs(5)), true)
        );
        assert_eq!(serde_json::to_string(&filter).unwrap(), text);
    }
}
