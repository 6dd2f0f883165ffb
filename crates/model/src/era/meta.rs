//! The keys of `_meta` that belong to the protocol, and what of them goes upstream.
//!
//! Everything else in `_meta` belongs to the peers and passes through untouched.

use super::{Era, ProtocolVersion};
use crate::jsonrpc::{Edit, Raw, RawBuf};

/// The version of a request (stateless era, required).
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// What the client can do (stateless era, required).
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Who the client is (stateless era, recommended).
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// From which level on the client wants log messages (stateless era).
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Who answered (stateless era, on results).
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// Which subscription a notification belongs to (stateless era).
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// The token under which the asker wants progress (both eras).
pub const PROGRESS_TOKEN: &str = "progressToken";

/// The keys of a request that speak of the link it came in on, never of the one it leaves by.
const PER_REQUEST: [&str; 4] = [
    PROTOCOL_VERSION,
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
];

/// Who we are, towards servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    info: RawBuf,
}

impl Identity {
    /// Names a program and its version.
    pub fn new(name: &str, version: &str) -> Self {
        let mut edit = Edit::new(Raw::EMPTY_OBJECT);
        edit.set_buf("name", RawBuf::string(name))
            .set_buf("version", RawBuf::string(version));
        Self {
            info: edit.to_buf(),
        }
    }

    /// Names Gantry itself, in this build's version.
    pub fn gantry() -> Self {
        Self::new("gantry", env!("CARGO_PKG_VERSION"))
    }

    /// Returns the `Implementation` object.
    pub fn info(&self) -> Raw<'_> {
        self.info.as_raw()
    }
}

/// Prepares params for a server: the protocol's keys of the client's link are replaced by those
/// of ours, or removed if the server is of the handshake era.
///
/// The caller may change more (a tool's name, the progress token) before the edit is written. No
/// client capabilities are declared: a shared link offers none.
pub fn upstream_params<'a>(
    version: ProtocolVersion,
    params: Option<Raw<'a>>,
    identity: &'a Identity,
) -> Edit<'a> {
    let mut edit = Edit::new(params.unwrap_or(Raw::EMPTY_OBJECT));
    match version.era() {
        Era::Stateless => {
            edit.set_meta_buf(PROTOCOL_VERSION, RawBuf::string(version.as_str()))
                .set_meta(CLIENT_INFO, identity.info())
                .set_meta(CLIENT_CAPABILITIES, Raw::EMPTY_OBJECT);
        }
        Era::Handshake => {
            // Most params carry none of them, and then nothing needs to be rebuilt.
            let meta = params.and_then(|params| params.get("_meta"));
            for member in meta.into_iter().flat_map(Raw::members) {
                if let Some(key) = PER_REQUEST.into_iter().find(|key| member.is(key)) {
                    edit.remove_meta(key);
                }
            }
        }
    }
    edit
}
