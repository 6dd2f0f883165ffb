//! The parts of a registration that say where a remote server is, and what is said of single tools.

use gantry_model::spec::{ReconnectSpec, ToolSettings, TransportWish};
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
