//! Errors of administrative operations: roles, settings, projects, grants, the registration policy,
//! products.

use std::time::Duration;

use gantry_model::caller::Role;
use gantry_model::diagnose::{Diagnose, Fault};
use gantry_model::id::{ProjectName, ServerName};
use gantry_model::settings::{PolicyError, Sensitive, SettingError};
use gantry_model::spec::period;

/// Why an administrator's change was refused.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The caller may not create or revoke a key of this role.
    #[error("your role may not create or revoke a key with the role `{role}`")]
    RoleAbove {
        /// The role of that key.
        role: Role,
    },
    /// Somebody with a more powerful role has suspended it.
    #[error("this was suspended with the role `{role}`, which your role cannot undo")]
    SuspendedAbove {
        /// That role.
        role: Role,
    },
    /// An unknown setting, or an invalid value.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The project does not allow the server.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A second person must approve it.
    #[error("this needs the approval of a second person: {}", words(reasons))]
    NeedsSecondPerson {
        /// Why.
        reasons: Vec<Sensitive>,
    },
    /// The policy asks for a second person, and an admin wants to change it.
    #[error(
        "the registration policy asks for a second person, so an admin does not change it alone"
    )]
    PolicyOfInstallation,
    /// Too many changes wait for a second person.
    #[error("too many registrations wait for a second person")]
    TooManyPending,
    /// Too many holds are in force.
    #[error("the project has {limit} holds on its audit already")]
    TooManyHolds {
        /// How many there may be.
        limit: usize,
    },
    /// No such hold, or it was released.
    #[error("no hold `{id}` is in force")]
    UnknownHold {
        /// The id in the request.
        id: String,
    },
    /// No such registration.
    #[error("no registration `{id}`")]
    UnknownRegistration {
        /// The id in the request.
        id: String,
    },
    /// The requester of a change cannot approve it.
    #[error("registration `{id}` is your own: somebody else must approve it")]
    OwnRegistration {
        /// Its id.
        id: String,
    },
    /// It is already decided.
    #[error("registration `{id}` was already approved or refused")]
    RegistrationDecided {
        /// Its id.
        id: String,
    },
    /// Its stored request cannot be decrypted with the key of this data folder.
    #[error("what registration `{id}` asked for cannot be decrypted")]
    RegistrationLost {
        /// Its id.
        id: String,
    },
    /// The server is suspended.
    #[error("server `{server}` is {why}")]
    ServerSuspended {
        /// The server.
        server: ServerName,
        /// By whom, and why.
        why: String,
    },
    /// No such key, or it has ended.
    #[error("no key `{id}`")]
    UnknownKey {
        /// The id in the request.
        id: String,
    },
    /// The key was replaced by another already.
    #[error("key `{id}` was rotated already: `{by}` replaces it")]
    KeyRotated {
        /// Its id.
        id: String,
        /// The id of the key that replaces it.
        by: String,
    },
    /// A key may not be valid for so long in this project.
    #[error("keys of this project are valid for at most {}", period::show(*longest))]
    KeyLifetime {
        /// The longest time.
        longest: Duration,
    },
    /// No such call waits for an approver.
    #[error("no call `{id}` waits for an approver")]
    UnknownApproval {
        /// The id in the request.
        id: String,
    },
    /// The call is made at another gateway of the same store.
    #[error("call `{id}` is under way at another gateway (`{gateway}`), which decides on it")]
    ApprovalElsewhere {
        /// The call.
        id: String,
        /// The id of that gateway.
        gateway: String,
    },
    /// The call is not the one that was looked at.
    #[error("the arguments of call `{id}` are not those that were reviewed")]
    ApprovalChanged {
        /// The call.
        id: String,
    },
    /// No such hook.
    #[error("no hook `{name}`")]
    UnknownHook {
        /// The name in the request.
        name: String,
    },
    /// No version of it is known.
    #[error("no version of the {kind} `{tool}` is known")]
    ToolVersionUnknown {
        /// `tool`, `prompt` or `template`.
        kind: String,
        /// Its server and its name.
        tool: String,
    },
    /// What its server lists now is not the version that was decided on.
    #[error("`{tool}` is not listed in that version any more")]
    ToolVersionChanged {
        /// Its server and its name.
        tool: String,
    },
    /// No such product.
    #[error("no product `{name}` is installed")]
    UnknownProduct {
        /// The name in the request.
        name: String,
    },
    /// The installed product differs from the one the plan was made for.
    #[error("product `{name}` has changed since the plan was made")]
    ProductChanged {
        /// Its name.
        name: String,
    },
    /// The server belongs to a product.
    #[error("server `{server}` belongs to product `{product}`")]
    OfProduct {
        /// The server.
        server: ServerName,
        /// The product.
        product: String,
    },
    /// No such grant.
    #[error("no grant `{id}`")]
    UnknownGrant {
        /// The id in the request.
        id: String,
    },
    /// The project has the maximum number of grants.
    #[error("a project has at most {most} grants")]
    TooManyGrants {
        /// The maximum.
        most: usize,
    },
    /// No such group of servers.
    #[error("no group `{name}`")]
    UnknownGroup {
        /// The name in the request.
        name: String,
    },
    /// A group of that name exists.
    #[error("a group `{name}` exists already")]
    GroupExists {
        /// The name.
        name: String,
    },
    /// Grants use the group.
    #[error("the group `{name}` is used by grants")]
    GroupInUse {
        /// The name.
        name: String,
    },
    /// The group of files is defined by the configuration files.
    #[error("the group `files` is defined by the configuration files")]
    FilesGroup,
    /// The project has the maximum number of groups.
    #[error("a project has at most {most} groups")]
    TooManyGroups {
        /// The maximum.
        most: usize,
    },
    /// No such project.
    #[error("no project `{name}`")]
    UnknownProject {
        /// The name in the request.
        name: String,
    },
    /// A project of that name exists.
    #[error("a project `{name}` exists already")]
    ProjectExists {
        /// The name.
        name: ProjectName,
    },
    /// A deleted project had this name, and its record is kept.
    #[error("the name `{name}` belonged to a deleted project whose records are kept")]
    ProjectNameUsed {
        /// The name.
        name: ProjectName,
    },
    /// The project of the data folder cannot be unloaded or deleted.
    #[error("project `{name}` is the default project")]
    ProjectOfFolder {
        /// The name.
        name: ProjectName,
    },
}

fn words(reasons: &[Sensitive]) -> String {
    let words: Vec<String> = reasons
        .iter()
        .map(|reason| format!("`{}`", reason.as_str()))
        .collect();
    words.join(", ")
}

impl Diagnose for AdminError {
    fn code(&self) -> &'static str {
        match self {
            Self::RoleAbove { .. } | Self::SuspendedAbove { .. } => "auth.role",
            Self::Setting(error) => error.code(),
            Self::Policy(error) => error.code(),
            Self::NeedsSecondPerson { .. } | Self::PolicyOfInstallation => "registration.approval",
            Self::TooManyPending => "registration.too_many",
            Self::TooManyHolds { .. } => "audit.too_many_holds",
            Self::UnknownHold { .. } => "audit.unknown_hold",
            Self::UnknownRegistration { .. } => "registration.unknown",
            Self::OwnRegistration { .. } => "registration.own",
            Self::RegistrationDecided { .. } => "registration.decided",
            Self::RegistrationLost { .. } => "registration.lost",
            Self::ServerSuspended { .. } => "server.suspended",
            Self::KeyRotated { .. } => "key.rotated",
            Self::KeyLifetime { .. } => "key.lifetime",
            Self::UnknownApproval { .. } => "approval.unknown",
            Self::ApprovalElsewhere { .. } => "approval.elsewhere",
            Self::ApprovalChanged { .. } => "approval.changed",
            Self::UnknownHook { .. } => "hook.unknown",
            Self::ToolVersionUnknown { .. } => "tool.version_unknown",
            Self::ToolVersionChanged { .. } => "tool.version_changed",
            Self::UnknownProduct { .. } => "product.unknown",
            Self::ProductChanged { .. } => "product.changed",
            Self::OfProduct { .. } => "server.of_product",
            Self::UnknownGrant { .. } => "grant.unknown",
            Self::UnknownKey { .. } => "key.unknown",
            Self::TooManyGrants { .. } => "grant.too_many",
            Self::UnknownGroup { .. } => "group.unknown",
            Self::GroupExists { .. } => "group.exists",
            Self::GroupInUse { .. } => "group.in_use",
            Self::FilesGroup => "group.of_files",
            Self::TooManyGroups { .. } => "group.too_many",
            Self::UnknownProject { .. } => "project.unknown",
            Self::ProjectExists { .. } => "project.exists",
            Self::ProjectNameUsed { .. } => "project.name_used",
            Self::ProjectOfFolder { .. } => "project.of_folder",
        }
    }

    fn fault(&self) -> Fault {
        Fault::Client
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::RoleAbove { .. } => "use a key with the role `installation`",
            Self::SuspendedAbove { role } => {
                return Some(format!("ask somebody with the role `{role}`"));
            }
            Self::Setting(error) => return error.hint(),
            Self::Policy(error) => return error.hint(),
            Self::NeedsSecondPerson { .. } => "register it, and have somebody else approve it",
            Self::PolicyOfInstallation => {
                "use a key with the role `installation` to change `registration.*`"
            }
            Self::TooManyPending => "`gantry registration ls` lists them; approve or refuse some",
            Self::TooManyHolds { .. } => "release some: `gantry audit holds` lists them",
            Self::UnknownHold { .. } => "`gantry audit holds` lists them",
            Self::UnknownRegistration { .. } => "`gantry registration ls` lists them",
            Self::OwnRegistration { .. } => {
                "have an approver approve it; a key with the role `installation` makes one with `gantry \
                     key new --admin --role approver`"
            }
            Self::RegistrationDecided { .. } => return None,
            Self::RegistrationLost { .. } => "ask for it again",
            Self::ServerSuspended { server, .. } => {
                return Some(format!("resume it: `gantry resume server {server}`"));
            }
            Self::UnknownKey { .. } => "`gantry key ls` lists the active keys by id",
            Self::KeyRotated { by, .. } => return Some(format!("rotate `{by}` instead")),
            Self::KeyLifetime { .. } => {
                "ask for a shorter time, or change the setting `keys.max_lifetime`"
            }
            Self::UnknownApproval { .. } => {
                "`gantry approvals ls` lists those that wait at this gateway"
            }
            Self::ApprovalElsewhere { .. } => {
                "decide there: `gantry approvals` with `--url` of the gateway that the agent uses"
            }
            Self::ApprovalChanged { .. } => "look at it again",
            Self::UnknownHook { .. } => "`gantry hook ls` lists them",
            Self::ToolVersionUnknown { .. } => {
                "`gantry tools changes` lists what is new or changed"
            }
            Self::ToolVersionChanged { .. } => "look at it again: `gantry tools diff SERVER:TOOL`",
            Self::UnknownProduct { .. } => "`gantry product ls` lists them",
            Self::ProductChanged { .. } => "show the plan again",
            Self::OfProduct { product, .. } => {
                return Some(format!(
                    "change its manifest and run `gantry product upgrade`, or `gantry product uninstall {product}`"
                ));
            }
            Self::UnknownGrant { .. } => "`gantry grant ls` lists them",
            Self::TooManyGrants { .. } => {
                "use patterns and groups; `gantry grant ls --unused 90d` lists unused ones"
            }
            Self::UnknownGroup { .. } => "`gantry group ls` lists them",
            Self::GroupExists { name } => {
                return Some(format!("change it: `gantry group set {name}`"));
            }
            Self::GroupInUse { name } => {
                return Some(format!(
                    "remove them first: `gantry grant ls --group {name}` lists them"
                ));
            }
            Self::FilesGroup => "choose another name",
            Self::TooManyGroups { .. } => "use patterns as members",
            Self::UnknownProject { .. } => "`gantry project ls` lists them",
            Self::ProjectExists { .. } => return None,
            Self::ProjectNameUsed { .. } => {
                "choose another name: calls and acts of the deleted project would be shown in the new one"
            }
            Self::ProjectOfFolder { .. } => "stop the gateway instead",
        };
        Some(hint.to_owned())
    }
}
