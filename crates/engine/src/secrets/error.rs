//! Errors of named secrets. No message contains a value.

use gantry_model::diagnose::{Diagnose, Fault};
use gantry_model::secret::{SecretName, SecretNameError};
use gantry_store::StoreError;

use crate::credentials::VaultError;

/// Why a secret cannot be set, bound, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The secret does not exist.
    #[error("no secret `{name}`")]
    Unknown {
        /// The name.
        name: SecretName,
    },
    /// The name cannot be used.
    #[error(transparent)]
    Name(#[from] SecretNameError),
    /// The value cannot be used.
    #[error("the value cannot be used: {why}")]
    Value {
        /// The reason.
        why: &'static str,
    },
    /// The origin cannot be used.
    #[error("`{url}` is not an http or https URL with a host")]
    Origin {
        /// The given URL.
        url: String,
    },
    /// The secret is bound to too many servers.
    #[error("a secret is bound to at most {most} servers")]
    Bindings {
        /// The limit.
        most: usize,
    },
    /// The caller may not bind a secret without knowing its value.
    #[error("binding the secret `{name}` without its value needs an approver")]
    Forbidden {
        /// The secret.
        name: SecretName,
    },
    /// The secret was changed concurrently, repeatedly.
    #[error("the secret `{name}` is being changed by others")]
    Changed {
        /// The secret.
        name: SecretName,
    },
    /// The vault cannot encrypt or decrypt.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl From<StoreError> for SecretError {
    fn from(error: StoreError) -> Self {
        Self::Vault(error.into())
    }
}

impl Diagnose for SecretError {
    fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "secret.unknown",
            Self::Name(_) | Self::Value { .. } | Self::Origin { .. } | Self::Bindings { .. } => {
                "secret.invalid"
            }
            Self::Forbidden { .. } => "secret.needs_approver",
            Self::Changed { .. } => "secret.changed",
            Self::Vault(error) => error.code(),
        }
    }

    fn fault(&self) -> Fault {
        match self {
            Self::Vault(error) => error.fault(),
            Self::Unknown { .. }
            | Self::Name(_)
            | Self::Value { .. }
            | Self::Origin { .. }
            | Self::Bindings { .. }
            | Self::Forbidden { .. }
            | Self::Changed { .. } => Fault::Client,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { name } => Some(format!("set it: `gantry secret set {name}`")),
            Self::Forbidden { name } => Some(format!(
                "set it again, which proves that you know it: `gantry secret set {name} --server SERVER`; \
                 or ask an approver"
            )),
            Self::Changed { .. } => Some("try again".into()),
            Self::Vault(error) => error.hint(),
            Self::Name(_) | Self::Value { .. } | Self::Origin { .. } | Self::Bindings { .. } => {
                None
            }
        }
    }
}
