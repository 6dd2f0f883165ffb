//! The parts of a registration that say where a remote server is, and what is said of single tools.

use std::fmt;

use gantry_model::spec::{AuthKind, ReconnectSpec, RemoteAuth, ToolSettings, TransportWish};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::form::Period;

/// How the messages of a remote server travel.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TransportName {
    /// As the server wants it.
    #[default]
    Auto,
    /// Streamable HTTP, of either era.
    #[serde(alias = "http", alias = "streamableHttp")]
    StreamableHttp,
    /// HTTP with SSE, as of 2024-11-05.
    Sse,
}

impl From<TransportName> for TransportWish {
    fn from(name: TransportName) -> Self {
        match name {
            TransportName::Auto => Self::Auto,
            TransportName::StreamableHttp => Self::StreamableHttp,
            TransportName::Sse => Self::Sse,
        }
    }
}

impl From<TransportWish> for TransportName {
    fn from(wish: TransportWish) -> Self {
        match wish {
            TransportWish::Auto => Self::Auto,
            TransportWish::StreamableHttp => Self::StreamableHttp,
            TransportWish::Sse => Self::Sse,
        }
    }
}

/// Who signs in to a remote server.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum AuthName {
    /// A person, once, if the server asks for it.
    #[default]
    Auto,
    /// Nobody.
    None,
    /// The gateway itself, with a client id and a secret.
    ClientCredentials,
}

/// How a remote server is signed in to.
#[derive(Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AuthBody {
    /// Who signs in.
    kind: AuthName,
    /// The client that was registered by hand with the authorization server.
    client_id: Option<String>,
    /// Its secret, which is never shown.
    client_secret: Option<String>,
    /// The authorization server that the client is known to; the client is shown to no other.
    issuer: Option<String>,
    /// Where the document stands that describes this gateway as a client.
    client_metadata_url: Option<String>,
    /// What is asked for; what the server says it needs, if this is left out.
    scopes: Vec<String>,
}

impl fmt::Debug for AuthBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthBody")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl AuthBody {
    pub(super) fn into_spec(self) -> RemoteAuth {
        RemoteAuth {
            kind: match self.kind {
                AuthName::Auto => AuthKind::Auto,
                AuthName::None => AuthKind::None,
                AuthName::ClientCredentials => AuthKind::ClientCredentials,
            },
            client_id: self.client_id,
            client_secret: self.client_secret,
            issuer: self.issuer,
            client_metadata_url: self.client_metadata_url,
            scopes: self.scopes,
        }
    }

    pub(super) fn of(spec: &RemoteAuth) -> Self {
        Self {
            kind: match spec.kind {
                AuthKind::Auto => AuthName::Auto,
                AuthKind::None => AuthName::None,
                AuthKind::ClientCredentials => AuthName::ClientCredentials,
            },
            client_id: spec.client_id.clone(),
            client_secret: spec.client_secret.clone(),
            issuer: spec.issuer.clone(),
            client_metadata_url: spec.client_metadata_url.clone(),
            scopes: spec.scopes.clone(),
        }
    }
}

/// When a remote server is reached for again.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReconnectBody {
    /// The longest first wait; each wait is drawn between nothing and its bound.
    first: Option<Period>,
    /// The longest wait of all, to which the first doubles.
    longest: Option<Period>,
    /// How many failed connects in a row keep everybody away for a while.
    #[schema(minimum = 1, maximum = 100)]
    failures: Option<u32>,
    /// How long that is; then one try decides.
    away: Option<Period>,
    /// How long a connection must hold for its predecessors to be forgotten.
    steady: Option<Period>,
}

impl ReconnectBody {
    pub(super) fn into_spec(self) -> ReconnectSpec {
        let default = ReconnectSpec::default();
        let or = |given: Option<Period>, default| given.map_or(default, |period| period.0);
        ReconnectSpec {
            first: or(self.first, default.first),
            longest: or(self.longest, default.longest),
            failures: self.failures.unwrap_or(default.failures),
            away: or(self.away, default.away),
            steady: or(self.steady, default.steady),
        }
    }

    pub(super) fn of(spec: &ReconnectSpec) -> Self {
        Self {
            first: Some(Period(spec.first)),
            longest: Some(Period(spec.longest)),
            failures: Some(spec.failures),
            away: Some(Period(spec.away)),
            steady: Some(Period(spec.steady)),
        }
    }
}

/// What an administrator says of one tool. row 3.4
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ToolBody {
    /// Its longest silence, in the place of the server's.
    timeout: Option<Period>,
    /// Whether calling it twice does no more than calling it once, so that a call that was cut off
    /// may be made again.
    idempotent: bool,
}

impl ToolBody {
    pub(super) fn into_spec(self) -> ToolSettings {
        ToolSettings {
            timeout: self.timeout.map(|period| period.0),
            idempotent: self.idempotent,
        }
    }

    pub(super) fn of(settings: &ToolSettings) -> Self {
        Self {
            timeout: settings.timeout.map(Period),
            idempotent: settings.idempotent,
        }
    }
}
