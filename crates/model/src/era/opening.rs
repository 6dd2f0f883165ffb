//! Decides, for each request of a client, which era it uses and whether it is valid.
//!
//! A request with the stateless era's version in its `_meta` is stateless, whatever its method;
//! anything else belongs to the handshake era. Entry point: [`open`].

use std::borrow::Cow;

use super::error::EraError;
use super::headers::{self, Mirrored};
use super::meta::{CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION};
use super::{Era, ProtocolVersion, has_method};
use crate::jsonrpc::{Raw, Request};
use crate::mcp::{Method, Params};

/// The era of a request.
#[derive(Debug, Clone)]
pub enum Opening<'a> {
    /// A request of the handshake era, with the version in its header, if any; the version
    /// negotiated by its session takes precedence.
    Handshake(Option<ProtocolVersion>),
    /// A self-contained request.
    Stateless(Stateless<'a>),
}

/// The metadata of a stateless request.
#[derive(Debug, Clone)]
pub struct Stateless<'a> {
    /// Its version.
    pub version: ProtocolVersion,
    /// The client's capabilities.
    pub capabilities: Raw<'a>,
    /// The client's name and version.
    pub client_info: Option<Raw<'a>>,
    /// The minimum level of log messages.
    pub log_level: Option<Cow<'a, str>>,
}

/// Classifies a request that came over HTTP.
pub fn open<'a>(
    request: &Request<'a>,
    params: &Params<'a>,
    headers: Mirrored<'_>,
) -> Result<Opening<'a>, EraError> {
    let meta = params.meta;
    let in_body = meta.and_then(|meta| meta.get(PROTOCOL_VERSION));
    let in_header = match headers.protocol_version {
        [] => None,
        values => Some(headers::single(headers::PROTOCOL_VERSION, values)?),
    };
    let version_in_header = in_header.map(str::parse::<ProtocolVersion>);
    if let Some(raw) = in_body {
        let requested = version_text(raw)?;
        headers::check(headers, (request, params), &requested)?;
        return stateless(request, meta, &requested);
    }
    match version_in_header {
        // An `initialize` negotiates in its body; its header is ignored.
        _ if request.method == Method::Initialize.as_str() => Ok(Opening::Handshake(None)),
        Some(Ok(version)) if version.era() == Era::Handshake => {
            Ok(Opening::Handshake(Some(version)))
        }
        Some(Err(_)) => Err(EraError::UnsupportedVersion {
            requested: in_header.unwrap_or_default().chars().take(32).collect(),
        }),
        Some(Ok(_)) => Err(EraError::MissingMeta {
            key: PROTOCOL_VERSION,
        }),
        None => bare(request),
    }
}

/// Classifies a request that names no version.
fn bare<'a>(request: &Request<'_>) -> Result<Opening<'a>, EraError> {
    match Method::parse(&request.method) {
        Some(method) if !has_method(Era::Handshake, method) => Err(EraError::MissingMeta {
            key: PROTOCOL_VERSION,
        }),
        _ => Ok(Opening::Handshake(None)),
    }
}

fn stateless<'a>(
    request: &Request<'a>,
    meta: Option<Raw<'a>>,
    requested: &str,
) -> Result<Opening<'a>, EraError> {
    let version = match requested.parse::<ProtocolVersion>() {
        Ok(version) if version.era() == Era::Stateless => version,
        _ => {
            let requested = requested.chars().take(32).collect();
            return Err(EraError::UnsupportedVersion { requested });
        }
    };
    let (mut capabilities, mut client_info, mut log_level) = (None, None, None);
    for member in meta.into_iter().flat_map(Raw::members) {
        if member.is(CLIENT_CAPABILITIES) {
            capabilities = Some(object(CLIENT_CAPABILITIES, member.value)?);
        } else if member.is(CLIENT_INFO) {
            client_info = Some(object(CLIENT_INFO, member.value)?);
        } else if member.is(LOG_LEVEL) {
            log_level = member.value.string();
        }
    }
    let capabilities = capabilities.ok_or(EraError::MissingMeta {
        key: CLIENT_CAPABILITIES,
    })?;
    if let Some(method) = Method::parse(&request.method)
        && !has_method(Era::Stateless, method)
    {
        return Err(EraError::NoSuchMethod {
            method: method.as_str(),
            version,
        });
    }
    Ok(Opening::Stateless(Stateless {
        version,
        capabilities,
        client_info,
        log_level,
    }))
}

fn version_text(raw: Raw<'_>) -> Result<Cow<'_, str>, EraError> {
    raw.string().ok_or(EraError::BadMeta {
        key: PROTOCOL_VERSION,
        expected: "a string",
    })
}

fn object<'a>(key: &'static str, value: Raw<'a>) -> Result<Raw<'a>, EraError> {
    if value.is_object() {
        Ok(value)
    } else {
        Err(EraError::BadMeta {
            key,
            expected: "an object",
        })
    }
}

#[cfg(test)]
mod tests;
