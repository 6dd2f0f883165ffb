//! The permissions of administrators' keys: a role is a set of permissions, and every
//! administrative route requires one. Pure; used by `http/auth` and the routes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The role of an administrator's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Manages projects, and everything in each of them. The first key of a data folder has it.
    Installation,
    /// Manages one project.
    Admin,
    /// Starts, stops and restarts servers, and reads their logs.
    Operator,
    /// Decides about changes that need a second person: registrations, changed tools, held calls.
    Approver,
    /// Reads the record of calls and of administrative acts, and changes nothing.
    Auditor,
}

/// The permission that an administrative route requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Permission {
    /// To read configuration and state.
    Read,
    /// To read the record of calls and of administrative acts.
    Audit,
    /// To start, stop and restart servers, and to read their logs.
    Operate,
    /// To decide about changes that need a second person.
    Approve,
    /// To change a project: servers, agents, keys, grants, settings.
    Manage,
    /// To manage projects and shared resources.
    Install,
}

impl Role {
    /// All roles, the most powerful first.
    pub const ALL: [Self; 5] = [
        Self::Installation,
        Self::Admin,
        Self::Operator,
        Self::Approver,
        Self::Auditor,
    ];

    /// Returns the name of the role.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Installation => "installation",
            Self::Admin => "admin",
            Self::Operator => "operator",
            Self::Approver => "approver",
            Self::Auditor => "auditor",
        }
    }

    /// Returns whether the role is more powerful than another.
    pub const fn is_above(self, other: Self) -> bool {
        (self as u8) < (other as u8)
    }

    /// Returns whether the role includes a permission.
    pub const fn may(self, needed: Permission) -> bool {
        match (self, needed) {
            (Self::Installation, _)
            | (_, Permission::Read)
            | (Self::Operator, Permission::Operate)
            | (Self::Approver, Permission::Approve)
            | (Self::Auditor, Permission::Audit) => true,
            (Self::Admin, needed) => !matches!(needed, Permission::Install),
            (Self::Operator | Self::Approver | Self::Auditor, _) => false,
        }
    }

    /// Returns whether a key of this role may create, change or revoke keys of another: a role
    /// cannot grant more than it has, or appoint its own controllers. An admin who could create
    /// approvers could approve everything alone, and read every secret.
    pub const fn may_give(self, other: Self) -> bool {
        match self {
            Self::Installation => true,
            Self::Admin => !matches!(other, Self::Installation | Self::Approver),
            Self::Operator | Self::Approver | Self::Auditor => false,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error of an unknown role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a role")]
pub struct UnknownRole(String);

impl UnknownRole {
    /// Returns what to write instead.
    pub fn hint(&self) -> String {
        let names: Vec<String> = Role::ALL.iter().map(|role| format!("`{role}`")).collect();
        format!("write one of {}", names.join(", "))
    }
}

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        let mut roles = Self::ALL.into_iter();
        let found = roles.find(|role| role.as_str() == text);
        found.ok_or_else(|| UnknownRole(text.chars().take(64).collect()))
    }
}

impl Permission {
    /// All permissions.
    pub const ALL: [Self; 6] = [
        Self::Read,
        Self::Audit,
        Self::Operate,
        Self::Approve,
        Self::Manage,
        Self::Install,
    ];

    /// Returns the name of the permission.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Audit => "audit",
            Self::Operate => "operate",
            Self::Approve => "approve",
            Self::Manage => "manage",
            Self::Install => "install",
        }
    }

    /// Returns the roles that include it, the most powerful first.
    pub fn roles(self) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().filter(move |role| role.may(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // fault U4
    #[test]
    fn a_role_has_its_own_permissions_and_no_others() {
        let table: Vec<String> = Role::ALL
            .iter()
            .map(|role| {
                let may = Permission::ALL.iter().filter(|needed| role.may(**needed));
                let may: Vec<&str> = may.map(|needed| needed.as_str()).collect();
                format!("{role}: {}", may.join(" "))
            })
            .collect();
        assert_eq!(
            table,
            [
                "installation: read audit operate approve manage install",
                "admin: read audit operate approve manage",
                "operator: read operate",
                "approver: read approve",
                "auditor: read audit",
            ]
        );
    }

    #[test]
    fn nobody_hands_out_more_than_they_have() {
        for giver in Role::ALL {
            for given in Role::ALL.into_iter().filter(|given| giver.may_give(*given)) {
                for needed in Permission::ALL {
                    assert!(!given.may(needed) || giver.may(needed), "{giver} {given}");
                }
            }
        }
        assert!(Role::ALL.iter().all(|role| !Role::Operator.may_give(*role)));
        assert!(!Role::Admin.may_give(Role::Approver));
    }

    #[test]
    fn roles_are_read_as_they_are_written() {
        for role in Role::ALL {
            assert_eq!(role.as_str().parse(), Ok(role));
        }
        assert!(
            "root"
                .parse::<Role>()
                .unwrap_err()
                .hint()
                .contains("`auditor`")
        );
    }
}
