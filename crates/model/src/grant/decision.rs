//! The request to a policy, and its decision.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{BoundGrant, GrantError, MethodClass, shown};
use crate::id::{AgentName, GrantId, KeyId, ServerName};
use crate::jsonrpc::Raw;

/// The effect of a grant. Ordered by precedence: a deny wins over an ask, an ask over an allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Effect {
    /// It may not be used.
    Deny,
    /// Each call waits until an approver has allowed it.
    Ask,
    /// It may be used.
    #[default]
    Allow,
}

impl Effect {
    /// Returns the effect as a keyword.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Ask => "ask",
            Self::Allow => "allow",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Effect {
    type Err = GrantError;

    fn from_str(text: &str) -> Result<Self, GrantError> {
        match text {
            "deny" => Ok(Self::Deny),
            "ask" => Ok(Self::Ask),
            "allow" => Ok(Self::Allow),
            _ => Err(GrantError::Text {
                text: shown(text),
                why: "its effect is `allow`, `deny` or `ask`",
            }),
        }
    }
}

/// Who a grant applies to. Ordered from the narrowest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Principal {
    /// One key.
    Key(KeyId),
    /// Every key of one agent.
    Agent(AgentName),
    /// Every agent of the project.
    Project,
}

impl Principal {
    /// Returns whether it is an agent.
    pub const fn is_agent(&self) -> bool {
        matches!(self, Self::Agent(_))
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, "key {key}"),
            Self::Agent(agent) => write!(f, "agent {agent}"),
            Self::Project => f.write_str("all agents"),
        }
    }
}

/// When a grant last decided a call, in milliseconds since 1970; shared by all copies of the grant.
#[derive(Debug, Default)]
pub struct LastUse(AtomicU64);

impl LastUse {
    /// Starts with the stored time; zero for never.
    pub const fn new(at_ms: u64) -> Self {
        Self(AtomicU64::new(at_ms))
    }

    /// Records a use.
    pub fn note(&self, at_ms: u64) {
        self.0.fetch_max(at_ms, Ordering::Relaxed);
    }

    /// Returns the last use, if there was any.
    pub fn at_ms(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|at_ms| *at_ms > 0)
    }
}

/// The arguments of a call, as far as they are known.
#[derive(Debug, Clone, Copy)]
pub enum Arguments<'a> {
    /// There is no call yet: the item is listed if some arguments could be allowed.
    NotYet,
    /// These arguments; a call without any counts as an empty object.
    Given(Option<Raw<'a>>),
    /// There was a call, but its arguments were not stored.
    Lost,
}

/// The `readOnlyHint` of the approved version of a tool. Used only for servers whose annotations an
/// administrator trusts. fault L5
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOnlyHint {
    /// The tool changes nothing.
    ReadOnly,
    /// The tool may change something, has no hint, or its version is not approved.
    Writes,
    /// The tool is not known yet. The call is checked again once it is.
    NotKnown,
}

/// A request to use an item.
#[derive(Debug, Clone, Copy)]
pub struct AccessRequest<'a> {
    /// The class of the method.
    pub class: MethodClass,
    /// The server.
    pub server: &'a ServerName,
    /// The server's own name for the item; `None` for any item of the class, as in a list.
    pub item: Option<&'a str>,
    /// The arguments.
    pub arguments: Arguments<'a>,
    /// The tool's hint.
    pub hint: ReadOnlyHint,
}

impl<'a> AccessRequest<'a> {
    /// Creates the request to list an item.
    pub fn listing(class: MethodClass, server: &'a ServerName, item: Option<&'a str>) -> Self {
        Self {
            class,
            server,
            item,
            arguments: Arguments::NotYet,
            hint: ReadOnlyHint::NotKnown,
        }
    }

    /// Adds the hint of a known tool.
    pub fn with_hint(self, hint: ReadOnlyHint) -> Self {
        Self { hint, ..self }
    }
}

/// Why something is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No grant names it.
    Unbound,
    /// The agent's filter hides it.
    Hidden,
    /// Every grant that allows it has conditions, which these arguments do not meet.
    Condition,
    /// A grant denies it.
    Denied,
}

/// The result of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It may be used.
    Allow,
    /// It may be used once an approver has allowed this call.
    Ask,
    /// It may not be used.
    Deny(Refusal),
    /// Undecided: it depends on arguments that were not stored, or on an unknown tool.
    Undecided,
}

impl Verdict {
    /// Returns whether the item is listed, and found by name.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Allow | Self::Ask | Self::Undecided)
    }

    /// Returns the verdict as a keyword.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny(_) => "deny",
            Self::Undecided => "undecided",
        }
    }
}

/// A decision, with the grant and the revision of the policy.
#[derive(Debug, Clone, Copy)]
pub struct Decision<'a> {
    /// The result.
    pub verdict: Verdict,
    /// The grant that decided; for an unmet condition, the grant with that condition. `None` if no
    /// grant names the item, and for administrators, who need none.
    pub grant: Option<&'a BoundGrant>,
    /// The revision of the project's policy: changes whenever grants, groups, filters or settings
    /// change.
    pub revision: u64,
}

impl Decision<'_> {
    /// Returns the id of the deciding grant, for the audit.
    pub fn grant_id(&self) -> Option<GrantId> {
        self.grant.and_then(|grant| grant.id)
    }

    /// Records a use of the grant, if it allowed or refused something.
    pub fn note_use(&self, at_ms: u64) {
        if let Some(grant) = self.grant {
            grant.last_use.note(at_ms);
        }
    }
}
