//! Errors of communication with a registry.

use std::time::Duration;

use crate::credentials::CredentialsError;
use crate::digest::Digest;
use crate::error::Responsible;
use crate::platform::Platform;

/// Why a registry request failed.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The connection failed or broke.
    #[error("no connection to `{origin}`: {why}")]
    Unreachable {
        /// Scheme, host and port.
        origin: String,
        /// The error of the network.
        why: String,
    },
    /// The address policy forbids the connection.
    #[error("{what} leads to `{host}`, which is not allowed: {why}")]
    AddressRefused {
        /// The origin of the address: the registry, a redirect, the token server.
        what: &'static str,
        /// The name or address.
        host: String,
        /// The reason given by the policy.
        why: String,
    },
    /// The transfer stalled or was too slow.
    #[error("{what}: too slow, {got} bytes within {waited:?}")]
    Slow {
        /// The content that was fetched.
        what: String,
        /// How long it was waited for.
        waited: Duration,
        /// How many bytes arrived in that time.
        got: u64,
    },
    /// The pull took too long, although data kept arriving.
    #[error("the pull took longer than {limit:?}")]
    Deadline {
        /// The time limit.
        limit: Duration,
    },
    /// The image, tag, manifest or blob does not exist.
    #[error("the registry has no {what}")]
    NotFound {
        /// The requested content.
        what: String,
    },
    /// The registry denied access.
    #[error("the registry refuses access: {why}")]
    Unauthorized {
        /// Whether credentials were sent.
        shown: bool,
        /// The registry's message.
        why: String,
    },
    /// The registry's rate limit is exceeded.
    #[error("the registry accepts no more requests for now (429)")]
    RateLimited {
        /// The pause that it asks for.
        retry_after: Option<Duration>,
    },
    /// An unexpected status.
    #[error("the registry answered {status} to the request for {what}")]
    Status {
        /// The requested content.
        what: String,
        /// The HTTP status.
        status: u16,
    },
    /// A redirect that cannot be followed.
    #[error("the registry's redirect of the request for {what} is refused: {why}")]
    Redirect {
        /// The requested content.
        what: String,
        /// The reason.
        why: String,
    },
    /// The token server returned no token.
    #[error("no token from `{realm}`: {why}")]
    Token {
        /// The token server named by the registry.
        realm: String,
        /// The cause.
        why: String,
    },
    /// The content exceeds a size limit.
    #[error("{what} is larger than the limit of {limit} bytes")]
    TooLarge {
        /// The content.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// The image has more layers than allowed.
    #[error("the image has {got} layers, more than the limit of {limit}")]
    TooManyLayers {
        /// The number of layers.
        got: usize,
        /// The limit.
        limit: usize,
    },
    /// The content has another length than declared.
    #[error("{what} has {got} bytes instead of {expected}")]
    Length {
        /// The content.
        what: String,
        /// The length in its descriptor.
        expected: u64,
        /// The received or announced length.
        got: u64,
    },
    /// The content does not match its digest.
    #[error("{what} has the digest `{got}` instead of `{expected}`{note}")]
    Digest {
        /// The content.
        what: String,
        /// The expected digest.
        expected: Digest,
        /// The digest of the received content.
        got: Digest,
        /// A possible explanation, in parentheses after a space, or empty.
        note: String,
    },
    /// An invalid manifest, index or configuration.
    #[error("{what} is not valid: {why}")]
    Invalid {
        /// The document.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// The image is not available for the platform.
    #[error("the image is not available for {wanted}, only for: {offered}")]
    NoPlatform {
        /// The required platform.
        wanted: Platform,
        /// The available platforms.
        offered: String,
    },
    /// The credentials could not be read.
    #[error("cannot read the credentials for it")]
    Credentials(#[source] CredentialsError),
    /// The HTTP client cannot be created.
    #[error("the HTTP client cannot be set up: {why}")]
    Setup {
        /// The cause.
        why: String,
    },
    /// The caller cancelled the request.
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
            Self::Status { .. } => {
                format!("try again; if it persists, contact the operator of `{registry}`")
            }
            Self::Redirect { .. } | Self::Token { .. } => {
                format!(
                    "contact the operator of `{registry}`: it is set up wrongly, or is not to be trusted"
                )
            }
            Self::TooLarge { .. } | Self::TooManyLayers { .. } => {
                "use a smaller image, or raise the limits for images".to_owned()
            }
            Self::Length { .. } | Self::Digest { .. } => format!(
                "nothing of it was kept. Try again; if it persists, `{registry}` or something on the way to it alters content"
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
