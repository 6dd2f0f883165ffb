//! What can be suspended, and what is: an agent, a server, a tool or a whole project, stopped at once with
//! its grants kept. Pure; who ends what runs is the engine.

use std::collections::BTreeMap;
use std::fmt;

use crate::caller::Role;
use crate::id::{AgentName, NameError, ServerName};

/// Something that can be suspended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Suspendable {
    /// Every agent of the project.
    Project,
    /// One agent, with all its keys.
    Agent(AgentName),
    /// One server.
    Server(ServerName),
    /// One tool of a server, by the server's own name for it.
    Tool(ServerName, Box<str>),
}

/// Why a text names nothing that can be suspended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SuspendableError {
    /// No such kind.
    #[error("`{0}` is none of `project`, `agent`, `server` and `tool`")]
    Kind(String),
    /// The name cannot be one.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A tool is named with its server.
    #[error("a tool is named `server:tool`")]
    Tool,
}

impl Suspendable {
    /// Reads what is to be suspended.
    pub fn new(kind: &str, name: &str) -> Result<Self, SuspendableError> {
        match kind {
            "project" => Ok(Self::Project),
            "agent" => Ok(Self::Agent(name.parse()?)),
            "server" => Ok(Self::Server(name.parse()?)),
            "tool" => {
                let (server, tool) = name.split_once(':').ok_or(SuspendableError::Tool)?;
                let is_name = !tool.is_empty() && tool.len() <= 256;
                match is_name && !tool.contains(char::is_control) {
                    true => Ok(Self::Tool(server.parse()?, tool.into())),
                    false => Err(SuspendableError::Tool),
                }
            }
            other => Err(SuspendableError::Kind(other.chars().take(64).collect())),
        }
    }

    /// Returns the kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::Agent(_) => "agent",
            Self::Server(_) => "server",
            Self::Tool(..) => "tool",
        }
    }

    /// Returns the name; empty for the project.
    pub fn name(&self) -> String {
        match self {
            Self::Project => String::new(),
            Self::Agent(agent) => agent.to_string(),
            Self::Server(server) => server.to_string(),
            Self::Tool(server, tool) => format!("{server}:{tool}"),
        }
    }
}

impl fmt::Display for Suspendable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Project => f.write_str("the project"),
            Self::Agent(_) | Self::Server(_) | Self::Tool(..) => {
                write!(f, "{} `{}`", self.kind(), self.name())
            }
        }
    }
}

/// Who suspended something, when and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspension {
    /// Why, in a person's words; may be empty.
    pub reason: String,
    /// Who did it.
    pub by: String,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// With which role; `None` for the gateway, a file, an embedding program or an earlier release.
    pub role: Option<Role>,
}

impl Suspension {
    /// Returns whether somebody with a role may end it: nobody lifts what a more powerful one imposed.
    pub fn may_be_ended_by(&self, role: Option<Role>) -> bool {
        match (self.role, role) {
            (Some(own), Some(role)) => !own.is_above(role),
            (None, _) | (_, None) => true,
        }
    }

    /// Returns whether it takes the place of another of the same thing.
    pub fn is_firmer_than(&self, known: &Self) -> bool {
        let is_above = |role: Role| known.role.is_none_or(|known| role.is_above(known));
        self.role.is_some_and(is_above)
    }
}

/// Everything that is suspended in a project.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Suspensions(BTreeMap<Suspendable, Suspension>);

impl FromIterator<(Suspendable, Suspension)> for Suspensions {
    fn from_iter<T: IntoIterator<Item = (Suspendable, Suspension)>>(all: T) -> Self {
        Self(all.into_iter().collect())
    }
}

impl Suspensions {
    /// Returns all of them, ordered by kind and name.
    pub fn iter(&self) -> impl Iterator<Item = (&Suspendable, &Suspension)> {
        self.0.iter()
    }

    /// Returns whether nothing is suspended.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the suspension of something itself.
    pub fn of(&self, what: &Suspendable) -> Option<&Suspension> {
        self.0.get(what)
    }

    /// Returns what keeps an agent from everything: its own suspension, or the project's.
    pub fn of_agent(&self, agent: &AgentName) -> Option<Suspendable> {
        let wider = [Suspendable::Project, Suspendable::Agent(agent.clone())];
        wider.into_iter().find(|what| self.0.contains_key(what))
    }

    /// Returns the suspension of a server.
    pub fn of_server(&self, server: &ServerName) -> Option<&Suspension> {
        self.0.get(&Suspendable::Server(server.clone()))
    }

    /// Returns what keeps a call from a server's tool: the suspension of either.
    pub fn of_call(&self, server: &ServerName, item: &str) -> Option<Suspendable> {
        if self.0.is_empty() {
            return None;
        }
        let wider = [
            Suspendable::Server(server.clone()),
            Suspendable::Tool(server.clone(), item.into()),
        ];
        wider.into_iter().find(|what| self.0.contains_key(what))
    }

    /// Returns the suspended tools of a server, by its own names.
    pub fn tools_of<'s>(&'s self, server: &'s ServerName) -> impl Iterator<Item = &'s str> {
        self.0.keys().filter_map(move |what| match what {
            Suspendable::Tool(of, tool) if of == server => Some(&**tool),
            Suspendable::Tool(..)
            | Suspendable::Project
            | Suspendable::Agent(_)
            | Suspendable::Server(_) => None,
        })
    }

    /// Returns the suspended tools, each with its server.
    pub fn tools(&self) -> impl Iterator<Item = (&ServerName, &str)> {
        self.0.keys().filter_map(|what| match what {
            Suspendable::Tool(server, tool) => Some((server, &**tool)),
            Suspendable::Project | Suspendable::Agent(_) | Suspendable::Server(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspension_is_lifted_by_its_role_and_those_above() {
        let by = |role: Option<Role>| Suspension {
            reason: String::new(),
            by: "x".to_owned(),
            at_ms: 1,
            role,
        };
        let (installation, admin, operator) = (
            Some(Role::Installation),
            Some(Role::Admin),
            Some(Role::Operator),
        );
        for (imposed, lifts, may) in [
            (installation, installation, true),
            (installation, admin, false),
            (admin, operator, false),
            (admin, admin, true),
            (operator, admin, true),
            (None, operator, true),
            (installation, None, true),
        ] {
            assert_eq!(
                by(imposed).may_be_ended_by(lifts),
                may,
                "{imposed:?} {lifts:?}"
            );
        }
        assert!(by(installation).is_firmer_than(&by(admin)));
        assert!(!by(admin).is_firmer_than(&by(admin)));
        assert!(!by(None).is_firmer_than(&by(operator)));
    }

    #[test]
    fn what_is_suspended_holds_for_what_is_in_it() {
        let suspension = Suspension {
            reason: String::new(),
            by: "admin".to_owned(),
            at_ms: 1,
            role: None,
        };
        let all = [("server", "a"), ("tool", "b:x:y"), ("agent", "planner")];
        let all = all.map(|(kind, name)| {
            let what = Suspendable::new(kind, name).unwrap();
            assert_eq!((what.kind(), what.name()), (kind, name.to_owned()));
            (what, suspension.clone())
        });
        let suspended: Suspensions = all.into_iter().collect();
        let (a, b) = ("a".parse().unwrap(), "b".parse().unwrap());
        assert!(suspended.of_call(&a, "anything").is_some());
        assert!(suspended.of_call(&b, "x:y").is_some());
        assert!(suspended.of_call(&b, "x").is_none());
        assert!(suspended.of_agent(&"planner".parse().unwrap()).is_some());
        assert!(suspended.of_agent(&"other".parse().unwrap()).is_none());
        assert_eq!(suspended.tools_of(&b).collect::<Vec<_>>(), ["x:y"]);
        let project = [(Suspendable::Project, suspension)];
        let project: Suspensions = project.into_iter().collect();
        assert!(project.of_agent(&"other".parse().unwrap()).is_some());
        for (kind, name) in [
            ("tool", "a"),
            ("tool", "a:"),
            ("key", "a"),
            ("agent", "a b"),
        ] {
            assert!(Suspendable::new(kind, name).is_err(), "{kind} {name}");
        }
    }
}
