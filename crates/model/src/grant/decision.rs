//! What is asked of a policy, and what it decides.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{BoundGrant, GrantError, MethodClass, shown};
use crate::id::{AgentName, GrantId, KeyId, ServerName};
use crate::jsonrpc::Raw;

/// What a grant does with what it names. Ordered by who wins: a deny over an ask, an ask over an allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Effect {
    /// Nobody it is for may use it.
    Deny,
    /// Each call waits until an approver has allowed it.
    Ask,
    /// It may be used.
    #[default]
    Allow,
}

impl Effect {
    /// Returns the effect as it is written.
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

/// Whom a grant is for. Ordered from the narrowest.
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
    /// Tells whether it is an agent.
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

/// When a grant last decided a call, in milliseconds since 1970; shared by all who hold the grant.
#[derive(Debug, Default)]
pub struct LastUse(AtomicU64);

impl LastUse {
    /// Begins with what the store knows; zero for never.
    pub const fn new(at_ms: u64) -> Self {
        Self(AtomicU64::new(at_ms))
    }

    /// Notes a use.
    pub fn note(&self, at_ms: u64) {
        self.0.fetch_max(at_ms, Ordering::Relaxed);
    }

    /// Returns the last use, if there was any.
    pub fn at_ms(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|at_ms| *at_ms > 0)
    }
}

/// What is known of the arguments of a call.
#[derive(Debug, Clone, Copy)]
pub enum Arguments<'a> {
    /// There is no call yet: the item is shown if some arguments could be allowed.
    NotYet,
    /// These; a call without any has an empty object.
    Given(Option<Raw<'a>>),
    /// There was a call, and its arguments were not kept.
    Lost,
}

/// What the approved version of a tool says of itself in `readOnlyHint`. Believed only of servers whose
/// annotations an administrator trusts. fault L5
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOnlyHint {
    /// It changes nothing.
    ReadOnly,
    /// It may change something, or says nothing, or its version is not approved.
    Writes,
    /// The tool is not known yet. The call is judged again once it is.
    NotKnown,
}

/// A use that somebody asks for.
#[derive(Debug, Clone, Copy)]
pub struct AccessRequest<'a> {
    /// The class of the method.
    pub class: MethodClass,
    /// The server.
    pub server: &'a ServerName,
    /// The server's own name for the item; none asks for any of the class, as a list does.
    pub item: Option<&'a str>,
    /// The arguments.
    pub arguments: Arguments<'a>,
    /// What the tool says of itself.
    pub hint: ReadOnlyHint,
}

impl<'a> AccessRequest<'a> {
    /// Asks whether an item is to be shown.
    pub fn listing(class: MethodClass, server: &'a ServerName, item: Option<&'a str>) -> Self {
        Self {
            class,
            server,
            item,
            arguments: Arguments::NotYet,
            hint: ReadOnlyHint::NotKnown,
        }
    }

    /// Asks the same of a tool that is known.
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
    /// What allows it has conditions, which these arguments do not meet.
    Condition,
    /// A grant denies it.
    Denied,
}

/// What a policy says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It may be used.
    Allow,
    /// It may be used once an approver has allowed this very call.
    Ask,
    /// It may not be used.
    Deny(Refusal),
    /// The grants cannot tell without the arguments that were not kept, or without the tool.
    Undecided,
}

impl Verdict {
    /// Tells whether the item is to be listed, and found by name.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Allow | Self::Ask | Self::Undecided)
    }

    /// Returns the verdict as it is shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny(_) => "deny",
            Self::Undecided => "undecided",
        }
    }
}

/// What was decided, by which grant, under which policy.
#[derive(Debug, Clone, Copy)]
pub struct Decision<'a> {
    /// What may be done.
    pub verdict: Verdict,
    /// The grant that decided; of a refused condition, the grant whose condition it is. None if no grant
    /// names the item, and for administrators, who need none.
    pub grant: Option<&'a BoundGrant>,
    /// The revision of the project's policy: another whenever grants, groups, filters or settings change.
    pub revision: u64,
}

impl Decision<'_> {
    /// Returns the identity of the grant that decided, for the record.
    pub fn grant_id(&self) -> Option<GrantId> {
        self.grant.and_then(|grant| grant.id)
    }

    /// Notes that the grant was used, if it let something pass or kept it from passing.
    pub fn note_use(&self, at_ms: u64) {
        if let Some(grant) = self.grant {
            grant.last_use.note(at_ms);
        }
    }
}
