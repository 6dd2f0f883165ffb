//! Who we are to a registry.

use std::fmt;

/// What a registry or its token server is shown.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A name and a password, or a token in its place.
    Basic {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// An identity token, exchanged at the token server.
    Token(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Basic { user, .. } => write!(f, "Basic {{ user: {user:?}, .. }}"),
            Self::Token(_) => f.write_str("Token(..)"),
        }
    }
}

/// Why the credentials of a client file cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("`{place}`: {why}")]
pub struct CredentialsError {
    /// The file or the helper.
    pub place: String,
    /// What is wrong with it.
    pub why: String,
}

impl CredentialsError {
    pub(crate) fn hint(&self) -> String {
        format!(
            "repair `{}`, or give the credentials themselves",
            self.place
        )
    }
}
