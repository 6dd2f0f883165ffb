//! Limits of agents and keys in request bodies and views. Entry point: [`LimitsBody`].

use std::num::{NonZeroU32, NonZeroU64};

use gantry_model::limits::RateLimits;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How much may be used; what is not named is not limited. Each gateway counts its own calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(example = json!({"calls_per_minute": 60, "concurrency": 4}))]
pub(super) struct LimitsBody {
    /// Calls in a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1, format = "uint32")]
    calls_per_minute: Option<NonZeroU32>,
    /// Calls in an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1, format = "uint32")]
    calls_per_hour: Option<NonZeroU32>,
    /// Bytes of arguments and results in a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1, format = "uint64")]
    bytes_per_minute: Option<NonZeroU64>,
    /// Bytes of arguments and results in an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1, format = "uint64")]
    bytes_per_hour: Option<NonZeroU64>,
    /// Calls at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1, format = "uint32")]
    concurrency: Option<NonZeroU32>,
}

impl From<LimitsBody> for RateLimits {
    fn from(body: LimitsBody) -> Self {
        Self {
            calls_per_minute: body.calls_per_minute,
            calls_per_hour: body.calls_per_hour,
            bytes_per_minute: body.bytes_per_minute,
            bytes_per_hour: body.bytes_per_hour,
            concurrency: body.concurrency,
        }
    }
}

impl From<RateLimits> for LimitsBody {
    fn from(limits: RateLimits) -> Self {
        Self {
            calls_per_minute: limits.calls_per_minute,
            calls_per_hour: limits.calls_per_hour,
            bytes_per_minute: limits.bytes_per_minute,
            bytes_per_hour: limits.bytes_per_hour,
            concurrency: limits.concurrency,
        }
    }
}
