//! The handshake with a server, in both eras: the requests, and how their responses are read.
//!
//! A server of unknown era is sent `server/discover` first; [`classify_probe_answer`] says whether
//! to continue statelessly or with `initialize`. A shared link declares no client capabilities; a
//! link for one client declares that client's.

use std::borrow::Cow;

use super::error::{HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION};
use super::meta::{Identity, SERVER_INFO, upstream_params};
use super::{Era, ProtocolVersion};
use crate::jsonrpc::{Edit, ErrorBody, Outcome, Raw, RawBuf};
use crate::mcp::ClientCapabilities;

/// What a server declares about itself.
#[derive(Debug, Clone)]
pub struct HandshakeResult<'a> {
    /// The era to use from now on.
    pub era: Era,
    /// The version to use from now on.
    pub version: ProtocolVersion,
    /// The server's name and version, as it gave them.
    pub server_info: Option<Raw<'a>>,
    /// The server's capabilities.
    pub capabilities: Raw<'a>,
    /// Its instructions for models.
    pub instructions: Option<Cow<'a, str>>,
}

/// Why a handshake response was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The result is not an object, or a member of it has the wrong type.
    #[error("the server's handshake response has no valid `{member}`")]
    Malformed {
        /// The member.
        member: &'static str,
    },
    /// The server supports only versions that Gantry does not know.
    #[error("the server supports only unknown protocol versions: `{offered}`")]
    NoCommonVersion {
        /// The versions it offered, separated by commas and truncated.
        offered: String,
    },
    /// The server is of the stateless era and refused the probe.
    #[error("the server refused `server/discover` with code {code}: `{message}`")]
    Refused {
        /// The error's code.
        code: i64,
        /// The error's message, escaped and truncated.
        message: String,
    },
}

/// What to do after the response to a probe.
#[derive(Debug, Clone)]
pub enum Probe<'a> {
    /// The server is of the stateless era; continue with this.
    Stateless(HandshakeResult<'a>),
    /// The server is of the handshake era: send `initialize`.
    Initialize,
    /// The server is of the stateless era, but there is no common version.
    Failed(HandshakeError),
}

/// Returns the params of `server/discover`.
pub fn discover_params(identity: &Identity) -> RawBuf {
    upstream_params(ProtocolVersion::LATEST, None, identity).to_buf()
}

/// Returns the params of `initialize`, with these client capabilities.
pub fn initialize_params(identity: &Identity, can: ClientCapabilities) -> RawBuf {
    let version = RawBuf::string(ProtocolVersion::LATEST_HANDSHAKE.as_str());
    let mut edit = Edit::new(Raw::EMPTY_OBJECT);
    edit.set_buf("protocolVersion", version)
        .set_buf("capabilities", can.to_json())
        .set("clientInfo", identity.info());
    edit.to_buf()
}

/// Decides from the response to `server/discover` how to continue.
///
/// A timeout or an exit of the server counts like an error of the handshake era: `initialize`.
pub fn classify_probe_answer(outcome: Outcome<'_>) -> Probe<'_> {
    match outcome {
        Outcome::Result(result) => match read_discover(result) {
            Ok(hello) => Probe::Stateless(hello),
            // The peer does not know the method and answered something unrelated.
            Err(HandshakeError::Malformed { .. }) => Probe::Initialize,
            Err(error @ HandshakeError::NoCommonVersion { .. }) => {
                let offered = result.get("supportedVersions");
                if offers_handshake(offered) {
                    Probe::Initialize
                } else {
                    Probe::Failed(error)
                }
            }
            Err(error @ HandshakeError::Refused { .. }) => Probe::Failed(error),
        },
        Outcome::Error(error) => match ErrorBody::read(error) {
            Some(body) if body.code == UNSUPPORTED_VERSION => {
                let offered = body.data.and_then(|data| data.get("supported"));
                if offers_handshake(offered) {
                    Probe::Initialize
                } else {
                    Probe::Failed(HandshakeError::NoCommonVersion {
                        offered: shown_versions(offered),
                    })
                }
            }
            Some(body) if matches!(body.code, HEADER_MISMATCH | MISSING_CAPABILITY) => {
                let message = cut(&body.message, 200);
                Probe::Failed(HandshakeError::Refused {
                    code: body.code,
                    message,
                })
            }
            _ => Probe::Initialize,
        },
    }
}

/// Reads the result of `server/discover`.
pub fn read_discover(result: Raw<'_>) -> Result<HandshakeResult<'_>, HandshakeError> {
    let versions = result
        .get("supportedVersions")
        .filter(|versions| versions.items().next().is_some())
        .ok_or(HandshakeError::Malformed {
            member: "supportedVersions",
        })?;
    let version = versions
        .items()
        .filter_map(|version| version.string()?.parse::<ProtocolVersion>().ok())
        .filter(|version| version.era() == Era::Stateless)
        .max()
        .ok_or_else(|| HandshakeError::NoCommonVersion {
            offered: shown_versions(Some(versions)),
        })?;
    let server_info = result.get("_meta").and_then(|meta| meta.get(SERVER_INFO));
    hello(result, version, server_info)
}

/// Reads the result of `initialize`.
pub fn read_initialize(result: Raw<'_>) -> Result<HandshakeResult<'_>, HandshakeError> {
    let chosen =
        result
            .get("protocolVersion")
            .and_then(Raw::string)
            .ok_or(HandshakeError::Malformed {
                member: "protocolVersion",
            })?;
    let version = chosen
        .parse::<ProtocolVersion>()
        .ok()
        .filter(|version| version.era() == Era::Handshake)
        .ok_or_else(|| HandshakeError::NoCommonVersion {
            offered: cut(&chosen, 100),
        })?;
    hello(result, version, result.get("serverInfo"))
}

fn hello<'a>(
    result: Raw<'a>,
    version: ProtocolVersion,
    server_info: Option<Raw<'a>>,
) -> Result<HandshakeResult<'a>, HandshakeError> {
    let capabilities = result
        .get("capabilities")
        .filter(|capabilities| capabilities.is_object())
        .ok_or(HandshakeError::Malformed {
            member: "capabilities",
        })?;
    Ok(HandshakeResult {
        era: version.era(),
        version,
        server_info: server_info.filter(|info| info.is_object()),
        capabilities,
        instructions: result.get("instructions").and_then(Raw::string),
    })
}

fn offers_handshake(versions: Option<Raw<'_>>) -> bool {
    versions.into_iter().flat_map(Raw::items).any(|version| {
        let version = version
            .string()
            .and_then(|text| text.parse::<ProtocolVersion>().ok());
        version.is_some_and(|version| version.era() == Era::Handshake)
    })
}

fn shown_versions(versions: Option<Raw<'_>>) -> String {
    let names: Vec<String> = versions
        .into_iter()
        .flat_map(Raw::items)
        .take(8)
        .filter_map(|version| version.string().map(|text| cut(&text, 32)))
        .collect();
    names.join(", ")
}

fn cut(text: &str, length: usize) -> String {
    text.chars()
        .take(length)
        .flat_map(char::escape_debug)
        .collect()
}

#[cfg(test)]
mod tests;
