//! The caller of a request, and its context.
//!
//! Both are passed as arguments from the edge to the audit row, never ambient.

mod role;
mod validity;

use std::sync::Arc;
use std::time::Duration;

pub use self::role::{Permission, Role, UnknownRole};
pub use self::validity::{Ended, KeyEnd, KeyValidity};

use crate::grant::GrantSet;
use crate::id::{AgentName, KeyId, ProjectName};
use crate::trace::TraceParent;

/// The kind of a key.
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

    /// Returns whether it is an administrator's key.
    pub const fn is_admin(self) -> bool {
        matches!(self, Self::Admin(_))
    }

    /// Returns whether it is an administrator's key with this permission.
    pub const fn may(self, needed: Permission) -> bool {
        match self {
            Self::Admin(role) => role.may(needed),
            Self::Agent => false,
        }
    }
}

/// Whether the user ids that a caller sends are trusted.
///
/// A key proves the agent's identity, but not on whose behalf it acts: that is the agent's claim,
/// unless an administrator trusts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum UserTrust {
    /// They are only the agent's claim.
    #[default]
    Asserted,
    /// They are trusted.
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

    /// Returns whether user ids are trusted.
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

/// The caller of a request, authenticated by a key.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The project the key belongs to.
    pub project: ProjectName,
    /// The agent of the key.
    pub agent: AgentName,
    /// The key.
    pub key: KeyId,
    /// The kind of the key.
    pub kind: KeyKind,
    /// The agent's grants.
    pub grants: Arc<GrantSet>,
    /// Whether its user ids are trusted.
    pub users: UserTrust,
    /// The validity of the key: when it ends, so does everything started with it.
    pub validity: KeyValidity,
    /// The claims of the token, if it was authenticated by a token of an issuer.
    pub token: Option<TokenIdentity>,
    /// How long it took to find out who calls.
    pub authenticated_in: Duration,
}

/// The claims of an issuer's token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenIdentity {
    /// The person on whose behalf it was issued.
    pub user: Option<Arc<str>>,
}

/// The caller's context of a call; recorded, and sent to the server in `_meta`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Context {
    /// The person on whose behalf the agent claims to act.
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
    /// Sets the user from the caller's token, if it has one: headers do not override it.
    pub fn prove(&mut self, caller: &Caller) {
        if let Some(token) = &caller.token {
            self.user = token.user.as_deref().map(Box::from);
        }
    }
}
