//! What can go wrong between us and a registry.

use std::time::Duration;

use crate::credentials::CredentialsError;
use crate::digest::Digest;
use crate::error::Responsible;
use crate::platform::Platform;

/// Why a registry did not give what was asked for, or gave something else.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// No connection, or one that broke.
    #[error("no connection to `{origin}`: {why}")]
    Unreachable {
        /// Scheme, host and port.
        origin: String,
        /// What the network said.
        why: String,
    },
    /// The address policy forbids to connect there.
    #[error("{what} leads to `{host}`, which is not allowed: {why}")]
    AddressRefused {
        /// What leads there: the registry, a redirect, its token server.
        what: &'static str,
        /// The name or address.
        host: String,
        /// What the policy says.
        why: String,
    },
    /// Nothing came, or too little.
    #[error("{what}: {got} bytes came within {waited:?}, which is too slow")]
    Slow {
        /// What was being fetched.
        what: String,
        /// How long was waited for more.
        waited: Duration,
        /// How much came in that time.
        got: u64,
    },
    /// The pull took too long, although something came all the time.
    #[error("the whole pull did not end within {limit:?}")]
    Deadline {
        /// How long it may take.
        limit: Duration,
    },
    /// There is no such image, tag, manifest or blob.
    #[error("the registry has no {what}")]
    NotFound {
        /// What was asked for.
        what: String,
    },
    /// We may not have it.
    #[error("the registry refuses access: {why}")]
    Unauthorized {
        /// Whether we showed credentials.
        shown: bool,
        /// What it says.
        why: String,
    },
    /// We asked too often.
    #[error("the registry accepts no more requests for now (429)")]
    RateLimited {
        /// How long it wants us to wait.
        retry_after: Option<Duration>,
    },
    /// An answer that is none.
    #[error("the registry answered {status} to the request for {what}")]
    Status {
        /// What was asked for.
        what: String,
        /// The HTTP status.
        status: u16,
    },
    /// A redirect that cannot be followed.
    #[error("the registry redirects the request for {what} in a way that is not followed: {why}")]
    Redirect {
        /// What was asked for.
        what: String,
        /// Why not.
        why: String,
    },
    /// The token server gave none.
    #[error("no token from `{realm}`: {why}")]
    Token {
        /// Where the registry sent us.
        realm: String,
        /// What happened.
        why: String,
    },
    /// More than we take.
    #[error("{what} is larger than the limit of {limit} bytes")]
    TooLarge {
        /// Which part.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// More of them than we take.
    #[error("the image has {got} layers, more than the limit of {limit}")]
    TooManyLayers {
        /// How many it has.
        got: usize,
        /// The limit.
        limit: usize,
    },
    /// Another length than was said before.
    #[error("{what} has {got} bytes instead of {expected}")]
    Length {
        /// Which part.
        what: String,
        /// What its descriptor says.
        expected: u64,
        /// What came, or was announced.
        got: u64,
    },
    /// Another content than was named.
    #[error("{what} has the digest `{got}` instead of `{expected}`{note}")]
    Digest {
        /// Which part.
        what: String,
        /// What it was named by.
        expected: Digest,
        /// What came.
        got: Digest,
        /// What may explain it, in parentheses after a space, or nothing.
        note: String,
    },
    /// A manifest, index or configuration that is not one.
    #[error("{what} is not valid: {why}")]
    Invalid {
        /// Which part.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// Made for other machines.
    #[error("the image is not made for {wanted}, only for: {offered}")]
    NoPlatform {
        /// What was wanted.
        wanted: Platform,
        /// What there is.
        offered: String,
    },
    /// The credentials could not be got.
    #[error("no credentials for it")]
    Credentials(#[source] CredentialsError),
    /// The client for HTTP cannot be made.
    #[error("the HTTP client cannot be set up: {why}")]
    Setup {
        /// What is missing.
        why: String,
    },
    /// Whoever asked has cancelled.
    #[error("cancelled")]
    Cancelled,
}

impl RegistryError {
    pub(crate) fn responsible(&self) -> Responsible {
        match self {
            Self::AddressRefused { .. }
            | Self::NotFound { .. }
            | Self::Unauthorized { .. }
            | Self::NoPlatform { .. }
            | Self::Credentials(_)
            | Self::Cancelled => Responsible::User,
            Self::Unreachable { .. }
            | Self::Slow { .. }
            | Self::Deadline { .. }
            | Self::RateLimited { .. }
            | Self::Status { .. }
            | Self::Redirect { .. }
            | Self::Token { .. }
            | Self::Length { .. }
            | Self::Digest { .. } => Responsible::Registry,
            Self::TooLarge { .. } | Self::TooManyLayers { .. } | Self::Invalid { .. } => {
                Responsible::Image
            }
            Self::Setup { .. } => Responsible::Host,
        }
    }

    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Unreachable { .. }
            | Self::Slow { .. }
            | Self::Deadline { .. }
            | Self::Setup { .. } => "image.unreachable",
            Self::AddressRefused { .. } => "image.address_refused",
            Self::NotFound { .. } => "image.not_found",
            Self::Unauthorized { .. } | Self::Credentials(_) => "image.unauthorized",
            Self::RateLimited { .. } => "image.rate_limited",
            Self::Status { .. } | Self::Redirect { .. } | Self::Token { .. } => "image.registry",
            Self::TooLarge { .. } | Self::TooManyLayers { .. } => "image.too_large",
            Self::Digest { .. } => "image.digest",
            Self::Length { .. } | Self::Invalid { .. } => "image.invalid",
            Self::NoPlatform { .. } => "image.platform",
            Self::Cancelled => "image.cancelled",
        }
    }

    pub(crate) fn hint(&self, registry: &str) -> Option<String> {
        let hint = match self {
            Self::Unreachable { .. } | Self::Slow { .. } | Self::Deadline { .. } => {
                format!(
                    "is `{registry}` reachable from this machine? Try again; layers that are here are kept"
                )
            }
            Self::AddressRefused { .. } => format!(
                "if `{registry}` is meant to be in a private network, allow private addresses for it; else do not use this registry"
            ),
            Self::NotFound { .. } => {
                format!(
                    "check the spelling and the tag; a private image of `{registry}` may need credentials to be found"
                )
            }
            Self::Unauthorized { shown: true, .. } => {
                format!(
                    "check that the credentials for `{registry}` are valid and may pull this image"
                )
            }
            Self::Unauthorized { shown: false, .. } => {
                format!(
                    "give credentials for `{registry}`, or check the spelling: registries refuse names that do not exist"
                )
            }
            Self::RateLimited { retry_after } => match retry_after {
                Some(after) => format!(
                    "try again in {} s; with credentials `{registry}` may allow more",
                    after.as_secs()
                ),
                None => format!("try again later; with credentials `{registry}` may allow more"),
            },
            Self::Status { .. } => format!("try again; if it stays, ask whoever runs `{registry}`"),
            Self::Redirect { .. } | Self::Token { .. } => {
                format!(
                    "ask whoever runs `{registry}`: it is set up wrongly, or is not to be trusted"
                )
            }
            Self::TooLarge { .. } | Self::TooManyLayers { .. } => {
                "use a smaller image, or raise the limits for images".to_owned()
            }
            Self::Length { .. } | Self::Digest { .. } => format!(
                "nothing of it was kept. Try again; if it stays, `{registry}` or something on the way to it alters content"
            ),
            Self::Invalid { .. } => {
                "build and push the image again with current tools; nothing of it was kept"
                    .to_owned()
            }
            Self::NoPlatform { wanted, .. } => {
                format!("use an image that is built for {wanted}")
            }
            Self::Credentials(error) => error.hint(),
            Self::Setup { .. } => {
                "check the proxy and the certificates that are configured".to_owned()
            }
            Self::Cancelled => return None,
        };
        Some(hint)
    }
}
