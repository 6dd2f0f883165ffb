//! How we greet a server and read its greeting, in both eras.
//!
//! A server of unknown era is asked `server/discover` first; [`classify_probe_answer`] says
//! whether to go on statelessly or with `initialize`. A link that all share declares no client
//! capabilities; one for a client that can be asked declares what that one can.

use std::borrow::Cow;

use super::error::{HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION};
use super::meta::{Identity, SERVER_INFO, upstream_params};
use super::{Era, ProtocolVersion};
use crate::jsonrpc::{Edit, ErrorBody, Outcome, Raw, RawBuf};
use crate::mcp::ClientCapabilities;

/// What a server said about itself.
#[derive(Debug, Clone)]
pub struct HandshakeResult<'a> {
    /// The era to speak from now on.
    pub era: Era,
    /// The version to speak from now on.
    pub version: ProtocolVersion,
    /// The server's name and version, as it gave them.
    pub server_info: Option<Raw<'a>>,
    /// What the server can do.
    pub capabilities: Raw<'a>,
    /// What it tells models about its use.
    pub instructions: Option<Cow<'a, str>>,
}

/// Why a greeting was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The result is not an object, or a member of it has the wrong type.
    #[error("the server's greeting lacks a usable `{member}`")]
    Malformed {
        /// The member.
        member: &'static str,
    },
    /// The server chose or offered only versions we do not know.
    #[error("the server speaks only protocol versions unknown to us: `{offered}`")]
    NoCommonVersion {
        /// What it offered, separated by commas and cut.
        offered: String,
    },
    /// The server is of the stateless era and refused the probe.
    #[error("the server refused `server/discover` with code {code}: `{message}`")]
    Refused {
        /// The error's code.
        code: i64,
        /// The error's message, escaped and cut.
        message: String,
    },
}

/// What to do after a probe was answered.
#[derive(Debug, Clone)]
pub enum Probe<'a> {
    /// The server is of the stateless era; go on with this.
    Stateless(HandshakeResult<'a>),
    /// The server is of the handshake era, or wants to be: send `initialize`.
    Initialize,
    /// The server is of the stateless era, but nothing can be agreed.
    Failed(HandshakeError),
}

/// Returns the params of the `server/discover` we send.
pub fn discover_params(identity: &Identity) -> RawBuf {
    upstream_params(ProtocolVersion::LATEST, None, identity).to_buf()
}

/// Returns the params of the `initialize` we send, on behalf of clients that can do this.
pub fn initialize_params(identity: &Identity, can: ClientCapabilities) -> RawBuf {
    let version = RawBuf::string(ProtocolVersion::LATEST_HANDSHAKE.as_str());
    let mut edit = Edit::new(Raw::EMPTY_OBJECT);
    edit.set_buf("protocolVersion", version)
        .set_buf("capabilities", can.to_json())
        .set("clientInfo", identity.info());
    edit.to_buf()
}

/// Decides from the answer to our `server/discover` how to go on.
///
/// Silence and the server's death count like an error of the handshake era: `initialize`.
pub fn classify_probe_answer(outcome: Outcome<'_>) -> Probe<'_> {
    match outcome {
        Outcome::Result(result) => match read_discover(result) {
            Ok(hello) => Probe::Stateless(hello),
            // Something answered that does not know the method for what it is.
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
