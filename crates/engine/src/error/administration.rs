//! Errors of administering projects: roles, settings, and whatever else an administrator may not do or
//! got wrong.

use gantry_model::caller::Role;
use gantry_model::diagnose::{Diagnose, Fault};
use gantry_model::settings::SettingError;

/// Why an administrator's change was refused.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// A key of a role that whoever asks may not hand out or take away.
    #[error("a key with the role `{role}` is not yours to make or to end")]
    RoleAbove {
        /// The role of that key.
        role: Role,
    },
    /// A setting that there is not, or a value that it does not take.
    #[error(transparent)]
    Setting(#[from] SettingError),
}

impl Diagnose for AdminError {
    fn code(&self) -> &'static str {
        match self {
            Self::RoleAbove { .. } => "auth.role",
            Self::Setting(error) => error.code(),
        }
    }

    fn fault(&self) -> Fault {
        Fault::Client
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::RoleAbove { .. } => Some("ask whoever manages the installation".into()),
            Self::Setting(error) => error.hint(),
        }
    }
}
