//! Who calls, and what the call belongs to.
//!
//! Both are arguments from the edge to the audit row, never ambient.

mod role;
mod validity;

use std::sync::Arc;
use std::time::Duration;

pub use self::role::{Permission, Role, UnknownRole};
pub use self::validity::{Ended, KeyEnd, KeyValidity};

use crate::grant::GrantSet;
use crate::id::{AgentName, KeyId, ProjectName};
use crate::trace::TraceParent;

/// Which doors a key opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// Does what its role allows; refused on `/mcp`.
    Admin(Role),
    /// Lists and calls what its agent was granted; refused on the admin API.
    Agent,
}

impl KeyKind {
    /// Returns the role of an administrator's key.
    pub const fn role(self) -> Option<Role> {
        match self {
            Self::Admin(role) => Some(role),
            Self::Agent => None,
        }
    }

    /// Tells whether it is an administrator's key.
    pub const fn is_admin(self) -> bool {
        matches!(self, Self::Admin(_))
    }

    /// Tells whether it is an administrator's key with this permission.
    pub const fn may(self, needed: Permission) -> bool {
        match self {
            Self::Admin(role) => role.may(needed),
            Self::Agent => false,
        }
    }
}

/// Whether the user ids that a caller gives are believed.
///
/// A key proves who the agent is, never on whose behalf it acts: that is the agent's word, unless an
/// administrator trusts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum UserTrust {
    /// They are what the agent says.
    #[default]
    Asserted,
    /// They are taken for true.
    Trusted,
}

impl UserTrust {
    /// Returns the trust as shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Asserted => "asserted",
            Self::Trusted => "trusted",
        }
    }

    /// Tells whether user ids are taken for true.
    pub const fn is_trusted(self) -> bool {
        matches!(self, Self::Trusted)
    }
}

impl From<bool> for UserTrust {
    fn from(is_trusted: bool) -> Self {
        match is_trusted {
            true => Self::Trusted,
            false => Self::Asserted,
        }
    }
}

/// Who is behind a request, proved by a key.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The project the key belongs to.
    pub project: ProjectName,
    /// Who the key speaks for.
    pub agent: AgentName,
    /// Which key it was.
    pub key: KeyId,
    /// Which doors it opens.
    pub kind: KeyKind,
    /// What the agent may use.
    pub grants: Arc<GrantSet>,
    /// Whether the user ids it gives are believed.
    pub users: UserTrust,
    /// How long the key is valid: its end ends whatever was started with it.
    pub validity: KeyValidity,
    /// What the token says, if it was the token of an issuer instead of a key of ours.
    pub token: Option<TokenIdentity>,
    /// How long it took to find out who calls.
    pub authenticated_in: Duration,
}

/// What the token of an issuer says of its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenIdentity {
    /// The person on whose behalf it was issued.
    pub user: Option<Arc<str>>,
}

/// What a call belongs to in the caller's world; recorded, and passed on upstream in `_meta`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Context {
    /// The person on whose behalf the agent says that it acts.
    pub user: Option<Box<str>>,
    /// The conversation.
    pub session: Option<Box<str>>,
    /// The agent's run.
    pub run: Option<Box<str>>,
    /// The step within the run.
    pub step: Option<Box<str>>,
    /// The place in a W3C trace that the request came from.
    pub trace: Option<TraceParent>,
    /// What the systems of that trace tell each other (W3C `tracestate`).
    pub trace_state: Option<Box<str>>,
    /// The call that this one is made for, by its id.
    pub parent: Option<Box<str>>,
}

impl Context {
    /// Takes the user from the caller's token, if it has one: what headers say of it does not count.
    pub fn prove(&mut self, caller: &Caller) {
        if let Some(token) = &caller.token {
            self.user = token.user.as_deref().map(Box::from);
        }
    }
}
