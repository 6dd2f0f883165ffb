//! The HTTP headers of the stateless era that repeat parts of the body.
//!
//! Policy decisions use the body alone. A request whose headers contradict it is refused
//! (fault H12), because a proxy on the way may have decided by the headers.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::error::EraError;
use crate::jsonrpc::{Raw, Request};
use crate::mcp::{Method, Params};

/// The header that names the protocol version.
pub const PROTOCOL_VERSION: &str = "MCP-Protocol-Version";
/// The header that repeats the method.
pub const METHOD: &str = "Mcp-Method";
/// The header that repeats the tool's or prompt's name, or the resource's address.
pub const NAME: &str = "Mcp-Name";
/// The header of the handshake era that names the session.
pub const SESSION_ID: &str = "Mcp-Session-Id";

const SENTINEL_START: &str = "=?base64?";
const SENTINEL_END: &str = "?=";

/// All values of each mirrored header, as they arrived.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mirrored<'a> {
    /// The values of `MCP-Protocol-Version`.
    pub protocol_version: &'a [&'a str],
    /// The values of `Mcp-Method`.
    pub method: &'a [&'a str],
    /// The values of `Mcp-Name`.
    pub name: &'a [&'a str],
}

/// Checks that the headers of a stateless request agree with its body; `version` is the version
/// that the body names.
pub fn check(
    headers: Mirrored<'_>,
    (request, params): (&Request<'_>, &Params<'_>),
    version: &str,
) -> Result<(), EraError> {
    if single(PROTOCOL_VERSION, headers.protocol_version)? != version {
        return Err(EraError::HeaderMismatch {
            header: PROTOCOL_VERSION,
        });
    }
    if single(METHOD, headers.method)? != request.method {
        return Err(EraError::HeaderMismatch { header: METHOD });
    }
    let method = Method::parse(&request.method);
    if let Some(in_body) = method.and_then(|method| name_member(method, params)) {
        let in_body = in_body.and_then(Raw::string);
        let in_header = match headers.name {
            [] if in_body.is_none() => None,
            values => Some(decode(NAME, single(NAME, values)?)?),
        };
        if in_header != in_body {
            return Err(EraError::HeaderMismatch { header: NAME });
        }
    }
    Ok(())
}

/// Returns the required value of `Mcp-Name`, if the request needs one.
pub fn name_of<'a>(method: Option<Method>, params: &Params<'a>) -> Option<Cow<'a, str>> {
    name_member(method?, params)??.string()
}

/// Returns the member of the params that `Mcp-Name` repeats, if the method has one.
fn name_member<'a>(method: Method, params: &Params<'a>) -> Option<Option<Raw<'a>>> {
    if matches!(method, Method::ToolsCall | Method::PromptsGet) {
        Some(params.name)
    } else if method == Method::ResourcesRead {
        Some(params.uri)
    } else {
        None
    }
}

/// Returns the only value of a header, without the white space around it.
pub fn single<'a>(header: &'static str, values: &[&'a str]) -> Result<&'a str, EraError> {
    match values {
        [] => Err(EraError::MissingHeader { header }),
        [value] => Ok(value.trim_matches([' ', '\t'])),
        _ => Err(EraError::RepeatedHeader { header }),
    }
}

/// Decodes a header's value.
pub fn decode<'a>(header: &'static str, value: &'a str) -> Result<Cow<'a, str>, EraError> {
    let malformed = || EraError::MalformedHeader { header };
    match value
        .strip_prefix(SENTINEL_START)
        .and_then(|rest| rest.strip_suffix(SENTINEL_END))
    {
        Some(encoded) => {
            let bytes = STANDARD.decode(encoded).map_err(|_| malformed())?;
            String::from_utf8(bytes)
                .map(Cow::Owned)
                .map_err(|_| malformed())
        }
        None if is_plain(value) => Ok(Cow::Borrowed(value)),
        None => Err(malformed()),
    }
}

/// Encodes a text as a header's value, if necessary.
pub fn encode(text: &str) -> Cow<'_, str> {
    let looks_encoded = text.starts_with(SENTINEL_START) && text.ends_with(SENTINEL_END);
    if is_plain(text) && !looks_encoded && text.trim_matches([' ', '\t']) == text {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(format!(
            "{SENTINEL_START}{}{SENTINEL_END}",
            STANDARD.encode(text)
        ))
    }
}

fn is_plain(value: &str) -> bool {
    value
        .bytes()
        .all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
}
