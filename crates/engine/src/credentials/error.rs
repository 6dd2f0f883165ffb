//! Errors of a sign-in: between a remote server, its authorization server and the person who signs
//! in.

use gantry_model::diagnose::{Diagnose, Fault};
use gantry_model::id::ServerName;
use gantry_model::secret::Redactor;
use gantry_store::StoreError;
use rmcp::transport::auth::AuthError;

use super::vault::key::VaultError;

/// Why there is no token for a remote server.
#[derive(Debug, thiserror::Error)]
pub enum SignInError {
    /// A person must sign in.
    #[error("server `{server}` needs a sign-in: {why}")]
    Needed {
        /// The server.
        server: ServerName,
        /// Why it is needed now.
        why: String,
    },
    /// The granted scopes do not suffice for this request.
    #[error("server `{server}` wants more than was granted: scope `{scope}`")]
    Scope {
        /// The server.
        server: ServerName,
        /// The missing scope.
        scope: String,
    },
    /// The server does not use sign-ins.
    #[error("server `{server}` does not support sign-in: {why}")]
    NotTaken {
        /// The server.
        server: ServerName,
        /// Why not.
        why: &'static str,
    },
    /// The authorization server cannot be found, reached or understood.
    #[error("the authorization server of `{server}` cannot be used: {why}")]
    Unavailable {
        /// The server.
        server: ServerName,
        /// What went wrong.
        why: String,
    },
    /// The authorization server, or the person, refused.
    #[error("the sign-in to `{server}` was refused: {why}")]
    Refused {
        /// The server.
        server: ServerName,
        /// The reason given.
        why: String,
    },
    /// The answer came from an unexpected authorization server.
    #[error(
        "the answer to the sign-in to `{server}` came from `{received}` instead of `{expected}`"
    )]
    Issuer {
        /// The server.
        server: ServerName,
        /// The issuer that was asked.
        expected: String,
        /// The issuer named in the answer.
        received: String,
    },
    /// The server names another authorization server than the configured client is bound to.
    #[error(
        "server `{server}` has moved from the authorization server `{was}` to `{now}`, which the \
         configured client is not shown to"
    )]
    Moved {
        /// The server.
        server: ServerName,
        /// The authorization server that the client is bound to.
        was: String,
        /// The authorization server that is named now.
        now: String,
        /// The option of `gantry auth` that accepts the move.
        way: &'static str,
    },
    /// The configured secret is not known to belong to the authorization server that is named.
    #[error(
        "server `{server}` names the authorization server `{issuer}`, which is not at its own host, \
         and nothing says that the client secret is for that one"
    )]
    Unnamed {
        /// The server.
        server: ServerName,
        /// The authorization server that is named.
        issuer: String,
    },
    /// The answer matches no pending sign-in.
    #[error("no sign-in matches this answer: it is unknown, already used, or too late")]
    Unknown,
    /// The vault cannot encrypt or decrypt.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// Stored values cannot be decrypted with the current key.
    #[error("stored tokens of `{server}` cannot be decrypted")]
    Sealed {
        /// The server.
        server: ServerName,
    },
    /// The store failed.
    #[error("the tokens of a remote server cannot be read or kept")]
    Store(#[from] StoreError),
}

impl SignInError {
    /// Converts an error of the OAuth client; never quotes a token.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the OAuth client may add kinds; what needs no word of its own is one kind here"
    )]
    pub(super) fn of(server: &ServerName, error: AuthError) -> Self {
        let server = server.clone();
        match error {
            AuthError::AuthorizationServerMismatch {
                expected_issuer,
                received_issuer,
            } => Self::Issuer {
                server,
                expected: expected_issuer,
                received: short(&received_issuer),
            },
            AuthError::AuthorizationServerMissingIssuer { expected_issuer } => Self::Issuer {
                server,
                expected: expected_issuer,
                received: String::new(),
            },
            AuthError::TokenExchangeFailed(why)
            | AuthError::AuthorizationFailed(why)
            | AuthError::ClientCredentialsError(why)
            | AuthError::TokenRefreshRejected(why) => Self::Refused {
                server,
                why: short(&why),
            },
            other => Self::Unavailable {
                server,
                why: short(&other.to_string()),
            },
        }
    }

    /// Redacts secrets in text from other parties.
    pub(super) fn hidden(mut self, redactor: &Redactor) -> Self {
        let texts: &mut [&mut String] = match &mut self {
            Self::Needed { why, .. }
            | Self::Unavailable { why, .. }
            | Self::Refused { why, .. } => &mut [why],
            Self::Scope { scope, .. } => &mut [scope],
            Self::Issuer {
                expected, received, ..
            } => &mut [expected, received],
            Self::Moved { was, now, .. } => &mut [was, now],
            Self::Unnamed { issuer, .. } => &mut [issuer],
            Self::NotTaken { .. }
            | Self::Unknown
            | Self::Vault(_)
            | Self::Sealed { .. }
            | Self::Store(_) => &mut [],
        };
        for text in texts {
            **text = redactor.redact(text).into_owned();
        }
        self
    }

    /// Returns whether a person must act.
    pub(crate) fn needs_person(&self) -> bool {
        matches!(self, Self::Needed { .. })
    }
}

/// Shortens a text from another party to one line.
pub(super) fn short(text: &str) -> String {
    const LONGEST: usize = 300;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let harmless = line.chars().filter(|letter| !letter.is_control());
    harmless.take(LONGEST).collect()
}

impl Diagnose for SignInError {
    fn code(&self) -> &'static str {
        match self {
            Self::Needed { .. } => "sign_in.needed",
            Self::Scope { .. } => "sign_in.scope",
            Self::NotTaken { .. } => "sign_in.not_taken",
            Self::Unavailable { .. } => "sign_in.unavailable",
            Self::Refused { .. } => "sign_in.refused",
            Self::Issuer { .. } => "sign_in.issuer",
            Self::Moved { .. } => "sign_in.moved",
            Self::Unnamed { .. } => "sign_in.unnamed",
            Self::Unknown => "sign_in.unknown",
            Self::Vault(error) => error.code(),
            Self::Sealed { .. } => "sign_in.sealed",
            Self::Store(error) => error.code(),
        }
    }

    fn fault(&self) -> Fault {
        match self {
            Self::NotTaken { .. } | Self::Unknown => Fault::Client,
            Self::Needed { .. }
            | Self::Scope { .. }
            | Self::Unavailable { .. }
            | Self::Refused { .. }
            | Self::Issuer { .. }
            | Self::Moved { .. }
            | Self::Unnamed { .. } => Fault::Server,
            Self::Vault(error) => error.fault(),
            Self::Sealed { .. } => Fault::Gateway,
            Self::Store(error) => error.fault(),
        }
    }

    fn server(&self) -> Option<&str> {
        if let Self::Sealed { server } = self {
            Some(server.as_str())
        } else {
            None
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Needed { server, .. } => Some(format!("run `gantry auth {server}`")),
            Self::Sealed { server } => Some(format!(
                "put the old `data.key` back, or forget what was kept with \
                 `gantry auth {server} --remove`"
            )),
            Self::Scope { server, .. } => Some(format!(
                "run `gantry auth {server}`, which asks for it in addition"
            )),
            Self::Unavailable { .. } => Some(
                "is the server's URL right? What it says of signing in is at \
                 `/.well-known/oauth-protected-resource` of its address"
                    .into(),
            ),
            Self::Refused { server, .. } | Self::Issuer { server, .. } => {
                Some(format!("sign in again with `gantry auth {server}`"))
            }
            Self::Moved { server, way, .. } => Some(format!(
                "if the move is right, name the new one in `auth.issuer` of `{server}`, or run \
                 `gantry auth {server} {way}`"
            )),
            Self::Unnamed { server, issuer } => Some(format!(
                "if the client was registered there, write `\"issuer\": \"{issuer}\"` into `auth` \
                 of `{server}`"
            )),
            Self::Unknown => Some("sign in again with `gantry auth SERVER`".into()),
            Self::Vault(error) => error.hint(),
            Self::NotTaken { .. } => None,
            Self::Store(error) => error.hint(),
        }
    }
}
