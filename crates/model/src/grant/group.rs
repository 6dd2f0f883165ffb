//! Groups of servers: a name for several servers, which grants refer to as `@name`.

use std::fmt;
use std::str::FromStr;

use super::{GrantError, Pattern, parse_server, shown};
use crate::id::ServerName;

/// Maximum number of members of a group.
const MOST_MEMBERS: usize = 256;

/// The name of a group, by the same rules as a server's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupName(Box<str>);

impl GroupName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GroupName {
    type Err = GrantError;

    fn from_str(text: &str) -> Result<Self, GrantError> {
        match text.parse::<ServerName>() {
            Ok(_) => Ok(Self(text.into())),
            Err(_) => Err(GrantError::Group {
                text: shown(text),
                why: "its name has letters, digits, `.`, `_` and `-`, and at most 64 of them",
            }),
        }
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A named set of servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerGroup {
    /// Its name.
    pub name: GroupName,
    members: Vec<Pattern>,
}

impl ServerGroup {
    /// Parses the members: names of servers, or patterns with `*`.
    pub fn new<T: AsRef<str>>(
        name: GroupName,
        members: impl IntoIterator<Item = T>,
    ) -> Result<Self, GrantError> {
        let members = members.into_iter();
        let mut members: Vec<_> = members
            .map(|member| parse_server(member.as_ref()))
            .collect::<Result<_, _>>()?;
        members.sort_by(|one, two| one.as_str().cmp(two.as_str()));
        members.dedup();
        if members.len() > MOST_MEMBERS {
            return Err(GrantError::Group {
                text: name.to_string(),
                why: "it has more than 256 members",
            });
        }
        Ok(Self { name, members })
    }

    /// Creates a group of known servers, of any number.
    pub fn of<'s>(name: GroupName, servers: impl IntoIterator<Item = &'s ServerName>) -> Self {
        let members = servers.into_iter();
        let mut members: Vec<_> = members
            .map(|server| Pattern::Exact(server.as_str().into()))
            .collect();
        members.sort_by(|one, two| one.as_str().cmp(two.as_str()));
        members.dedup();
        Self { name, members }
    }

    /// Returns the members as given to `new`, sorted.
    pub fn members(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(Pattern::as_str)
    }

    pub(super) fn patterns(&self) -> &[Pattern] {
        &self.members
    }
}
