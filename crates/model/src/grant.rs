//! What an agent may use: grants that allow, deny or ask for items on servers, by class of method.
//! What no grant names is refused. Deny wins over ask, and ask over allow, in any order.
//!
//! Decides by names and arguments only: whether an item exists, or a task is the caller's own, is
//! unknown here. Entry points: [`GrantSet::decide`] for a call, with the class from [`class_of`],
//! and [`GrantSet::shows`] for a list.

mod class;
mod condition;
mod decision;
mod filter;
mod group;
mod pattern;
mod rule;
mod set;
mod uri;
pub mod why;

use crate::diagnose::{Diagnose, Fault};
use crate::id::{NameError, ServerName};

pub use self::class::{MethodClass, class_of};
pub use self::condition::{Condition, Truth};
pub use self::decision::{
    AccessRequest, Arguments, Decision, Effect, LastUse, Principal, ReadOnlyHint, Refusal, Verdict,
};
pub use self::filter::ToolFilter;
pub use self::group::{GroupName, ServerGroup};
pub use self::pattern::Pattern;
pub use self::rule::{Grant, has_class_prefix};
pub use self::set::{BoundGrant, GrantSet, Policy};
pub use self::uri::NormalUri;

/// Why a grant is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// The server is neither a name nor a pattern of names.
    #[error("`{text}` cannot be the server of a grant")]
    Server {
        /// What was given, escaped.
        text: String,
        /// Why it is not a valid name, if it has no `*`.
        #[source]
        source: Option<NameError>,
    },
    /// The item is empty, too long, or holds control characters.
    #[error("`{text}` cannot be the item of a grant: {why}")]
    Item {
        /// The first characters of what was given, escaped.
        text: String,
        /// The rule it breaks.
        why: &'static str,
    },
    /// The alias is not a valid tool name.
    #[error("`{text}` cannot be an alias: {why}")]
    Alias {
        /// The first characters of what was given, escaped.
        text: String,
        /// The rule it breaks.
        why: &'static str,
    },
    /// A condition is invalid, or the grant cannot have conditions.
    #[error("`{text}` cannot be a condition of a grant: {why}")]
    Condition {
        /// The first characters of what was given, escaped.
        text: String,
        /// The rule it breaks.
        why: &'static str,
    },
    /// The text is not a grant.
    #[error("`{text}` is not a grant: {why}")]
    Text {
        /// The first characters of what was given, escaped.
        text: String,
        /// What is missing.
        why: &'static str,
    },
    /// The members of a group are not servers.
    #[error("group `{text}` cannot be kept: {why}")]
    Group {
        /// The first characters of its name, escaped.
        text: String,
        /// The rule it breaks.
        why: &'static str,
    },
}

impl Diagnose for GrantError {
    fn code(&self) -> &'static str {
        match self {
            Self::Server { .. } => "grant.server",
            Self::Item { .. } => "grant.item",
            Self::Alias { .. } => "grant.alias",
            Self::Condition { .. } => "grant.condition",
            Self::Text { .. } => "grant.text",
            Self::Group { .. } => "group.members",
        }
    }

    fn fault(&self) -> Fault {
        Fault::Client
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Server { .. } => Some(
                "a server's name, a pattern such as `team-*`, or a group such as `@team`".into(),
            ),
            Self::Item { .. } => {
                Some("a tool such as `read_*`, `resource:file:///*`, or `*` for all".to_owned())
            }
            Self::Alias { .. } | Self::Group { .. } => None,
            Self::Condition { .. } => Some(
                "for example `/path prefix /srv/`, `/env one-of dev,test` or `/count range 1..10`"
                    .into(),
            ),
            Self::Text { .. } => {
                Some("for example `files:read_*`, `deny files:delete_*` or `ask mail:send`".into())
            }
        }
    }
}

fn shown(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}

fn parse_server(text: &str) -> Result<Pattern, GrantError> {
    let refused = |source| GrantError::Server {
        text: shown(text),
        source,
    };
    let pattern = Pattern::new(text);
    match &pattern {
        Pattern::All => {}
        Pattern::Exact(name) if &**name == ServerName::NATIVE => {}
        Pattern::Exact(name) => {
            name.parse::<ServerName>()
                .map_err(|error| refused(Some(error)))?;
        }
        Pattern::Glob(glob) => {
            let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '*');
            if glob.len() > 128 || !glob.chars().all(legal) {
                return Err(refused(None));
            }
        }
    }
    Ok(pattern)
}

#[cfg(test)]
mod tests;
