//! What a request of the stateless era can get wrong, with the codes the specification fixes.
//!
//! Every variant is answered with HTTP 400, a missing method with 404.

use super::ProtocolVersion;
use crate::diagnose::{Diagnose, Fault};
use crate::jsonrpc::{INVALID_PARAMS, METHOD_NOT_FOUND, RawBuf};

/// The code of a header that does not agree with the body.
pub const HEADER_MISMATCH: i64 = -32020;
/// The code of a capability the client did not declare.
pub const MISSING_CAPABILITY: i64 = -32021;
/// The code of a version the server does not support.
pub const UNSUPPORTED_VERSION: i64 = -32022;
/// The code of the handshake era for an unknown resource.
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// The code of the handshake era if a person must visit a URL first.
pub const URL_ELICITATION_REQUIRED: i64 = -32042;

/// Why a request violates its era's rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EraError {
    /// A required key of `_meta` is absent.
    #[error("`_meta` lacks the required key `{key}`")]
    MissingMeta {
        /// The key.
        key: &'static str,
    },
    /// A key of `_meta` has the wrong type.
    #[error("key `{key}` of `_meta` must be {expected}")]
    BadMeta {
        /// The key.
        key: &'static str,
        /// The expected type.
        expected: &'static str,
    },
    /// The version is unknown, or not supported without a handshake.
    #[error("unsupported protocol version `{requested}`")]
    UnsupportedVersion {
        /// The requested version.
        requested: String,
    },
    /// A required header is absent.
    #[error("required header `{header}` is missing")]
    MissingHeader {
        /// The header.
        header: &'static str,
    },
    /// A header is there more than once.
    #[error("header `{header}` is given more than once")]
    RepeatedHeader {
        /// The header.
        header: &'static str,
    },
    /// A header's value cannot be read.
    #[error("header `{header}` has a malformed value")]
    MalformedHeader {
        /// The header.
        header: &'static str,
    },
    /// A header contradicts the body.
    #[error("header `{header}` does not match the body")]
    HeaderMismatch {
        /// The header.
        header: &'static str,
    },
    /// The method does not exist in this era.
    #[error("method `{method}` is not part of protocol version {version}")]
    NoSuchMethod {
        /// The method.
        method: &'static str,
        /// The protocol version of the request.
        version: ProtocolVersion,
    },
}

impl EraError {
    /// Returns the JSON-RPC error code.
    pub fn rpc_code(&self) -> i64 {
        match self {
            Self::MissingMeta { .. } | Self::BadMeta { .. } => INVALID_PARAMS,
            Self::UnsupportedVersion { .. } => UNSUPPORTED_VERSION,
            Self::MissingHeader { .. }
            | Self::RepeatedHeader { .. }
            | Self::MalformedHeader { .. }
            | Self::HeaderMismatch { .. } => HEADER_MISMATCH,
            Self::NoSuchMethod { .. } => METHOD_NOT_FOUND,
        }
    }

    /// Returns the HTTP status the specification fixes.
    pub fn http_status(&self) -> u16 {
        match self {
            Self::NoSuchMethod { .. } => 404,
            Self::MissingMeta { .. }
            | Self::BadMeta { .. }
            | Self::UnsupportedVersion { .. }
            | Self::MissingHeader { .. }
            | Self::RepeatedHeader { .. }
            | Self::MalformedHeader { .. }
            | Self::HeaderMismatch { .. } => 400,
        }
    }

    /// Returns the `data` of the error response, if the specification requires one.
    pub fn data(&self) -> Option<RawBuf> {
        let Self::UnsupportedVersion { requested } = self else {
            return None;
        };
        let supported = ProtocolVersion::STATELESS.map(ProtocolVersion::as_str);
        RawBuf::serialize(&serde_json::json!({ "supported": supported, "requested": requested }))
            .ok()
    }
}

impl Diagnose for EraError {
    fn code(&self) -> &'static str {
        match self {
            Self::MissingMeta { .. } | Self::BadMeta { .. } => "era.meta",
            Self::UnsupportedVersion { .. } => "era.version",
            Self::MissingHeader { .. }
            | Self::RepeatedHeader { .. }
            | Self::MalformedHeader { .. }
            | Self::HeaderMismatch { .. } => "era.header",
            Self::NoSuchMethod { .. } => "era.method",
        }
    }

    fn fault(&self) -> Fault {
        Fault::Client
    }
}
